"""Advice in words: what is suggested, why, what to expect of it, what would make it wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from enginetop.fleet.frozen import frozen
from enginetop.fleet.snapshot import Advice, FleetSnapshot, ReplicaSnapshot
from tui.view import numbers

ACTIONABLE = frozenset({"lower", "raise", "disable"})
"""Actions that change something; `hold` and `withheld` leave things as they are."""

_CONFIDENCE = {"high": 0, "medium": 1, "low": 2}

APPLY_WORDS: Mapping[str, str] = {
    "live": "live, reversible",
    "restart": "needs a restart",
    "per_request": "in the requests",
    "none": "by hand",
}
"""How a suggestion gets into force, by the contract's word."""

VIA_WORDS: Mapping[str, str] = {"knob_api": "knob API"}
"""The path that it takes, where there is one."""


@frozen
class Suggestion:
    """One advice row that changes something."""

    replica: ReplicaSnapshot
    advice: Advice


_WRONG_IF = "wrong if "


def reasons_of(advice: Advice) -> tuple[str, ...]:
    """Why, without what would make it wrong."""
    return tuple(line for line in advice.because if not line.startswith(_WRONG_IF))


def caveats_of(advice: Advice) -> tuple[str, ...]:
    """What would make it wrong."""
    return tuple(line.removeprefix(_WRONG_IF) for line in advice.because if line.startswith(_WRONG_IF))


def reason_text(advice: Advice) -> str:
    """All reasons of a row in one line."""
    return "; ".join(reasons_of(advice))


def suggestions_of(snapshot: FleetSnapshot | None) -> tuple[Suggestion, ...]:
    """What is suggested, the surest first, else in the order of the configuration."""
    if snapshot is None:
        return ()
    found = [
        Suggestion(replica, advice)
        for replica in snapshot.replicas
        for advice in replica.advice
        if advice.action in ACTIONABLE
    ]
    return tuple(sorted(found, key=lambda suggestion: _CONFIDENCE.get(suggestion.advice.confidence, 3)))


def advice_of(replica: ReplicaSnapshot | None, knob: str) -> Advice | None:
    """The row of one knob."""
    rows: Sequence[Advice] = () if replica is None else replica.advice
    return next((advice for advice in rows if advice.knob == knob), None)


def change_text(advice: Advice) -> str:
    """The change that is advised: `8192 → 6144`."""
    off = advice.action == "disable" and advice.proposed is None
    to = "off" if off else setting_text(advice.knob, advice.proposed)
    return f"{setting_text(advice.knob, advice.current)} → {to}"


def verdict_text(advice: Advice) -> str:
    """What is advised, and all reasons, in one line: `lower 8192 → 6144: TPOT p95 ...`."""
    change = f" {change_text(advice)}" if advice.action in ACTIONABLE else ""
    return f"{advice.action}{change}: {reason_text(advice)}"


def setting_text(knob: str, value: float | None) -> str:
    """A knob's setting in words: what -1 means is said."""
    unlimited = knob == "thinking_token_budget" and value is not None and value < 0
    return "no limit" if unlimited else numbers.knob(value)


def pool_of(snapshot: FleetSnapshot, replica: ReplicaSnapshot) -> tuple[ReplicaSnapshot, ...]:
    """The other replicas that serve the same model in the same role."""
    return tuple(
        other
        for other in snapshot.replicas
        if other is not replica and other.model == replica.model and other.role == replica.role
    )


_ENDS = ("from", "low", "high")
_ACRONYMS = frozenset({"ttft", "tpot", "itl", "kv", "slo"})

Wording = Callable[[float], str]


def expectation_items(expected: Mapping[str, float]) -> list[str]:
    """What is expected, one item a figure: `TPOT p95 61 → 46–50 ms`, `TTFT p95 +4 to +9 %`.

    A key is a figure's name with its unit at the end; the words `from`, `low` and `high` in it say which end
    of the figure it is, `change` that it is relative.
    """
    figures: dict[tuple[str, ...], dict[str, float]] = {}
    for key, value in expected.items():
        words = key.split("_")
        end = next((word for word in words if word in _ENDS), "low")
        figures.setdefault(tuple(word for word in words if word not in _ENDS), {})[end] = value
    return [_expectation(list(words), ends) for words, ends in figures.items()]


def _expectation(words: list[str], ends: Mapping[str, float]) -> str:
    name, wording, unit = _units(words)
    low, high = ends.get("low"), ends.get("high")
    known = [wording(end) for end in (low, high) if end is not None]
    shown = numbers.between(known[0], known[-1], " to " if "change" in words else "–") if known else ""
    if "from" in ends:
        before = wording(ends["from"])
        shown = f"{numbers.without_unit(before, shown)} → {shown}" if shown else before
    return f"{name} {shown}{unit}"


def _units(words: list[str]) -> tuple[str, Wording, str]:
    """Name, how a number is written, and the unit that follows it."""
    relative = "change" in words
    table: tuple[tuple[tuple[str, ...], Wording, str], ...] = (
        (("per", "second"), numbers.rate, "/s"),
        (("seconds",), numbers.seconds_text, ""),
        (("ratio",), _signed_percent if relative else numbers.percent, " %"),
    )
    rest = [word for word in words if word != "change"]
    for ending, wording, unit in table:
        if tuple(rest[-len(ending) :]) == ending:
            return _name(rest[: -len(ending)]), wording, unit
    return _name(rest), numbers.knob, ""


def _name(words: Iterable[str]) -> str:
    return " ".join(word.upper() if word in _ACRONYMS else word for word in words)


def _signed_percent(ratio: float) -> str:
    return f"{100 * ratio:+.0f}"
