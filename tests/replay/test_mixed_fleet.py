"""A fleet of every engine behind routers, replayed: nothing is counted twice, whoever tells it.

The figures are sums of what the pages in `tests/fixtures` say, read off them by eye.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from enginetop.cli.main import main
from tests.support.engine_pages import fixture

Rise = tuple[bytes, bytes]

# The page of each engine, and how many requests run and wait there.
ENGINES: Mapping[str, tuple[str, int, int]] = {
    "vllm": ("vllm/0.32.0/vllm-0.32.0-loaded.prom", 3, 36),
    "sglang": ("sglang/0.5.23/sglang-0.5.23-load-queued.prom", 4, 15),
    "llamacpp": ("llamacpp/b11549/llama_cpp-b11549-busy.prom", 4, 4),
    "trtllm": ("trtllm/1.3/trtllm-1.3-reconstructed-kvpressure.prom", 48, 23),
    "triton": ("triton/reconstructed/triton-trtllm-reconstructed-pause.prom", 64, 37),
    "tgi": ("tgi/3.3/tgi-3.3-reconstructed-busy.prom", 22, 14),
    "lmdeploy": ("lmdeploy/0.18.0/lmdeploy-0.18.0-collector-generated-idle.prom", 0, 0),
    "dynamo-worker": ("dynamo/1.6.1/dynamo-1.6.1-worker1-kvpressure.prom", 11, 13),
}
RUNNING, WAITING = 156, 142
HIGHEST_KV = 0.9916666666666667  # the Dynamo worker
MEAN_KV = (0.6666666666666667 + 0.78 + 0.947 + 0.9806 + 62100 / 65536 + 0.0 + HIGHEST_KV) / 7

_DYNAMO = "dynamo/1.6.1/dynamo-1.6.1-frontend-kvpressure.prom"
# What routers say of running and waiting requests; None: not told.
ROUTERS: Mapping[str, tuple[str, int, int | None]] = {
    "smg": ("router/smg-1.13.0/smg-1.13.0-real-worker-load.prom", 8, 6),
    "stack": ("router/production-stack-0.1.12/production-stack-0.1.12-collector-load.prom", 7 + 4, None),
    "vllm-router": ("router/vllm-router-0.1.17/vllm-router-0.1.17-load.prom", 3 + 3, None),
    "epp": ("router/llm-d-epp-2026-08/llm-d-epp-2026-08-reconstructed-from-source.prom", 3, 1 + 3),
    "dynamo": (_DYNAMO, 47 - 26, 26),
    "workers": ("router/smg-1.13.0/smg-1.13.0-engine_metrics.prom", 8, 6),
}

_EPP_REQUESTS = (
    b'llm_d_epp_request_total{model_name="chat",target_model_name="llama",fairness_id="default",priority="0"}'
)

# How the second page differs, ten seconds later.
RISES: Mapping[str, tuple[Rise, ...]] = {
    "vllm": (
        (
            b'vllm:generation_tokens_total{engine="0",model_name="tiny"} 9538.0',
            b'vllm:generation_tokens_total{engine="0",model_name="tiny"} 9638.0',
        ),
        (
            b'finished_reason="length",model_name="tiny"} 38.0',
            b'finished_reason="length",model_name="tiny"} 48.0',
        ),
    ),
    "tgi": ((b"\ntgi_request_success 120\n", b"\ntgi_request_success 125\n"),),
    "stack": (
        (
            b'vllm:output_tokens_total{model="llama",server="http://10.0.0.1:8000"} 3000.0',
            b'vllm:output_tokens_total{model="llama",server="http://10.0.0.1:8000"} 3500.0',
        ),
    ),
    "epp": (
        (
            _EPP_REQUESTS + b" 30",
            _EPP_REQUESTS + b" 70",
        ),
    ),
}


def url(name: str) -> str:
    return f"http://{name}:8000"


def pages(names: Mapping[str, tuple[str, int, Any]], t: float, *, risen: bool = False) -> list[str]:
    found = []
    for name, (path, *_) in names.items():
        body = fixture(path)
        for old, new in RISES.get(name, ()) if risen else ():
            assert body.count(old) >= 1, (name, old)
            body = body.replace(old, new)
        at = "/prometheus/metrics" if name == "trtllm" else "/metrics"
        found.append(json.dumps({"t": t, "target": url(name), "path": at, "body": body.decode()}))
    return found


def refused(names: Mapping[str, object], t: float) -> list[str]:
    return [
        json.dumps({"t": t, "target": url(name), "path": "/metrics", "error": "refused"}) for name in names
    ]


def snapshot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: list[str]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The fleet and the replicas by name, as `snapshot --replay` prints them."""
    recording = tmp_path / "mixed.jsonl"
    recording.write_text("\n".join(lines) + "\n")
    assert main(["snapshot", "--replay", str(recording), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    return document["fleet"], {one["name"].partition(":")[0]: one for one in document["replicas"]}


def test_engines_count_once_and_every_system_keeps_its_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = {**ROUTERS, **ENGINES}
    fleet, replicas = snapshot(tmp_path, capsys, [*pages(both, 0.0), *pages(both, 10.0, risen=True)])
    assert (sum(n for _, n, _ in ENGINES.values()), sum(n for _, _, n in ENGINES.values())) == (
        RUNNING,
        WAITING,
    )
    signals = fleet["signals"]
    assert signals["requests_running"]["value"] == RUNNING
    assert signals["requests_waiting"]["value"] == WAITING
    assert signals["kv_usage_ratio"]["value"] == HIGHEST_KV
    assert signals["kv_usage_ratio"]["worst"]["replica"] == "dynamo-worker:8000"
    assert signals["kv_usage_ratio"]["mean"] == pytest.approx(MEAN_KV)
    assert signals["generation_tokens_per_second"]["value"] == pytest.approx(100 / 10)
    # Ten of vLLM and five of TGI; the 40 that the endpoint picker saw are the same requests.
    assert signals["requests_finished_per_second"]["value"] == pytest.approx(15 / 10)
    assert fleet["replicas"] == len(both)
    assert {name: (one["engine"], one["role"]) for name, one in replicas.items() if name in ROUTERS} == {
        "smg": ("router", "router"),
        "stack": ("router", "router"),
        "vllm-router": ("router", "router"),
        "epp": ("router", "gateway"),
        "dynamo": ("dynamo", "gateway"),
        "workers": ("router", "router"),
    }
    for name, (_, running, waiting) in {**ROUTERS, **ENGINES}.items():
        own = replicas[name]["signals"]
        assert (name, own["requests_running"]["value"]) == (name, running)
        assert (name, own["requests_waiting"]["value"]) == (name, waiting)
    assert replicas["epp"]["signals"]["requests_finished_per_second"]["value"] == 4.0
    assert replicas["stack"]["signals"]["generation_tokens_per_second"]["value"] == 50.0
    assert replicas["dynamo-worker"]["stack"] == "dynamo"


@pytest.mark.parametrize("name", ["smg", "stack", "vllm-router", "epp", "dynamo", "workers"])
def test_a_router_alone_is_the_fleet(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = {name: ROUTERS[name]}
    fleet, _ = snapshot(tmp_path, capsys, [*pages(alone, 0.0), *pages(alone, 10.0, risen=True)])
    assert fleet["signals"]["requests_running"]["value"] == ROUTERS[name][1]
    assert fleet["signals"]["requests_waiting"]["value"] == ROUTERS[name][2]


def test_one_engine_silences_every_router(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = {**ROUTERS, "vllm": ENGINES["vllm"]}
    fleet, _ = snapshot(tmp_path, capsys, [*pages(both, 0.0), *pages(both, 10.0, risen=True)])
    assert fleet["signals"]["requests_running"]["value"] == 3
    assert fleet["signals"]["requests_finished_per_second"]["value"] == 1.0


def test_an_engine_that_went_away_is_not_replaced_by_a_routers_view_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    away = {name: ENGINES[name] for name in ("vllm", "sglang")}
    lines = pages({**ROUTERS, **ENGINES}, 0.0)
    staying = {name: one for name, one in ENGINES.items() if name not in away}
    for t in (10.0, 20.0):
        lines += [*pages({**ROUTERS, **staying}, t, risen=True), *refused(away, t)]
    fleet, replicas = snapshot(tmp_path, capsys, lines)
    assert {replicas[name]["state"] for name in away} == {"down"}
    assert fleet["signals"]["requests_running"]["value"] == RUNNING - 3 - 4
    assert fleet["signals"]["requests_waiting"]["value"] == WAITING - 36 - 15
    assert fleet["states"]["down"] == 2


def test_a_dead_worker_is_seen_in_the_routers_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = "router/production-stack-0.1.12/production-stack-0.1.12-collector"
    lines = [
        *pages({"stack": (f"{base}-load.prom", 0, 0)}, 0.0),
        json.dumps(
            {
                "t": 10.0,
                "target": url("stack"),
                "path": "/metrics",
                "body": fixture(f"{base}-dead.prom").decode(),
            }
        ),
    ]
    fleet, replicas = snapshot(tmp_path, capsys, lines)
    stack = replicas["stack"]
    # Six in flight to the one that is left; 24 requests ended in ten seconds, four of them with an error.
    assert stack["signals"]["requests_running"]["value"] == 6
    assert stack["signals"]["requests_running"]["quality"] == "estimated"
    assert stack["signals"]["requests_finished_per_second"]["value"] == pytest.approx(2.4)
    assert stack["beyond"]["backends_healthy"]["value"] == 1
    assert stack["beyond"]["backends_total"]["value"] == 2
    assert stack["config"]["unhealthy_backends"]["value"] == "http://10.0.0.2:8000"
    assert "http://10.0.0.2:8000" in json.dumps(stack["events"])
    assert [rank["labels"]["server"] for rank in stack["ranks"]] == [
        "http://10.0.0.1:8000",
        "http://10.0.0.2:8000",
    ]
    assert [rank["signals"]["requests_running"]["value"] for rank in stack["ranks"]] == [6, None]
    assert fleet["signals"]["requests_running"]["value"] == 6
