"""The `--slo` flag."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from enginetop.fleet.durations import LONGEST_PLAIN_SECONDS, doubt_of, plain_seconds

if TYPE_CHECKING:
    from enginetop.fleet.snapshot import Slo

_HOW = "write ttft=SECONDS,tpot=SECONDS,target=RATIO, as in ttft=0.6,tpot=50ms,target=0.95"
_KEYS = {"ttft": "ttft_seconds", "tpot": "tpot_seconds", "itl": "tpot_seconds", "target": "target"}
"""What may be named. An objective for the time between tokens is judged on TPOT."""


class ToldSlo(NamedTuple):
    """An objective, and what speaks against it in one line; empty: nothing does."""

    slo: Slo
    doubt: str


def parse_slo(text: str) -> ToldSlo:
    """An objective from `ttft=0.6,tpot=50ms,target=0.95`; parts that are not named keep their default.

    Raises argparse.ArgumentTypeError with the fix.
    """
    from enginetop.fleet.snapshot import Slo  # the vocabulary of a picture: a third of what --help would cost

    values: dict[str, float] = {}
    doubts: list[str] = []
    for part in text.split(","):
        key, _, told = (piece.strip() for piece in part.partition("="))
        field = _KEYS.get(key)
        value = _ratio(told) if key == "target" else plain_seconds(told)
        if field is None or value is None:
            raise argparse.ArgumentTypeError(f"{part!r} is no objective; {_HOW}")
        if field in values:
            raise argparse.ArgumentTypeError(f"{text!r} names {field} twice; {_HOW}")
        values[field] = value
        if key != "target" and (doubt := doubt_of(_short(field), told)):
            doubts.append(f"--slo {key}={doubt}")
    return ToldSlo(replace(Slo(source="flag"), **values), "; ".join(doubts))  # type: ignore[arg-type]


def _ratio(text: str) -> float | None:
    try:
        ratio = float(text)
    except ValueError:
        return None
    return ratio if 0 < ratio < 1 else None


def _short(field: str) -> str:
    return field.removesuffix("_seconds")


def slo_flag(slo: Slo) -> str:
    """The value of the flag that names this objective."""
    times = {"ttft": slo.ttft_seconds, "tpot": slo.tpot_seconds}
    # a unit where a number alone would be doubted
    written = [f"{key}={s:g}{'s' * (s > LONGEST_PLAIN_SECONDS[key])}" for key, s in times.items()]
    return ",".join([*written, f"target={slo.target:g}"])
