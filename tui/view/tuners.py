"""The list of the tuners' screen: changes under way, pools, suggestions, and what is left alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from enginetop.fleet.change import ChangeView
from enginetop.fleet.snapshot import PoolAdvice
from themes.loader import Ink
from tui.view.advice import Suggestion, change_text, reason_text
from tui.view.cells import Line, Span, clip, cut_middle, fit, plain, spread, width_of
from tui.view.change_words import STATE_INK, diff_text, state_text, time_left, verdict_text
from tui.view.figures import WIDE
from tui.view.left_alone import LeftAlone, left_alone_in
from tui.view.numbers import many
from tui.view.page import heading, page_title, paragraph
from tui.view.picture import NOTHING_YET, Picture
from tui.view.pool import actionable, pool_change, pool_key, pool_name, pools_of
from tui.view.rows import Row, Rows

Listed = ChangeView | PoolAdvice | Suggestion | LeftAlone
"""What a row of the list stands for."""

_NAME_WIDTHS = (11, 28)
"""Least and, on a wide terminal, greatest width of a name; on a narrow one there is room for the least."""

_WORD_WIDTH = 8
_STATE_WIDTH = 16
_DIFF_WIDTH = 15
_KNOB_WIDTH = 22


def suggestion_key(url: str, knob: str) -> str:
    """The key of a suggestion's row."""
    return f"suggestion {knob} {url}"


def left_alone_key(action: str, knob: str) -> str:
    """The key of a row of what is left alone."""
    return f"left alone {action} {knob}"


def change_key(change_id: str) -> str:
    """The key of a change's row."""
    return f"change {change_id}"


def tuners_rows(picture: Picture, width: int, only: str | None = None) -> Rows[Listed]:
    """The rows under their headings. `only`: the target URL of the one replica to show, or None."""
    return Rows(_rows(picture, width, only), width)


