"""Putting the rooms together for a fleet that is read from a Prometheus."""

from __future__ import annotations

from collectors.http import HttpFetcher
from collectors.prometheus.client import PrometheusError
from collectors.prometheus.direct import DirectSides
from collectors.prometheus.source import PrometheusLooks, PrometheusSource, sample_prometheus
from collectors.raw_page import RawPageTap
from collectors.record import Recorder
from collectors.replay import Finish
from enginetop.cli.alerting import alert_book
from enginetop.cli.fleet_parts import feeds, finishing, tracker_of
from enginetop.cli.live_advice import LiveAdvice
from enginetop.cli.prometheus import client_of
from enginetop.cli.prometheus_advice import NamesWhatIsMissing, clients_of_anybody
from enginetop.cli.settings import Settings
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.ports import FleetSource
from enginetop.fleet.snapshot import FleetSnapshot, Slo
from tuners.advice import Advisor

_BACKFILL_SECONDS = 300.0
"""How much of the past a live view of a Prometheus begins with."""
_SPACINGS_SECONDS = 90.0
"""So much more than a window holds two scrapes of any usual interval before it."""


def sample_of_prometheus(settings: Settings) -> FleetSnapshot:
    """The fleet as the configured Prometheus has it now. ConfigError when that does not answer."""
    try:
        return sample_prometheus(_looks(settings, None, alert_book(settings, ()), settings.window_seconds))
    except PrometheusError as error:
        raise ConfigError(str(error)) from None


def prometheus_source(
    settings: Settings, recorder: Recorder | None, alert: Finish, tap: RawPageTap | None
) -> FleetSource:
    """A source of what the configured Prometheus scrapes; `tap` sees the pages."""
    looks = _looks(settings, recorder, alert, _BACKFILL_SECONDS, tap, _one_objective(settings))
    return PrometheusSource(looks, settings.interval_seconds)


def _looks(
    settings: Settings,
    recorder: Recorder | None,
    alert: Finish,
    backfill_seconds: float,
    tap: RawPageTap | None = None,
    limits: tuple[float, float] | None = None,
) -> PrometheusLooks:
    """Looks at the configured Prometheus; the first one goes back for the window and some spacings more."""
    assert settings.prometheus is not None
    tracker = tracker_of(settings, (), None)
    direct = settings.prometheus.direct_knobs
    advise: Finish = Advisor()
    if direct:
        advise = LiveAdvice(lambda: clients_of_anybody(settings), tracker.set_thinking_budget)
    return PrometheusLooks(
        client_of(settings.prometheus),
        tracker=tracker,
        limits=limits,
        direct=DirectSides(lambda: HttpFetcher(settings.credentials)) if direct else None,
        new_feed=feeds() if tap is None else tap.over(feeds()),
        backfill_seconds=max(backfill_seconds, settings.window_seconds) + _SPACINGS_SECONDS,
        finish=finishing(NamesWhatIsMissing(advise, direct=direct), alert),
        recorder=recorder,
    )


def _one_objective(settings: Settings) -> tuple[float, float] | None:
    """The limits of TTFT and TPOT where the whole fleet has the same; None where models differ."""
    objectives = {slo for _, slo in settings.slos}
    if all(pattern != "*" for pattern, _ in settings.slos):
        objectives.add(Slo())
    slo = objectives.pop()
    return None if objectives else slo.limits
