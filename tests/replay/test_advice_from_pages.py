"""From raw pages through parser, history and evidence to advice and goodput: one made-up engine, by hand.

Every 2 s a page: n steps of 2/n seconds each, as many tokens in them as a step of that length carries at
11.8 ms + 6.1 us a token, 25 ended requests with known times.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from collectors.replay import run_replay
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.knobs import KnobRow, KnobSheet
from enginetop.fleet.model import Quality, Target
from enginetop.fleet.snapshot import Advice, FleetSnapshot, Slo
from tests.support.small_fleet import new_feeds
from tuners.advice import Advisor

URL = "http://b1:8000"
STEPS = (33, 34, 36, 38, 42, 50, 60, 80)  # of 60.6 to 25 ms, 8001 to 2164 tokens
SHEET = KnobSheet(
    "vllm",
    "0.32.0",
    "i1",
    1,
    1,
    (
        KnobRow("max_num_batched_tokens", 8192, 8192, 256, 8192, "tokens", 0),
        KnobRow("max_num_seqs", 256, 256, 1, 256, "requests", 0),
    ),
)


def histogram(name: str, counts: Mapping[str, float], total: float) -> Iterator[str]:
    """A histogram of one label set from its counts up to each bound."""
    yield f"# TYPE {name} histogram"
    for bound, count in counts.items():
        yield f'{name}_bucket{{engine="0",model_name="m",le="{bound}"}} {count}'
    yield f'{name}_count{{engine="0",model_name="m"}} {counts["+Inf"]}'
    yield f'{name}_sum{{engine="0",model_name="m"}} {total}'


def page(window: int, requests: int = 25) -> str:
    """The page after `window` windows."""
    counts = [STEPS[i % len(STEPS)] for i in range(window)]
    tokens = sum(n * (2 / n - 0.0118) / 6.1e-6 for n in counts)
    ended = requests * window
    labels = 'engine="0",model_name="m"'
    lines = [
        f"vllm:num_requests_running{{{labels}}} 64",
        f"vllm:num_requests_waiting{{{labels}}} 0",
        f"vllm:kv_cache_usage_perc{{{labels}}} 0.5",
        f"vllm:num_preemptions_total{{{labels}}} 0",
        f"vllm:prompt_tokens_total{{{labels}}} {14_400 * window}",
        f"vllm:generation_tokens_total{{{labels}}} {5_000 * window}",
        f'vllm:request_success_total{{{labels},finished_reason="stop"}} {ended}',
        f'vllm:request_success_total{{{labels},finished_reason="abort"}} 0',
        *histogram(
            "vllm:iteration_tokens_total", {"4096": 0, "8192": sum(counts), "+Inf": sum(counts)}, tokens
        ),
        *histogram("vllm:time_to_first_token_seconds", {"0.1": 0, "0.25": ended, "+Inf": ended}, 0.2 * ended),
        # 22 of 25 keep 50 ms
        *histogram(
            "vllm:request_time_per_output_token_seconds",
            {"0.05": 0.88 * ended, "0.075": ended, "+Inf": ended},
            0.045 * ended,
        ),
        *histogram("vllm:request_prompt_tokens", {"500": 0, "1000": ended, "+Inf": ended}, 576 * ended),
        f'enginetop_requests_total{{outcome="stop"}} {ended}',
        'enginetop_requests_total{outcome="abort"} 0',
        f'enginetop_requests_within_slo_total{{ttft_seconds="0.6",tpot_seconds="0.05"}} {0.8 * ended}',
    ]
    return "\n".join(lines) + "\n"


def record(number: int, body: str | None = None) -> dict[str, object]:
    """One line of a recording, by default the page of that number."""
    shown = PAGES[number] if body is None else body
    return {"t": 1000.0 + 2 * number, "target": URL, "path": "/metrics", "body": shown}


def replayed(tmp_path: Path, pages: Sequence[str], sheets: Mapping[str, KnobSheet]) -> FleetSnapshot:
    path = tmp_path / "pages.jsonl"
    path.write_text("\n".join(json.dumps(record(i, body)) for i, body in enumerate(pages)))
    return run_replay(path, new_tracker=tracker, new_feed=new_feeds(), finish=Advisor(lambda: sheets))


def tracker(targets: Sequence[Target]) -> FleetTracker:
    return FleetTracker(
        targets,
        interval_seconds=2.0,
        window_seconds=60.0,
        slo_for=lambda _: Slo(0.6, 0.05, source="flag"),
        fixed_spacing_seconds=None,
    )


def advice_of(snapshot: FleetSnapshot) -> Advice:
    (replica,) = snapshot.replicas
    return next(row for row in replica.advice if row.knob == "max_num_batched_tokens")


PAGES = [page(i) for i in range(61)]  # two minutes


def test_two_minutes_of_pages_lead_to_6144(tmp_path: Path) -> None:
    snapshot = replayed(tmp_path, PAGES, {URL: SHEET})
    found = advice_of(snapshot)
    assert (found.action, found.current, found.proposed, found.apply) == ("lower", 8192, 6144, "live")
    # TPOT p95 of 750 requests: the 712.5th, 52.5 into the 90 between 50 and 75 ms: 64.6 ms.
    # TTFT p95: 100 + 150 x .95 = 242.5 ms of 600: 60 % slack. p99 of steps: 4096 + 4096 x .99 = 8151.
    assert found.because == (
        "TPOT p95 65 ms breaks the 50 ms SLO; TTFT p95 242 ms has 60 % slack",
        "steps carry 8151 of 8192 tokens at p99",
        "step time 11.8 ms + 6.1 µs/token (R² 1.00, 30 windows): 49.3 at 6144",
        # 80 % of 6080 tokens in 49.28 ms are 98705/s; 7200/s come in prompts of 576
        "wrong if prompts pass 7.9k tokens on average (now 576)",
    )
    # a full step of 6144: 11.8 + 0.0061 x 6144 ms
    assert found.expected["tpot_p95_seconds_high"] == pytest.approx(0.049278, abs=1e-5)
    others = {row.knob: (row.action, row.because[-1]) for row in snapshot.replicas[0].advice[1:]}
    assert others["num_speculative_tokens"][0] == "hold"  # no series of drafts: speculation is off
    assert others["thinking_token_budget"][0] == "withheld"
    assert "reasoning_tokens is unsupported" in others["thinking_token_budget"][1]
    assert others["max_num_seqs"] == ("hold", "64 of 256 seats are taken and nothing is preempted")


def test_goodput_of_the_same_pages_is_exact(tmp_path: Path) -> None:
    # 12.5 requests a second, of which 80 % were within the SLO
    snapshot = replayed(tmp_path, PAGES, {})
    for goodput in (snapshot.replicas[0].goodput, snapshot.fleet.goodput):
        assert goodput.exact == pytest.approx(0.8)
        assert goodput.good_per_second == pytest.approx(10.0)
        assert (goodput.quality, goodput.note) == (Quality.OK, "")
    assert snapshot.replicas[0].totals["requests_judged"] == 1500
    assert snapshot.replicas[0].totals["requests_within_slo"] == pytest.approx(1200)


def test_a_recorded_development_page_tells_the_budget_and_then_it_takes_a_restart(tmp_path: Path) -> None:
    scheduler = {"max_num_batched_tokens": 8192, "max_num_seqs": 256}
    info = json.dumps({"vllm_config": {"scheduler_config": scheduler, "speculative_config": None}})
    path = tmp_path / "pages.jsonl"
    beside = {"t": 1000.0, "target": URL, "path": "/server_info", "body": info}
    lines = [json.dumps(record(0)), json.dumps(beside), *(json.dumps(record(i)) for i in range(1, 61))]
    path.write_text("\n".join(lines))
    found = advice_of(run_replay(path, new_tracker=tracker, new_feed=new_feeds(), finish=Advisor()))
    assert (found.action, found.current, found.proposed) == ("lower", 8192, 6144)
    assert (found.apply, found.via) == ("restart", "--max-num-batched-tokens")


@pytest.mark.parametrize(
    ("pages", "sheets", "words"),
    [
        (PAGES, {}, "max_num_batched_tokens is not known"),
        (PAGES[:1], {URL: SHEET}, "is unknown: needs two samples"),
        (PAGES[:3], {URL: SHEET}, "tpot_seconds has 50 observations in the window, at least 60"),
        (PAGES[:20], {URL: SHEET}, "seen for 32 s, a suggestion needs 60 s"),  # from 75 requests on
        ([*PAGES, *["<html>"] * 3], {URL: SHEET}, "no fresh numbers: the replica is"),
        ([*PAGES, *[PAGES[-1]] * 31], {URL: SHEET}, "no progress"),
        ([page(i, requests=1) for i in range(61)], {URL: SHEET}, "has 30 observations"),
    ],
    ids=["no value", "one page", "few pages", "not long enough", "page lost", "standstill", "low traffic"],
)
def test_pages_that_do_not_suffice(
    tmp_path: Path, pages: Sequence[str], sheets: Mapping[str, KnobSheet], words: str
) -> None:
    found = advice_of(replayed(tmp_path, pages, sheets))
    assert found.action == "withheld"
    assert words in found.because[-1]
