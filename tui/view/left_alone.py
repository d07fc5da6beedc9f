"""What the tuners leave as it is, and why: a row for all replicas that are told so, and their own reasons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from enginetop.fleet.frozen import frozen
from enginetop.fleet.signals import KNOBS
from enginetop.fleet.snapshot import Advice, ReplicaSnapshot
from tui.view.advice import ACTIONABLE, Suggestion, reason_text, reasons_of
from tui.view.cells import Line, Span, clip, plain, wrap_text
from tui.view.figures import WIDE
from tui.view.picture import Picture
from tui.view.title import screen_title
from tui.view.what_if import MOST_ASKED, what_if_lines

_KNOB_ORDER = {knob: place for place, knob in enumerate(KNOBS)}
_NAME_WIDTHS = (12, 28)
"""On a narrow terminal, and on a wide one."""


@frozen
class LeftAlone:
    """Advice that leaves a knob as it is, by the same action (`hold` or `withheld`) for all `members`."""

    action: str
    knob: str
    members: tuple[Suggestion, ...]

    @property
    def reason(self) -> str:
        """The first one's reason in few words: rules put what decides last."""
        return _deciding(self.members[0].advice)

    @property
    def alike(self) -> bool:
        """Whether all have the same reason."""
        return all(_deciding(member.advice) == self.reason for member in self.members)


def _deciding(advice: Advice) -> str:
    return next(reversed(reasons_of(advice)), "")


def left_alone_of(replicas: Iterable[ReplicaSnapshot]) -> list[LeftAlone]:
    """What is left alone: `hold` first, then `withheld`, in the order of the knobs."""
    groups: dict[tuple[str, str], list[Suggestion]] = {}
    for replica in replicas:
        for advice in replica.advice:
            if advice.action not in ACTIONABLE:
                groups.setdefault((advice.action, advice.knob), []).append(Suggestion(replica, advice))
    found = [LeftAlone(action, knob, tuple(members)) for (action, knob), members in groups.items()]
    return sorted(found, key=lambda group: (group.action != "hold", _KNOB_ORDER.get(group.knob, len(KNOBS))))


def left_alone_in(picture: Picture, only: str | None = None) -> list[LeftAlone]:
    """What is left alone in the fleet, or of the replica with the target URL `only`."""
    replicas = picture.snapshot.replicas if picture.snapshot is not None else ()
    return left_alone_of(replica for replica in replicas if only in (None, replica.target.url))


def left_alone_members(
    picture: Picture, action: str, knob: str, only: str | None = None
) -> Sequence[Suggestion]:
    """The replicas that are advised to leave `knob` as it is, by this action."""
    found = left_alone_in(picture, only)
    return next((one.members for one in found if (one.action, one.knob) == (action, knob)), ())


def left_alone_title(picture: Picture, action: str, knob: str, width: int) -> Line:
    """Which knob, and what is advised."""
    return screen_title(picture, action, f" · {knob}", width)


def left_alone_lines(
    picture: Picture, action: str, knob: str, width: int, only: str | None = None
) -> list[Line]:
    """Every replica that is advised to leave `knob` as it is, with its own reasons."""
    name_width = _NAME_WIDTHS[width >= WIDE]
    room = max(width - name_width - 3, 16)
    lines: list[Line] = []
    members = left_alone_members(picture, action, knob, only)
    for member in members:
        name = picture.name_cell(member.replica.target.url, name_width)
        for text in wrap_text(reason_text(member.advice), room):
            lines.append((Span(f" {name} "), Span(text, "dim")))
            name = " " * name_width
        if action == "hold" and len(members) <= MOST_ASKED:
            lines += what_if_lines(member.replica, member.advice, width)
    gone = plain(" no replica is left as it is for that reason any more", "dim")
    return [clip(line, width) for line in lines or [gone]]
