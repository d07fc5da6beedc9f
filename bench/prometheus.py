"""Looks at a large fleet that a Prometheus scrapes: `python -m bench.prometheus [--replicas N] [--json]`.

Replicas are simulated vLLM pages of another process, without the HTTP server's own series; the Prometheus is
the machine's `prometheus` (apt-get install prometheus). Figures: seconds of the first look with its past,
and of each further one, with the CPU seconds that are ours and that are the server's (its scraping, as it
goes by itself, taken off).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from bench.figures import tell
from bench.page_server import page_server
from bench.process_figures import cpu_seconds
from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.source import PrometheusLooks
from enginetop.cli.garbage import pace_garbage
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.snapshot import Slo

SCRAPE_SECONDS = 30
_WINDOW_SECONDS = 60.0
_BACKFILL_SECONDS = 90.0
_IDLE_SECONDS = 5.0
_PATIENCE_SECONDS = 300.0
"""With the shares of a machine that others use too, figures in seconds say little; those of CPU do."""


@contextmanager
def prometheus(urls: list[str], folder: Path, port: int, keep: str) -> Iterator[tuple[str, int]]:
    """The server (URL, pid), scraping these URLs; `keep` is a regular expression of names that it keeps."""
    binary = shutil.which("prometheus")
    if binary is None:
        raise SystemExit("no prometheus here: apt-get install prometheus")
    config = {
        "global": {"scrape_interval": f"{SCRAPE_SECONDS}s"},
        "scrape_configs": [
            {
                "job_name": "vllm",
                "static_configs": [{"targets": [urlsplit(url).netloc for url in urls]}],
                "metric_relabel_configs": [
                    {"source_labels": ["__name__"], "regex": "(http|python)_.*", "action": "drop"},
                    {"source_labels": ["__name__"], "regex": keep, "action": "keep"},
                ],
            }
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    flags = [
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("w") as log, subprocess.Popen([binary, *flags], stderr=log) as process:
        try:
            yield f"http://127.0.0.1:{port}", process.pid
        finally:
            process.terminate()


def measure(replicas: int, looks: int, warm_seconds: float, port: int, keep: str) -> dict[str, float]:
    """Run it and return the figures."""
    pause = threading.Event()
    pace_garbage(replicas)  # as the command does
    with (
        page_server(replicas) as server,
        tempfile.TemporaryDirectory() as name,
        prometheus(server.good, Path(name), port, keep) as (url, pid),
    ):
        pause.wait(warm_seconds)
        client = PrometheusClient(url, timeout_seconds=_PATIENCE_SECONDS)
        layouts = LayoutCache()
        watched = PrometheusLooks(
            client,
            tracker=FleetTracker(
                (),
                interval_seconds=SCRAPE_SECONDS,
                window_seconds=_WINDOW_SECONDS,
                slo_for=lambda _: Slo(),
                fixed_spacing_seconds=None,
            ),
            new_feed=lambda target: TargetFeed(target, layouts),
            backfill_seconds=_BACKFILL_SECONDS,
        )
        took: list[float] = []
        spent: list[float] = []
        theirs: list[float] = []
        idle = 0.0  # CPU seconds a second
        for _ in range(looks + 1):
            began, cpu, served = time.monotonic(), time.process_time(), cpu_seconds(pid)
            snapshot = watched.look()
            took.append(time.monotonic() - began)
            spent.append(time.process_time() - cpu)
            ended, used = time.monotonic(), cpu_seconds(pid)
            pause.wait(max(_IDLE_SECONDS, SCRAPE_SECONDS / 2 - took[-1]))
            idle = (cpu_seconds(pid) - used) / (time.monotonic() - ended)
            theirs.append(max(0.0, used - served - idle * took[-1]))
        now = client.now()
        held = client.over("sum by () (scrape_samples_post_metric_relabeling)", now - 1, now, 1)
        watched.close()
    return {
        "replicas": len(snapshot.replicas),
        "series_per_replica": float(held[0]["values"][-1][1]) / max(1, len(snapshot.replicas)),
        "first_look_seconds": round(took[0], 2),
        "look_seconds_median": round(sorted(took[1:])[len(took[1:]) // 2], 2),
        "look_seconds_max": round(max(took[1:]), 2),
        "look_cpu_seconds_max": round(max(spent[1:]), 2),
        "look_server_cpu_seconds_max": round(max(theirs[1:]), 2),
        "load_average": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Looks at a large fleet that a Prometheus scrapes.")
    parser.add_argument("--replicas", type=int, default=1000)
    parser.add_argument("--looks", type=int, default=6)
    parser.add_argument("--warm-seconds", type=float, default=100.0)
    parser.add_argument("--port", type=int, default=39090)
    parser.add_argument("--keep", default=".*", metavar="REGEX", help="names that the Prometheus keeps")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = measure(
        arguments.replicas, arguments.looks, arguments.warm_seconds, arguments.port, arguments.keep
    )
    tell(figures, as_json=arguments.json)


if __name__ == "__main__":
    main()
