"""Putting the rooms together: which tracker, feeds, fetcher and GPU source a run uses."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

from collectors.engines.detect import RECORDED_FIELDS
from collectors.http import HttpFetcher
from collectors.loop import LiveEngine
from collectors.raw_page import RawPageTap
from collectors.record import Recorder
from collectors.replay import Finish, ReplaySource, run_replay
from collectors.sample import sample_fleet
from enginetop.cli.alerting import alert_book
from enginetop.cli.discovering import membership
from enginetop.cli.fleet_parts import feeds, finishing, tracker_of
from enginetop.cli.live_advice import Clients, LiveAdvice
from enginetop.cli.record_logs import record_reader
from enginetop.cli.settings import Settings
from enginetop.fleet.model import Target
from enginetop.fleet.ports import FleetSource, GpuSource
from enginetop.fleet.snapshot import FleetSnapshot
from tuners.advice import Advisor

_PICTURES_PER_SECOND = 200.0
"""What a core has time to judge beside scraping a thousand pages a second (`bench.scale`)."""


def _gpu_exporters(settings: Settings) -> GpuSource | None:
    """The GPUs that exporters tell of; None where none is named."""
    if not settings.gpu_exporters:
        return None
    from collectors.gpu.exporters import ExporterGpus

    credentials = {exporter.url: how for exporter, how in settings.gpu_exporters}
    return ExporterGpus(
        [exporter for exporter, _ in settings.gpu_exporters],
        lambda: HttpFetcher(credentials),
        settings.timeout_seconds,
    )


def sample(
    settings: Settings, targets: Sequence[Target], samples: int, gpu_source: GpuSource | None
) -> FleetSnapshot:
    """Scrape `samples` times and return the snapshot.

    Logs of requests are read from their start: there was no time to follow them. ConfigError when one of them
    cannot be used, or when a Prometheus does not answer.
    """
    if settings.prometheus is not None:
        from enginetop.cli.prometheus_wiring import sample_of_prometheus

        return sample_of_prometheus(settings)
    reader = record_reader(settings.records, targets, from_start=True)
    tracker = tracker_of(settings, targets, settings.interval_seconds)
    return sample_fleet(
        targets,
        tracker=tracker,
        records=None if reader is None else (reader, tracker.observe_claimed),
        new_feed=feeds(),
        new_fetcher=lambda: HttpFetcher(settings.credentials),
        samples=samples,
        interval_seconds=settings.interval_seconds,
        timeout_seconds=settings.timeout_seconds,
        finish=finishing(Advisor(), alert_book(settings, targets)),
        gpu_source=gpu_source,
        gpu_exporters=_gpu_exporters(settings),
    )


def live_engine(
    settings: Settings,
    targets: Sequence[Target],
    gpu_source: GpuSource | None,
    recorder: Recorder | None = None,
    alert: Finish | None = None,
    tap: RawPageTap | None = None,
    *,
    in_turns: bool = False,
) -> FleetSource:
    """An engine that scrapes the targets until it is stopped, with advice that knows their knobs.

    With a Prometheus its scrapes are taken instead; knobs only where that is asked for. `alert` adds the
    alerts; None: a book of its own does. `tap` sees the pages. `in_turns`: of a large fleet not every figure
    is worked out anew at every tick, for those who watch on and on.
    """

    if settings.prometheus is not None:
        from enginetop.cli.prometheus_wiring import prometheus_source

        return prometheus_source(settings, recorder, alert or alert_book(settings, targets), tap)

    def knob_clients() -> Clients:
        from enginetop.cli import knob_paths  # its HTTP client costs more than a scrape: who asks pays it

        return knob_paths.knob_clients(settings, targets)

    reader = record_reader(settings.records, targets, from_start=False)
    members = membership(settings.discovery, settings.targets, settings.credentials)
    if members is not None:
        targets = members.begin(time.time())
    tracker = tracker_of(
        settings, targets, settings.interval_seconds, _PICTURES_PER_SECOND if in_turns else math.inf
    )
    return LiveEngine(
        targets,
        tracker=tracker,
        records=None if reader is None else (reader, tracker.observe_claimed),
        members=None if members is None else (members, tracker),
        new_feed=feeds() if tap is None else tap.over(feeds()),
        new_fetcher=lambda: HttpFetcher(settings.credentials if members is None else members.credentials),
        interval_seconds=settings.interval_seconds,
        timeout_seconds=settings.timeout_seconds,
        window_seconds=settings.window_seconds,
        finish=finishing(
            LiveAdvice(
                knob_clients, tracker.set_thinking_budget, {*settings.restarts, *settings.engine_apis}
            ),
            alert or alert_book(settings, targets),
        ),
        gpu_source=gpu_source,
        gpu_exporters=_gpu_exporters(settings),
        recorder=recorder,
    )


def recorder(settings: Settings, targets: Sequence[Target], path: Path, created: float) -> Recorder:
    """A recorder that writes to `path`. ConfigError when the file cannot be opened."""
    return Recorder(
        path,
        created=created,
        targets=targets,
        interval_seconds=settings.interval_seconds,
        keep=RECORDED_FIELDS,
    )


def replay_to_end(settings: Settings, path: Path, alert: Finish | None = None) -> FleetSnapshot:
    """The fleet at the end of a recording. ConfigError when it cannot be used.

    `alert` adds the alerts to every step; None: a book of its own does.
    """
    return run_replay(
        path,
        new_tracker=lambda targets: tracker_of(settings, targets, None),
        new_feed=feeds(),
        finish=finishing(Advisor(), alert or alert_book(settings)),
    )


def replay_source(
    settings: Settings, path: Path, speed: float, tap: RawPageTap | None = None
) -> ReplaySource:
    """A recording that plays at `speed` times its own pace. ConfigError when it cannot be used.

    `tap` sees the pages.
    """
    return ReplaySource(
        path,
        new_tracker=lambda targets: tracker_of(settings, targets, None),
        new_feed=feeds() if tap is None else tap.over(feeds()),
        new_finish=lambda: finishing(Advisor(), alert_book(settings)),
        speed=speed,
    )
