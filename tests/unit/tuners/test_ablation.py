"""Every family of a page that advice rests on, taken off one by one: it says what it lacks then.

Which signals those are is found out in `test_ablation_signals`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import pytest

from collectors.answer import Answer
from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.knobs import KnobRow, KnobSheet
from enginetop.fleet.model import BELIEVED, Target
from enginetop.fleet.snapshot import Advice, ReplicaSnapshot
from enginetop.simulator.builtin import scenario_named
from enginetop.simulator.fleet_model import FleetModel
from enginetop.simulator.scenario import Lengths, Scenario
from tests.unit.tuners.test_ablation_signals import needed_by
from tuners.advice import Advisor

EPOCH = 1_750_000_000.0
STEP_SECONDS = 4
MOST_SECONDS = 1800


def thinkers() -> Scenario:
    """Short requests with a few long thoughts among them, and little KV."""
    scenario = scenario_named("reasoning-overrun")
    plan = scenario.pools[0].members[0]
    plan = plan.with_engine(kv_blocks=2_400).with_traffic(
        requests_per_second=8.0, reasoning_tokens=Lengths(60, 1.7), answer_tokens=Lengths(40, 0.5)
    )
    return replace(scenario, pools=(replace(scenario.pools[0], members=(plan,)),))


def crowded() -> Scenario:
    """Long answers without a thought, and too little KV for them."""
    scenario = scenario_named("kv-pressure")
    plan = (
        scenario.pools[0]
        .members[0]
        .with_traffic(
            requests_per_second=2.5, reasoning_tokens=Lengths(0.0, 0.0), answer_tokens=Lengths(600, 0.6)
        )
    )
    return replace(scenario, pools=(replace(scenario.pools[0], members=(plan,)),))


CASES: Mapping[str, str] = {
    # a scenario that calls for less of a knob
    "budget-too-large": "max_num_batched_tokens",
    "speculation-hurts": "num_speculative_tokens",
    "crowded": "max_num_seqs",
    "thinkers": "thinking_token_budget",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """A page of one replica, its knobs, and what was told of the knob in question."""

    body: bytes
    rows: tuple[KnobRow, ...]
    told: Advice


def scenario_of(name: str) -> Scenario:
    made = {"thinkers": thinkers, "crowded": crowded}
    return made[name]() if name in made else scenario_named(name)


class Looker:
    """Reads pages one by one, and has advice on them."""

    def __init__(self, scenario: Scenario) -> None:
        self._target = Target("http://one:8000", "one")
        self._feed = TargetFeed(self._target, LayoutCache())
        self._tracker = FleetTracker(
            (self._target,),
            interval_seconds=STEP_SECONDS,
            window_seconds=60.0,
            slo_for=lambda _: scenario.slo,
            fixed_spacing_seconds=STEP_SECONDS,
        )
        self._sheets: dict[str, KnobSheet] = {}
        self._advisor = Advisor(lambda: self._sheets)
        self._looks = 0

    def look(self, body: bytes, rows: tuple[KnobRow, ...]) -> ReplicaSnapshot:
        at = EPOCH + self._looks * STEP_SECONDS
        self._looks += 1
        self._sheets[self._target.url] = KnobSheet("vllm", "0.32.0", "i", 1, 1, rows)
        answer = Answer("/metrics", at, 0.01, 200, {}, body)
        self._tracker.observe(self._target.url, self._feed.take([answer], at, 0.01))
        return self._advisor(self._tracker.snapshot(at)).replicas[0]


def row_of(replica: ReplicaSnapshot, name: str) -> Advice:
    return next(row for row in replica.advice if row.knob == CASES[name])


@cache
def shown(name: str) -> tuple[Shown, ...]:
    """Pages until there is advice, however long that takes."""
    scenario = scenario_of(name)
    model, looker = FleetModel(scenario, 1, 3, EPOCH, 60.0), Looker(scenario)
    found = list[Shown]()
    for second in range(0, MOST_SECONDS, STEP_SECONDS):
        model.advance(float(second))
        body = model.replicas[0].page()
        assert body is not None
        rows = tuple(
            KnobRow(k.name, k.value, k.value, k.min, k.max, "", 0) for k in model.replicas[0].knobs()
        )
        found.append(Shown(body, rows, row_of(looker.look(body, rows), name)))
        if found[-1].told.proposed is not None:
            return tuple(found)
    raise AssertionError(f"{name}: no advice in {MOST_SECONDS} s: {found[-1].told}")


def without(body: bytes, family: str) -> bytes:
    """The page without one family, its comments and `_created` lines included."""
    endings = ("", "_total", "_bucket", "_sum", "_count", "_created")
    names = {(family + ending).encode() for ending in endings}
    kept = []
    for line in body.splitlines():
        words = line.split(b" ")
        name = words[2] if line.startswith(b"# ") else line.split(b"{")[0].split(b" ")[0]
        if name not in names:
            kept.append(line)
    return b"\n".join(kept) + b"\n"


def families(body: bytes) -> list[str]:
    """The families of a page."""
    return [line.split(b" ")[2].decode() for line in body.splitlines() if line.startswith(b"# TYPE ")]


def known(replica: ReplicaSnapshot) -> set[str]:
    """The signals that a replica has."""
    return {name for name, signal in replica.signals.items() if signal.quality in BELIEVED}


def without_family(name: str, family: str, pages: Sequence[Shown]) -> list[ReplicaSnapshot]:
    """What is made of pages that lack a family."""
    looker = Looker(scenario_of(name))
    return [looker.look(without(page.body, family), page.rows) for page in pages]


@pytest.mark.parametrize("name", CASES)
def test_with_all_series_there_is_advice(name: str) -> None:
    assert shown(name)[-1].told.action == "lower"


@pytest.mark.parametrize(
    "name",
    [
        name if number < 2 else pytest.param(name, marks=pytest.mark.verify)
        for number, name in enumerate(CASES)
    ],
)
def test_without_a_family_that_advice_rests_on_it_is_named(name: str) -> None:
    pages, needed = shown(name), needed_by(CASES[name])
    whole = known(without_family(name, "none", pages[:2])[-1])
    missed = dict[str, str]()
    for family in families(pages[-1].body):
        if not (whole - known(without_family(name, family, pages[:2])[-1])) & needed:
            continue
        replicas = without_family(name, family, pages)
        rows = [row_of(replica, name) for replica in replicas]
        assert all(row.proposed is None for row in rows), family
        lost = needed - known(replicas[-1])
        said = [text for row in rows if row.action == "withheld" for text in row.because]
        named = next((one for one in lost for text in said if one in text), None)
        assert named, f"{family}: {rows[-1]} names none of {sorted(lost)}"
        missed[family] = named
    assert len(missed) >= 4, missed
