"""Any story of pages, failures and silence: what must hold whatever a target does."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.document import snapshot_document
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.model import STATE_ORDER, UP_STATES, Quality, ReplicaState, Target
from enginetop.fleet.observation import FailureKind, Observation
from enginetop.fleet.reading import EngineFlags
from enginetop.fleet.snapshot import Scalar, Slo
from tests.support.looks import failure, nothing_new, page

TARGETS = [Target(f"http://{name}:8000", name) for name in "ab"]
FRESH = {Quality.OK, Quality.ESTIMATED}

finite = st.floats(0, 1e6)
counts = st.integers(0, 3)
pages = st.builds(
    lambda running, waiting, tokens, preemptions, sleeping, live, metrics_page: page(
        0.0,
        running=running,
        waiting=waiting,
        tokens=tokens,
        preemptions=preemptions,
        flags=EngineFlags(sleeping=sleeping),
        live=live,
        metrics_page=metrics_page,
    ),
    st.one_of(counts, st.just(float("nan"))),
    counts,
    st.one_of(counts, finite),
    counts,
    st.sampled_from([None, False, True]),
    st.booleans(),
    st.sampled_from([True, True, True, False]),
)
failures = st.builds(
    lambda kind, answered: failure(0.0, kind, answered=answered), st.sampled_from(FailureKind), st.booleans()
)
looks = st.one_of(pages, pages, failures, st.builds(nothing_new, st.just(0.0)))
stories = st.lists(
    st.tuples(st.sampled_from([0, 1]), st.sampled_from([0.5, 2.0, 2.0, 2.0, 30.0, 1000.0]), looks),
    max_size=25,
)


def at(time: float, look: Observation) -> Observation:
    """The same look at another time."""
    if look.reading is not None:
        reading = replace(look.reading, at=time)
        return Observation(time, 0.1, reading=reading, metrics_page=look.metrics_page)
    if look.failure is not None:
        return failure(time, look.failure.kind, answered=look.failure.answered)
    return nothing_new(time)


def cannot_be_reached(look: Observation) -> bool:
    """The contract's words for one failed scrape at connection level."""
    if look.failure is None:
        return False
    if look.failure.kind is FailureKind.TIMEOUT:
        return not look.failure.answered
    return look.failure.kind in {FailureKind.REFUSED, FailureKind.DNS, FailureKind.TLS}


@settings(max_examples=60, deadline=None)
@given(stories, st.sampled_from([2.0, None]))
def test_whatever_happens(story: list[tuple[int, float, Observation]], spacing: float | None) -> None:
    tracker = FleetTracker(
        TARGETS,
        interval_seconds=2.0,
        window_seconds=60.0,
        slo_for=lambda _: Slo(),
        fixed_spacing_seconds=spacing,
    )
    now = 0.0
    last: list[list[Observation]] = [[], []]
    for who, pause, look in story:
        now += pause
        timed = at(now, look)
        last[who].append(timed)
        tracker.observe(TARGETS[who].url, timed)
        snapshot = tracker.snapshot(now)
        assert snapshot.replicas == tracker.snapshot(now).replicas  # asking changes nothing
        json.dumps(snapshot_document(snapshot), allow_nan=False)
        for looked, replica in zip(last, snapshot.replicas, strict=True):
            down = len(looked) >= 2 and all(map(cannot_be_reached, looked[-2:]))
            assert (replica.state is ReplicaState.DOWN) == down
            assert replica.state in STATE_ORDER
            assert replica.since <= now
            assert all(reason.isprintable() for reason in replica.reasons)
            calm = replica.state in {ReplicaState.OK, ReplicaState.IDLE}
            failed = bool(looked) and looked[-1].failure is not None
            assert bool(replica.reasons) == (not calm or failed)
            times = [event.at for event in replica.events]
            assert times == sorted(times)
            if replica.state not in UP_STATES:
                assert all(signal.quality not in FRESH for signal in replica.signals.values())
        up = [
            replica.scalar("requests_waiting") for replica in snapshot.replicas if replica.state in UP_STATES
        ]
        total = snapshot.fleet.signals["requests_waiting"]
        assert isinstance(total, Scalar)
        assert (total.number or 0.0) == sum(one.number or 0.0 for one in up)
