"""A recording of a simulated fleet in virtual time: the same bytes from the same seed, on every machine.

    python -m bench.recording FILE [--scenario demo] [--seconds 700] [--seed 7]

Each replica is asked what a live collector would ask, in the same order, but no socket and no clock is used.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from collectors.answer import Answer
from collectors.engines.detect import RECORDED_FIELDS
from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from collectors.record import Recorder
from enginetop.fleet.model import Target
from enginetop.fleet.observation import FailureKind
from enginetop.simulator.builtin import SCENARIOS
from enginetop.simulator.fleet_model import WARM_UP_SECONDS, FleetModel
from enginetop.simulator.frontend import Frontend, Pulse
from enginetop.simulator.gpus import SimulatedGpus
from enginetop.simulator.http_messages import Reply, Request
from enginetop.simulator.knobbed_fleet import KnobbedFleet
from enginetop.simulator.scenario import Scenario

EPOCH = 1_764_468_000.0
"""2025-11-30 02:00:00 UTC."""

_HOST = "127.0.0.1"
_FIRST_PORT = 8000
_MOST_PENDING_BYTES = 1 << 40
"""Virtual time is faster than any disk."""


def record(
    path: Path,
    scenario: Scenario,
    *,
    replicas: int = 12,
    seconds: float = 700.0,
    interval_seconds: float = 2.0,
    seed: int = 7,
    epoch: float = EPOCH,
) -> None:
    """Write a recording of `scenario` to `path`, with a scrape of every replica each interval."""
    model = FleetModel(scenario, replicas, seed, epoch, WARM_UP_SECONDS)
    fleet = KnobbedFleet(model)
    second = 0.0
    targets = [
        Target(f"http://{_HOST}:{_FIRST_PORT + place}", one.name) for place, one in enumerate(model.replicas)
    ]
    pulse = Pulse(lambda: None)
    servers = [Frontend(fleet, one, lambda: second, epoch, pulse) for one in model.replicas]
    feeds = [TargetFeed(target, LayoutCache()) for target in targets]
    gpus = SimulatedGpus(
        _HOST,
        [target.url for target in targets],
        [one.plan.engine for one in model.replicas],
        lambda: model.loads,
    )
    with Recorder(
        path,
        created=epoch,
        targets=targets,
        interval_seconds=interval_seconds,
        keep=RECORDED_FIELDS,
        max_pending_bytes=_MOST_PENDING_BYTES,
    ) as recorder:
        while second <= seconds:
            fleet.advance(second)
            at = epoch + second
            for target, feed, server in zip(targets, feeds, servers, strict=True):
                recorder.record_scrape(target.url, at, _scrape(feed, server, at))
            for report in gpus.read(at):
                recorder.record_gpus(report)
            second += interval_seconds


def _scrape(feed: TargetFeed, server: Callable[[Request], object], at: float) -> list[Answer]:
    answers: list[Answer] = []
    while (path := feed.next_path(answers)) is not None:
        answers.append(_answer(server, path, at))
    feed.take(answers, at, sum(answer.seconds for answer in answers))
    return answers


def _answer(server: Callable[[Request], object], path: str, at: float) -> Answer:
    asked = path.partition("?")[0]
    reply = server(Request("GET", asked, {}))
    if reply is None:
        return Answer(asked, at, error=FailureKind.REFUSED, detail="connection refused")
    if not isinstance(reply, Reply):  # it hangs
        return Answer(asked, at, seconds=1.8, error=FailureKind.TIMEOUT, detail="no answer in 1.8 s")
    headers = {"content-type": reply.content_type}
    return Answer(asked, at, seconds=0.012, status=reply.status, headers=headers, body=reply.body)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--scenario", choices=SCENARIOS, default="demo")
    parser.add_argument("--replicas", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=700.0)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    record(
        args.file,
        SCENARIOS[args.scenario],
        replicas=args.replicas,
        seconds=args.seconds,
        seed=args.seed,
    )


if __name__ == "__main__":
    main()
