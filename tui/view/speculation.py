"""Speculative decoding of the whole fleet: what is drafted, what of it is taken, and what the rule says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from enginetop.fleet.snapshot import ReplicaSnapshot, Scalar
from themes.loader import Ink
from tui.view import charts, numbers
from tui.view.advice import ACTIONABLE, advice_of, verdict_text
from tui.view.cells import UNKNOWN, Line, Span, fit
from tui.view.engines import absence
from tui.view.figures import WIDE, Signalled, number_of, setting, short_figure
from tui.view.page import MODEL_UNKNOWN, ModelGroup, by_reason, groups_of, heading, paragraph, wrapped
from tui.view.picture import NOTHING_YET, Picture
from tui.view.rows import Row, Rows

_KNOB = "num_speculative_tokens"
_NAME_WIDTHS = (11, 24)
_MOST_POSITIONS = 4
"""On a terminal that is not wide."""
_NARROW = 60


def speculation_rows(picture: Picture, width: int) -> Rows[str]:
    """A row for each replica that speculates, by model; who does not, and why, at the end."""
    return Rows(_rows(picture, width), width)


def speculates(replica: ReplicaSnapshot) -> bool:
    """Whether drafts were counted in the window, or are configured."""
    return number_of(replica, "spec_accepted_length") is not None or bool(setting(replica, _KNOB))


def by_position(of: Signalled) -> tuple[float, ...]:
    """Unconditional acceptance of each draft position; empty where it is not known."""
    value = of.signals.get("spec_acceptance_per_position")
    return value.value if isinstance(value, Scalar) and isinstance(value.value, tuple) else ()


def conditionals(acceptance: Sequence[float]) -> tuple[float | None, ...]:
    """The chance of each position given that the one before was taken: a(i) / a(i - 1), the first is itself.

    None where the one before was never taken.
    """
    before = (1.0, *acceptance)
    return tuple(
        min(now / then, 1.0) if then > 0 else None for now, then in zip(acceptance, before, strict=False)
    )


def saved_ratio(length: float | None) -> float | None:
    """The share of tokens that cost no step of their own: of `length` tokens a step, all but one."""
    return None if length is None or length < 1 else 1.0 - 1.0 / length


def _rows(picture: Picture, width: int) -> Iterator[Row[str]]:
    snapshot = picture.snapshot
    if snapshot is None:
        yield from paragraph(NOTHING_YET, width)
        return
    speculating = [replica for replica in snapshot.replicas if speculates(replica)]
    if not speculating:
        yield from paragraph(
            f"no replica speculates: of {numbers.many(len(snapshot.replicas), 'replica')} none has a draft "
            "length configured, and none counted a draft in the window",
            width,
        )
        yield Row(())
    least, greatest = _NAME_WIDTHS
    name_width = greatest if width >= WIDE else least
    for group in groups_of(picture):
        yield from _group(picture, group, name_width, width)
    yield from _others(snapshot.replicas, width)


def _group(picture: Picture, group: ModelGroup, name_width: int, width: int) -> Iterator[Row[str]]:
    members = [replica for replica in group.replicas if speculates(replica)]
    if not members:
        return
    count = f"{len(members)} of {len(group.replicas)} speculate"
    yield heading(f"{group.model or MODEL_UNKNOWN} · {count}", width)
    titles = f"{'k':>4}{'length':>8}{'taken %':>9}"
    titles += "  " if width < _NARROW else f"{'saved %':>9}{'free/s':>8}  "
    yield Row((Span(f" {fit('replica', name_width)}{titles}taken at position 1, 2, ...", "head"),))
    if group.summary is not None and len(members) > 1:
        yield Row((Span(f" {fit('all', name_width)}{UNKNOWN:>4}", "dim"), *_figures(group.summary, width)))
    for replica in members:
        url = replica.target.url
        drafts = numbers.knob(setting(replica, _KNOB))
        name = picture.name_cell(url, name_width - 1)
        line = (Span(f" {name} "), Span(f"{drafts:>4}"), *_figures(replica, width))
        yield Row(line, url, url)
        for further in (_chances(replica, name_width), *_verdict(replica, name_width, width)):
            if further:
                yield Row(further, url, url, more=True)


def _figures(of: Signalled, width: int) -> Iterator[Span]:
    length = number_of(of, "spec_accepted_length")
    saved = saved_ratio(length)
    tokens = number_of(of, "generation_tokens_per_second")
    free = None if saved is None or tokens is None else saved * tokens
    yield short_figure(of, "spec_accepted_length", _two_decimals, 8)
    yield short_figure(of, "spec_acceptance_ratio", numbers.percent, 9)
    if width >= _NARROW:
        told: Ink = "dim" if saved is None else "text"
        yield Span(f"{numbers.percent(saved):>9}{numbers.count(free):>8}", told)
    taken = by_position(of)
    shown = taken if width >= WIDE else taken[:_MOST_POSITIONS]
    if not taken:
        yield Span(f"  {UNKNOWN}", "dim")
        return
    yield Span("  " + charts.spark(taken, len(taken), 1.0), "spark")
    yield Span(" " + " ".join(map(_two_decimals, shown)))
    yield Span(f" +{len(taken) - len(shown)}" if len(taken) > len(shown) else "", "dim")


def _chances(replica: ReplicaSnapshot, name_width: int) -> Line:
    """How good the next draft is once the one before was taken: what one more position can bring."""
    chances = conditionals(by_position(replica))
    if not chances:
        return ()
    listed = " ".join(UNKNOWN if one is None else _two_decimals(one) for one in chances)
    return (Span(f" {' ' * name_width}  each, once the one before is taken  {listed}", "dim"),)


def _verdict(replica: ReplicaSnapshot, name_width: int, width: int) -> Iterator[Line]:
    advice = advice_of(replica, _KNOB)
    if advice is None:
        return
    ink: Ink = "info" if advice.action in ACTIONABLE else "dim"
    room = max(width - name_width - 3, 16)
    for text in wrapped(verdict_text(advice), room, 3):
        yield (Span(f" {' ' * name_width}  {text}", ink),)


def _others(replicas: Sequence[ReplicaSnapshot], width: int) -> Iterator[Row[str]]:
    """Who does not speculate, by the reason."""
    missing = (
        (one.target.name, absence(one.signals.get("spec_accepted_length"), one.engine) or "no draft")
        for one in replicas
        if not speculates(one)
    )
    return by_reason("does not speculate", missing, width)


def _two_decimals(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2f}".removeprefix("0") if value < 1 else f"{value:.2f}"
