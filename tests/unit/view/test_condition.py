"""What leads about a replica: state, alert, its own numbers, a restart, in this order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from enginetop.fleet.model import ReplicaState
from enginetop.fleet.reading import ConfigValue
from enginetop.fleet.snapshot import Goodput, Outlier, ReplicaSnapshot
from tests.tui.snapshots import (
    AT,
    alert,
    censored,
    distribution,
    down_replica,
    event,
    fleet,
    gpu,
    replica,
    scalar,
)
from tui.view.alert_condition import ALERT_WORDS
from tui.view.arrange import Sort, arrange
from tui.view.condition import Conditions, condition_of, conditions_of
from tui.view.severity import Severity


def conditions_of_all(replicas: Sequence[ReplicaSnapshot]) -> Conditions:
    """The conditions of so many, without alerts."""
    return conditions_of(fleet(list(replicas)))


DOUBTS: list[dict[str, Any]] = [
    {"failed_looks": 1, "reasons": ("connection refused once, just now",)},
    {"unanswered_seconds": 2.5, "reasons": ("no answer for 2.5 s",)},
]


@pytest.mark.parametrize("doubt", DOUBTS)
def test_one_failed_look_has_a_word_and_moves_nobody(doubt: dict[str, Any]) -> None:
    for state in (ReplicaState.OK, ReplicaState.IDLE, ReplicaState.DRAINING):
        condition = condition_of(replica("a", state, **doubt), AT)
        assert (condition.severity, condition.word) == (Severity.INFO, "no answer")
        assert condition.because == doubt["reasons"][0]
        assert not condition.needs_you
    quiet, shaken = [replica("a"), replica("b")], [replica("a"), replica("b", **doubt)]
    orders = [
        [
            item.replica.target.name
            for item in arrange(shown, conditions_of_all(shown), Sort())
            if item.replica
        ]
        for shown in (quiet, shaken)
    ]
    assert orders == [["a", "b"], ["a", "b"]]


@pytest.mark.parametrize("doubt", DOUBTS)
def test_what_is_trouble_already_leads_over_a_failed_look(doubt: dict[str, Any]) -> None:
    for state in (ReplicaState.STALE, ReplicaState.NO_PROGRESS, ReplicaState.UNAUTHORIZED):
        assert condition_of(replica("a", state, **doubt), AT).severity >= Severity.WARN
    full = replica("a", changes={"kv_usage_ratio": 0.97, "requests_waiting": 3}, **doubt)
    assert condition_of(full, AT).short == "KV 97 %"
    never = replica("a", ReplicaState.UNKNOWN, scraped_at=None, **doubt)
    assert condition_of(never, AT).severity is Severity.QUIET
    both = replica("a", events=(event("restarted", 10),), **doubt)
    assert condition_of(both, AT).word == "no answer"


@pytest.mark.parametrize("state", list(ReplicaState))
def test_every_state_has_a_word_that_fits_its_column(state: ReplicaState) -> None:
    condition = condition_of(replica("a", state), AT)
    assert 0 < len(condition.word) <= 9


def test_down_says_why_and_when_it_is_asked_again() -> None:
    condition = condition_of(down_replica("c0", 72), AT)
    assert (condition.severity, condition.word, condition.short) == (Severity.CRIT, "down", "down 72 s")
    assert condition.because == "connection refused for 72 s, next try in 4 s"


def test_a_stalled_engine_without_live_progress_is_only_a_warning() -> None:
    stalled = replica("a", ReplicaState.NO_PROGRESS, since=AT - 45)
    assert condition_of(stalled, AT).severity is Severity.CRIT
    assert condition_of(stalled, AT).short == "no progress 45 s"
    quiet = replica("a", ReplicaState.NO_PROGRESS, since=AT - 45, live_progress=False)
    assert condition_of(quiet, AT).severity is Severity.WARN


def test_preempting_names_the_cache() -> None:
    condition = condition_of(
        replica("a", changes={"preemptions_per_second": 2.1, "kv_usage_ratio": 0.97}), AT
    )
    assert (condition.word, condition.short) == ("pressure", "preempting at KV 97 %")
    condition = condition_of(replica("a", changes={"preemptions_per_second": 0.2, "kv_usage_ratio": 0.5}), AT)
    assert (condition.word, condition.short) == ("preempt", "preempting at KV 50 %")


def _gateway(healthy: float, total: float | None, unhealthy: str = "none") -> ReplicaSnapshot:
    beyond = {"backends_healthy": scalar(healthy)}
    if total is not None:
        beyond["backends_total"] = scalar(total)
    config = {"unhealthy_backends": ConfigValue(unhealthy, "health gauges")}
    return replace(replica("g"), beyond=beyond, config=config)


def test_a_gateway_with_a_dead_backend_needs_you() -> None:
    condition = condition_of(_gateway(1, 2, "http://w2"), AT)
    assert (condition.severity, condition.word) == (Severity.WARN, "backends")
    assert (condition.short, condition.because) == ("1 of 2 backends healthy", "not healthy: http://w2")
    assert condition_of(_gateway(0, 2, "http://w1, http://w2"), AT).severity is Severity.CRIT
    none = condition_of(_gateway(0, None), AT)
    assert (none.severity, none.because) == (Severity.CRIT, "no backend to route to")
    assert condition_of(_gateway(2, 2), AT).severity is Severity.OK
    assert condition_of(_gateway(3, None), AT).severity is Severity.OK


def test_a_full_cache_is_trouble_only_with_a_queue() -> None:
    full = {"kv_usage_ratio": 0.97}
    assert condition_of(replica("a", changes=full), AT).severity is Severity.OK
    assert condition_of(replica("a", changes={**full, "requests_waiting": 3}), AT).short == "KV 97 %"


def test_latency_beyond_the_slo_leads_when_enough_requests_say_so() -> None:
    slow = {"tpot_seconds": distribution(0.05, 0.16)}
    assert condition_of(replica("a", changes=slow), AT).short == "TPOT p95 160 ms"
    few = {"tpot_seconds": distribution(0.05, 0.16, count=19)}
    assert condition_of(replica("a", changes=few), AT).severity is Severity.OK
    slow_and_few = {"tpot_seconds": distribution(0.12, 0.16, count=5)}
    assert condition_of(replica("a", changes=slow_and_few), AT).short == "TPOT p50 120 ms"
    hardly_any = {"tpot_seconds": distribution(0.12, 0.16, count=4)}
    assert condition_of(replica("a", changes=hardly_any), AT).severity is Severity.OK
    over = {"ttft_seconds": distribution(1, censored(10))}
    assert condition_of(replica("a", changes=over), AT).short == "TTFT p95 ≥10 s"


def test_a_gpu_that_throttles_for_an_alarming_reason_or_is_lost_leads() -> None:
    hot = replica("a", gpus=(gpu(0), gpu(1, throttle_reasons=("sw_power_cap", "hw_thermal"))))
    assert condition_of(hot, AT).short == "GPU 1 hw_thermal"
    capped = replica("a", gpus=(gpu(0, throttle_reasons=("sw_power_cap",)),))
    assert condition_of(capped, AT).severity is Severity.OK
    old = replica("a", gpus=(gpu(1, throttle_reasons=("hw_thermal",), old=True),))
    assert condition_of(old, AT).severity is Severity.OK
    assert condition_of(replica("a", gpus=(gpu(0, state="lost"),)), AT).word == "gpu lost"


def test_a_restart_is_told_for_two_minutes() -> None:
    assert condition_of(replica("a", events=(event("restarted", 119),)), AT).word == "restarted"
    assert condition_of(replica("a", events=(event("restarted", 121),)), AT).word == "ok"


def test_a_firing_alert_leads_over_numbers_but_not_over_a_failing_state() -> None:
    preempting = replica("a", changes={"preemptions_per_second": 2.1})
    hot = alert("GpuHot", preempting.target.url, "critical", "GPU 0 at 93 °C")
    snapshot = fleet([preempting], alerts=[hot])
    condition = conditions_of(snapshot)[preempting.target.url]
    assert (condition.severity, condition.word, condition.because) == (
        Severity.CRIT,
        "gpu hot",
        "GPU 0 at 93 °C",
    )
    down = down_replica("a")
    assert condition_of(down, AT, [hot]).word == "down"


@pytest.mark.parametrize(
    ("rule", "word", "short"),
    [
        ("CanaryFailed", "undone", "change undone 60 s"),
        ("RollbackFailed", "undo fail", "change not undone 60 s"),
    ],
)
def test_a_change_that_went_wrong_does_not_read_like_one_under_way(rule: str, word: str, short: str) -> None:
    one = replica("a")
    condition = condition_of(one, AT, [alert(rule, one.target.url)])
    assert (condition.word, condition.short) == (word, short)


@pytest.mark.parametrize(
    ("errored", "word"), [(1.0, "errors"), (0.22, "errors"), (0.2, "ok"), (0.0, "ok"), (None, "ok")]
)
def test_a_replica_that_answers_with_errors_is_not_ok(errored: float | None, word: str) -> None:
    changes = {"requests_finished_per_second": 4.2}  # one in twenty of them: 0.21/s
    one = replica("a", changes=changes, goodput=Goodput(4.2, errored_per_second=errored))
    assert condition_of(one, AT).word == word


def test_the_share_that_fails_is_said() -> None:
    one = replica(
        "a",
        changes={"requests_finished_per_second": 4.0},
        goodput=Goodput(4.0, errored_per_second=1.0),
    )
    condition = condition_of(one, AT)
    assert (condition.short, condition.because) == (
        "25 % of requests fail",
        "25 % of requests fail: 1.00/s end in an error",
    )
    acknowledged = condition_of(one, AT, handled={"RequestErrors": "acknowledged by ann"})
    assert not acknowledged.needs_you


@pytest.mark.parametrize(
    ("state", "tried_again"),
    [
        (ReplicaState.DOWN, True),
        (ReplicaState.UNAUTHORIZED, True),
        (ReplicaState.NO_ENGINE_METRICS, True),
        (ReplicaState.NO_PROGRESS, False),  # it answers
    ],
)
def test_only_what_fails_is_tried_again(state: ReplicaState, tried_again: bool) -> None:
    one = replica("a", state, reasons=("why",), next_try_at=AT + 4)
    assert ("next try in 4 s" in condition_of(one, AT).because) is tried_again


def test_what_troubles_a_replica_now_leads_over_a_change_that_was_undone() -> None:
    preempting = replica("a", changes={"preemptions_per_second": 2.1})
    undone = alert("CanaryFailed", preempting.target.url)
    assert condition_of(preempting, AT, [undone]).short.startswith("preempting")
    assert (
        condition_of(replica("a"), AT, [undone, alert("TpotSlo", preempting.target.url)]).word == "tpot slo"
    )
    assert condition_of(replica("a"), AT, [undone]).word == "undone"


@pytest.mark.parametrize("word", ALERT_WORDS.values())
def test_every_word_for_an_alert_fits_its_column(word: str) -> None:
    assert 0 < len(word) <= 9


def test_alerts_of_other_replicas_or_not_firing_do_not_count() -> None:
    one = replica("a")
    other = alert("GpuHot", "http://elsewhere:1", "critical")
    assert conditions_of(fleet([one], alerts=[other]))[one.target.url].word == "ok"


@pytest.mark.parametrize("quiet", [{"inhibited_by": "GpuLost"}, {"silenced_by": "canary"}])
def test_an_alert_that_is_kept_quiet_does_not_lead(quiet: dict[str, str]) -> None:
    one = replica("a3")
    firing = replace(alert("SpeculationUseless", one.target.url), **quiet)  # type: ignore[arg-type]
    assert conditions_of(fleet([one], alerts=[firing]))[one.target.url].word == "ok"


@pytest.mark.parametrize("state", ["pending", "firing"])
@pytest.mark.parametrize(
    ("quiet", "said"),
    [({"silenced_by": "drill"}, "silenced"), ({"acknowledged_by": "ann"}, "acknowledged by ann"), ({}, "")],
)
def test_what_is_quiet_needs_nobody_before_its_hold_is_over_either(
    quiet: dict[str, str], said: str, state: str
) -> None:
    """A replica that was silenced and then stopped asked for somebody until its alert fired."""
    one = down_replica("c0", seconds=5)
    known = replace(alert("TargetDown", one.target.url, "critical"), state=state, **quiet)  # type: ignore[arg-type]
    condition = conditions_of(fleet([one], alerts=[known]))[one.target.url]
    assert (condition.handled, condition.needs_you) == (said, not said)


def test_a_pending_alert_does_not_lead() -> None:
    one = replica("a3")
    pending = replace(alert("SpeculationUseless", one.target.url), state="pending")
    assert conditions_of(fleet([one], alerts=[pending]))[one.target.url].word == "ok"


def test_a_replica_unlike_its_like_is_worth_a_look_but_needs_nobody() -> None:
    odd = (Outlier("kv_usage_ratio", 0.9, 0.52, 6),)
    condition = condition_of(replica("a", outliers=odd), AT)
    assert (condition.word, condition.needs_you) == ("outlier", False)
    assert condition.because == "KV 90 %, median of 6: 52 %"
    pressed = replica("a", outliers=odd, changes={"preemptions_per_second": 2.1, "kv_usage_ratio": 0.97})
    assert condition_of(pressed, AT).word == "pressure"
    assert condition_of(replica("a", ReplicaState.IDLE, outliers=odd), AT).word == "idle"


@pytest.mark.parametrize("signal", ["ttft_seconds.p95", "tpot_seconds.p95", "itl_seconds.p95"])
def test_who_takes_longer_than_its_like_is_slow_and_says_by_what_first(signal: str) -> None:
    odd = (Outlier("kv_usage_ratio", 0.9, 0.52, 6), Outlier(signal, 0.9, 0.2, 5))
    condition = condition_of(replica("a", outliers=odd), AT)
    assert (condition.word, condition.needs_you) == ("slow", False)
    title = {"ttft": "TTFT", "tpot": "TPOT", "itl_": "ITL"}[signal[:4]]
    assert condition.because == f"{title} p95 900 ms, median of 5: 200 ms; KV 90 %, median of 6: 52 %"
