"""Events come from comparing facts with the ones before."""

from __future__ import annotations

import math
from collections.abc import Mapping

from enginetop.fleet.events import EventLog, is_lull
from enginetop.fleet.model import ReplicaState
from enginetop.fleet.reading import ConfigValue


def config(**values: float | str | bool | None) -> Mapping[str, ConfigValue]:
    return {key: ConfigValue(value, "server_info") for key, value in values.items()}


def told(log: EventLog) -> list[tuple[float, str, str]]:
    return [(event.at, event.kind, event.detail) for event in log.events()]


def test_a_state_change_names_both_states_and_the_first_reason() -> None:
    log = EventLog()
    log.state_changed(5.0, ReplicaState.OK, ReplicaState.DOWN, ("connection refused for 2 s", "more"))
    log.state_changed(9.0, ReplicaState.DOWN, ReplicaState.OK, ())
    assert told(log) == [
        (5.0, "state_changed", "ok -> down: connection refused for 2 s"),
        (9.0, "state_changed", "down -> ok"),
    ]


def test_what_happened_does_not_give_way_to_lulls() -> None:
    """A replica under little load is idle every few seconds: a hundred such turns are no news."""
    log = EventLog()
    log.restarted(1.0, "counters fell", None, None)
    busy = ReplicaState.OK
    for second in range(2, 102):
        busy, before = (ReplicaState.IDLE if busy is ReplicaState.OK else ReplicaState.OK), busy
        log.state_changed(float(second), before, busy, ())
    assert len(log.events()) == 64
    assert [event.at for event in log.events() if not is_lull(event)] == [1.0]
    assert log.events()[-1].at == 101.0
    for second in range(102, 202):
        log.restarted(float(second), "counters fell", None, None)
    assert [event.at for event in log.events()] == list(range(138, 202))


def test_a_restart_names_a_new_version_only() -> None:
    log = EventLog()
    log.restarted(1.0, "new start time", "0.32.0", "0.33.0")
    log.restarted(2.0, "counters fell", "0.33.0", "0.33.0")
    log.restarted(3.0, "counters fell", None, "0.33.0")
    assert [detail for _, _, detail in told(log)] == [
        "new start time, 0.32.0 -> 0.33.0",
        "counters fell",
        "counters fell",
    ]


def test_only_a_different_known_value_is_a_config_change() -> None:
    log = EventLog()
    log.configured(1.0, config(max_num_seqs=64, dtype="bf16"))
    log.configured(2.0, config(max_num_seqs=64, dtype="bf16"))  # equal
    log.configured(3.0, config(dtype="bf16", block_size=16))  # one is missing, one is new
    log.configured(4.0, config(max_num_seqs=None, dtype="bf16"))  # not known just now
    assert told(log) == []
    log.configured(5.0, config(max_num_seqs=128, dtype="fp8"))  # against the last known value
    assert told(log) == [
        (5.0, "config_changed", "max_num_seqs 64 -> 128"),
        (5.0, "config_changed", "dtype bf16 -> fp8"),
    ]


def test_a_setting_that_is_not_a_number_never_changes() -> None:
    log = EventLog()
    for at in (1.0, 2.0, 3.0):
        log.configured(at, config(x=math.nan))
    assert told(log) == []


def test_preemptions_begin_and_end_once() -> None:
    log = EventLog()
    for at, value in enumerate([0.0, None, 2.0, 1.0, None, 0.0, 0.0, 4.0]):
        log.preemptions(float(at), value)
    assert [(at, kind) for at, kind, _ in told(log)] == [
        (2.0, "preemptions_began"),
        (5.0, "preemptions_ended"),
        (7.0, "preemptions_began"),
    ]


def test_the_list_is_bounded_and_keeps_the_newest() -> None:
    log = EventLog()
    for at in range(1000):
        log.appeared(float(at))
    assert len(log.events()) == 64
    assert log.events()[-1].at == 999.0
