"""Looking at one target for `doctor`: the way to it, a few scrapes, and who may change it.

Nothing but GETs of pages that change nothing: the feed's own, and those of `enginetop.fleet.admin_surface`.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from email.utils import parsedate_to_datetime

from collectors.answer import Answer
from collectors.clock import SteadyClock
from collectors.engines.base import EngineTable
from collectors.feed import TargetFeed
from collectors.fetch import KEPT_HEADERS, NO_CREDENTIALS, Credentials, Fetcher
from collectors.http import HttpFetcher
from collectors.layout import LayoutCache
from collectors.sanitise import clean_text
from collectors.scrape import Scraper
from enginetop.cli.admin_look import admin_facts
from enginetop.cli.doctor_way import Way, way_to
from enginetop.cli.settings import Settings
from enginetop.doctor.facts import EngineFacts, FailureFacts, Missing, PageFacts, TargetFacts
from enginetop.fleet.admin_surface import AdminFacts
from enginetop.fleet.derive import MEASURES_OF
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.model import Quality, ReplicaState, Target
from enginetop.fleet.observation import Failure
from enginetop.fleet.reading import Absence, Reading
from enginetop.fleet.snapshot import CollectorHealth, Distribution, ReplicaSnapshot, Scalar

_ROUNDS = 5
"""A counter that flips between processes is known for it at its second fall and return."""
_PAUSE_SECONDS = 0.2
_ROUND_SECONDS = 1.0
"""Slower pages are asked fewer times: a look must not be a load."""
_DOCTOR_HEADERS = KEPT_HEADERS | {"date"}
_TOO_SOON = frozenset({ReplicaState.NO_PROGRESS, ReplicaState.STALE})
"""What a look of a second cannot tell."""
_UNTOLD = Absence(Quality.UNKNOWN)


async def probe(
    target: Target, settings: Settings, patience_seconds: float, layouts: LayoutCache
) -> TargetFacts:
    """All facts about one target; its faults are among them. `patience_seconds` bounds each step.

    `layouts` is shared by all targets of a look.
    """
    credentials = settings.credentials.get(target.url, NO_CREDENTIALS)
    way = await way_to(target, credentials, patience_seconds)
    if any(stage.problem for stage in way.stages):
        return _facts(target, settings, credentials, way)
    look = _Look(target, settings, credentials, layouts)
    await look.rounds(patience_seconds)
    admin = None
    if look.reading is not None:
        kind = look.reading.identity.engine
        admin = await admin_facts(target, kind, credentials, patience_seconds)
    return _facts(target, settings, credentials, way, look, admin)


class _Watched:
    """A fetcher that remembers what it was answered, and how far the server's clock is off."""

    def __init__(self, fetcher: Fetcher, pages: list[PageFacts], skews: list[float]) -> None:
        self._fetcher = fetcher
        self._pages = pages
        self._skews = skews

    async def fetch(self, url: str, path: str, *, timeout_seconds: float) -> Answer:
        answer = await self._fetcher.fetch(url, path, timeout_seconds=timeout_seconds)
        self._pages.append(_page(answer))
        if (skew := _skew(answer)) is not None:
            self._skews.append(skew)
        return answer

    async def forget(self, url: str) -> None:
        """Close the connection to a target."""
        await self._fetcher.forget(url)

    async def aclose(self) -> None:
        await self._fetcher.aclose()


class _Look:
    """A few scrapes of one target, over a new connection each: another process may answer it."""

    def __init__(
        self, target: Target, settings: Settings, credentials: Credentials, layouts: LayoutCache
    ) -> None:
        self._target = target
        self._credentials = credentials
        self._feed = TargetFeed(target, layouts)
        self._tracker = FleetTracker(
            [target],
            interval_seconds=_PAUSE_SECONDS,
            window_seconds=settings.window_seconds,
            slo_for=settings.slo_for,
            fixed_spacing_seconds=_PAUSE_SECONDS,
        )
        self.pages: list[PageFacts] = []
        self.skews: list[float] = []
        self.reading: Reading | None = None
        self.failure: Failure | None = None
        self._seconds: list[float] = []

    async def rounds(self, patience: float) -> None:
        """Scrape until enough is known, or the first failure."""
        clock = SteadyClock()
        began = clock.monotonic()
        for number in range(_ROUNDS):
            if number:
                await asyncio.sleep(_PAUSE_SECONDS)
            fetcher = _Watched(
                HttpFetcher({self._target.url: self._credentials}, kept_headers=_DOCTOR_HEADERS),
                self.pages if number == 0 else [],
                self.skews,
            )
            try:
                scrape = await Scraper(self._target, self._feed, fetcher, clock).scrape(patience)
            finally:
                await fetcher.aclose()
            observation = scrape.observation
            self._tracker.observe(self._target.url, observation)
            self.failure = observation.failure
            self._seconds.append(observation.seconds)
            if observation.failure is not None:
                break
            self.reading = observation.reading or self.reading
            slow = clock.monotonic() - began > _ROUND_SECONDS
            if slow and number:
                break

    @property
    def scrape_seconds(self) -> float | None:
        """How long a scrape usually takes; the first one asks more pages than the others."""
        return statistics.median_low(self._seconds) if self._seconds else None

    @property
    def table(self) -> EngineTable | None:
        """The engine whose page it is."""
        return self._feed.table

    def replica(self) -> ReplicaSnapshot:
        """What the scrapes amount to."""
        return self._tracker.snapshot(time.time(), CollectorHealth()).replicas[0]


