"""What load generators measured, from their result files: GuideLLM (0.8) and AIPerf (0.13).

GuideLLM writes one report with a benchmark for each load; AIPerf `profile_export_aiperf.json` for one load,
and `profile_export_aiperf_sweep.json` for several. Of both only numbers are read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from collectors.json_fields import items, number
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.foreign_json import field_at
from enginetop.fleet.frozen import frozen
from enginetop.fleet.load_curve import LoadPoint

MOST_BYTES = 512 * 1024 * 1024
"""GuideLLM keeps every request in its report; more than this is no report of a sweep."""

_MOST = 1e12
_TO_SECONDS: Mapping[str, float] = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "sec": 1.0, "s": 1.0}


@frozen
class LoadRun:
    """One load that was held for a while. None: the file does not tell.

    `running` are the requests at a time, as measured, else as asked for. Goodput and attainment are against
    the objective that the generator was given.
    """

    running: float
    requests_per_second: float | None
    good_per_second: float | None
    attainment: float | None
    ttft_p99_seconds: float | None


@frozen
class LoadResults:
    """The runs of one file, by rising load. `tool` is `GuideLLM` or `AIPerf`."""

    tool: str
    path: str
    runs: tuple[LoadRun, ...]

    def points(self) -> list[LoadPoint]:
        """The runs of which goodput is known."""
        return [
            LoadPoint(run.running, run.good_per_second, run.attainment, run.ttft_p99_seconds)
            for run in self.runs
            if run.good_per_second is not None
        ]


def read_load_results(path: Path) -> LoadResults:
    """The runs in a result file. ConfigError, in one line, when it is none of the known ones."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ConfigError(f"{path}: larger than {MOST_BYTES // 2**20} MiB, no report of a load generator")
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or 'cannot be read'}") from None
    except (ValueError, RecursionError):
        raise ConfigError(f"{path}: not JSON; give a report of GuideLLM or AIPerf") from None
    tool, runs = _runs(document)
    if not tool:
        raise ConfigError(
            f"{path}: neither a GuideLLM report (benchmarks) nor an AIPerf one (profile_export_aiperf.json)"
        )
    if not runs:
        raise ConfigError(f"{path}: the {tool} report holds no run with a number of requests at a time")
    return LoadResults(tool, str(path), tuple(sorted(runs, key=lambda run: run.running)))


def _runs(document: object) -> tuple[str, list[LoadRun]]:
    if isinstance(field_at(document, "benchmarks"), list):
        return "GuideLLM", [run for one in items(document, "benchmarks") if (run := _guidellm(one))]
    if isinstance(field_at(document, "per_combination_metrics"), list):
        rows = items(document, "per_combination_metrics")
        return "AIPerf", [run for row in rows if (run := _aiperf_combination(row))]
    if (
        field_at(document, "aiperf_version") is not None
        or field_at(document, "time_to_first_token", "unit") is not None
    ):
        run = _aiperf(document)
        return "AIPerf", [run] if run else []
    return "", []


def _guidellm(benchmark: object) -> LoadRun | None:
    """Rates of `successful` requests are over the whole run; failed and cancelled ones are not among them."""
    metrics = field_at(benchmark, "metrics")
    strategy = field_at(benchmark, "config", "strategy")
    return _run(
        _number(metrics, "request_concurrency", "total", "mean") or _number(strategy, "streams"),
        requests=_number(metrics, "requests_per_second", "successful", "mean"),
        good=_number(metrics, "request_goodput", "successful", "mean"),
        attainment=_number(metrics, "slo_attainment"),
        ttft=_scaled(_number(metrics, "time_to_first_token_ms", "successful", "percentiles", "p99"), 1e-3),
    )


def _aiperf(document: object) -> LoadRun | None:
    phases = [phase for phase in items(document, "input_config", "phases") if _number(phase, "concurrency")]
    asked = _number(phases[-1], "concurrency") if phases else None
    return _run(
        _number(document, "effective_concurrency", "avg") or asked,
        requests=_number(document, "request_throughput", "avg"),
        good=_number(document, "goodput", "avg"),
        attainment=_number(document, "good_request_fraction", "avg"),
        ttft=_scaled(
            _number(document, "time_to_first_token", "p99"), _unit(document, "time_to_first_token", "unit")
        ),
    )


def _aiperf_combination(row: object) -> LoadRun | None:
    """A point of a sweep: each figure is a mean over its trials."""
    metrics, parameters = field_at(row, "metrics"), field_at(row, "parameters")
    names = list(parameters) if isinstance(parameters, dict) else []
    swept = next((name for name in names if str(name).rpartition(".")[2] == "concurrency"), None)
    return _run(
        _number(metrics, "effective_concurrency_avg", "mean")
        or (_number(parameters, swept) if swept is not None else None),
        requests=_number(metrics, "request_throughput_avg", "mean"),
        good=_number(metrics, "goodput_avg", "mean"),
        attainment=_number(metrics, "good_request_fraction_avg", "mean"),
        ttft=_scaled(
            _number(metrics, "time_to_first_token_p99", "mean"),
            _unit(metrics, "time_to_first_token_p99", "unit"),
        ),
    )


def _run(
    running: float | None,
    *,
    requests: float | None,
    good: float | None,
    attainment: float | None,
    ttft: float | None,
) -> LoadRun | None:
    if not running:
        return None
    share = attainment if attainment is not None and attainment <= 1 else None
    return LoadRun(running, requests, good, share, ttft)


def _number(document: object, *path: str) -> float | None:
    """A number that a rate or a time can be, else None."""
    value = number(document, *path)
    return value if value is not None and 0 <= value < _MOST else None


def _unit(document: object, *path: str) -> float | None:
    return _TO_SECONDS.get(str(field_at(document, *path)))


def _scaled(value: float | None, scale: float | None) -> float | None:
    return None if value is None or scale is None else value * scale
