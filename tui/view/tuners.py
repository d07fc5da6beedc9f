"""The list of the tuners' screen: changes under way, pools, suggestions, and what is left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from enginetop.fleet.change import FINAL_STATES, ChangeView
from enginetop.fleet.snapshot import PoolAdvice
from themes.loader import Ink
from tui.view import numbers
from tui.view.advice import Quiet, Suggestion, change_text, quiet_of, reason_text
from tui.view.cells import (
    Line,
    Span,
    clip,
    cut_middle,
    fit,
    line_width,
    merge,
    plain,
    spread,
    width_of,
    wrap_text,
)
from tui.view.change_words import STATE_INK, diff_text, state_text, time_left, verdict_text
from tui.view.figures import WIDE
from tui.view.heading import badges
from tui.view.picture import Picture
from tui.view.pool import actionable, pool_change, pool_key, pool_name, pools_of
from tui.view.undo import can_roll_back
from tui.view.what_if import MOST_ASKED, what_if_lines

_MARKER, _MARKED = Span(" "), Span("▸", "title")
_NAME_WIDTHS = (11, 28)
"""Least and, on a wide terminal, greatest width of a name; on a narrow one there is room for the least."""

_WORD_WIDTH = 8
_STATE_WIDTH = 16
_DIFF_WIDTH = 15
_KNOB_WIDTH = 22


def suggestion_key(url: str, knob: str) -> str:
    """The key of a suggestion's row."""
    return f"suggestion {knob} {url}"


def quiet_key(action: str, knob: str) -> str:
    """The key of a row of what is left alone."""
    return f"quiet {action} {knob}"


def change_key(change_id: str) -> str:
    """The key of a change's row."""
    return f"change {change_id}"


@dataclass(frozen=True, slots=True)
class _Item:
    """One line. `key` None: a heading. `row`: the cursor may stand on it."""

    draw: Callable[[bool], Line]
    key: str | None = None
    row: bool = False


