"""Reasoning of the whole fleet: how long models think, against which budget, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from enginetop.fleet.snapshot import Distribution, ReplicaSnapshot, Scalar
from enginetop.fleet.thinking import budget_of
from themes.loader import Ink
from tui.view import numbers
from tui.view.advice import ACTIONABLE, advice_of, verdict_text
from tui.view.cells import UNKNOWN, Line, Span, fit
from tui.view.engines import absence
from tui.view.figures import WIDE, Signalled, short_figure, signal_of
from tui.view.page import MODEL_UNKNOWN, ModelGroup, by_reason, groups_of, heading, paragraph, wrapped
from tui.view.picture import NOTHING_YET, Picture
from tui.view.rows import Row, Rows

_KNOB = "thinking_token_budget"
_NAME_WIDTHS = (11, 24)
_QUANTILES = ("p50", "p95", "p99")
_NARROW = 60
_SIGNS = (("p99", "◆"), ("p95", "○"), ("p50", "●"))
_SHORTEST_RULER = 24


def reasoning_rows(picture: Picture, width: int) -> Rows[str]:
    """A row for each replica whose reasoning is counted, by model; the others, and why, at the end."""
    return Rows(_rows(picture, width), width)


def reasons(replica: ReplicaSnapshot) -> bool:
    """Whether anything is known of reasoning, be it only why the count says nothing."""
    tokens = signal_of(replica, "reasoning_tokens")
    return isinstance(tokens, Distribution) and tokens.count is not None


def ruler(marks: Sequence[tuple[float, str]], budget: float | None, top: float, width: int) -> Line:
    """Quantiles on a scale from 0 to `top`, each a sign at its place, and a line where the budget is.

    Signs share a cell where they are that close: the last one is seen.
    """
    if width <= 0 or top <= 0 or not marks:
        return ()

    def place(value: float) -> int:
        share = value / top
        return min(int(min(max(share, 0.0), 1.0) * width), width - 1) if math.isfinite(share) else width - 1

    reach = max(place(value) for value, _ in marks)
    cells: list[tuple[str, Ink]] = [("─", "spark") if at <= reach else (" ", "text") for at in range(width)]
    if budget is not None:
        cells[place(budget)] = ("┊", "warn")
    for value, sign in marks:
        cells[place(value)] = (sign, "text")
    return tuple(Span(sign, ink) for sign, ink in cells)


def _rows(picture: Picture, width: int) -> Iterator[Row[str]]:
    snapshot = picture.snapshot
    if snapshot is None:
        yield from paragraph(NOTHING_YET, width)
        return
    if not any(map(reasons, snapshot.replicas)):
        yield from paragraph(
            f"no replica tells of reasoning: of {numbers.many(len(snapshot.replicas), 'replica')} none "
            "counts reasoning tokens on its page; a log of single requests or the companion "
            "in the engine can tell",
            width,
        )
        yield Row(())
    name_width = 8 if width < _NARROW else _NAME_WIDTHS[width >= WIDE]
    for group in groups_of(picture):
        yield from _group(picture, group, name_width, width)
    yield from _others(snapshot.replicas, width)


def _group(picture: Picture, group: ModelGroup, name_width: int, width: int) -> Iterator[Row[str]]:
    members = [replica for replica in group.replicas if reasons(replica)]
    if not members:
        return
    yield heading(f"{group.model or MODEL_UNKNOWN} · {numbers.many(len(members), 'replica')}", width)
    cells = _quantile_width(narrow=width < _NARROW)
    quantiles = "".join(f"{name:>{cells}}" for name in _QUANTILES)
    titles = f"{quantiles}{'share %':>8}{'budget':>7}{'hit %':>6}"
    titles += "" if width < _NARROW else f"{'count':>7}{'KV tok':>8}"
    room = width - name_width - len(titles) - 4
    top = max([*_known(member for member in members), *(budget_of(m.config) or 0.0 for m in members)])
    scale = f"  ● p50  ○ p95  ◆ p99  ┊ budget, 0 to {numbers.count(top)}" if room >= _SHORTEST_RULER else ""
    yield Row((Span(f" {fit('tokens', name_width)}{titles}{scale}", "head"),))
    if group.summary is not None and len(members) > 1:
        line = (
            Span(f" {fit('all', name_width)}", "dim"),
            *_figures(group.summary, None, narrow=width < _NARROW),
        )
        yield Row((*line, *_ruler(group.summary, None, top, room)))
    told = {replica.target.url: _notes(replica) for replica in members}
    common = [note for note in told[members[0].target.url] if all(note in one for one in told.values())]
    if common and len(members) > 1:
        yield from paragraph("all of them: " + "; ".join(common), width)
    else:
        common = []
    for replica in members:
        url, budget = replica.target.url, budget_of(replica.config)
        name = f"{picture.name_cell(url, name_width - 1)} "
        drawn = partial(_line, replica, name, budget, top, room, narrow=width < _NARROW)
        yield Row(drawn, url, url)
        own = [note for note in told[url] if note not in common]
        for further in _further(replica, own, name_width, width):
            yield Row(further, url, url, more=True)


def _line(
    replica: ReplicaSnapshot, name: str, budget: float | None, top: float, room: int, *, narrow: bool
) -> Line:
    figures = _figures(replica, budget, narrow=narrow)
    return (Span(f" {name}"), *figures, *_ruler(replica, budget, top, room))


def _known(members: Iterable[ReplicaSnapshot]) -> list[float]:
    """The largest known quantile of each."""
    found = [0.0]
    for member in members:
        for name in _QUANTILES:
            number = numbers.quantile_number(numbers.quantile_of(signal_of(member, "reasoning_tokens"), name))
            found.append(number or 0.0)
    return found


def _quantile_width(*, narrow: bool) -> int:
    return 6 if narrow else 7


def _figures(of: Signalled, budget: float | None, *, narrow: bool) -> Iterator[Span]:
    tokens = signal_of(of, "reasoning_tokens")
    for name in _QUANTILES:
        quantile = numbers.quantile_of(tokens, name)
        number = numbers.quantile_number(quantile)
        text = numbers.bounded(quantile, numbers.count)
        if isinstance(tokens, Distribution):
            text = numbers.marked(text, tokens.quality)
        over = budget is not None and number is not None and number >= budget
        yield Span(
            f"{text:>{_quantile_width(narrow=narrow)}}",
            "dim" if number is None else "warn" if over else "text",
        )
    yield short_figure(of, "reasoning_share_ratio", numbers.percent, 8)
    yield Span(f"{numbers.knob(budget):>7}", "text" if budget is not None else "dim")
    yield short_figure(of, "reasoning_budget_hit_ratio", numbers.fine_percent, 6)
    if not narrow:
        count = tokens.count if isinstance(tokens, Distribution) else None
        yield Span(f"{numbers.count(count):>7}", "dim")
        yield short_figure(of, "reasoning_kv_tokens", numbers.count, 8)


def quantile_marks(of: Signalled) -> list[tuple[float, str]]:
    """The known quantiles of reasoning with their signs, as `ruler` draws them."""
    tokens = signal_of(of, "reasoning_tokens")
    known = ((numbers.quantile_number(numbers.quantile_of(tokens, name)), sign) for name, sign in _SIGNS)
    return [(number, sign) for number, sign in known if number is not None]


def _ruler(of: Signalled, budget: float | None, top: float, room: int) -> Line:
    if room < _SHORTEST_RULER:
        return ()
    return (Span("  "), *ruler(quantile_marks(of), budget, top, min(room, 80)))


def _notes(replica: ReplicaSnapshot) -> list[str]:
    """Where the figures are from, what is not known and why; each once."""
    told = []
    tokens = signal_of(replica, "reasoning_tokens")
    if isinstance(tokens, Distribution) and tokens.note:
        told.append(tokens.note)
    for name, what in (("reasoning_budget_hit_ratio", "at the budget"), ("reasoning_share_ratio", "share")):
        value = signal_of(replica, name)
        if isinstance(value, Scalar) and value.note and value.note not in told:
            told.append(f"{what}: {value.note}")
    return told


def _further(replica: ReplicaSnapshot, notes: Sequence[str], name_width: int, width: int) -> Iterator[Line]:
    """What is to be said of its figures, and what the rule says."""
    room = max(width - name_width - 3, 16)
    indent = " " * (name_width + 1)
    for text in wrapped("; ".join(notes), room, 2) if notes else ():
        yield (Span(f"{indent}  {text}", "dim"),)
    advice = advice_of(replica, _KNOB)
    if advice is not None and advice.action in ACTIONABLE:
        for text in wrapped(verdict_text(advice), room, 3):
            yield (Span(f"{indent}  {text}", "info"),)


def _others(replicas: Sequence[ReplicaSnapshot], width: int) -> Iterator[Row[str]]:
    """Whose reasoning is not counted, by the reason."""
    missing = (
        (one.target.name, absence(signal_of(one, "reasoning_tokens"), one.engine) or UNKNOWN)
        for one in replicas
        if not reasons(one)
    )
    return by_reason("not counted", missing, width)
