"""What else matters when a knob is changed: said before the change begins, knob by knob."""

from __future__ import annotations

from collections.abc import Iterator

from enginetop.fleet.knobs import KnobRow
from enginetop.fleet.plan import VIA_KUBERNETES, PlannedChange
from enginetop.fleet.snapshot import ReplicaSnapshot
from tuners.control.trace import Trace, trace_of

_CLOSE_TO_FLOOR = 1.25


def concerns(change: PlannedChange, replica: ReplicaSnapshot, row: KnobRow | None) -> tuple[str, ...]:
    """Sentences on one change of `replica`, whose knob stands as `row` says (None: not read)."""
    of_path = () if row is None else _of_path(change.via, trace_of(replica), row)
    return (*_of_knob(change, replica, row), *of_path)


def _of_path(via: str, trace: Trace, row: KnobRow) -> Iterator[str]:
    if row.apply == "restart":
        if via != VIA_KUBERNETES:  # where the object's own rollout does that, and tells how
            yield _restart(trace, row)
        yield "a restarted engine has cold caches: its warm-up is longer, and counts for nothing"
    elif row.note:
        yield row.note


def _restart(trace: Trace, row: KnobRow) -> str:
    running = "" if not trace.running else f" ({trace.running:.0f} run now)"
    return (
        f"each replica is restarted, one at a time: it is drained first{running}, and may be out of service "
        f"for {row.takes_seconds / 60:.0f} min; let no router send to it meanwhile"
    )


def _of_knob(change: PlannedChange, replica: ReplicaSnapshot, row: KnobRow | None) -> tuple[str, ...]:
    match change.knob:
        case "max_num_batched_tokens":
            return tuple(_token_budget(change, row))
        case "max_num_seqs":
            return tuple(_sequences(change, trace_of(replica)))
        case "num_speculative_tokens":
            return tuple(_drafts(change))
        case "thinking_token_budget":
            return tuple(_thinking(change))
        case "asleep" | "paused" if change.after:
            return ("it will serve nothing: there is no verdict on that, and the change will go back",)
    return ()


def _token_budget(change: PlannedChange, row: KnobRow | None) -> Iterator[str]:
    if row is not None and change.after < _CLOSE_TO_FLOOR * row.min:
        yield (
            f"{change.after} tokens a step are close to what a full decode step takes ({row.min}): prompts "
            f"get what is left"
        )


def _sequences(change: PlannedChange, trace: Trace) -> Iterator[str]:
    most = change.after * trace.ranks
    if trace.running is not None and trace.running > most:
        yield (
            f"{trace.running:.0f} requests run now: those above {most} run on, and nobody is admitted until "
            f"{trace.running - most:.0f} of them have ended; the queue grows meanwhile"
        )
    if change.before is not None and change.after > change.before:
        yield "more sequences share the same KV cache: mind preemptions"


def _drafts(change: PlannedChange) -> Iterator[str]:
    if change.after == 0:
        yield "drafting stops; the draft model stays in memory: a restart without it frees more"
    elif change.before is not None and change.after > change.before:
        yield f"each decoding request takes {1 + change.after} tokens of the budget of a step"


def _thinking(change: PlannedChange) -> Iterator[str]:
    yield "a default: requests that name a budget keep theirs, and so does who runs already"
    if change.after >= 0 and (change.before is None or not 0 <= change.before <= change.after):
        yield "what cut thoughts cost in quality is not measured: try it on an evaluation first"
