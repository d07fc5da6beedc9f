"""SGLang over a window: increases between two pages by hand, and simulated pages against their own truth."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.answer import Answer
from collectors.engines.base import Look
from collectors.engines.detect import recognise
from collectors.engines.sglang import SGLANG, SglangReader
from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.model import EngineKind, Quality, ReplicaState, Target
from enginetop.fleet.snapshot import Distribution, ReplicaSnapshot, Scalar, Slo
from enginetop.simulator.builtin import SCENARIOS
from enginetop.simulator.replica import SimulatedReplica
from enginetop.simulator.scenario import EngineSettings
from enginetop.simulator.server_info import sglang_loads, sglang_server_info
from tests.support.engine_pages import answer, fixture, page_of

URL = "http://s1:30000"
BEFORE = fixture("sglang/0.5.23/sglang-0.5.23-load-queued.prom")
AFTER = fixture("sglang/0.5.23/sglang-0.5.23-idle-after-load.prom")
PLAN = SCENARIOS["demo"].pools[0].members[4].with_engine(kind=EngineKind.SGLANG)


class Watch:
    """One target, its feed and its tracker."""

    def __init__(self, window_seconds: float = 60.0) -> None:
        target = Target(URL, "s1")
        self.feed = TargetFeed(target, LayoutCache())
        self.tracker = FleetTracker(
            [target],
            interval_seconds=2.0,
            window_seconds=window_seconds,
            slo_for=lambda _: Slo(),
            fixed_spacing_seconds=2.0,
        )

    def take(
        self, at: float, page: bytes | str, sides: Mapping[str, object] | None = None
    ) -> ReplicaSnapshot:
        answers: list[Answer] = [answer("/metrics", page, at=at)]
        answers += [answer(path, body, at=at) for path, body in (sides or {}).items()]
        self.tracker.observe(URL, self.feed.take(answers, at, 0.1))
        return self.tracker.snapshot(at).replicas[0]


def scalar(replica: ReplicaSnapshot, name: str) -> float:
    signal = replica.signals[name]
    assert isinstance(signal, Scalar)
    assert isinstance(signal.value, float | int), (name, signal)
    return signal.value


def distribution(replica: ReplicaSnapshot, name: str) -> Distribution:
    signal = replica.signals[name]
    assert isinstance(signal, Distribution)
    return signal


def test_a_minute_between_two_real_pages() -> None:
    watch = Watch()
    watch.take(1000.0, BEFORE)
    replica = watch.take(1060.0, AFTER)
    assert replica.engine is EngineKind.SGLANG
    expected = {
        "requests_running": 1,
        "requests_waiting": 0,
        "kv_usage_ratio": 0.29,
        "kv_capacity_tokens": 4096,
        "generation_tokens_per_second": 13777 / 60,  # realtime decode 19546 - 5769
        "prompt_tokens_per_second": 6032 / 60,  # 7821 - 1789
        "requests_finished_per_second": 19 / 60,  # 25 - 6
        "prefix_hit_ratio": 3287 / 4741,  # (5039 - 1752) / (7826 - 3085)
    }
    assert {name: scalar(replica, name) for name in expected} == pytest.approx(expected)
    ttft, e2e = distribution(replica, "ttft_seconds"), distribution(replica, "e2e_seconds")
    assert (ttft.count, e2e.count) == (16, 19)
    # (311.76228 + 725.90358 - 25.53192 - 41.37462) / 19
    assert e2e.mean.value == pytest.approx(51.0926, abs=1e-4)
    assert distribution(replica, "itl_seconds").count == 13477  # 19066 - 5589
    assert replica.signals["preemptions"].quality is Quality.UNKNOWN


def test_retractions_since_they_appeared_and_as_a_gauge_that_counts() -> None:
    watch = Watch()
    page = "sglang:num_running_reqs 1\n"
    watch.take(1000.0, page)
    # Seen without it before: it began at zero. It may come from another tensor rank than the next page's.
    watch.take(1010.0, page + 'sglang:num_retracted_requests_total{tp_rank="1"} 3\n')
    text = page + "".join(f'sglang:num_retracted_requests_total{{tp_rank="{rank}"}} 5\n' for rank in (0, 1))
    assert scalar(watch.take(1020.0, text), "preemptions") == 5
    old = Watch()
    old.take(1000.0, 'sglang:total_retracted_reqs{engine_type="unified"} 9\n')
    text = 'sglang:total_retracted_reqs{engine_type="unified"} 13\nsglang:num_retracted_reqs 40\n'
    assert scalar(old.take(1020.0, text), "preemptions") == 4


def test_speculation_by_counters_else_by_the_engines_own_mean() -> None:
    watch = Watch()
    spec = fixture("sglang/0.5.23/sglang-0.5.23-collector-spec.prom")
    replica = watch.take(1000.0, spec)
    for name, value in {"spec_accepted_length": 2.84, "spec_acceptance_ratio": 0.61}.items():
        signal = replica.signals[name]
        assert isinstance(signal, Scalar)
        assert (signal.value, signal.quality) == (value, Quality.ESTIMATED)
        assert signal.note
    counted = Watch()
    text = (
        "sglang:generation_tokens_total {}\nsglang:num_requests_total {}\nsglang:spec_verify_calls_total {}\n"
        "sglang:spec_num_draft_tokens 4\nsglang:spec_accept_length 9\nsglang:spec_accept_rate 0.9\n"
    )
    counted.take(1000.0, text.format(1000, 10, 330))
    # 5 more requests, 155 tokens, 50 steps: 155 - 5 - 50 = 100 accepted of 50 x 3.
    replica = counted.take(1030.0, text.format(1155, 15, 380))
    assert scalar(replica, "spec_accepted_length") == pytest.approx(3.0)
    assert scalar(replica, "spec_acceptance_ratio") == pytest.approx(100 / 150)
    without = Watch().take(1000.0, BEFORE).signals["spec_accepted_length"]
    assert isinstance(without, Scalar)
    assert (without.value, without.quality) == (None, Quality.UNSUPPORTED)


def test_signals_beyond_the_core() -> None:
    watch = Watch()
    page = fixture("sglang/0.5.23/sglang-0.5.23-collector-pd-decode.prom").decode()
    watch.take(1000.0, page)
    hits = 'mode="host_hit",model_name="demo-70b",moe_ep_rank="0",pp_rank="0",tp_rank="0"}'
    later = page.replace(f"{hits} 0.0", f"{hits} 600.0")
    assert later != page
    replica = watch.take(1060.0, later)
    beyond = replica.beyond
    told = {name: signal.value for name, signal in beyond.items() if isinstance(signal, Scalar)}
    assert told["kv_host_tokens_ratio"] == 0.75  # 1.5 of 2 million
    assert told["kv_host_hit_tokens_per_second"] == 10  # 600 in a minute
    assert told["transfer_waiting_requests"] == 20
    assert (told["lora_slots_used"], told["lora_slots_total"]) == (3, 8)
    assert told["grammar_waiting_requests"] == 0
    assert scalar(replica, "external_prefix_hit_ratio") == 1.0  # 600 of 600 looked up


def test_a_hung_server_is_seen_through_counters_that_go_on() -> None:
    page = BEFORE.decode()
    watch = Watch()
    state = None
    for step in range(30):
        moving = "".join(
            (
                f'sglang:scheduler_idle_seconds_total{{tp_rank="0"}} {step}\n',
                f'sglang:http_requests_total{{endpoint="/metrics",method="GET"}} {7 + step}\n',
                f"sglang:get_loads_duration_seconds_count {5 + step}\n",
            )
        )
        state = watch.take(1000.0 + 2 * step, page + moving).state
    assert state is ReplicaState.NO_PROGRESS


# The simulator's pages


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("with_loads", [False, True])
def test_a_simulated_server_is_read_as_it_is(ranks: int, with_loads: bool) -> None:
    simulated = SimulatedReplica("r", PLAN.with_engine(ranks=ranks), Slo(), seed=1, epoch=1_764_446_400.0)
    watch = Watch(window_seconds=120.0)
    begun: dict[str, float] = {}
    for seconds in (60.0, 120.0, 180.0):
        simulated.advance(seconds)
        page = simulated.page()
        assert page is not None
        at = 1_764_446_400.0 + seconds
        sides = {"/v1/loads": sglang_loads(simulated.engines, at)} if with_loads else None
        replica = watch.take(at, page, sides)
        if not begun:
            begun = truth(simulated)
    now = truth(simulated)
    per_second = {
        "generation_tokens_per_second": "tokens",
        "prompt_tokens_per_second": "ended_prompt_tokens",
        "requests_finished_per_second": "ended",
        "requests_aborted_per_second": "aborted",
    }
    for signal, figure in per_second.items():
        assert scalar(replica, signal) == pytest.approx((now[figure] - begun[figure]) / 120.0), signal
    assert scalar(replica, "preemptions") == now["preemptions"] - begun["preemptions"]
    assert scalar(replica, "requests_running") == now["running"] > 0
    assert scalar(replica, "requests_waiting") == now["waiting"]
    rounding = 0.00005 if with_loads else 0.005  # two digits on the page, four in the loads
    assert scalar(replica, "kv_usage_ratio") == pytest.approx(now["kv"], abs=rounding)
    assert scalar(replica, "kv_capacity_tokens") == ranks * PLAN.engine.kv_capacity_tokens
    hits, queries = now["hits"] - begun["hits"], now["queries"] - begun["queries"]
    assert scalar(replica, "prefix_hit_ratio") == pytest.approx(hits / queries)
    for name in ("ttft_seconds", "tpot_seconds", "itl_seconds", "e2e_seconds", "queue_seconds"):
        assert distribution(replica, name).count == now[name] - begun[name], name
    assert len(replica.ranks) == (ranks if ranks > 1 else 0)


def truth(simulated: SimulatedReplica) -> dict[str, float]:
    """What the engines themselves counted, summed over the ranks; their KV use is the largest."""
    engines = simulated.engines
    counted = [engine.metrics for engine in engines]

    def add(figures: list[float]) -> float:
        return float(sum(figures))

    histograms = {
        "ttft_seconds": [one.time_to_first_token for one in counted],
        "tpot_seconds": [one.time_per_output_token for one in counted],
        "itl_seconds": [one.inter_token_latency for one in counted],
        "e2e_seconds": [one.e2e_latency for one in counted],
        "queue_seconds": [one.queue_time for one in counted],
    }
    return {
        "tokens": add([one.generation_tokens for one in counted]),
        "ended_prompt_tokens": add([one.request_prompt_tokens.sum for one in counted]),
        "ended": add([sum(one.finished.values()) for one in counted]),
        "aborted": add([one.finished["abort"] for one in counted]),
        "preemptions": add([one.preemptions for one in counted]),
        "hits": add([one.prompt_tokens_cached for one in counted]),
        "queries": add([one.prompt_tokens for one in counted]),
        "running": add([engine.requests_running for engine in engines]),
        "waiting": add([len(engine.waiting) for engine in engines]),
        "kv": max(engine.kv_usage_ratio for engine in engines),
        **{name: add([one.count for one in parts]) for name, parts in histograms.items()},
    }


def test_a_simulated_server_says_how_it_was_started() -> None:
    engine: EngineSettings = PLAN.engine
    info = sglang_server_info(engine, reasons=True)
    reading = SglangReader().read(
        Look(at=1.0, page=page_of("sglang:num_running_reqs 1\n"), sides={"/server_info": info})
    )
    told = {name: setting.value for name, setting in reading.config.items()}
    assert told["max_num_batched_tokens"] == engine.max_num_batched_tokens
    assert told["max_num_seqs"] == engine.max_num_seqs
    assert told["num_speculative_tokens"] == engine.num_speculative_tokens > 0
    assert told["block_size"] == engine.block_size
    assert reading.identity.engine_version == "0.5.23"


# Pages from anywhere

NAMES = sorted({name for names in SGLANG.sources.values() for name in names if " " not in name})
LABELS = {
    "mode": ["decode", "host_hit", "input", "\x1b[31m", ""],
    "priority": ["", "0", "-1", "x"],
    "tp_rank": ["0", "1", "9" * 30, "", "٣"],
    "dp_rank": ["0", "1", "x"],
    "engine_type": ["unified", "prefill", "dynamic", "\u202e"],
    "phase": ["scheduler_e2e"],
    "pid": ["1", "2"],
    "le": ["0.1", "1", "+Inf", "NaN", "x"],
    "worker_addr": ["http://a"],
}


def sample(name: str, labels: dict[str, str], value: str) -> str:
    inside = ",".join(f"{key}={json.dumps(text, ensure_ascii=False)}" for key, text in labels.items())
    return f"{name}{{{inside}}} {value}"


SAMPLES = st.builds(
    lambda name, suffix, labels, value: sample(name + suffix, labels, value),
    st.sampled_from([*NAMES, "sglang:num_paused_reqs", "sglang:startup_time_seconds", "sglang_token_usage"]),
    st.sampled_from(["", "", "_total", "_bucket", "_sum", "_count", "_created"]),
    st.fixed_dictionaries({}, optional={key: st.sampled_from(values) for key, values in LABELS.items()}),
    st.sampled_from(["0", "1", "17.5", "-3", "NaN", "+Inf", "-Inf", "1e300", "1e-320"]),
)


@settings(max_examples=60, deadline=None)
@given(first=st.lists(SAMPLES, max_size=25), second=st.lists(SAMPLES, max_size=25))
def test_no_page_breaks_the_reading_of_a_window(first: list[str], second: list[str]) -> None:
    watch = Watch()
    for at, lines in ((1000.0, first), (1002.0, second), (1004.0, first)):
        text = "\n".join(lines) + "\n"
        replica = watch.take(at, text)
        if recognise(page_of(text).layout) is SGLANG:
            assert replica.engine is EngineKind.SGLANG
    assert "\x1b" not in repr(replica)
