"""One change as lines: what, how far, canary against baseline, guards, history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from enginetop.fleet.change import FINAL_STATES, Arm, AuditRow, ChangeState, ChangeView
from enginetop.fleet.frozen import frozen
from enginetop.fleet.snapshot import Distribution, Slo
from tui.view import numbers
from tui.view.cells import (
    EMPTY_LINE,
    UNKNOWN,
    Line,
    Span,
    clip,
    cut_end,
    fit,
    merge,
    plain,
    spread,
    width_of,
    wrap_text,
)
from tui.view.change_words import (
    STATE_INK,
    VERDICT_INK,
    diff_text,
    expiry_text,
    soak_text,
    state_text,
    state_words,
    time_left,
    verdict_text,
)
from tui.view.figures import WIDE, Lines
from tui.view.picture import Picture
from tui.view.severity import GLYPH_OF, Severity
from tui.view.title import badges

_LABEL_WIDTH = 15
_STATE_WIDTH = 15
_NAME_WIDTHS = (12, 20)
"""Of the rows of the history: on a narrow terminal, and on a wide one."""


def change_title(picture: Picture, change_id: str, change: ChangeView | None, width: int) -> Line:
    """Which change, where, how far; None: nothing but its rows is known."""
    left = [Span(f" change {change_id}", "title")]
    if change is not None:
        left.append(Span(f" · {picture.name_of(change.canary_target)} · "))
        left.append(Span(state_text(change), STATE_INK[change.state]))
    return spread(left, badges(picture), width)


def change_lines(picture: Picture, change: ChangeView, width: int) -> list[Line]:
    """Everything about a change, none of the lines wider than `width`."""
    lines = [
        *_head(picture, change, width),
        EMPTY_LINE,
        *_arms(picture, change, width),
        *_guards(change, width),
        plain(" history, newest first", "head"),
        *history_lines(picture, change.history, width),
    ]
    return [clip(line, width) for line in lines]


def _head(picture: Picture, change: ChangeView, width: int) -> Lines:
    followers = " ".join(map(picture.name_of, change.promote_targets))
    then = f", then {followers}" if followers else ", and no other"
    diff = f"{diff_text(change.before, change.after)}  "
    first = " ".join(map(picture.name_of, (change.canary_target, *change.together)))
    if len(change.promote_targets) > 1 and width_of(f" {change.knob}  {diff}on {first}{then}") > width:
        then = f", then {len(change.promote_targets)} others"  # a name that is cut off could be any
    yield (Span(f" {change.knob}  ", "title"), Span(diff), Span(f"on {first}{then}", "dim"))
    age = picture.changes_age_seconds
    blocks = f"block {change.block} of {change.blocks}" if change.state is ChangeState.OBSERVE else ""
    progress = " · ".join(part for part in (blocks, time_left(change, age)) if part)
    if progress:
        yield plain(f" {progress}")
    soak = soak_text(change, age)
    if soak:
        yield plain(f" {soak}")
    expiry = expiry_text(change, age)
    if expiry:
        yield plain(f" {expiry}")
    for text in wrap_text(change.detail, width - 2) if change.detail else ():
        yield plain(f" {text}", STATE_INK[change.state] if change.state in FINAL_STATES else "text")


@frozen
class _Side:
    """The replicas of one side, and what they have shown."""

    label: str
    urls: tuple[str, ...]
    arm: Arm | None


def _arms(picture: Picture, change: ChangeView, width: int) -> Lines:
    canary = _Side("canary", (change.canary_target, *change.together), change.canary)
    others = change.baseline.targets if change.baseline is not None else ()
    baseline = _Side("baseline", others, change.baseline)
    cell = 34 if width >= WIDE else 22
    heads = (_side_head(picture, side, cell) for side in (canary, baseline))
    yield (Span(" " * (_LABEL_WIDTH + 1), "head"), Span("".join(heads), "head"))
    yield (
        _row_label("SLO attainment"),
        *(_attainment(side.arm, cell) for side in (canary, baseline)),
        _verdict(change),
    )
    slo = picture.snapshot.fleet.slo if picture.snapshot is not None else Slo()
    replica = picture.replica(change.canary_target)
    slo = replica.slo if replica is not None else slo
    for label, signal, limit in (
        ("TTFT p95", "ttft_seconds", slo.ttft_seconds),
        ("TPOT p95", "tpot_seconds", slo.tpot_seconds),
    ):
        yield (
            _row_label(label),
            *(_latency(picture, side.urls, signal, limit, cell) for side in (canary, baseline)),
            Span(f"SLO {numbers.seconds_text(limit)}", "dim"),
        )
    yield EMPTY_LINE


def _row_label(text: str) -> Span:
    return Span(f" {text:<{_LABEL_WIDTH}}", "head")


def _side_head(picture: Picture, side: _Side, cell: int) -> str:
    room = cell - 1 - len(side.label)
    names = " ".join(picture.name_in(url, max(room // len(side.urls) - 1, 4)) for url in side.urls)
    return fit(cut_end(f"{side.label} {names}", cell - 1), cell)


def _attainment(arm: Arm | None, cell: int) -> Span:
    ratio = arm.attainment_ratio if arm is not None else None
    if arm is None or ratio is None:
        return Span(fit(UNKNOWN, cell), "dim")
    return Span(fit(f"{numbers.fine_percent(ratio)} % of {arm.requests:.0f}", cell))


def _verdict(change: ChangeView) -> Span:
    if change.verdict is None:
        return Span("judged at the end" if change.state not in FINAL_STATES else "not judged", "dim")
    return Span(verdict_text(change.verdict), VERDICT_INK[change.verdict])


def _latency(picture: Picture, urls: Sequence[str], signal: str, limit: float, cell: int) -> Span:
    """The p95 of a side; of several replicas the least and the greatest, for quantiles have no mean."""
    found: list[tuple[float, str]] = []
    for url in urls:
        replica = picture.replica(url)
        value = replica.signals.get(signal) if replica is not None else None
        quantile = numbers.quantile_of(value, "p95")
        number = numbers.quantile_number(quantile)
        if number is not None and isinstance(value, Distribution):
            text = numbers.bounded(quantile, numbers.seconds_text)
            found.append((number, numbers.marked(text, value.quality)))
    if not found:
        return Span(fit(UNKNOWN, cell), "dim")
    least, greatest = min(found), max(found)
    text = numbers.between(least[1], greatest[1])
    return Span(fit(text, cell), "warn" if greatest[0] > limit else "text")


def _guards(change: ChangeView, width: int) -> Lines:
    if not change.guards:
        return
    yield plain(" guards", "head")
    name_width = max(len(guard.name) for guard in change.guards)
    for guard in change.guards:
        severity = Severity.OK if guard.ok else Severity.CRIT
        mark = Span(
            f" {GLYPH_OF[severity]} {'ok     ' if guard.ok else 'TRIPPED'} ", "ok" if guard.ok else "crit"
        )
        words = wrap_text(guard.detail, max(width - name_width - 13, 8))
        for number, text in enumerate(words):
            lead = (
                (mark, Span(f"{guard.name:<{name_width}} "))
                if not number
                else (Span(" " * (name_width + 12)),)
            )
            yield (*lead, Span(text, "dim" if guard.ok else "crit"))
    yield EMPTY_LINE


def history_lines(picture: Picture, rows: Sequence[AuditRow], width: int) -> Iterator[Line]:
    """The audit rows of one change, the newest first: what happens now must be in sight."""
    name_width = _NAME_WIDTHS[width >= WIDE]
    indent = 10 + _STATE_WIDTH + 1 + name_width + 1
    for row in reversed(rows):
        words = wrap_text(row.detail or diff_text(row.before, row.after), max(width - indent, 16))
        name = picture.name_cell(row.target, name_width)
        yield merge(
            (
                Span(f" {numbers.time_of_day(row.at)} ", "dim"),
                Span(f"{state_words(row.state):<{_STATE_WIDTH}} ", STATE_INK[row.state]),
                Span(f"{name} "),
                Span(words[0]),
            )
        )
        for text in words[1:]:
            yield plain(" " * indent + text)
    if not rows:
        yield plain(" nothing yet", "dim")
