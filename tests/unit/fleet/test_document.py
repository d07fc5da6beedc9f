"""The snapshot's JSON form: every key, strict JSON, and null where nothing is known."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from enginetop.fleet.document import SCHEMA, snapshot_document
from enginetop.fleet.figures_document import signal_document
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.model import LocalProcess, Quality, Target
from enginetop.fleet.observation import FailureKind
from enginetop.fleet.reading import ConfigValue
from enginetop.fleet.signals import SIGNALS, Shape
from enginetop.fleet.snapshot import (
    Advice,
    Alert,
    BurnRow,
    CollectorHealth,
    Distribution,
    FleetSnapshot,
    Goodput,
    GpuDevice,
    GpuReport,
    Quantile,
    Scalar,
    Slo,
    Span,
)
from tests.support.looks import failure, page


def words(text: str) -> list[str]:
    return text.split()


# The keys as the contract shows them.
TOP = {"schema", "at", "window_seconds", "fleet", "replicas", "alerts"}
FLEET = {"replicas", "states", "signals", "goodput"}
REPLICA = words(
    "target name engine engine_version stack model role state reasons scraped_at scrape_seconds bad_lines "
    "signals ranks config bound_by goodput events gpus advice"
)
SCALARS = words(
    "requests_running requests_waiting kv_usage_ratio kv_capacity_tokens preemptions preemptions_per_second "
    "prompt_tokens_per_second generation_tokens_per_second requests_finished_per_second "
    "requests_aborted_per_second prefix_hit_ratio external_prefix_hit_ratio spec_acceptance_ratio "
    "spec_accepted_length spec_acceptance_per_position reasoning_share_ratio "
    "reasoning_budget_hit_ratio reasoning_kv_tokens power_watts "
    "energy_joules_per_token cost_per_million_tokens cost_per_million_good_tokens"
)
DISTRIBUTIONS = words(
    "ttft_seconds tpot_seconds itl_seconds e2e_seconds queue_seconds prompt_tokens output_tokens "
    "iteration_tokens reasoning_tokens"
)
GPU = words(
    "index uuid name mig utilization_ratio memory_used_bytes memory_total_bytes unified_memory power_watts "
    "power_limit_watts temperature_celsius sm_clock_mhz throttle_reasons last_xid state source"
)
QUANTILE = {"value", "low", "high", "censored"}


def snapshot() -> FleetSnapshot:
    """One replica that works, one that is down, one never asked."""
    up, down, unseen = (Target(f"http://r{i}:8000", f"r{i}:8000") for i in (1, 2, 3))
    tracker = FleetTracker(
        (up, down, unseen),
        interval_seconds=2.0,
        window_seconds=60.0,
        slo_for=lambda model: Slo(0.6, 0.05, 0.99, "flag") if model else Slo(),
        fixed_spacing_seconds=2.0,
    )
    config = {"max_num_batched_tokens": ConfigValue(2048, "server_info")}
    tracker.observe(up.url, page(100.0, config=config))
    tracker.observe(up.url, page(110.0, config=config, tokens=50, finished=20, e2e=(1, 2, 4)))
    for at in (108.0, 110.0):
        tracker.observe(down.url, failure(at, FailureKind.REFUSED))
    tracker.observe_gpus(GpuReport("r1", 110.0, (GpuDevice(0, "GPU-0", "H100", power_watts=300.0),)))
    return tracker.snapshot(110.0)


def strict(document: Any) -> Any:
    """What a strict reader makes of it."""
    return json.loads(json.dumps(document, allow_nan=False))


DOCUMENT = strict(snapshot_document(snapshot()))


def test_every_key_is_always_there() -> None:
    assert set(DOCUMENT) >= TOP
    assert (DOCUMENT["schema"], DOCUMENT["at"], DOCUMENT["window_seconds"]) == (SCHEMA, 110.0, 60.0)
    assert set(DOCUMENT["fleet"]) >= FLEET
    assert len(DOCUMENT["replicas"]) == 3
    for replica in DOCUMENT["replicas"]:
        assert set(replica) >= set(REPLICA)
    for holder in (DOCUMENT["fleet"], *DOCUMENT["replicas"]):
        assert set(holder["signals"]) == {*SCALARS, *DISTRIBUTIONS}


def test_the_catalogue_is_the_contracts() -> None:
    assert [name for name, signal in SIGNALS.items() if signal.shape is Shape.DISTRIBUTION] == DISTRIBUTIONS
    assert [name for name, signal in SIGNALS.items() if signal.shape is not Shape.DISTRIBUTION] == SCALARS


def test_signals_have_the_shape_of_their_kind() -> None:
    for holder in (DOCUMENT["fleet"], *DOCUMENT["replicas"]):
        for name in SCALARS:
            extra = {"mean"} if name == "kv_usage_ratio" else set()
            assert set(holder["signals"][name]) - {"note"} == {"value", "unit", "quality"} | extra
        for name in DISTRIBUTIONS:
            signal = holder["signals"][name]
            assert set(signal) - {"note"} == {"count", "sum", "unit", "quality"} | {
                *("mean", "p50", "p90", "p95", "p99")
            }
            for key in ("mean", "p50", "p90", "p95", "p99"):
                assert set(signal[key]) == QUANTILE


def test_a_replica_that_works() -> None:
    replica = DOCUMENT["replicas"][0]
    told = {key: replica[key] for key in REPLICA[:12]}
    assert told == {
        "target": "http://r1:8000",
        "name": "r1:8000",
        "engine": "vllm",
        "engine_version": "0.32.0",
        "stack": None,
        "model": "llama",
        "role": "aggregated",
        "state": "ok",
        "reasons": [],
        "scraped_at": 110.0,
        "scrape_seconds": 0.25,
        "bad_lines": 0,
    }
    signals = replica["signals"]
    assert signals["generation_tokens_per_second"] == {"value": 5.0, "unit": "tokens/s", "quality": "ok"}
    # Four requests of 20 s in all: half of them by 20 s, the rest beyond the last bound.
    e2e = signals["e2e_seconds"]
    assert (e2e["count"], e2e["sum"]) == (4.0, 20.0)
    assert e2e["mean"] == {"value": 5.0, "low": None, "high": None, "censored": False}
    assert e2e["p50"] == {"value": 20.0, "low": 10.0, "high": 20.0, "censored": False}
    assert e2e["p99"] == {"value": None, "low": 20.0, "high": None, "censored": True}
    assert replica["config"] == {"max_num_batched_tokens": {"value": 2048, "source": "server_info"}}
    assert replica["events"] == [{"at": 100.0, "kind": "appeared", "detail": ""}]
    assert signals["power_watts"]["value"] == 300.0
    assert replica["bound_by"] == {"none": 1.0}
    assert (replica["advice"], replica["ranks"]) == ([], [])


def test_a_replica_that_is_down() -> None:
    replica = DOCUMENT["replicas"][1]
    assert (replica["state"], replica["reasons"], replica["scraped_at"]) == (
        "down",
        ["connection refused for 2 s"],
        None,
    )
    assert (replica["engine"], replica["role"], replica["model"]) == ("unknown", "unknown", None)
    assert all(replica["signals"][name]["value"] is None for name in SCALARS)
    assert all(replica["signals"][name]["count"] is None for name in DISTRIBUTIONS)


def test_the_fleet() -> None:
    assert DOCUMENT["fleet"]["replicas"] == 3
    assert DOCUMENT["fleet"]["states"] == {"down": 1, "ok": 1, "unknown": 1}


def test_goodput_keeps_its_structure() -> None:
    nothing = {"value": None, "low": None, "high": None, "censored": False}
    span = {"low": None, "high": None, "independent": None}
    burn = DOCUMENT["replicas"][0]["goodput"].pop("burn")
    assert [(row["long_seconds"], row["long"], row["firing"]) for row in burn] == [
        (3600.0, None, False),
        (21600.0, None, False),
        (86400.0, None, False),
        (259200.0, None, False),
    ]
    assert DOCUMENT["replicas"][0]["goodput"] == {
        "offered_per_second": 2.0,
        "requests_per_second": span,
        "attainment": {"ttft": nothing, "tpot": nothing, "joint": {**span, "exact": None}},
        "slo": {"ttft_seconds": 0.6, "tpot_seconds": 0.05, "target": 0.99, "source": "flag"},
        "quality": "unknown",
        "note": "no TTFT histogram exported; no TPOT histogram exported",
    }
    assert DOCUMENT["fleet"]["goodput"]["slo"] == DOCUMENT["replicas"][0]["goodput"]["slo"]
    assert DOCUMENT["replicas"][1]["goodput"]["offered_per_second"] is None


def test_goodput_that_was_estimated() -> None:
    made = snapshot()
    told = Goodput(
        10.0,
        quality=Quality.ESTIMATED,
        ttft=Quantile(0.924, 0.9, 0.96),
        tpot=Quantile(None, 0.5, 1.0, censored=True),
        joint=Span(0.4, 0.96, None),
        within_per_second=Span(3.6, 8.64, None),
        burn=(BurnRow(3600, 300, 15.0, None, 14.4), BurnRow(86400, 7200, 15.0, 16.0, 3.0, firing=True)),
    )
    document = strict(snapshot_document(replace(made, fleet=replace(made.fleet, goodput=told))))
    goodput = document["fleet"]["goodput"]
    assert goodput["requests_per_second"] == {"low": 3.6, "high": 8.64, "independent": None}
    assert goodput["attainment"] == {
        "ttft": {"value": 0.924, "low": 0.9, "high": 0.96, "censored": False},
        "tpot": {"value": None, "low": 0.5, "high": 1.0, "censored": True},
        "joint": {"low": 0.4, "high": 0.96, "independent": None, "exact": None},
    }
    hour = {"long_seconds": 3600, "short_seconds": 300, "long": 15.0, "short": None, "threshold": 14.4}
    day = {"long_seconds": 86400, "short_seconds": 7200, "long": 15.0, "short": 16.0, "threshold": 3.0}
    assert goodput["burn"] == [
        {**hour, "firing": False, "reachable": True},
        {**day, "firing": True, "reachable": True},
    ]


def test_goodput_that_was_counted() -> None:
    counted = Goodput(10.0, 7.2, 0.8, (0.6, 0.05), Quality.OK, "counted")
    made = snapshot()
    made = replace(
        made,
        replicas=(replace(made.replicas[0], goodput=counted),),
        fleet=replace(made.fleet, goodput=replace(counted, exact=math.nan)),
    )
    document = strict(snapshot_document(made))
    goodput = document["replicas"][0]["goodput"]
    assert goodput["offered_per_second"] == 10.0
    assert goodput["requests_per_second"] == {"low": 7.2, "high": 7.2, "independent": None}
    assert goodput["attainment"]["joint"] == {"low": None, "high": None, "independent": None, "exact": 0.8}
    assert (goodput["quality"], goodput["note"]) == ("ok", "counted")
    assert document["fleet"]["goodput"]["attainment"]["joint"]["exact"] is None


def test_a_gpu() -> None:
    (gpu,) = DOCUMENT["replicas"][0]["gpus"]
    assert set(gpu) >= set(GPU)
    assert (gpu["power_watts"], gpu["utilization_ratio"], gpu["state"], gpu["source"]) == (
        300.0,
        None,
        "ok",
        "nvml",
    )


def test_alerts_and_advice_as_the_contract_names_them() -> None:
    made = snapshot()
    advice = Advice(
        "max_num_seqs", "raise", ("KV 40 %",), 64, 128, "sequences", {"x": 1.5}, "high", "live", "v"
    )
    alert = Alert("TargetDown", "critical", "firing", "http://r2:8000", 108.0, 2.0, 30.0, "down", {"a": "b"})
    alert = replace(alert, name="prod-r2")
    made = replace(made, replicas=(replace(made.replicas[0], advice=(advice,)),), alerts=(alert,))
    document = strict(snapshot_document(made))
    assert document["replicas"][0]["advice"] == [
        {
            "knob": "max_num_seqs",
            "action": "raise",
            "from": 64,
            "to": 128,
            "bound_by": "sequences",
            "because": ["KV 40 %"],
            "expected": {"x": 1.5},
            "confidence": "high",
            "apply": "live",
            "via": "v",
        }
    ]
    assert document["alerts"] == [
        {
            "rule": "TargetDown",
            "severity": "critical",
            "state": "firing",
            "target": "http://r2:8000",
            "name": "prod-r2",
            "since": 108.0,
            "value": 2.0,
            "threshold": 30.0,
            "summary": "down",
            "labels": {"a": "b"},
            "inhibited_by": "",
            "silenced_by": "",
            "acknowledged_by": "",
        }
    ]


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_what_json_cannot_say_is_null_and_invalid(odd: float) -> None:
    assert strict(signal_document("power_watts", Scalar(odd, "W", Quality.OK))) == {
        "value": None,
        "unit": "W",
        "quality": "invalid",
    }
    positions = Scalar((0.5, odd), "ratio", Quality.OK)
    assert strict(signal_document("spec_acceptance_per_position", positions)) == {
        "value": [0.5, None],
        "unit": "ratio",
        "quality": "invalid",
    }
    quantiles = {"p50": Quantile(odd, odd, odd)}
    distribution = Distribution(odd, odd, Quantile(odd), quantiles, "s", Quality.OK)
    assert strict(signal_document("e2e_seconds", distribution))["p50"]["value"] is None


def test_null_keeps_its_own_quality_and_note() -> None:
    assert signal_document("x", Scalar(None, "W", Quality.UNSUPPORTED, "no counter")) == {
        "value": None,
        "unit": "W",
        "quality": "unsupported",
        "note": "no counter",
    }


def test_kv_usage_names_the_worst_rank_where_there_is_one() -> None:
    kv = Scalar(0.9, "ratio", Quality.OK, mean=0.5, worst={"engine": "1"})
    assert signal_document("kv_usage_ratio", kv)["worst"] == {"engine": "1"}
    assert "worst" not in signal_document("kv_usage_ratio", replace(kv, worst=None))
    assert "mean" not in signal_document("requests_running", kv)


def test_where_a_replica_runs() -> None:
    process = LocalProcess(4711, ("vllm", "serve"), "vllm.service")
    targets = [
        Target("http://127.0.0.1:8000", "a", process=process),
        Target("http://10.0.0.1:8000", "b", pod="serve/b"),
    ]
    tracker = FleetTracker(
        targets,
        interval_seconds=2.0,
        window_seconds=60.0,
        slo_for=lambda _: Slo(),
        fixed_spacing_seconds=2.0,
    )
    found = snapshot_document(tracker.snapshot(0.0, CollectorHealth()))["replicas"]
    assert [(one["pod"], one["process"]) for one in found] == [
        (None, {"pid": 4711, "argv": ["vllm", "serve"], "unit": "vllm.service", "container": None}),
        ("serve/b", None),
    ]
