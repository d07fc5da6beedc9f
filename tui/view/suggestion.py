"""One suggestion as lines: the diff, who, why, what to expect, what it takes."""

from __future__ import annotations

from functools import partial

from enginetop.fleet.change import Proposal
from enginetop.fleet.frozen import frozen
from enginetop.fleet.snapshot import Advice, ReplicaSnapshot
from tui.view import numbers
from tui.view.advice import (
    ACTIONABLE,
    APPLY_WORDS,
    VIA_WORDS,
    advice_of,
    caveats_of,
    change_text,
    expectation_items,
    pool_of,
    reasons_of,
    setting_text,
)
from tui.view.cells import EMPTY_LINE, Line, Span, clip, plain
from tui.view.change_words import diff_text
from tui.view.figures import Lines, paragraphs, row
from tui.view.picture import Picture
from tui.view.title import screen_title
from tui.view.what_if import what_if_lines

_paragraphs = partial(paragraphs, hang=1)


@frozen
class Plan:
    """What the controller says of a suggestion: a proposal, or that it is being asked, or its trouble."""

    proposal: Proposal | None = None
    asking: bool = False
    trouble: str = ""


def suggestion_title(picture: Picture, url: str, knob: str, width: int) -> Line:
    """Which suggestion."""
    return screen_title(picture, "suggestion", f" · {picture.name_of(url)} · {knob}", width)


def suggestion_lines(picture: Picture, url: str, knob: str, plan: Plan, width: int) -> list[Line]:
    """The lines of the advice for `knob` on the replica with this target URL, none wider than `width`."""
    replica = picture.replica(url)
    advice = advice_of(replica, knob)
    if replica is None or advice is None:
        return [clip(plain(" this suggestion is gone: the replica is no longer in the fleet", "warn"), width)]
    lines: list[Line] = [
        _diff(advice),
        EMPTY_LINE,
        *_who(picture, replica, plan.proposal, width),
        *_paragraphs("because", reasons_of(advice), width),
        *_paragraphs("expect", (" · ".join(expectation_items(advice.expected)),), width),
        *_paragraphs("wrong if", caveats_of(advice), width),
        *_paragraphs("bound by", (advice.bound_by.replace("_", " "),), width),
        *_paragraphs("confidence", (advice.confidence,), width),
        *what_if_lines(replica, advice, width),
        *_apply(picture, advice, plan, width),
    ]
    return [clip(line, width) for line in lines]


def _diff(advice: Advice) -> Line:
    if advice.action not in ACTIONABLE:
        stays = f"{advice.action}: stays at {setting_text(advice.knob, advice.current)}"
        return (Span(f" {advice.knob}  ", "title"), Span(stays, "dim"))
    change = change_text(advice)
    return (Span(f" {advice.knob}  ", "title"), Span(change, "info"), Span(f"  {advice.action}", "dim"))


def _who(picture: Picture, replica: ReplicaSnapshot, proposal: Proposal | None, width: int) -> Lines:
    if proposal is not None:
        followers = tuple(map(picture.name_of, proposal.promote_targets))
    elif picture.snapshot is not None:
        followers = tuple(other.target.name for other in pool_of(picture.snapshot, replica))
    else:
        followers = ()
    then = f", then {' '.join(followers)} if it does well" if followers else "; no other serves this model"
    at_once = tuple(map(picture.name_of, proposal.together)) if proposal is not None else ()
    first = " ".join((replica.target.name, *at_once)) + (", all at once" if at_once else "")
    yield from _paragraphs("who", (f"canary {first}{then}",), width)
    if proposal is not None and proposal.baseline_targets:
        against = " ".join(map(picture.name_of, proposal.baseline_targets))
        yield from _paragraphs("against", (against,), width)


def _apply(picture: Picture, advice: Advice, plan: Plan, width: int) -> Lines:
    if advice.action not in ACTIONABLE:
        return
    via = f", via {VIA_WORDS.get(advice.via, advice.via)}" if advice.via else ""
    words = APPLY_WORDS.get(advice.apply, advice.apply)
    yield from _paragraphs("apply", (words + via,), width)
    if picture.read_only:
        yield from _paragraphs("", ("enginetop is read-only: the config has no [control]",), width, "dim")
        return
    proposal = plan.proposal
    if plan.asking and proposal is None:
        yield row("takes", Span("asking the engines", "dim"))
    if plan.trouble:
        yield from _paragraphs("trouble", (plan.trouble,), width, "crit")
    if proposal is None:
        return
    yield from _terms(proposal, width)
    yield from _paragraphs("refused", proposal.refusals, width, "warn")


def _terms(proposal: Proposal, width: int) -> Lines:
    """How long it takes, how it goes back, and what the controller notes."""
    if proposal.observation_seconds is not None:
        takes = f"{numbers.seconds_text(proposal.observation_seconds)} to a verdict"
        yield from _paragraphs("takes", (takes,), width)
    if proposal.ttl_seconds is not None:
        lasts = numbers.seconds_text(proposal.ttl_seconds)
        yield from _paragraphs("way back", (f"by itself, {lasts} after enginetop is gone",), width)
    yield from _paragraphs("note", proposal.notes, width)


def proposal_lines(picture: Picture, proposal: Proposal, width: int) -> list[Line]:
    """What is about to be done, for the confirmation."""
    canary = " ".join(map(picture.name_of, (proposal.canary_target, *proposal.together)))
    first = f"{canary}, all at once" if proposal.together else canary
    followers = " ".join(map(picture.name_of, proposal.promote_targets))
    diff = diff_text(proposal.before, proposal.after)
    then = f"then, if it does well, on {followers}" if followers else "and on no other"
    lines: list[Line] = [
        (Span(f" {proposal.knob}  ", "title"), Span(diff, "info")),
        EMPTY_LINE,
        *_paragraphs("first on", (first,), width),
        *_paragraphs("", (then,), width),
        *_terms(proposal, width),
        EMPTY_LINE,
    ]
    return [clip(line, width) for line in lines]
