"""Result files of load generators, shaped like those of GuideLLM 0.8.1 and AIPerf 0.13.0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.load_results import LoadRun, _runs, read_load_results
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.load_curve import LoadPoint, load_curve

Json = dict[str, Any]


def spread(**figures: Any) -> Json:
    """A distribution of GuideLLM, by the outcome of requests: all as given for successful and total."""
    return {"successful": figures, "incomplete": {"mean": 0.0}, "errored": {"mean": 0.0}, "total": figures}


def guidellm(*rows: tuple[int, float, float, float | None]) -> Json:
    """A report: streams, TTFT p99 in ms, requests and conforming requests per second."""
    return {
        "metadata": {"version": 2, "guidellm_version": "0.8.1"},
        "config": {"profile": {"kind": "concurrent"}},
        "benchmarks": [
            {
                "config": {"strategy": {"type_": "concurrent", "streams": streams}},
                "metrics": {
                    "request_concurrency": spread(mean=streams - 0.5),
                    "requests_per_second": spread(mean=rate),
                    "time_to_first_token_ms": spread(mean=ttft / 2, percentiles={"p50": 1.0, "p99": ttft}),
                    "slo_attainment": None if good is None else good / rate,
                    "request_goodput": None if good is None else spread(mean=good),
                },
                "requests": {"successful": [], "errored": [], "incomplete": []},
            }
            for streams, ttft, rate, good in rows
        ],
    }


def aiperf(**more: Any) -> Json:
    """One run: 16 at a time."""
    return {
        "schema_version": "1.4",
        "aiperf_version": "0.13.0",
        "input_config": {
            "phases": [{"name": "warmup", "concurrency": 2}, {"name": "profiling", "concurrency": 16}]
        },
        "time_to_first_token": {"unit": "ms", "avg": 120.0, "p50": 100.0, "p99": 370.0, "count": 60},
        "request_throughput": {"unit": "requests/sec", "avg": 9.8},
        "goodput": {"unit": "requests/sec", "avg": 9.1},
        "good_request_fraction": {"unit": "ratio", "avg": 0.93},
    } | more


def written(folder: Path, document: object) -> Path:
    path = folder / "result.json"
    path.write_text(json.dumps(document))
    return path


def test_a_guidellm_sweep(tmp_path: Path) -> None:
    report = guidellm(
        (32, 420.0, 12.5, 12.2), (8, 210.0, 5.2, 5.2), (16, 370.0, 9.8, 9.8), (48, 680.0, 13.8, 7.4)
    )
    found = read_load_results(written(tmp_path, report))
    assert (found.tool, [run.running for run in found.runs]) == ("GuideLLM", [7.5, 15.5, 31.5, 47.5])
    assert found.runs[3].ttft_p99_seconds == pytest.approx(0.68)
    assert found.runs[3].attainment == pytest.approx(7.4 / 13.8)
    knee = load_curve(found.points(), 0.5, least_points=1).knee
    assert knee is not None
    assert (knee.running, knee.good_per_second) == (31.5, 12.2)


def test_a_guidellm_report_without_objective_has_latencies_only(tmp_path: Path) -> None:
    found = read_load_results(written(tmp_path, guidellm((8, 210.0, 5.2, None))))
    assert found.runs == (LoadRun(7.5, 5.2, None, None, 0.21),)
    assert found.points() == []


def test_streams_stand_in_where_the_measured_number_is_missing(tmp_path: Path) -> None:
    report = guidellm((8, 210.0, 5.2, 5.0))
    del report["benchmarks"][0]["metrics"]["request_concurrency"]
    assert read_load_results(written(tmp_path, report)).runs[0].running == 8


def test_an_aiperf_run(tmp_path: Path) -> None:
    found = read_load_results(written(tmp_path, aiperf()))
    assert (found.tool, found.runs) == ("AIPerf", (LoadRun(16, 9.8, 9.1, 0.93, 0.37),))
    assert found.points() == [LoadPoint(16, 9.1, 0.93, 0.37)]


@pytest.mark.parametrize(("unit", "value"), [("ns", 3.7e8), ("us", 3.7e5), ("ms", 370.0), ("sec", 0.37)])
def test_aiperf_units(tmp_path: Path, unit: str, value: float) -> None:
    document = aiperf(
        time_to_first_token={"unit": unit, "p99": value},
        effective_concurrency={"unit": "requests", "avg": 15.2},
    )
    (run,) = read_load_results(written(tmp_path, document)).runs
    assert run.running == 15.2
    assert run.ttft_p99_seconds == pytest.approx(0.37)


def test_a_unit_nobody_knows_is_no_time(tmp_path: Path) -> None:
    (run,) = read_load_results(
        written(tmp_path, aiperf(time_to_first_token={"unit": "fortnights", "p99": 1.0}))
    ).runs
    assert run.ttft_p99_seconds is None


def test_an_aiperf_sweep(tmp_path: Path) -> None:
    rows = [
        {
            "parameters": {"phases.profiling.concurrency": concurrency},
            "metrics": {
                "time_to_first_token_p99": {"mean": 100.0 * concurrency, "std": 1.0, "unit": "ms"},
                "request_throughput_avg": {"mean": 2.0 * concurrency, "unit": "requests/sec"},
                "goodput_avg": {"mean": 1.5 * concurrency, "unit": "requests/sec"},
            },
        }
        for concurrency in (8, 4)
    ]
    found = read_load_results(
        written(tmp_path, {"aggregation_type": "sweep", "per_combination_metrics": rows})
    )
    assert found.runs == (LoadRun(4, 8, 6, None, 0.4), LoadRun(8, 16, 12, None, 0.8))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1, 2]", "neither a GuideLLM report"),
        (b"null", "neither a GuideLLM report"),
        (b'{"benchmarks": {}}', "neither a GuideLLM report"),
        (b'{"benchmarks": [null, 3, {"metrics": []}]}', "the GuideLLM report holds no run"),
        (b'{"aiperf_version": "0.13.0", "input_config": {"phases": "x"}}', "the AIPerf report holds no run"),
        (b'{"per_combination_metrics": [{"parameters": 3}]}', "the AIPerf report holds no run"),
        (b'{"aiperf_version": "1", "effective_concurrency": {"avg": 1' + b"0" * 400 + b"}}", "holds no run"),
    ],
)
def test_garbage_is_one_line(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=why) as caught:
        read_load_results(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_load_results(tmp_path / "none.json")


KEYS = [
    *("benchmarks", "metrics", "config", "strategy", "streams", "request_concurrency", "total", "mean"),
    *("per_combination_metrics", "parameters", "concurrency", "aiperf_version", "input_config", "phases"),
    *("time_to_first_token", "unit", "p99", "goodput", "avg"),
]
anything = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.just(10**400) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@settings(max_examples=60, deadline=None)
@given(anything)
def test_whatever_a_document_holds_runs_have_sane_numbers(document: object) -> None:
    _, runs = _runs(document)
    for run in runs:
        assert run.running > 0
        figures = (run.running, run.requests_per_second, run.good_per_second, run.ttft_p99_seconds)
        assert all(figure is None or 0 <= figure < 1e12 for figure in figures)