class TunersTable:
    """The lines of one picture for one width. `only`: the target URL of the one replica to show, or None."""

    def __init__(self, picture: Picture, width: int, only: str | None = None) -> None:
        self._picture = picture
        self._width = width
        self.suggestions = tuple(
            suggestion
            for suggestion in picture.suggestions
            if only is None or suggestion.replica.target.url == only
        )
        self.pools = pools_of(picture, only)
        self.quiet = _quiet(picture, only)
        self.changes = tuple(change for change in picture.changes if only is None or _touches(change, only))
        names = [suggestion.replica.target.name for suggestion in self.suggestions]
        names += [picture.name_of(change.canary_target) for change in self.changes]
        least, greatest = _NAME_WIDTHS
        longest = max(map(width_of, names), default=0) if width >= WIDE else 0
        self._name_width = max(least, min(longest, greatest))
        self._items = tuple(self._all_items())
        self._positions = {
            item.key: index for index, item in enumerate(self._items) if item.row and item.key is not None
        }

    def __len__(self) -> int:
        return len(self._items)

    def line(self, index: int, *, selected: bool = False) -> Line:
        """The line at `index`."""
        return clip(self._items[index].draw(selected), self._width)

    def key(self, index: int) -> str | None:
        """The key of the row that the line belongs to; None for a heading."""
        return self._items[index].key

    def position(self, key: str) -> int | None:
        """The line of the row with this key."""
        return self._positions.get(key)

    def is_row(self, index: int) -> bool:
        """Whether the cursor may stand on the line."""
        return self._items[index].row

    def suggestion(self, key: str) -> Suggestion | None:
        """The suggestion whose row has this key."""
        return next(
            (
                found
                for found in self.suggestions
                if suggestion_key(found.replica.target.url, found.advice.knob) == key
            ),
            None,
        )

    def group(self, key: str) -> Quiet | None:
        """The quiet row with this key."""
        return next((found for found in self.quiet if quiet_key(found.action, found.knob) == key), None)

    def pool(self, key: str) -> PoolAdvice | None:
        """The pool whose row has this key."""
        return next((found for found in self.pools if key.startswith(f"{pool_key(found)} · ")), None)

    def change(self, key: str) -> ChangeView | None:
        """The change whose row has this key."""
        return next((found for found in self.changes if change_key(found.id) == key), None)

    def _all_items(self) -> Iterable[_Item]:
        if self.changes:
            yield self._heading("changes")
            for change in self.changes:
                yield from self._change_items(change)
        if self.pools:
            yield self._heading("pools")
            for pool in self.pools:
                yield from self._pool_items(pool)
        if self.suggestions:
            yield self._heading("suggestions for single replicas" if self.pools else "suggestions")
            for suggestion in self.suggestions:
                yield from self._suggestion_items(suggestion)
        if self.quiet:
            yield self._heading("left as it is")
            for group in self.quiet:
                yield self._quiet_item(group)

    def _heading(self, title: str) -> _Item:
        lead = Span(f" {title} ", "group")
        return _Item(lambda _: (lead, Span("─" * max(self._width - line_width((lead,)), 0), "dim")))

    def _change_items(self, change: ChangeView) -> Iterable[_Item]:
        key = change_key(change.id)
        name = self._picture.name_cell(change.canary_target, self._name_width)
        ink = STATE_INK[change.state]
        left = (
            Span(f"{name} ", "title"),
            Span(f"{fit(state_text(change), _STATE_WIDTH)} ", ink),
            Span(f"{fit(diff_text(change.before, change.after), _DIFF_WIDTH)} {change.knob}"),
        )
        right = plain(time_left(change, self._picture.changes_age_seconds))
        if change.verdict is not None:
            right = plain(verdict_text(change.verdict), ink)
        width = self._width - 2
        yield _Item(lambda selected: (_mark(selected), *spread(left, right, width)), key, row=True)
        if change.detail:
            yield _Item(lambda _: plain(f"   {change.detail}", "dim" if ink == "ok" else ink), key)

    def _pool_items(self, pool: PoolAdvice) -> Iterable[_Item]:
        """A row for each knob that is to be changed for the whole pool; one row where none is."""
        width = max(self._width * 2 // 5, 24)
        name = Span(f"{fit(cut_middle(pool_name(pool), width), width)} ", "title")
        rows = actionable(pool)
        for advice in rows:
            key = f"{pool_key(pool)} · {advice.knob}"
            line = (
                name,
                Span(fit(advice.action, _WORD_WIDTH), "info"),
                Span(f"{advice.knob} {pool_change(advice)}  "),
                Span(f"{advice.apply.replace('_', ' ')}  {advice.confidence}", "dim"),
            )
            yield _Item(lambda selected, line=line: merge((_mark(selected), *line)), key, row=True)  # type: ignore[misc]
            reason = plain(f"   {reason_text(advice)}", "dim")
            yield _Item(lambda _, reason=reason: reason, key)  # type: ignore[misc]
        if not rows:
            held = (name, Span("no change for all of it", "dim"))
            yield _Item(lambda selected: (_mark(selected), *held), f"{pool_key(pool)} · ", row=True)

    def _suggestion_items(self, suggestion: Suggestion) -> Iterable[_Item]:
        replica, advice = suggestion.replica, suggestion.advice
        key = suggestion_key(replica.target.url, advice.knob)
        name = self._picture.name_cell(replica.target.url, self._name_width)
        change = change_text(advice)
        line: Line = (
            Span(f"{name} ", "title"),
            Span(fit(advice.action, _WORD_WIDTH), "info"),
            Span(f"{fit(advice.knob, _KNOB_WIDTH)} {fit(change, _DIFF_WIDTH)} "),
            Span(f"{advice.apply.replace('_', ' '):<11} {advice.confidence}", "dim"),
        )
        yield _Item(lambda selected: merge((_mark(selected), *line)), key, row=True)
        yield _Item(lambda _: (Span("   "), Span(reason_text(advice), "dim")), key)

    def _quiet_item(self, group: Quiet) -> _Item:
        members = group.members
        first = self._picture.name_in(members[0].replica.target.url, self._name_width)
        who = first if len(members) == 1 else f"{len(members)} replicas"
        reason = group.reason if group.alike else f"{first}: {group.reason}; others differ"
        ink: Ink = "text" if group.action == "hold" else "dim"
        line = (
            Span(f"{fit(who, self._name_width)} ", "dim"),
            Span(f"{fit(group.action, _WORD_WIDTH)} {fit(group.knob, _KNOB_WIDTH)} ", ink),
            Span(reason, "dim"),
        )
        return _Item(
            lambda selected: merge((_mark(selected), *line)), quiet_key(group.action, group.knob), row=True
        )


def tuners_title(picture: Picture, width: int, only: str | None = None) -> Line:
    """Where one is, and the badges."""
    where = f" · {picture.name_of(only)}" if only is not None else ""
    at = f" · {numbers.time_of_day(picture.snapshot.at)}" if picture.snapshot is not None else ""
    fleet = f" · {picture.title}" if picture.title else ""
    return spread((Span(" tuners", "title"), Span(f"{where}{fleet}{at}")), badges(picture), width)


def tuners_verdict(table: TunersTable, picture: Picture, width: int, trouble: str = "") -> Line:
    """What there is to do, in one line; `trouble` (of the controller) goes first."""
    if trouble:
        return clip(plain(f" ✖ {trouble}", "crit"), width)
    if picture.snapshot is None:
        return clip(plain(" waiting for the first scrape", "dim"), width)
    flying = len(picture.in_flight)
    found = len(table.suggestions)
    items = [f"{flying} change{_s(flying)} under way"] if flying else []
    if found:
        replicas = len({suggestion.replica.target.url for suggestion in table.suggestions})
        items.append(f"{found} suggestion{_s(found)} for {replicas} replica{_s(replicas)}")
    else:
        items.append("nothing suggested")
    closed = " · read-only: the config has no [control]" if picture.read_only else ""
    ink: Ink = "info" if found or flying else "ok"
    return clip((Span(f" {' · '.join(items)}", ink), Span(closed, "dim")), width)


def quiet_lines(picture: Picture, action: str, knob: str, width: int, only: str | None = None) -> list[Line]:
    """Every replica that is advised to leave `knob` as it is, with its own reasons."""
    name_width = 12 if width < WIDE else 28
    room = max(width - name_width - 3, 16)
    lines: list[Line] = []
    members = quiet_members(picture, action, knob, only)
    for member in members:
        name = picture.name_cell(member.replica.target.url, name_width)
        for text in wrap_text(reason_text(member.advice), room):
            lines.append(clip((Span(f" {name} "), Span(text, "dim")), width))
            name = " " * name_width
        if action == "hold" and len(members) <= MOST_ASKED:
            lines += [clip(line, width) for line in what_if_lines(member.replica, member.advice, width)]
    return lines or [clip(plain(" no replica is left as it is for that reason any more", "dim"), width)]


def quiet_members(picture: Picture, action: str, knob: str, only: str | None = None) -> Sequence[Suggestion]:
    """The replicas that are advised to leave `knob` as it is, by this action."""
    groups = (group for group in _quiet(picture, only) if (group.action, group.knob) == (action, knob))
    return next((group.members for group in groups), ())


def _quiet(picture: Picture, only: str | None) -> list[Quiet]:
    replicas = picture.snapshot.replicas if picture.snapshot is not None else ()
    return quiet_of(replica for replica in replicas if only in (None, replica.target.url))


def _touches(change: ChangeView, url: str) -> bool:
    return url in (change.canary_target, *change.together, *change.promote_targets)


def _mark(selected: bool) -> Span:
    return _MARKED if selected else _MARKER


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def change_to_undo(changes: Sequence[ChangeView], key: str | None) -> ChangeView | None:
    """The change that a row stands for, if it can be undone; else the only one that is under way."""
    chosen = next((change for change in changes if key == change_key(change.id)), None)
    if chosen is not None and can_roll_back(chosen.state):
        return chosen
    flying = [change for change in changes if change.state not in FINAL_STATES]
    return flying[0] if len(flying) == 1 else None
