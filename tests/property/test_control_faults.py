"""Whatever happens to engines in the middle of a change: it ends, and nothing is left half applied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.change import FINAL_STATES, ChangeState
from enginetop.fleet.model import ReplicaState
from tests.support.control_runs import SHORT, gain, run
from tests.support.virtual_fleet import Engine, VirtualFleet, three

OLD, NEW, FOREIGN = 2048, 512, 300
QUICK = replace(SHORT, warmup_seconds=60.0, blocks=8, block_seconds=30.0, ttl_seconds=90.0)

_STATUSES = st.lists(
    st.sampled_from([0, 0, 0, 200, 400, 401, 404, 409, 422, 429, 500, 503, None, -1]), max_size=12
)
_FAULTS = st.lists(
    st.tuples(
        st.floats(0.0, 700.0),
        st.integers(0, 2),
        st.sampled_from(["restart", "cut", "mend", "foreign", "down", "ok", "deaf", "hears"]),
    ),
    max_size=6,
)


def _happen(fleet: VirtualFleet, engine: Engine, what: str) -> Callable[[], None]:
    def happens() -> None:
        if what == "restart":
            engine.restart(fleet.time)
        elif what == "foreign":
            engine._set(fleet.time, FOREIGN, None)
        elif what in ("cut", "mend"):
            engine.reachable = what == "mend"
        elif what in ("deaf", "hears"):
            engine.deaf = what == "deaf"
        else:
            engine.state = ReplicaState.DOWN if what == "down" else ReplicaState.OK

    return happens


@settings(max_examples=60, deadline=None)
@given(statuses=st.tuples(_STATUSES, _STATUSES, _STATUSES), faults=_FAULTS)
def test_every_story_ends_and_leaves_nothing_half_applied(
    statuses: tuple[list[int | None], ...], faults: list[tuple[float, int, str]]
) -> None:
    fleet = three(attainment=gain)
    engines = list(fleet.engines.values())
    for engine, forced in zip(engines, statuses, strict=True):
        engine.statuses = list(forced)
    for at, index, what in faults:
        fleet.at(at, _happen(fleet, engines[index], what))
    end, rows = run(fleet, settings=QUICK)
    assert end.state in FINAL_STATES
    assert rows[-1].state is end.state
    left = [engine for engine in engines if engine.value == NEW]
    if end.state is ChangeState.DONE:
        assert len(left) == 3 or any(what in ("restart", "foreign") for _, _, what in faults)
    elif end.state is ChangeState.ROLLBACK_FAILED:
        # what could not be brought back is named, and goes back by itself unless it had been made permanent
        assert all(engine.url in end.detail for engine in left)
    else:
        assert left == []
    # no value on trial outlives the change, but for engines that could not be told
    on_trial = [engine for engine in left if engine.expires_at is not None]
    assert not on_trial or end.state is ChangeState.ROLLBACK_FAILED