def _rows(picture: Picture, width: int, only: str | None) -> Iterator[Row[Listed]]:
    changes = [change for change in picture.changes if only is None or _touches(change, only)]
    pools, suggestions = pools_of(picture, only), _suggestions(picture, only)
    left_alone = left_alone_in(picture, only)
    name_width = _name_width(picture, changes, suggestions, width)
    if changes:
        yield heading("changes", width)
        for change in changes:
            yield from _change_rows(picture, change, name_width, width)
    if picture.snapshot is not None and not (changes or pools or suggestions or left_alone):
        yield from paragraph("nothing to judge: no engine's page was read yet; key 1 says why", width)
    calm = not any(map(actionable, pools))
    if calm:  # the cursor begins at what can be carried out
        yield from _suggested(picture, suggestions, name_width, width, "suggestions")
    if pools:
        yield heading("pools", width)
        for pool in pools:
            yield from _pool_rows(pool, max(width * 2 // 5, 24))
    if not calm:
        yield from _suggested(picture, suggestions, name_width, width, "suggestions for single replicas")
    if left_alone:
        yield heading("left as it is", width)
        for group in left_alone:
            yield _left_alone_row(picture, group, name_width)


def _suggested(
    picture: Picture, suggestions: Sequence[Suggestion], name_width: int, width: int, title: str
) -> Iterator[Row[Listed]]:
    if suggestions:
        yield heading(title, width)
        for suggestion in suggestions:
            yield from _suggestion_rows(picture, suggestion, name_width)


def _suggestions(picture: Picture, only: str | None) -> list[Suggestion]:
    return [one for one in picture.suggestions if only in (None, one.replica.target.url)]


def _touches(change: ChangeView, url: str) -> bool:
    return url in (change.canary_target, *change.together, *change.promote_targets)


def _name_width(
    picture: Picture, changes: Sequence[ChangeView], suggestions: Sequence[Suggestion], width: int
) -> int:
    least, greatest = _NAME_WIDTHS
    if width < WIDE:
        return least
    names = [suggestion.replica.target.name for suggestion in suggestions]
    names += [picture.name_of(change.canary_target) for change in changes]
    return max(least, min(max(map(width_of, names), default=0), greatest))


def _change_rows(
    picture: Picture, change: ChangeView, name_width: int, width: int
) -> Iterator[Row[ChangeView]]:
    key, ink = change_key(change.id), STATE_INK[change.state]
    left = (
        Span(f"{picture.name_cell(change.canary_target, name_width)} ", "title"),
        Span(f"{fit(state_text(change), _STATE_WIDTH)} ", ink),
        Span(f"{fit(diff_text(change.before, change.after), _DIFF_WIDTH)} {change.knob}"),
    )
    right = plain(time_left(change, picture.changes_age_seconds))
    if change.verdict is not None:
        right = plain(verdict_text(change.verdict), ink)
    yield Row((Span(" "), *spread(left, right, width - 2)), key, change)
    if change.detail:
        yield Row(plain(f"   {change.detail}", "dim" if ink == "ok" else ink), key, more=True)


def _pool_rows(pool: PoolAdvice, name_width: int) -> Iterator[Row[PoolAdvice]]:
    """A row for each knob that is to be changed for the whole pool; one row where none is."""
    name = Span(f" {fit(cut_middle(pool_name(pool), name_width), name_width)} ", "title")
    found = actionable(pool)
    for advice in found:
        key = f"{pool_key(pool)} · {advice.knob}"
        line = (
            name,
            Span(fit(advice.action, _WORD_WIDTH), "info"),
            Span(f"{advice.knob} {pool_change(advice)}  "),
            Span(f"{advice.apply.replace('_', ' ')}  {advice.confidence}", "dim"),
        )
        yield Row(line, key, pool)
        yield Row(plain(f"   {reason_text(advice)}", "dim"), key, more=True)
    if not found:
        yield Row((name, Span("no change for all of it", "dim")), pool_key(pool), pool)


def _suggestion_rows(picture: Picture, suggestion: Suggestion, name_width: int) -> Iterator[Row[Suggestion]]:
    key = suggestion_key(suggestion.replica.target.url, suggestion.advice.knob)
    yield Row(partial(_suggestion_line, picture, suggestion, name_width), key, suggestion)
    yield Row(plain(f"   {reason_text(suggestion.advice)}", "dim"), key, more=True)


def _suggestion_line(picture: Picture, suggestion: Suggestion, name_width: int) -> Line:
    advice = suggestion.advice
    return (
        Span(f" {picture.name_cell(suggestion.replica.target.url, name_width)} ", "title"),
        Span(fit(advice.action, _WORD_WIDTH), "info"),
        Span(f"{fit(advice.knob, _KNOB_WIDTH)} {fit(change_text(advice), _DIFF_WIDTH)} "),
        Span(f"{advice.apply.replace('_', ' '):<11} {advice.confidence}", "dim"),
    )


def _left_alone_row(picture: Picture, group: LeftAlone, name_width: int) -> Row[LeftAlone]:
    members = group.members
    first = picture.name_in(members[0].replica.target.url, name_width)
    who = first if len(members) == 1 else many(len(members), "replica")
    reason = group.reason if group.alike else f"{first}: {group.reason}; others differ"
    ink: Ink = "text" if group.action == "hold" else "dim"
    line = (
        Span(f" {fit(who, name_width)} ", "dim"),
        Span(f"{fit(group.action, _WORD_WIDTH)} {fit(group.knob, _KNOB_WIDTH)} ", ink),
        Span(reason, "dim"),
    )
    return Row(line, left_alone_key(group.action, group.knob), group)


def tuners_title(picture: Picture, width: int, only: str | None = None) -> Line:
    """Where one is, and the badges."""
    where = f" · {picture.name_of(only)}" if only is not None else ""
    return page_title(picture, "tuners", width, where)


def tuners_verdict(
    picture: Picture,
    width: int,
    only: str | None = None,
    trouble: str = "",
    elsewhere: int = 0,
    left: int = 0,
) -> Line:
    """What there is to do, in one line; `trouble` (of the controller) goes first.

    `elsewhere`: how many changes that other processes carry out are not over; `left`: how many are not over
    that nobody carries out.
    """
    if trouble:
        return clip(plain(f" ✖ {trouble}", "crit"), width)
    if picture.snapshot is None:
        return clip(plain(f" {NOTHING_YET}", "dim"), width)
    flying, suggestions = len(picture.in_flight), _suggestions(picture, only)
    items = [f"{many(flying, 'change')} under way"] if flying else []
    if elsewhere:
        items.append(f"{many(elsewhere, 'change')} elsewhere not over (h)")
    if left:
        items.insert(0, f"{many(left, 'change')} left unfinished (h)")
    if suggestions:
        urls = {suggestion.replica.target.url for suggestion in suggestions}
        items.append(f"{many(len(suggestions), 'suggestion')} for {many(len(urls), 'replica')}")
    else:
        items.append("nothing suggested")
    closed = " · read-only: the config has no [control]" if picture.read_only else ""
    ink: Ink = "warn" if left else "info" if suggestions or flying or elsewhere else "ok"
    return clip((Span(f" {' · '.join(items)}", ink), Span(closed, "dim")), width)
