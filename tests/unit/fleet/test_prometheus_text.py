"""The Prometheus form of a snapshot, read back by prometheus_client's own parser."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from enginetop.fleet.model import Quality, ReplicaState
from enginetop.fleet.prometheus_text import prometheus_text
from enginetop.fleet.snapshot import Quantile, ReplicaSnapshot, SignalValue
from tests.tui.snapshots import (
    AT,
    alert,
    censored,
    distribution,
    down_replica,
    exact,
    fleet,
    no_distribution,
    replica,
    scalar,
)

Read = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def read(replicas: list[ReplicaSnapshot], **fields: object) -> Read:
    """Samples by name and labels, without those that only name the target."""
    text = prometheus_text(fleet(replicas, **fields))  # type: ignore[arg-type]
    found: Read = {}
    for family in text_string_to_metric_families(text):
        assert family.type == ("summary" if "quantile" in family.samples[0].labels else "gauge")
        assert family.documentation
        for sample in family.samples:
            labels = {k: v for k, v in sample.labels.items() if k not in ("target", "model")}
            key = (sample.name, tuple(sorted(labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def test_looks_that_failed_or_wait() -> None:
    found = read([replica("a"), replica("b", failed_looks=1), replica("c", unanswered_seconds=1.5)])
    failed = [found["enginetop_replica_failed_looks", (("name", name),)] for name in "abc"]
    assert failed == [0, 1, 0]
    waits = {key: value for key, value in found.items() if key[0] == "enginetop_replica_unanswered_seconds"}
    assert waits == {("enginetop_replica_unanswered_seconds", (("name", "c"),)): 1.5}


def test_signals_percentiles_and_states() -> None:
    changes: dict[str, float | SignalValue | None] = {
        "kv_usage_ratio": 0.64,
        "spec_acceptance_per_position": scalar((0.8, 0.6)),
        "ttft_seconds": distribution(0.12, 0.31, count=40),
    }
    found = read([replica("a", changes=changes), down_replica("b")])
    a = (("name", "a"),)
    assert found["enginetop_replica_kv_usage_ratio", a] == 0.64
    assert found["enginetop_replica_ttft_seconds", (*a, ("quantile", "0.95"))] == 0.31
    assert found["enginetop_replica_ttft_seconds_mean", a] == 0.12
    assert found["enginetop_replica_ttft_seconds_observations", a] == 40
    assert found["enginetop_replica_spec_acceptance_per_position", (*a, ("position", "1"))] == 0.6
    assert found["enginetop_replica_up", a] == 1
    assert found["enginetop_replica_up", (("name", "b"),)] == 0
    assert found["enginetop_replica_state", (("name", "b"), ("state", "down"))] == 1
    assert sum(value for (name, _), value in found.items() if name == "enginetop_replica_state") == 2
    assert found["enginetop_replica_page_age_seconds", a] == 1
    assert found["enginetop_snapshot_time_seconds", ()] == AT
    assert found["enginetop_fleet_generation_tokens_per_second", ()] == 2310
    assert (
        found["enginetop_replica_info", (("engine", "vllm"), *a, ("role", "decode"), ("version", "0.33.0"))]
        == 1
    )


def test_what_is_not_known_has_no_sample() -> None:
    changes: dict[str, float | SignalValue | None] = {
        "kv_usage_ratio": None,
        "prefix_hit_ratio": scalar(None, Quality.UNSUPPORTED),
        "itl_seconds": no_distribution(),
        "ttft_seconds": distribution(exact(0.1), censored(2.5)),
        "tpot_seconds": replace(distribution(0.1, 0.2, count=0), mean=Quantile(), quantiles={}),
    }
    found = read([replica("a", changes=changes)])
    ours = {(name, labels) for name, labels in found if name.startswith("enginetop_replica")}
    names = {name for name, _ in ours}
    assert not {n for n in names if "kv_usage" in n or "prefix_hit" in n or "itl" in n}
    assert {labels[1][1] for name, labels in ours if name == "enginetop_replica_ttft_seconds"} == {
        "0.5",
        "0.9",
    }
    assert found["enginetop_replica_tpot_seconds_observations", (("name", "a"),)] == 0
    assert "enginetop_replica_tpot_seconds" not in names


def test_what_is_old_or_in_doubt_has_no_sample() -> None:
    """A scrape would give it the date of today."""
    old: dict[str, float | SignalValue | None] = {
        "kv_usage_ratio": scalar(0.64, Quality.STALE),
        "spec_acceptance_per_position": scalar((0.8, 0.6), Quality.STALE),
        "ttft_seconds": replace(distribution(0.12, 0.31, count=40), quality=Quality.STALE),
        "prefix_hit_ratio": scalar(64.0, Quality.SUSPECT),
        "requests_running": scalar(3.0, Quality.ESTIMATED),
    }
    found = read([replica("a", ReplicaState.STALE, changes=old)])
    told = {name.removeprefix("enginetop_replica_") for name, _ in found}
    assert not {
        name for name in told if name.startswith(("kv_usage", "spec_acceptance_per", "ttft", "prefix_hit"))
    }
    assert found["enginetop_replica_requests_running", (("name", "a"),)] == 3.0


def test_numbers_that_are_none() -> None:
    changes = {"power_watts": float("inf"), "requests_waiting": float("-inf")}
    found = read([replica("a", changes=changes)])
    assert found["enginetop_replica_power_watts", (("name", "a"),)] == float("inf")
    assert found["enginetop_replica_requests_waiting", (("name", "a"),)] == float("-inf")


def test_alerts() -> None:
    fires = replace(alert("TargetDown", "http://b:1", "critical"), labels={"engine": "vllm"})
    over = replace(fires, state="resolved", target="http://c:1")
    found = read([], alerts=(fires, over))
    labels = (("engine", "vllm"), ("rule", "TargetDown"), ("severity", "critical"), ("state", "firing"))
    assert {key: v for key, v in found.items() if key[0] == "enginetop_alert"} == {
        ("enginetop_alert", labels): 1
    }


@settings(max_examples=60, deadline=None)
@given(
    model=st.text(max_size=20).filter(lambda text: "\r" not in text),
    value=st.floats(allow_nan=False),
    state=st.sampled_from(ReplicaState),
)
def test_any_label_and_any_number_comes_back(model: str, value: float, state: ReplicaState) -> None:
    one = replica("a", state, model=model, changes={"power_watts": value})
    text = prometheus_text(fleet([one]))
    (family,) = [f for f in text_string_to_metric_families(text) if f.name == "enginetop_replica_power_watts"]
    (sample,) = family.samples
    assert sample.value == value
    assert sample.labels.get("model", "") == model
