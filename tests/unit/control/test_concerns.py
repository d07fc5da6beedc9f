"""What is said of a change before it begins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from enginetop.fleet.knobs import KnobRow
from enginetop.fleet.model import Quality
from enginetop.fleet.plan import PlannedChange
from enginetop.fleet.snapshot import ReplicaSnapshot, Scalar
from tuners.control.concerns import concerns

REPLICA = cast(
    "ReplicaSnapshot",
    SimpleNamespace(
        signals={"requests_running": Scalar(57.0, "requests", Quality.OK)},
        totals={},
        scraped_at=0.0,
        ranks=(None, None),
    ),
)
"""57 requests on two ranks."""


@pytest.mark.parametrize(
    ("knob", "before", "after", "words"),
    [
        ("max_num_batched_tokens", 512, 99, ["close to what a full decode step takes (80)"]),
        ("max_num_batched_tokens", 512, 100, []),
        ("max_num_seqs", 64, 8, ["above 16 run on", "until 41 of them have ended"]),
        ("max_num_seqs", 64, 29, []),  # 58 on two ranks
        ("max_num_seqs", 32, 64, ["mind preemptions"]),
        ("num_speculative_tokens", 4, 0, ["the draft model stays in memory"]),
        ("num_speculative_tokens", 4, 1, []),
        ("num_speculative_tokens", 1, 4, ["takes 5 tokens of the budget"]),
        ("thinking_token_budget", -1, 1024, ["keep theirs", "not measured"]),
        ("thinking_token_budget", None, 1024, ["keep theirs", "not measured"]),
        ("thinking_token_budget", 1024, -1, ["keep theirs"]),
        ("thinking_token_budget", 1024, 2048, ["keep theirs"]),
        ("another", 1, 2, []),
    ],
)
def test_what_matters_for_each_knob(knob: str, before: int | None, after: int, words: list[str]) -> None:
    row = KnobRow(knob, before, before, 80, 512, "", 1)
    said = concerns(PlannedChange("http://r1", "i", knob, before, after), REPLICA, row)
    assert all(any(word in sentence for sentence in said) for word in words)
    assert bool(said) is bool(words)


def test_what_the_engine_s_own_api_is_to_be_known_for_is_said_before_a_change() -> None:
    change = PlannedChange("http://r1:8000", "i", "max_num_seqs", 64, 29, via="sglang_cap")
    row = KnobRow("max_num_seqs", 64, 64, 1, 64, "requests", 0, note="its admin routes are open")
    assert concerns(change, REPLICA, row)[-1] == "its admin routes are open"


@pytest.mark.parametrize(("after", "said"), [(1, True), (0, False)])
def test_an_engine_that_is_to_sleep_brings_no_verdict(after: int, said: bool) -> None:
    change = PlannedChange("http://r1:8000", "i", "asleep", 1 - after, after, via="vllm_switches")
    assert ("there is no verdict on that" in " ".join(concerns(change, REPLICA, None))) is said
