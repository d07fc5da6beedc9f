"""A large fleet under the whole program, with the screen painting: `python -m bench.scale [--json]`.

`enginetop` runs on a pseudo-terminal of 200x50 and scrapes pages of 74 KiB over kept connections, one a
replica and interval; the server, another process, counts what it served. Figures: scrapes achieved over
asked, CPU of the whole program (user and system) as a share of one core and per scrape, resident memory.
They are taken `--settle` seconds after the first picture: rules of tuning are asked more seldom after a quiet
minute. `--idle`: of servers that serve nothing. `--tls`: over https.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.figures import tell
from bench.page_server import TLS, page_server
from bench.screen_terminal import Terminal

_SETTLE_SECONDS = 15.0


def config(urls: Sequence[str], *, tls: bool) -> str:
    """A configuration that names these targets."""
    trust = f'ca_file = "{TLS / "server.crt"}"\n' if tls else ""
    return "\n".join(f'[[targets]]\nurl = "{url}"\n{trust}' for url in urls)


def measure(
    replicas: int,
    seconds: float,
    interval: float,
    settle: float = _SETTLE_SECONDS,
    *,
    tls: bool = False,
    idle: bool = False,
) -> dict[str, float]:
    """Run the program on such a fleet, and return the figures."""
    with page_server(replicas, tls=tls, idle=idle) as server, tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.toml")
        path.write_text(config(server.good, tls=tls))
        command = [sys.executable, "-m", "enginetop", "--config", str(path), "--interval", f"{interval:g}"]
        with Terminal(command) as terminal:
            first_seconds = terminal.wait_for(b"/%d up" % replicas, longest_seconds=60.0)
            terminal.read_for(settle)
            cpu, served = terminal.cpu_seconds(), server.served()
            painted = terminal.read_for(seconds)
            cpu, served = terminal.cpu_seconds() - cpu, server.served() - served
            resident = terminal.resident_mib()
    return {
        "replicas": replicas,
        "interval_seconds": interval,
        "settle_seconds": settle,
        "asked_per_second": round(replicas / interval, 1),
        "achieved_per_second": round(served / seconds, 1),
        "achieved_ratio": round(served / seconds / (replicas / interval), 4),
        "cores": round(cpu / seconds, 3),
        "cpu_ms_per_scrape": round(cpu / max(served, 1) * 1000, 3),
        "rss_mb": round(resident * 1.048576, 1),
        "first_picture_seconds": round(first_seconds, 2),
        "screen_bytes_per_second": round(painted / seconds),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="The whole program on a large fleet.")
    parser.add_argument("--replicas", type=int, nargs="+", default=[8, 200, 1000])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--settle", type=float, default=_SETTLE_SECONDS)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--idle", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    for count in arguments.replicas:
        figures = measure(
            count,
            arguments.seconds,
            arguments.interval,
            arguments.settle,
            tls=arguments.tls,
            idle=arguments.idle,
        )
        tell(figures, as_json=arguments.json)


if __name__ == "__main__":
    main()
