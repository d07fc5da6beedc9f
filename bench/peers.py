"""This program beside others on the same fleet, in turns: `python -m bench.peers [--replicas 8 64] [--json]`.

Every program runs on a pseudo-terminal of 200x50 and is asked for one scrape a second of every replica; the
server, another process, counts what each really fetched. What is compared is CPU (user and system, drawing
included) per scrape, medians over the rounds; `cores` is what the program would need to keep up with a scrape
a second of every replica. vllmstat and vllm-htop are installed from PyPI once and kept in the cache folder of
the user; ENGINETOP_PEERS_VENV names another place. Prometheus, which draws nothing and writes to disk, is
measured where it is installed. What is done, how long it takes in all, and every look are told on stderr.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.aims import OURS
from bench.page_server import PageServer, page_server
from bench.scale import config
from bench.screen_terminal import Terminal
from tests.support.installing import Environment, kept_folder

PEERS = ("vllmstat==0.9.1", "vllm-htop==0.5.0")
_WARM_UP_SECONDS = 7.0

Row = dict[str, float | None]
"""The figures of one program, units in their names; None: it made no scrape."""

Command = Callable[[Sequence[str], Path], list[str]]
"""What starts a program on these base URLs; it may write into the folder."""


def _tell(said: str) -> None:
    print(said, file=sys.stderr, flush=True)


def _enginetop(urls: Sequence[str], folder: Path) -> list[str]:
    path = folder / "enginetop.toml"
    path.write_text(config(urls, tls=False))
    return [sys.executable, "-m", "enginetop", "--config", str(path), "--interval", "1"]


def _prometheus(urls: Sequence[str], folder: Path) -> list[str]:
    targets = [url.removeprefix("http://") for url in urls]
    path = folder / "prometheus.yml"
    job = {"job_name": "fleet", "static_configs": [{"targets": targets}]}
    settings = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": [job]}
    path.write_text(json.dumps(settings))  # JSON is YAML
    listen = ["--web.listen-address=127.0.0.1:0", f"--storage.tsdb.path={folder / 'data'}"]
    return ["prometheus", f"--config.file={path}", "--log.level=error", *listen]


def _peers(programs: Path) -> dict[str, Command]:
    """Those of PyPI, by name, whose programs are in the folder."""

    def vllmstat(urls: Sequence[str], _: Path) -> list[str]:
        named = [word for url in urls for word in ("-u", url)]
        return [str(programs / "vllmstat"), "--no-gpu", "-i", "1", *named]

    def vllm_htop(urls: Sequence[str], _: Path) -> list[str]:
        return [str(programs / "vllm-htop"), "--no-gpu-detect", "--interval", "1", "--url", *urls]

    return {"vllmstat": vllmstat, "vllm-htop": vllm_htop}


def _commands() -> dict[str, Command]:
    """What is measured, by name: ours, the peers that can be installed, and what the machine has."""
    found: dict[str, Command] = {OURS: _enginetop}
    if (programs := _installed()) is not None:
        found |= _peers(programs)
    if shutil.which("prometheus"):
        found["prometheus"] = _prometheus
    return found


def _installed() -> Path | None:
    """The folder of the peers' programs, installed where they are not; None where that fails."""
    here = Environment(kept_folder("peers-" + "-".join(PEERS).replace("==", "-"), "ENGINETOP_PEERS_VENV"))
    if not here.ready.exists():
        _tell(f"installing {' and '.join(PEERS)} into {here.folder}")
        try:
            here.begin()
            here.pip("install", *PEERS)
        except AssertionError as error:
            _tell(f"they cannot be installed, and are left out: {error}")
            return None
        here.ready.touch()
    return here.folder / "bin"


@dataclass(frozen=True, slots=True)
class _Look:
    """One run: CPU milliseconds per scrape (None: it made none), scrapes a second, and resident MB."""

    cpu_ms: float | None
    per_second: float
    resident_mb: float


def _look(command: list[str], server: PageServer, seconds: float) -> _Look:
    with Terminal(command) as terminal:
        terminal.read_for(_WARM_UP_SECONDS)
        cpu, served = terminal.cpu_seconds(), server.served()
        terminal.read_for(seconds)
        cpu, served = terminal.cpu_seconds() - cpu, server.served() - served
        resident = terminal.resident_mib() * 1.048576
    return _Look(cpu / served * 1000 if served else None, served / seconds, resident)


def _row(looks: Sequence[_Look], replicas: int) -> Row:
    """The medians of one program."""
    known = [look.cpu_ms for look in looks if look.cpu_ms is not None]
    cpu = statistics.median(known) if known else None
    return {
        "cpu_ms_per_scrape": None if cpu is None else round(cpu, 2),
        "cores": None if cpu is None else round(cpu * replicas / 1000, 3),
        "achieved_ratio": round(statistics.median(look.per_second for look in looks) / replicas, 3),
        "rss_mb": round(statistics.median(look.resident_mb for look in looks), 1),
    }


def measure(replicas: int, rounds: int, seconds: float, commands: Mapping[str, Command]) -> dict[str, Row]:
    """The figures of every program on a fleet of so many replicas; they take turns."""
    found: dict[str, list[_Look]] = {name: [] for name in commands}
    with page_server(replicas) as server:
        for number in range(rounds):
            for name, command in commands.items():
                with tempfile.TemporaryDirectory() as folder:
                    look = _look(command(server.good, Path(folder)), server, seconds)
                found[name].append(look)
                cost = "nothing scraped" if look.cpu_ms is None else f"{look.cpu_ms:.2f} ms a scrape"
                place = f"{replicas} replicas, round {number + 1} of {rounds}"
                _tell(f"{place}: {name:11} {cost}, {look.per_second:.1f} scrapes a second")
    rows = {name: _row(looks, replicas) for name, looks in found.items()}
    ours = rows[OURS]["cpu_ms_per_scrape"]
    for row in rows.values():
        theirs = row["cpu_ms_per_scrape"]
        row["ratio_to_ours"] = round(theirs / ours, 2) if theirs is not None and ours else None
    return rows


def _table(replicas: int, figures: Mapping[str, Row]) -> str:
    titles = list(figures[OURS])
    lines = [f"{f'{replicas} replicas':14}" + "".join(f"{title:>19}" for title in titles)]
    for name, row in figures.items():
        cells = ("-" if row[title] is None else f"{row[title]:g}" for title in titles)
        lines.append(f"  {name:12}" + "".join(f"{cell:>19}" for cell in cells))
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="This program beside others on the same fleet.")
    parser.add_argument("--replicas", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--seconds", type=float, default=7.0, help="how long each look lasts, after a warm-up"
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    commands = _commands()
    looks = len(arguments.replicas) * arguments.rounds * len(commands)
    _tell(f"{looks} looks at {', '.join(commands)}: {looks * (_WARM_UP_SECONDS + arguments.seconds):.0f} s")
    for count in arguments.replicas:
        figures = measure(count, arguments.rounds, arguments.seconds, commands)
        print(_table(count, figures), flush=True)
        if arguments.json:
            print(json.dumps({"replicas": count, **figures}), flush=True)


if __name__ == "__main__":
    main()
