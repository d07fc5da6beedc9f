"""What people reported of real fleets, each kind through the whole way: page in, figures out.

The numbers (F1, F2, ...) are those of `docs/design/field-reports.md`, which says where the others are tested.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from collectors.answer import Answer
from enginetop.fleet.document import snapshot_document
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.snapshot import FleetSnapshot
from tests.support.engine_pages import answer
from tests.support.small_fleet import new_feeds, target, tracker_of

Pages = tuple[str | bytes, ...]


def replayed(*replicas: Pages, seconds: float = 10.0) -> FleetSnapshot:
    """The pages of each replica, ten seconds apart; the snapshot after the last ones."""
    said = [[[answer("/metrics", page)] for page in pages] for pages in replicas]
    return answered(*said, seconds=seconds)


def answered(*replicas: list[list[Answer]], seconds: float = 10.0) -> FleetSnapshot:
    """As `replayed`, with all answers of each scrape."""
    targets = [target(f"http://r{number}:8000") for number in range(len(replicas))]
    feeds, tracker = new_feeds(), tracker_of(targets)
    now = 0.0
    for one, scrapes in zip(targets, replicas, strict=True):
        feed = feeds(one)
        for number, answers in enumerate(scrapes):
            now = 100.0 + seconds * number
            tracker.observe(one.url, feed.take(answers, now, 0.01))
    return _last(tracker, now)


def _last(tracker: FleetTracker, now: float) -> FleetSnapshot:
    return tracker.snapshot(now)


def of(snapshot: FleetSnapshot, name: str, replica: int | None = None) -> dict[str, Any]:
    """One signal as the JSON has it, of the fleet or of a replica."""
    document = snapshot_document(snapshot)
    where = document["fleet"] if replica is None else document["replicas"][replica]
    found: dict[str, Any] = where["signals"][name]
    return found


def vllm(running: float = 1, **more: float) -> str:
    """A page of vLLM with one gauge and counters by name."""
    lines = [f'vllm:num_requests_running{{engine="0",model_name="m"}} {running}']
    lines += [f'vllm:{name}{{engine="0",model_name="m"}} {value}' for name, value in more.items()]
    return "\n".join(lines) + "\n"


def histogram(name: str, labels: str, *buckets: tuple[str, int]) -> str:
    lines = [f'{name}_bucket{{{labels},le="{le}"}} {count}' for le, count in buckets]
    return (
        "\n".join([*lines, f"{name}_count{{{labels}}} {buckets[-1][1]}", f"{name}_sum{{{labels}}} 1"]) + "\n"
    )


# A1. Format, names, versions


def test_f1_open_metrics_whatever_was_asked_for() -> None:
    def page(tokens: int) -> str:
        return (
            "# TYPE vllm:prompt_tokens counter\n"
            f'vllm:prompt_tokens_total{{engine="0"}} {tokens}\n'
            'vllm:prompt_tokens_created{engine="0"} 1700000000\n'
            "# EOF\n"
        )

    assert of(replayed((page(345), page(845))), "prompt_tokens_per_second")["value"] == 50


def test_f2_both_spellings_in_a_mixed_fleet_and_on_one_page() -> None:
    colon, underscore = vllm(3), vllm(4).replace("vllm:", "vllm_")
    ray = vllm(5).replace("vllm:", "ray_vllm_")
    assert (
        of(replayed((colon,), (underscore,), (ray,), (colon + underscore,)), "requests_running")["value"]
        == 15
    )


def test_f3_old_and_new_names_are_one_and_the_end_of_the_old_is_no_change() -> None:
    """Worked case H3: KV 0.62 under both names; 100 observations under both."""
    labels = 'engine="0",model_name="m"'

    def page(count: int, *, old: bool) -> str:
        text = f"vllm:kv_cache_usage_perc{{{labels}}} 0.62\n"
        text += histogram("vllm:inter_token_latency_seconds", labels, ("0.1", count), ("+Inf", count))
        if old:
            text += f"vllm:gpu_cache_usage_perc{{{labels}}} 0.62\n"
            text += histogram("vllm:time_per_output_token_seconds", labels, ("0.1", count), ("+Inf", count))
        return text

    for last_has_old in (True, False):
        snapshot = replayed((page(50, old=True), page(150, old=last_has_old)))
        assert of(snapshot, "kv_usage_ratio")["value"] == 0.62
        assert of(snapshot, "itl_seconds")["count"] == 100
        assert [event.kind for event in snapshot.replicas[0].events] == ["appeared"]


def test_f4_a_gauge_that_is_not_there_is_not_known_and_harms_nothing() -> None:
    snapshot = replayed((vllm(2),))
    assert snapshot.replicas[0].state == "ok"
    assert of(snapshot, "kv_usage_ratio")["value"] is None
    assert of(snapshot, "requests_waiting")["value"] is None


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("python_gc_objects_collected_total 1\nprocess_cpu_seconds_total 2\n", "only process metrics"),
        ("", "no series"),
        ("<html><title>Sign in</title></html>", "web page"),
        ("[]", "JSON array"),
    ],
)
def test_f5_f7_a_200_without_an_engines_series_is_no_idle_engine(body: str, said: str) -> None:
    snapshot = replayed((body, body))
    (replica,) = snapshot.replicas
    assert replica.state == "no_engine_metrics"
    assert of(snapshot, "kv_usage_ratio")["value"] is None
    assert replica.last_failure is not None
    assert said in replica.last_failure.detail or "empty" in replica.last_failure.detail


def test_f6_a_broken_metrics_page_is_a_stale_replica_and_not_a_dead_one() -> None:
    good = [answer("/metrics", vllm(7))]
    broken = [answer("/metrics", "no space", status=500), answer("/health", "")]
    snapshot = answered([good, broken, broken])
    assert snapshot.replicas[0].state == "stale"
    assert of(snapshot, "requests_running", 0) | {"note": ""} == {
        "value": 7.0,
        "unit": "requests",
        "quality": "stale",
        "note": "",
    }


def test_f7_the_name_of_a_model_that_is_a_placeholder_is_none() -> None:
    page = 'trtllm_num_requests_running{model_name="undefined",engine_type="undefined",pid="1"} 3\n'
    snapshot = answered([[answer("/metrics", "[]"), answer("/prometheus/metrics", page)]])
    assert snapshot_document(snapshot)["replicas"][0]["model"] is None
    assert of(snapshot, "requests_running")["value"] == 3


def test_f10_a_number_that_is_none_does_not_spread() -> None:
    bad = vllm(1).replace(" 1\n", " -nan\n")
    snapshot = replayed((bad,), (vllm(4),))
    assert of(snapshot, "requests_running", 0)["value"] is None
    assert of(snapshot, "requests_running")["value"] == 4
    assert of(snapshot, "requests_running")["quality"] == "estimated"


def test_f14_f18_a_broken_label_costs_its_own_line_only() -> None:
    """Worked case H18."""
    page = (
        'vllm:num_requests_running{model_name="C:\\\\m\\\\q\\"4\\" {x},y"} 1\n'
        'vllm:num_requests_waiting{a="x"y"} 2\n'
        "vllm:kv_cache_usage_perc -nan\n"
    )
    (replica,) = replayed((page,)).replicas
    assert (replica.model, replica.bad_lines, replica.state) == ('C:\\m\\q"4" {x},y', 1, "ok")


def test_f17_bounds_that_differ_in_the_last_digit_are_one_bucket() -> None:
    labels = 'engine="0"'

    def pages(le: str) -> Pages:
        return tuple(
            vllm(1) + histogram("vllm:time_to_first_token_seconds", labels, (le, count), ("+Inf", count))
            for count in (0, 10)
        )

    told = of(replayed(pages("0.3"), pages("0.30000000000000004")), "ttft_seconds")
    assert (told["count"], told["p50"]["low"], told["p50"]["high"]) == (20, 0.0, 0.3)


# A2. Labels, aggregation, duplicates


def test_f21_f24_ranks_are_added_and_the_fullest_is_shown() -> None:
    page = "".join(
        f'vllm:num_requests_running{{engine="{rank}"}} {running}\n'
        f'vllm:kv_cache_usage_perc{{engine="{rank}"}} {kv}\n'
        for rank, running, kv in ((0, 1, 0.1), (1, 2, 0.99), (2, 3, 0.2))
    )
    snapshot = replayed((page,))
    assert of(snapshot, "requests_running")["value"] == 6
    kv = of(snapshot, "kv_usage_ratio", 0)
    assert (kv["value"], kv["mean"], kv["worst"]) == (0.99, pytest.approx(0.43), {"engine": "1"})


def test_f22_a_counter_that_flips_between_two_processes_is_not_believed() -> None:
    pages = tuple(vllm(1, generation_tokens_total=tokens) for tokens in (1000, 50, 1100, 60, 1200, 70))
    snapshot = replayed(pages, seconds=2.0)
    told = of(snapshot, "generation_tokens_per_second", 0)
    assert (told["value"], told["quality"]) == (None, "suspect")
    restarts = [event for event in snapshot.replicas[0].events if event.kind == "restarted"]
    assert len(restarts) <= 1


def test_f23_tensor_ranks_of_one_request_count_once() -> None:
    page = "".join(
        f'sglang:num_running_reqs{{model_name="m",dp_rank="{dp}",tp_rank="{tp}"}} {running}\n'
        for dp, running in ((0, 5), (1, 7))
        for tp in (0, 1)
    )
    assert of(replayed((page,)), "requests_running")["value"] == 12


def test_f26_a_total_and_its_reasons_are_not_added() -> None:
    page = vllm(1) + (
        'vllm:num_requests_waiting{engine="0"} 9\n'
        'vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 9\n'
    )
    assert of(replayed((page,)), "requests_waiting")["value"] == 9


def test_f28_families_that_do_not_agree_make_no_share() -> None:
    """8060 first tokens, 3918 requests ended: nothing above 100 % comes of it."""
    labels = 'engine="0"'

    def page(first: int, ended: int) -> str:
        text = vllm(1) + histogram(
            "vllm:time_to_first_token_seconds", labels, ("0.5", first), ("+Inf", first)
        )
        return text + f'vllm:request_success_total{{{labels},finished_reason="stop"}} {ended}\n'

    document = snapshot_document(replayed((page(0, 0), page(8060, 3918))))
    attainment = document["fleet"]["goodput"]["attainment"]
    shares = [attainment["ttft"]["value"], *attainment["joint"].values()]
    assert all(share is None or 0 <= share <= 1 for share in shares)
    good, offered = document["fleet"]["goodput"]["requests_per_second"], 391.8
    assert all(rate is None or 0 <= rate <= offered + 1e-9 for rate in good.values())


def test_f29_of_a_line_that_comes_twice_the_last_counts() -> None:
    (replica,) = replayed((vllm(3) + vllm(5),)).replicas
    assert (replica.scalar("requests_running").value, replica.bad_lines) == (5, 1)


# A4. KV, prefix, speculation


def test_f9_no_kv_figure_is_not_an_empty_cache() -> None:
    told = of(
        replayed(("llamacpp:requests_processing 2\nllamacpp:requests_deferred 0\n",)), "kv_usage_ratio", 0
    )
    assert told["value"] is None
    assert "/slots" in told["note"]


def test_f8_f50_a_hit_rate_is_that_of_the_window() -> None:
    """31744 hits of 48021 queries since the last page are 66.1 %, whatever warmed the cache up before."""
    pages = (
        vllm(1, prefix_cache_queries_total=1e6, prefix_cache_hits_total=999_000),
        vllm(1, prefix_cache_queries_total=1e6 + 48_021, prefix_cache_hits_total=999_000 + 31_744),
    )
    assert of(replayed(pages), "prefix_hit_ratio")["value"] == pytest.approx(0.66104, abs=1e-5)
    assert of(replayed((pages[1], pages[1])), "prefix_hit_ratio")["value"] is None


def test_f49_hits_of_preempted_requests_on_their_own_blocks_are_remarked() -> None:
    def page(queries: int, preempted: int) -> str:
        counts = {"prefix_cache_queries_total": queries, "prefix_cache_hits_total": queries * 0.32}
        return vllm(1, num_preemptions_total=preempted, **counts)

    told = of(replayed((page(0, 0), page(1000, 3))), "prefix_hit_ratio")
    assert (told["value"], told["quality"]) == (pytest.approx(0.32), "ok")
    assert "preempted" in told["note"]
    assert "preempted" not in of(replayed((page(0, 3), page(1000, 3))), "prefix_hit_ratio").get("note", "")


def test_f53_none_is_no_number_of_blocks() -> None:
    page = vllm(1) + 'vllm:cache_config_info{num_gpu_blocks="None",block_size="16",engine="0"} 1\n'
    snapshot = replayed((page,))
    assert of(snapshot, "kv_capacity_tokens")["value"] is None
    assert snapshot.replicas[0].config["block_size"].value == 16
    assert "num_gpu_blocks" not in snapshot.replicas[0].config


def test_f54_a_retraction_is_a_preemption() -> None:
    pages = tuple(
        'sglang:num_running_reqs{model_name="m"} 1\n'
        f'sglang:num_retracted_requests_total{{model_name="m"}} {n}\n'
        for n in (2, 5)
    )
    assert of(replayed(pages), "preemptions")["value"] == 3


def test_f55_before_the_first_draft_there_is_no_acceptance() -> None:
    zeros = dict.fromkeys(
        (
            "spec_decode_num_drafts_total",
            "spec_decode_num_draft_tokens_total",
            "spec_decode_num_accepted_tokens_total",
        ),
        0.0,
    )
    snapshot = replayed((vllm(1, **zeros), vllm(1, **zeros)))
    for name in ("spec_acceptance_ratio", "spec_accepted_length"):
        assert of(snapshot, name)["value"] is None
    some = {**zeros, "spec_decode_num_drafts_total": 100, "spec_decode_num_draft_tokens_total": 400}
    some["spec_decode_num_accepted_tokens_total"] = 210
    told = replayed((vllm(1, **zeros), vllm(1, **some)))
    assert of(told, "spec_acceptance_ratio")["value"] == pytest.approx(0.525)
    assert of(told, "spec_accepted_length")["value"] == pytest.approx(3.1)  # bonus token included


# A5. Transport


@pytest.mark.parametrize("status", [401, 403])
def test_f64_a_page_behind_a_key_needs_a_key_and_is_not_down(status: int) -> None:
    asked = [answer("/metrics", "no", status=status)]
    snapshot = answered([asked, asked])
    assert snapshot.replicas[0].state == "unauthorized"
    assert "API key" in " ".join(snapshot.replicas[0].reasons)


def test_f65_half_a_page_is_no_page() -> None:
    whole = vllm(3, generation_tokens_total=100) + "# EOF\n"
    kind = {"content-type": "application/openmetrics-text; version=1.0.0"}
    half = [answer("/metrics", whole[: len(whole) // 2], headers=kind)]
    snapshot = answered([[answer("/metrics", whole, headers=kind)], half, half])
    assert snapshot.replicas[0].state == "stale"
    assert not math.isnan(of(snapshot, "requests_running", 0)["value"])


def test_the_table_names_tests_that_exist() -> None:
    tests = Path(__file__).parent.parent
    table = (tests.parent / "docs" / "design" / "field-reports.md").read_text()
    named = re.findall(r"`((?:unit|replay)/[\w/]+\.py)(?:::(test_\w+))?`", table)
    assert len(named) > 45
    for path, name in named:
        text = (tests / path).read_text()
        assert not name or f"def {name}(" in text, (path, name)
    items = {int(number) for number in re.findall(r"\bF(\d+)\b", table)}
    assert items >= {*range(1, 31), *range(46, 69)}
