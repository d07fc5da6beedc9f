"""How long an observation still takes, as screens are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enginetop.fleet.change import ChangeState
from enginetop.fleet.plan import Plan, PlannedChange, Scope
from tuners.control.machine import begin
from tuners.control.observe import Mark
from tuners.control.progress import Progress, Written
from tuners.control.settings import ControlSettings
from tuners.control.view import view_of

URL = "http://b1:8000"
PLAN = Plan(
    id="7f3a",
    created=0.0,
    expires=3600.0,
    tool_version="1",
    evidence_hash="0a1b",
    scope=Scope("Qwen3-32B", "aggregated", URL),
    changes=(PlannedChange(URL, "i1", "max_num_batched_tokens", 8192, 6144),),
)


@pytest.mark.parametrize(
    ("marks", "now", "left"),
    [
        ([100.0], 100.0, 300.0),  # 30 blocks of 10 s
        ([100.0], 104.0, 296.0),
        ([100.0, 112.0, 124.0], 124.0, 336.0),  # they take 12 s each: 28 blocks are left
        ([100.0, 112.0, 124.0], 130.0, 330.0),
        ([100.0 + 12 * block for block in range(30)], 470.0, 0.0),  # the last one is late
    ],
)
def test_the_time_left_goes_by_the_pace_of_the_blocks(marks: list[float], now: float, left: float) -> None:
    started = begin(
        PLAN, now=90.0, approved_by="ana", settings=ControlSettings(block_seconds=10.0), tool_version="1"
    )
    observing = replace(
        started.progress,
        state=ChangeState.OBSERVE,
        since=100.0,
        marks=tuple(Mark(at, {}) for at in marks),
    )
    assert view_of(observing, now, ()).eta_seconds == pytest.approx(left)


@pytest.mark.parametrize(("via", "left"), [("knob_api", 250.0), ("process", 250.0), ("kubernetes", None)])
def test_only_a_path_that_takes_its_value_back_by_itself_counts_down(via: str, left: float | None) -> None:
    change = replace(PLAN.canary, via=via)
    settings = ControlSettings(ttl_seconds=300.0)
    started = begin(PLAN, now=90.0, approved_by="ana", settings=settings, tool_version="1")
    on_trial = replace(started.progress, written={URL: Written(change, 2, 100.0, 100.0, 100.0)})
    assert view_of(on_trial, 150.0, ()).expires_in_seconds == left


def test_between_two_waves_it_is_told_who_is_next_and_when() -> None:
    urls = [f"http://r{number}:8000" for number in range(1, 9)]
    changes = tuple(replace(PLAN.canary, target=url) for url in urls)
    plan = replace(PLAN, changes=changes, scope=replace(PLAN.scope, canary=urls[0]))
    settings = ControlSettings(soak_seconds=60.0, wave_ratio=0.25)  # two of eight at once
    started = begin(plan, now=90.0, approved_by="ana", settings=settings, tool_version="1")

    def having(count: int, confirmed_at: float | None) -> Progress:
        written = {
            change.target: Written(change, 2, 100.0, 100.0, 100.0, confirmed_at=confirmed_at)
            for change in changes[:count]
        }
        return replace(
            started.progress,
            state=ChangeState.PROMOTE,
            baselines=tuple(urls[1:3]),
            written=written,
            soaking_since=200.0,
        )

    view = view_of(having(3, 150.0), 217.0, ())
    assert view.written == tuple(urls[:3])
    assert view.next_wave == (urls[3], urls[4])
    assert view.soak_seconds == 43.0
    last = view_of(having(8, 150.0), 217.0, ())
    assert (last.next_wave, last.soak_seconds) == ((), 43.0)
    # the canary was observed for long enough; a wave that is not read back is no wave yet
    assert view_of(having(1, 150.0), 217.0, ()).soak_seconds is None
    assert view_of(having(3, None), 217.0, ()).soak_seconds is None
    assert view_of(replace(having(3, 150.0), state=ChangeState.VERIFY), 217.0, ()).soak_seconds is None
