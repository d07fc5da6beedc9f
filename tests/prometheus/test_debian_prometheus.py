"""Against a real Prometheus and VictoriaMetrics (Debian's packages): they and we scrape one fleet, and agree.

Every counter and bucket grows in proportion to time, each replica at a pace of its own, so that rates, ratios
and percentiles are the same in any two windows of equal length, whoever took the samples and when.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from collectors.feed import TargetFeed
from collectors.http import HttpFetcher
from collectors.layout import LayoutCache
from collectors.loop import LiveEngine
from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.rules import rule_file
from collectors.prometheus.source import PrometheusLooks, PrometheusSource
from enginetop.cli.main import main
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.model import ReplicaState, Target
from enginetop.fleet.ports import FleetSource
from enginetop.fleet.snapshot import Distribution, FleetSnapshot, ReplicaSnapshot, Scalar, Slo
from tests.support.engine_pages import fixture
from tests.support.small_fleet import wait_until
from tests.support.watch_process import free_port

# A load that goes by the clock: only a machine that keeps up can compare the two.
pytestmark = pytest.mark.verify

WINDOW = 5.0
PACES = (1.0, 0.4, 2.5)
_LINE = re.compile(rb"^([^#{ ]+)(\{[^}]*\})? (\S+)$")
_GROWS = re.compile(rb"(_total|_bucket|_sum|_count)$")
PAGE = fixture("vllm/0.32.0/vllm-0.32.0-loaded.prom")
GPUS = fixture("dcgm/4.5/dcgm-exporter-4.5-reconstructed.prom").replace(b'pod="vllm-0"', b'pod="p0"')


class SteadyFleet:
    """Three engines whose pages are a capture, its counts in proportion to time."""

    def __init__(self) -> None:
        self._began = time.time()
        self._lines = [(line, _LINE.match(line)) for line in PAGE.splitlines()]
        fleet = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                pace = re.fullmatch(r"/r/(\d)/metrics", self.path)
                body = fleet.page(PACES[int(pace[1])]) if pace else GPUS if self.path == "/gpus" else b""
                self.send_response(200 if body else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.address = f"127.0.0.1:{self._server.server_port}"

    def page(self, pace: float) -> bytes:
        """The page now."""
        grown = (time.time() - self._began) * pace
        return b"\n".join(self._at(line, match, grown) for line, match in self._lines) + b"\n"

    @staticmethod
    def _at(line: bytes, match: re.Match[bytes] | None, grown: float) -> bytes:
        if match is None or not _GROWS.search(match[1]) or match[1].startswith(b"process_"):
            return line
        return b"%b%b %r" % (match[1], match[2] or b"", float(match[3]) * grown)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture(scope="module")
def fleet() -> Iterator[SteadyFleet]:
    made = SteadyFleet()
    yield made
    made.close()


def prometheus_flags(folder: Path, address: str) -> list[str]:
    return [
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]


def victoria_flags(folder: Path, address: str) -> list[str]:
    return [
        f"-promscrape.config={folder / 'prometheus.yml'}",
        f"-storageDataPath={folder / 'data'}",
        f"-httpListenAddr={address}",
        "-maxLabelsPerTimeseries=60",  # of vLLM's cache_config_info it would drop what is above 30
    ]


SERVERS = {
    "prometheus": (prometheus_flags, "ready to receive web requests"),
    "victoria-metrics": (victoria_flags, "started VictoriaMetrics"),
}
"""Command of Debian's package (it has the package's name), its flags, and what it says when it is ready."""


@pytest.fixture(scope="module", params=SERVERS)
def prometheus(
    request: pytest.FixtureRequest, fleet: SteadyFleet, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    binary = shutil.which(request.param)
    if binary is None:
        pytest.skip(f"no {request.param} here: apt-get install {request.param}")
    flags, ready = SERVERS[request.param]
    folder = tmp_path_factory.mktemp("prometheus")
    labels = [
        {"pod": f"p{i}", "instance": f"r{i}:8000", "__metrics_path__": f"/r/{i}/metrics"} for i in range(3)
    ]
    groups = [{"targets": [fleet.address], "labels": one} for one in labels]
    groups.append({"targets": ["127.0.0.1:1"], "labels": {"pod": "dead", "instance": "dead:8000"}})
    (folder / "sd.json").write_text(json.dumps(groups))
    # a rate is over its whole range, whatever there is of it: five minutes are more than this server has
    (folder / "rules.yml").write_text(rule_file().replace("[5m]", f"[{WINDOW:.0f}s]"))
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 500ms"
        + f", evaluation_interval: 1s}}\nrule_files: ['{folder / 'rules.yml'}'"
        * (request.param == "prometheus")
        + ("]\n" if request.param == "prometheus" else "}\n")
        + f"scrape_configs: [{{job_name: vllm, file_sd_configs: [{{files: ['{folder / 'sd.json'}']}}]}}, "
        f"{{job_name: dcgm, metrics_path: /gpus, static_configs: [{{targets: ['{fleet.address}'], "
        "labels: {pod: dcgm-x, namespace: gpu-operator}}]}]\n"
    )
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen([binary, *flags(folder, address)], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if ready in line:
            break
    drain = threading.Thread(target=process.stderr.read, daemon=True)
    drain.start()
    yield f"http://{address}"
    process.terminate()
    process.wait(30)
    drain.join(5)
    process.stderr.close()


def tracker_of(targets: tuple[Target, ...], spacing: float | None) -> FleetTracker:
    return FleetTracker(
        targets,
        interval_seconds=0.5,
        window_seconds=WINDOW,
        slo_for=lambda _: Slo(),
        fixed_spacing_seconds=spacing,
    )


def figures(replica: ReplicaSnapshot) -> dict[str, float | None]:
    """Every number of a replica that rests on its pages."""
    found: dict[str, float | None] = {}
    for name, value in replica.signals.items():
        if isinstance(value, Scalar) and isinstance(value.value, int | float | None):
            found[name] = value.number
        elif isinstance(value, Distribution):
            found |= {f"{name} {q}": quantile.value for q, quantile in value.quantiles.items()}
            found[f"{name} mean"] = value.mean.value
    return found


def by_name(snapshot: FleetSnapshot) -> dict[str, ReplicaSnapshot]:
    return {replica.target.name: replica for replica in snapshot.replicas}


def filled(snapshot: FleetSnapshot) -> bool:
    """Whether the windows of all three are full of pages."""
    found = by_name(snapshot)
    return all(f"p{i}" in found and len(found[f"p{i}"].trend_times) > 0 for i in range(3)) and all(
        (found[f"p{i}"].totals.get("generation_tokens") or 0) > 0 for i in range(3)
    )


def settle(source: FleetSource) -> FleetSnapshot:
    """A snapshot whose windows lie wholly inside what was watched."""
    first = wait_until(source, filled)
    return wait_until(source, lambda seen: seen.at > first.at + WINDOW + 1.5)


def test_we_and_a_prometheus_agree(fleet: SteadyFleet, prometheus: str) -> None:
    targets = tuple(Target(f"http://{fleet.address}/r/{i}", f"p{i}", "/metrics") for i in range(3))
    layouts = LayoutCache()
    direct = LiveEngine(
        targets,
        tracker=tracker_of(targets, 0.5),
        new_feed=lambda target: TargetFeed(target, layouts),
        new_fetcher=HttpFetcher,
        interval_seconds=0.5,
        window_seconds=WINDOW,
    )
    looks = PrometheusLooks(
        PrometheusClient(prometheus),
        tracker=tracker_of((), None),
        new_feed=lambda target: TargetFeed(target, layouts),
        backfill_seconds=WINDOW,
    )
    source = PrometheusSource(looks, 0.5)
    direct.start()
    source.start()
    try:
        theirs, ours = by_name(settle(source)), by_name(settle(direct))
    finally:
        direct.stop()
        source.stop()
    assert theirs["dead"].state is ReplicaState.DOWN
    assert "connection refused" in theirs["dead"].reasons[0]
    numbers = 0
    for i in range(3):
        one, other = ours[f"p{i}"], theirs[f"p{i}"]
        assert (one.engine, one.model, one.role) == (other.engine, other.model, other.role)
        assert one.state is other.state is ReplicaState.OK
        assert dict(one.config).keys() - dict(other.config).keys() <= {"max_model_len"}
        mine, found = figures(one), figures(other)
        # An increase, not a rate: a window may end a scrape earlier and begin one further back.
        assert found.pop("preemptions") == pytest.approx(mine.pop("preemptions"), rel=2 * 0.6 / WINDOW)
        assert found == pytest.approx(mine, rel=0.02), f"p{i}"
        numbers += sum(value is not None for value in mine.values())
    assert numbers > 3 * 40  # it compared something


RECORDED = {
    "enginetop:generation_tokens:rate5m": "generation_tokens_per_second",
    "enginetop:requests_finished:rate5m": "requests_finished_per_second",
    "enginetop:requests_running": "requests_running",
    "enginetop:kv_usage_ratio": "kv_usage_ratio",
    "enginetop:ttft_seconds:p50_5m": "ttft_seconds p50",
    "enginetop:ttft_seconds:p95_5m": "ttft_seconds p95",
    "enginetop:e2e_seconds:p99_5m": "e2e_seconds p99",
}


def test_recorded_rules_say_what_raw_samples_say(fleet: SteadyFleet, prometheus: str) -> None:
    """The load is steady, so that any window says the same."""
    client = PrometheusClient(prometheus)
    layouts = LayoutCache()
    looks = PrometheusLooks(
        client,
        tracker=tracker_of((), None),
        new_feed=lambda target: TargetFeed(target, layouts),
        backfill_seconds=WINDOW,
    )
    source = PrometheusSource(looks, 0.5)
    source.start()
    try:
        raw = by_name(settle(source))
    finally:
        source.stop()
    now = client.now()
    recorded: dict[tuple[str, str], float] = {}
    for name in RECORDED:
        for series in client.over(name, now - 2, now, 1):
            recorded[(name, series["metric"]["instance"])] = float(series["values"][-1][1])
    if not recorded:
        pytest.skip("this server records no rules by itself")
    for name, signal in RECORDED.items():
        for i in range(3):
            mine = figures(raw[f"p{i}"])[signal]
            assert recorded[(name, f"r{i}:8000")] == pytest.approx(mine, rel=0.02), (name, i)
    client.close()


def test_the_series_of_a_gpu_exporter_are_joined_by_pod(prometheus: str) -> None:
    layouts = LayoutCache()
    looks = PrometheusLooks(
        PrometheusClient(prometheus),
        tracker=tracker_of((), None),
        new_feed=lambda target: TargetFeed(target, layouts),
        backfill_seconds=WINDOW,
    )
    source = PrometheusSource(looks, 0.5)
    source.start()
    try:
        seen = by_name(wait_until(source, lambda seen: any(one.gpus for one in seen.replicas)))
    finally:
        source.stop()
    (gpu,) = seen["p0"].gpus
    assert (gpu.pod, gpu.joined_by, gpu.utilization_ratio, gpu.source) == ("serve/p0", "pod", 0.97, "dcgm")
    assert gpu.memory_used_bytes == 128511 * 1048576.0
    assert seen["p1"].gpus == ()


def wait_for_past(url: str, seconds: float) -> None:
    """Until the server has scraped every target for so long."""
    client = PrometheusClient(url)
    until = time.monotonic() + 60.0
    try:
        while time.monotonic() < until:
            found = client.matrix('up{job="vllm"}[1m]', client.now())
            spans = [float(one["values"][-1][0]) - float(one["values"][0][0]) for one in found]
            if len(spans) == len(PACES) + 1 and min(spans) >= seconds:
                return
            threading.Event().wait(0.2)
    finally:
        client.close()
    raise AssertionError(f"{url} has not scraped for {seconds} s: {spans}")


def test_the_commands_read_it(prometheus: str, capsys: pytest.CaptureFixture[str]) -> None:
    wait_for_past(prometheus, WINDOW + 1.0)
    assert main(["snapshot", "--prometheus", prometheus, "--window", "5"]) == 0
    document = json.loads(capsys.readouterr().out)
    states = {replica["name"]: replica["state"] for replica in document["replicas"]}
    assert {name: state for name, state in states.items() if name != "dead"} == dict.fromkeys(
        ("p0", "p1", "p2"), "ok"
    )
    assert main(["snapshot", "--prometheus", prometheus, "--window", "2", "--at", "1s"]) == 0
    past = json.loads(capsys.readouterr().out)
    assert past["at"] <= document["at"] + 5
    assert {replica["name"] for replica in past["replicas"]} >= {"p0", "p1", "p2"}
    assert main(["check", "--prometheus", prometheus]) == 2  # one is down
    assert "dead down" in capsys.readouterr().out
