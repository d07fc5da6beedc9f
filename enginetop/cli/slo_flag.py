"""The `--slo` flag."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from enginetop.fleet.snapshot import Slo


def parse_slo(text: str) -> Slo:
    """An objective from `ttft=0.6,tpot=0.05,target=0.95`; parts that are not named keep their default.

    Raises argparse.ArgumentTypeError with the fix.
    """
    from enginetop.fleet.snapshot import Slo  # the vocabulary of a picture: a third of what --help would cost

    how = "write ttft=SECONDS,tpot=SECONDS,target=RATIO, as in ttft=0.6,tpot=0.05,target=0.95"
    keys = {"ttft": "ttft_seconds", "tpot": "tpot_seconds", "target": "target"}
    values: dict[str, float] = {}
    for part in text.split(","):
        key, _, number = part.partition("=")
        try:
            values[keys[key.strip()]] = float(number)
        except (KeyError, ValueError):
            raise argparse.ArgumentTypeError(f"{part!r} is no objective; {how}") from None
    slo = replace(Slo(source="flag"), **values)  # type: ignore[arg-type]
    finite_positive = all(0 < value < float("inf") for value in values.values())
    if not finite_positive or slo.target >= 1:
        raise argparse.ArgumentTypeError(f"{text!r}: times above 0 and a target between 0 and 1; {how}")
    return slo


def slo_flag(slo: Slo) -> str:
    """The value of the flag that names this objective."""
    return f"ttft={slo.ttft_seconds:g},tpot={slo.tpot_seconds:g},target={slo.target:g}"