def _facts(
    target: Target,
    settings: Settings,
    credentials: Credentials,
    way: Way,
    look: _Look | None = None,
    admin: AdminFacts | None = None,
) -> TargetFacts:
    failure, engine = None, None
    if look is not None and look.failure is not None:
        hint = look.table.enable_hint if look.table else ""
        failure = FailureFacts(look.failure.kind, _without(look.failure.detail, hint), hint)
    elif look is not None and look.reading is not None:
        engine = _engine(look.reading, look.table, look.replica())
    return TargetFacts(
        name=target.name,
        url=target.url,
        interval_seconds=settings.interval_seconds,
        stages=way.stages,
        pages=tuple(look.pages) if look else (),
        scrape_seconds=look.scrape_seconds if look else None,
        proxy=way.proxy,
        certificate_until=way.certificate_until,
        unverified=credentials.insecure_skip_verify,
        skew_seconds=min(look.skews, key=abs, default=None) if look else None,
        failure=failure,
        engine=engine,
        admin=admin,
        key=_key(credentials),
    )


def _without(detail: str, hint: str) -> str:
    """A failure's words without the remedy, which is told apart."""
    return detail.removesuffix(f"; {hint}") if hint else detail


def _engine(reading: Reading, table: EngineTable | None, replica: ReplicaSnapshot) -> EngineFacts:
    read: list[str] = []
    pending: list[str] = []
    missing: list[Missing] = []
    suspect: list[Missing] = []
    for signal, measures in MEASURES_OF.items():
        value = replica.signals[signal]
        lost = _missing(signal, measures, reading)
        if value.quality is Quality.SUSPECT:
            suspect.append(Missing(signal, value.note))
        elif value.quality is Quality.UNSUPPORTED or (_is_null(value) and lost.enable):
            missing.append(lost)
        elif _is_null(value):
            pending.append(signal)
        else:
            read.append(signal)
    judged = reading.columns.absent.get("requests_within_slo", _UNTOLD)
    exact = "requests_within_slo" in {series.measure for series in reading.columns.series}
    return EngineFacts(
        kind=replica.engine,
        title=table.title if table else str(replica.engine),
        state=ReplicaState.OK if replica.state in _TOO_SOON else replica.state,
        version=replica.engine_version,
        model=replica.model,
        role=replica.role,
        stack=replica.stack,
        simulated=replica.simulated,
        read=tuple(read),
        pending=tuple(pending),
        missing=tuple(missing),
        suspect=tuple(suspect),
        bad_lines=replica.bad_lines,
        ranks=len(replica.ranks),
        exact=None if exact else Missing("goodput", judged.note, judged.enable),
        config=replica.config,
    )


def _missing(signal: str, measures: Sequence[str], reading: Reading) -> Missing:
    present = {series.measure for series in reading.columns.series}
    lost = next((measure for measure in measures if measure not in present), measures[0])
    absence = reading.columns.absent.get(lost, _UNTOLD) if lost not in present else _UNTOLD
    return Missing(signal, absence.note or "not exported", absence.enable)


def _is_null(value: Scalar | Distribution) -> bool:
    return value.value is None if isinstance(value, Scalar) else not value.count


def _page(answer: Answer) -> PageFacts:
    return PageFacts(
        path=clean_text(answer.path, 200),
        seconds=answer.seconds,
        status=None if answer.error is not None else answer.status,
        size_bytes=len(answer.body),
        content_type=clean_text(answer.headers.get("content-type", ""), 100),
        error=str(answer.error) if answer.error is not None else "",
    )


def _skew(answer: Answer) -> float | None:
    """Seconds that the server's clock is behind ours; its header has no fractions."""
    try:
        told = parsedate_to_datetime(answer.headers.get("date", "")).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    behind = answer.at - told
    return max(0.0, behind - 1.0) if behind > 0 else behind


def _key(credentials: Credentials) -> str:
    if credentials.api_key_env is not None:
        return f"the variable {credentials.api_key_env}"
    return f"the file {credentials.api_key_file}" if credentials.api_key_file is not None else ""
