"""A report: findings as JSON (`enginetop.doctor/1`) and as lines for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from enginetop.doctor.facts import EngineFacts, Missing, TargetFacts
from enginetop.doctor.finding import Finding, Level, worst
from enginetop.doctor.target import seconds_text, size_text
from enginetop.fleet.frozen import frozen

SCHEMA = "enginetop.doctor/1"

EXIT_CODES = {Level.OK: 0, Level.INFO: 0, Level.WARNING: 1, Level.ERROR: 2}
"""Exit code by the gravest level."""

_GLYPHS = {Level.OK: "●", Level.INFO: "·", Level.WARNING: "▲", Level.ERROR: "✖"}
_FULL_TARGETS = 2
"""Up to as many targets are told in full; of more only one line each, and what needs somebody."""
_LABEL_WIDTH = 12
_SHORTER = {"credentials": "secrets"}
"""Areas that are too long for their column."""
_WIDEST = 120
_WIDEST_NAME = 40

Json = dict[str, Any]


@frozen
class Report:
    """What a run of doctor found: `here` about this side, `targets` with their own findings."""

    at: float
    here: tuple[Finding, ...]
    targets: tuple[tuple[TargetFacts, tuple[Finding, ...]], ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings in the order in which they are told."""
        return (*self.here, *(one for _, group in self.targets for one in group))

    @property
    def level(self) -> Level:
        """The gravest level."""
        return worst(self.findings)

    @property
    def exit_code(self) -> int:
        """0: nothing is wrong, 1: warnings, 2: errors."""
        return EXIT_CODES[self.level]


def document(report: Report) -> Json:
    """The report as JSON; every key is always there."""
    return {
        "schema": SCHEMA,
        "at": report.at,
        "status": report.level.value if report.level is not Level.INFO else Level.OK.value,
        "code": report.exit_code,
        "counts": {level.value: sum(f.level is level for f in report.findings) for level in Level},
        "findings": [
            {"area": f.area, "target": f.target or None, "level": f.level.value, "what": f.what, "fix": f.fix}
            for f in report.findings
        ],
        "targets": [_target(facts) for facts, _ in report.targets],
    }


def _target(facts: TargetFacts) -> Json:
    return {
        "target": facts.url,
        "name": facts.name,
        "stages": [
            {"name": s.name, "seconds": s.seconds, "detail": s.detail, "problem": s.problem}
            for s in facts.stages
        ],
        "pages": [
            {
                "path": page.path,
                "status": page.status,
                "error": page.error or None,
                "seconds": page.seconds,
                "size_bytes": page.size_bytes,
                "content_type": page.content_type,
            }
            for page in facts.pages
        ],
        "scrape_seconds": facts.scrape_seconds,
        "clock_skew_seconds": facts.skew_seconds,
        "failure": None if facts.failure is None else str(facts.failure.kind),
        "engine": None if facts.engine is None else _engine(facts.engine),
        "admin": None if facts.surface is None else facts.surface.openness.value,
    }


def _engine(engine: EngineFacts) -> Json:
    return {
        "kind": engine.kind.value,
        "version": engine.version,
        "model": engine.model,
        "role": engine.role.value,
        "stack": engine.stack,
        "state": engine.state.value,
        "simulated": engine.simulated,
        "ranks": engine.ranks,
        "bad_lines": engine.bad_lines,
        "read": list(engine.read),
        "pending": list(engine.pending),
        "missing": [_missing(one) for one in engine.missing],
        "suspect": [_missing(one) for one in engine.suspect],
        "config": {key: {"value": one.value, "source": one.source} for key, one in engine.config.items()},
    }


def _missing(one: Missing) -> Json:
    return {"signal": one.signal, "reason": one.reason, "enable": one.enable}


def lines(report: Report, width: int) -> list[str]:
    """The report as text: what is wrong stands in its place, with its fix on a line of its own."""
    shown = list(_headline(report))
    shown += _block("", report.here, width)
    full = len(report.targets) <= _FULL_TARGETS
    names = min(_WIDEST_NAME, max((len(facts.name) for facts, _ in report.targets), default=0))
    for facts, findings in report.targets:
        if full:
            shown += _block(facts.name, findings, width)
        else:
            first, *grave = _short(facts, findings)
            shown += _wrapped(f"{facts.name:<{names}}  {_GLYPHS[first.level]} ", first.what, width)
            shown += _block("", grave, width)
    if not full:
        notes = sum(f.level is Level.INFO for _, group in report.targets for f in group)
        if notes:
            plural = "note" if notes == 1 else "notes"
            shown.append(f"{notes} {plural} on targets left out; --format json has them")
    return shown


def _headline(report: Report) -> Iterator[str]:
    counts = [
        f"{number} {word}{'' if number == 1 else 's'}"
        for level, word in ((Level.ERROR, "error"), (Level.WARNING, "warning"))
        if (number := sum(f.level is level for f in report.findings))
    ]
    asked = len(report.targets)
    targets = f"{asked} target{'' if asked == 1 else 's'}"
    yield f"enginetop doctor: {', '.join(counts) or 'nothing wrong'}; {targets}"


def _short(facts: TargetFacts, findings: Sequence[Finding]) -> list[Finding]:
    """What is read of a target in one finding, then what is wrong."""
    grave = [f for f in findings if f.level in (Level.WARNING, Level.ERROR)]
    engine = next((f.what for f in findings if f.area == "engine" and f.level is Level.OK), "")
    if not engine:
        return [Finding("engine", worst(findings), "nothing is read of it"), *grave]
    pages = sum(page.size_bytes for page in facts.pages)
    took = (
        "" if facts.scrape_seconds is None else f", {seconds_text(facts.scrape_seconds)}, {size_text(pages)}"
    )
    return [Finding("engine", Level.OK, engine + took), *grave]


def _block(name: str, findings: Sequence[Finding], width: int) -> Iterator[str]:
    width = max(40, min(width, _WIDEST))
    if name:
        yield name
    label = ""
    for finding in findings:
        area = _SHORTER.get(finding.area, finding.area) if finding.area != label else ""
        head = f"  {area:<{_LABEL_WIDTH - 2}}"
        label = finding.area
        yield from _wrapped(f"{head}{_GLYPHS[finding.level]} ", finding.what, width)
        if finding.fix:
            yield from _wrapped(" " * (_LABEL_WIDTH + 2) + "→ ", finding.fix, width)


def _wrapped(head: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_on_hyphens=False,
    ) or [head.rstrip()]
