"""What `doctor` says of who tells for others: exporters of GPUs, and the Prometheus of the config file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from collectors.gpu.exporters import ExporterGpus
from collectors.http import HttpFetcher
from enginetop.cli.prometheus import PrometheusSetting, client_of
from enginetop.cli.settings import Settings
from enginetop.doctor.finding import Finding, Level
from enginetop.doctor.target import MOST_SKEW_SECONDS, seconds_text
from enginetop.fleet.foreign_json import field_at

_GPUS, _PROMETHEUS = "exporters", "source"
_RECENT_SECONDS = 3600.0


def exporter_findings(settings: Settings, patience_seconds: float, now: float) -> Iterator[Finding]:
    """One look at every exporter that is asked: its GPUs, or why there are none."""
    if not settings.gpu_exporters or settings.prometheus is not None:
        return
    credentials = {exporter.url: how for exporter, how in settings.gpu_exporters}
    exporters = [exporter for exporter, _ in settings.gpu_exporters]
    source = ExporterGpus(exporters, lambda: HttpFetcher(credentials), patience_seconds)
    try:
        reports = source.read(now)
    finally:
        source.close()
    for exporter in exporters:
        mine = [report for report in reports if report.exporter == exporter.url]
        problem = next((report.problem for report in mine if report.problem), "")
        if problem:
            said = problem.removeprefix("GPU exporter ")
            fix = "" if "; " in said or "key" in said else "start it, or correct its url in [[gpu_exporters]]"
            yield Finding(_GPUS, Level.ERROR, said, fix)
            continue
        kinds = Counter((gpu.name or "GPU", gpu.source) for report in mine for gpu in report.gpus)
        told = ", ".join(f"{number} x {name} ({source})" for (name, source), number in kinds.items())
        hosts = len({report.host for report in mine})
        yield Finding(_GPUS, Level.OK, f"{exporter.name}: {told}{f' on {hosts} hosts' if hosts > 1 else ''}")


def prometheus_findings(setting: PrometheusSetting | None, now: float) -> Iterator[Finding]:
    """Whether the Prometheus answers, and which engines it scrapes; `now` by this machine's clock."""
    if setting is None:
        return
    from collectors.prometheus.client import PrometheusClient, PrometheusError  # of use to some

    def findings(client: PrometheusClient) -> Iterator[Finding]:
        from collectors.prometheus.names import PREFIXES, one_of

        there = client.now()
        skew = now - there
        match = f'{{__name__=~"(?:{one_of(PREFIXES)}).+",server=""}}'
        jobs = sorted(client.label_values("job", there - _RECENT_SECONDS, there, match))
        if not jobs:
            yield Finding(
                _PROMETHEUS,
                Level.ERROR,
                f"Prometheus {setting.url}: no engine's series within the last hour",
                "let it scrape the engines' metrics pages, or ask for another tenant",
            )
            return
        ups = client.matrix(f'up{{job=~"{one_of(jobs)}"}}', there)
        if client.warning:
            yield Finding(_PROMETHEUS, Level.WARNING, f"Prometheus {setting.url} says: {client.warning}")
        down = sum(field_at(series, "value", 1) != "1" for series in ups)
        failing = f", {down} of them without an answer now" if down else ""
        of = f"of the jobs with engines ({', '.join(jobs)})"
        what = f"Prometheus {setting.url}: scrapes {len(ups)} targets {of}"
        yield Finding(_PROMETHEUS, Level.WARNING if down else Level.OK, what + failing)
        if abs(skew) > MOST_SKEW_SECONDS:
            off = f"{seconds_text(abs(skew))} {'behind' if skew > 0 else 'ahead of'} this machine's"
            yield Finding(_PROMETHEUS, Level.INFO, f"its clock is {off}; times are told by its own")

    client = client_of(setting)
    try:
        yield from findings(client)
    except PrometheusError as error:
        yield Finding(_PROMETHEUS, Level.ERROR, str(error), "correct the [prometheus] table")
    finally:
        client.close()
