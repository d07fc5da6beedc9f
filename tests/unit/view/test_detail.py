"""The detail view: what is known in rows, what is not known in words."""

from __future__ import annotations

import dataclasses

import pytest

from enginetop.fleet.model import EngineKind, LocalProcess, Quality, ReplicaState, Target
from enginetop.fleet.observation import Failure, FailureKind
from enginetop.fleet.reading import ConfigValue
from enginetop.fleet.snapshot import Goodput, Outlier, RankSnapshot, ReplicaSnapshot, Scalar, Signals
from tests.tui.snapshots import (
    AT,
    censored,
    distribution,
    down_replica,
    event,
    fleet,
    gpu,
    no_distribution,
    replica,
    scalar,
    signals,
)
from tui.view.cells import line_text, width_of
from tui.view.detail import detail_lines, detail_title
from tui.view.picture import Picture


def rows(one: ReplicaSnapshot, width: int = 120) -> list[str]:
    lines = detail_lines(Picture(fleet([one])), one.target.url, width)
    return [line_text(line).rstrip() for line in lines]


def row(one: ReplicaSnapshot, label: str, width: int = 120) -> str:
    """The one row with this label."""
    found = [line for line in rows(one, width) if line.startswith(f" {label} ")]
    assert len(found) == 1, rows(one, width)
    return found[0]


def test_title() -> None:
    one = replica("a3", changes={"preemptions_per_second": 2.1, "kv_usage_ratio": 0.97})
    assert line_text(detail_title(Picture(fleet([one])), one.target.url, 80)) == (
        " a3 · vLLM 0.33.0 · Llama-3.3-70B · decode" + 27 * " " + "▲ pressure "
    )


def test_who_serves_it_on_this_machine() -> None:
    process = LocalProcess(4711, ("vllm", "serve", "a b", "--api-key", "…"), "vllm.service", "0123456789ab")
    target = Target("http://127.0.0.1:8000", "127.0.0.1:8000", process=process)
    found = rows(replica("a1", target=target))
    at = next(number for number, line in enumerate(found) if line.startswith(" process "))
    assert found[at].split(None, 1)[1] == "pid 4711 · unit vllm.service · container 0123456789ab"
    assert found[at + 1].strip() == "vllm serve 'a b' --api-key '…'"
    assert not any(line.startswith(" process ") for line in rows(replica("a1")))


def test_the_pod_it_runs_in() -> None:
    target = Target("http://10.0.0.1:8000", "vllm-0", pod="serve/vllm-0", container="engine")
    assert row(replica("a1", target=target), "pod").split(None, 1)[1] == "serve/vllm-0 · container engine"
    routed = dataclasses.replace(target, inference_pool="serve/qwen")
    said = row(replica("a1", target=routed), "pool").split(None, 1)[1]
    assert said == "serve/qwen · inference pool of the Gateway API"


def test_latencies_by_hand() -> None:
    one = replica(
        "a1",
        changes={
            "ttft_seconds": distribution(0.12, 0.31, count=97),
            "e2e_seconds": distribution(8.1, censored(60), count=97),
            "itl_seconds": no_distribution(Quality.UNSUPPORTED),
            "queue_seconds": no_distribution(Quality.UNKNOWN, "no request in the window"),
        },
    )
    assert row(one, "TTFT") == (
        " TTFT              120      120      310      310      120       97    310 and 310"
    )
    assert row(one, "e2e", 80) == " e2e              8100     8100   ≥60000   ≥60000     8100       97"
    assert row(one, "e2e").endswith("60000 and ∞")
    assert row(one, "ITL") == " ITL                 –  not exported by vLLM"
    assert row(one, "queue") == " queue               –  no request in the window"


def test_no_prefix_hits_may_come_of_long_blocks() -> None:
    """F48: 240 shared tokens are less than one block of 784."""
    config = {"block_size": ConfigValue(784, "cache_config_info")}
    none = dataclasses.replace(replica("a1", changes={"prefix_hit_ratio": 0.0}), config=config)
    assert row(none, "prefix hits").endswith(
        "a shared prefix shorter than a block of 784 tokens is never found"
    )
    some = dataclasses.replace(replica("a1", changes={"prefix_hit_ratio": 0.4}), config=config)
    assert "block of" not in row(some, "prefix hits")


def test_goodput_and_reasoning_of_a_replica_that_counts_single_requests() -> None:
    counted = Goodput(4.2, 3.9, 0.9286, quality=Quality.OK, note="companion's SLO")
    one = replica("a1", changes={"reasoning_tokens": distribution(412, 3870)}, goodput=counted)
    assert row(one, "goodput") == (
        " goodput     92.9 % of completed requests within it · 3.90 of 4.20 req/s  companion's SLO"
    )
    assert row(one, "reasoning") == " reasoning   p50 412 · p95 3870 · p99 3870 · mean 412 tokens"
    assert not any(line.startswith((" goodput", " reasoning")) for line in rows(replica("a2")))


def test_reasoning_names_its_source_and_what_it_takes() -> None:
    source = "request records of usage.jsonl: 40 counted"
    one = replica(
        "a1",
        changes={
            "reasoning_tokens": dataclasses.replace(distribution(412, 3870), note=source),
            "reasoning_share_ratio": scalar(0.731),
            "reasoning_budget_hit_ratio": scalar(0.12),
            "reasoning_kv_tokens": scalar(41_000.0, Quality.ESTIMATED),
        },
    )
    assert row(one, "reasoning").endswith(f"mean 412 tokens  {source}")
    assert (
        row(one, "thinking") == " thinking    of output 73 % · at the budget 12 % · KV at least 41.0k? tokens"
    )


def test_reasoning_that_nobody_counted_is_told_as_that() -> None:
    nothing = dataclasses.replace(
        no_distribution(Quality.UNKNOWN), count=0.0, note="request records: 0 counted"
    )
    one = replica("a1", changes={"reasoning_tokens": nothing, "reasoning_share_ratio": scalar(None)})
    assert row(one, "reasoning") == " reasoning   – request records: 0 counted"
    assert not any(line.startswith(" thinking") for line in rows(one))


def test_the_engine_that_does_not_export_is_named() -> None:
    one = replica(
        "l1", engine=EngineKind.LLAMACPP, signals=signals(kv_usage_ratio=scalar(None, Quality.UNSUPPORTED))
    )
    assert row(one, "KV") == " KV          – not exported by llama.cpp"


def test_load_by_hand() -> None:
    one = replica(
        "a1",
        changes={
            "kv_usage_ratio": scalar(0.5, mean=0.25, worst={"engine": "3"}),
            "kv_capacity_tokens": 190_640,
            "requests_waiting": scalar(18, Quality.ESTIMATED),
            "requests_aborted_per_second": 0.02,
        },
        config={"max_num_seqs": ConfigValue(64, "server_info")},
    )
    assert row(one, "KV") == (
        " KV            50 % ██████████           mean 25 % fullest engine=3 of 191k tokens"
    )
    assert row(one, "requests") == (
        " requests    running 44 of 64 seqs · waiting 18? · finished/s 4.20 · aborted/s 0.02"
    )
    assert row(one, "config") == " config      max_num_seqs  64  server_info"


@pytest.mark.parametrize(
    ("errored", "errors"), [(1.0, " · errors/s 1.00"), (0.1, " · errors/s 0.10"), (0.0, ""), (None, "")]
)
def test_errors_are_told_where_there_are_some(errored: float | None, errors: str) -> None:
    one = replica(
        "a1",
        changes={"requests_finished_per_second": 4.0, "requests_aborted_per_second": 0.0},
        goodput=Goodput(4.0, errored_per_second=errored),
    )
    assert row(one, "requests").endswith(f"aborted/s 0{errors}")


def test_speculation_by_position() -> None:
    one = replica(
        "a1",
        changes={
            "spec_accepted_length": 3.1,
            "spec_acceptance_ratio": 0.52,
            "spec_acceptance_per_position": scalar((0.84, 0.6, 0.39, 0.27)),
        },
    )
    # of 3.1 tokens a step one costs it: 2.1 / 3.1 = 67.7 %
    assert row(one, "speculation") == " speculation length 3.10 · accepted 52 % · steps saved 68 %"
    text = rows(one)
    first = text.index(row(one, "speculation")) + 1
    # 30 cells: 0.84 x 30 = 25.2 = 25 cells and 1.6 = 2 eighths; 0.6 / 0.84 = 0.71
    assert text[first] == "             position 1   0.84 " + "█" * 25 + "▎"
    assert text[first + 1] == (
        "             position 2   0.60 " + "█" * 18 + " " * 12 + "  0.71 once the one before is taken"
    )
    assert "0.65 once" in text[first + 2]
    assert "0.69 once" in text[first + 3]
    off = replica(
        "a1", changes={"spec_accepted_length": scalar(None, Quality.UNKNOWN, note="not configured")}
    )
    assert row(off, "speculation") == " speculation – not configured"


def test_ranks_are_listed_when_there_are_several() -> None:
    ranks = tuple(
        RankSnapshot(
            {"engine": str(number)}, signals(requests_running=number, kv_usage_ratio=0.5 + number / 10)
        )
        for number in range(2)
    )
    text = rows(replica("a1", ranks=ranks))
    assert " ranks          run  wait  KV %   tok/s  TTFT95ms" in text
    assert " engine=1         1     –    60       –         –" in text
    assert not any("engine=0" in line for line in rows(replica("a1", ranks=ranks[:1])))


def test_gpus_by_hand() -> None:
    one = replica(
        "a1",
        gpus=(gpu(0), gpu(1, mig="1g.10gb", power_watts=None, last_xid=79, throttle_reasons=("hw_thermal",))),
    )
    text = rows(one)
    assert " 0   NVIDIA H100 80GB HBM3          94     70.0/80.0   612   700   72  1755" in text
    assert any(
        line.startswith(" 1   NVIDIA H")
        and line.endswith("70.0/80.0     –   700   72  1755  hw_thermal  Xid 79")
        for line in text
    )


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_why_a_replica_is_not_read_is_told_to_its_end(width: int) -> None:
    """The list cuts it; whoever opens the replica wants the rest."""
    why = (
        "HTTP 401 at /metrics: needs an API key, or another one: api_key_env or api_key_file in the"
        " config file, or --api-key-env on the command line, for 25 s"
    )
    one = dataclasses.replace(
        down_replica("c0"),
        state=ReplicaState.UNAUTHORIZED,
        reasons=(why,),
        last_failure=Failure(FailureKind.UNAUTHORIZED, AT - 2, why),
    )
    text = rows(one, width)
    last = next(number for number, line in enumerate(text) if line.startswith(" last error"))
    state = next(number for number, line in enumerate(text) if line.startswith(" state"))
    told = [" ".join(line[13:] for line in text[first : first + 9]) for first in (state, last)]
    assert told[0].startswith(f"unauthorized: {why}")
    assert told[1].startswith(f"{why} · 2.0 s ago")
    assert all(width_of(line) <= width for line in text)


def test_events_newest_first_and_the_last_error_with_its_age() -> None:
    one = down_replica("c0", events=(event("restarted", 900), event("state_changed", 72, "ok -> down")))
    text = rows(one)
    position = next(number for number, line in enumerate(text) if line.startswith(" events"))
    assert text[position].endswith("ok → down")
    assert text[position + 1].endswith("restarted")
    assert row(one, "last error") == " last error  connection refused · 1.0 s ago"
    assert row(one, "state") == " state       down: connection refused for 72 s"
    assert row(one, "last page") == " last page   72 s ago · took 12 ms"


def test_a_plot_of_the_last_minutes() -> None:
    times = tuple(AT - 2 * step for step in range(149, -1, -1))
    one = replica("a1", trends={"kv_usage_ratio": (1.0,) * 150}, trend_times=times)
    text = rows(one, 75)
    caption = next(number for number, line in enumerate(text) if "KV %, last" in line)
    assert text[caption + 1].split()[0] == "100"
    assert text[caption + 4].split()[0] == "0"
    # 298 s in steps of 5 s are 60 columns without a hole
    assert all("█" * 60 in line for line in text[caption + 1 : caption + 5])


@pytest.mark.parametrize("state", list(ReplicaState))
def test_every_state_can_be_looked_at(state: ReplicaState) -> None:
    assert rows(replica("a1", state, signals={}, scraped_at=None, trends={"kv_usage_ratio": ()}))


def test_a_replica_that_is_gone() -> None:
    lines = detail_lines(Picture(fleet([])), "http://gone", 80)
    assert line_text(lines[0]) == " this replica is no longer in the fleet"


def test_what_an_engine_says_beyond_the_core_has_a_line_a_group() -> None:
    told: Signals = {
        "kv_host_usage_ratio": Scalar(0.415, "ratio", Quality.OK),
        "kv_offload_bytes_per_second": Scalar(2_500_000.0, "bytes/s", Quality.OK),
        "lora_running_adapters": Scalar(2.0, "adapters", Quality.OK),
        "lora_waiting_adapters": Scalar(None, "adapters", Quality.UNKNOWN, "the page holds no number for it"),
        "requests_rejected_per_second": Scalar(0.25, "requests/s", Quality.OK),
        "kv_transfer_seconds": distribution(0.004, 0.012, count=9),
    }
    one = dataclasses.replace(replica("a1"), beyond=told)
    assert row(one, "KV tiers") == " KV tiers    host used 42 % · written out 2.5 MB/s"
    assert row(one, "LoRA") == " LoRA        running 2 · waiting – the page holds no number for it"
    assert row(one, "admission") == " admission   rejected 0.25/s"
    assert row(one, "transfer") == " transfer    time p95 12 ms"
    assert not [line for line in rows(replica("a1")) if line.startswith((" KV tiers", " LoRA"))]


def test_a_plot_of_latency_has_a_line_at_the_objective() -> None:
    times = tuple(AT - 2 * step for step in range(449, -1, -1))
    slow = replica("a1", trends={"ttft_seconds.p95": (1.0,) * 225 + (4.0,) * 225}, trend_times=times)
    text = rows(slow, 75)
    caption = next(number for number, line in enumerate(text) if "TTFT p95 ms" in line)
    # 75 cells leave 62: 898 s in steps of 15 s. The objective of 1 s is the lowest of four rows up to 4 s
    assert "TTFT p95 ms (SLO 1000), last 15 min" in text[caption]
    plot = [line[-60:] for line in text[caption + 1 : caption + 5]]
    assert [(line[:29], line[-29:]) for line in plot[:3]] == [(" " * 29, "█" * 29)] * 3
    assert text[caption + 1].split()[0] == "4000"
    assert plot[3] == "█" * 60
    assert "┊─█" in text[caption + 4]  # where nothing is known there is the line alone
    quick = replica("a1", trends={"ttft_seconds.p95": (0.25,) * 450}, trend_times=times)
    text = rows(quick, 75)
    # never slower than the objective: its line is the top of the plot, a quarter of it is filled
    assert text[caption + 1].endswith("─" * 62)
    assert text[caption + 1].split()[0] == "1000"
    assert text[caption + 4].endswith("█" * 60)
    assert not any("─" in line for line in text[caption + 2 : caption + 5])


def test_what_limits_a_replica_is_told_in_shares_of_the_window() -> None:
    one = replica("a1", bound_by={"kv": 0.62, "token_budget": 0.21, "none": 0.17})
    assert row(one, "bound by") == " bound by    KV 62 % of the window · token budget 21 % · none 17 %"
    assert not [line for line in rows(replica("a1")) if line.startswith(" bound by")]
    tiny = replica("a1", bound_by={"none": 0.998, "queue": 0.002})
    assert row(tiny, "bound by") == " bound by    none 99 % of the window"


def test_a_cache_that_fills_tells_when_it_is_full_and_a_queue_how_fast_it_grows() -> None:
    """KV from 0.5 to 0.79 in 58 s, 0.005 a second: (1 - 0.79) / 0.005 = 42 s. The queue gains 1 in 2 s."""
    times = tuple(AT - 2 * step for step in range(29, -1, -1))
    trends = {
        "kv_usage_ratio": tuple(0.5 + 0.01 * step for step in range(30)),
        "requests_waiting": tuple(float(step) for step in range(30)),
    }
    one = replica("a1", trends=trends, trend_times=times)
    assert row(one, "KV").endswith("full in 42 s at this pace")
    assert "waiting 0, +0.50/s" in row(one, "requests")
    # .71 to 1.0: full already, which is no forecast
    full = {"kv_usage_ratio": tuple(0.71 + 0.01 * step for step in range(30))}
    assert "full in" not in row(replica("a1", trends=full, trend_times=times), "KV")
    falls = replica("a1", trends={"kv_usage_ratio": trends["kv_usage_ratio"][::-1]}, trend_times=times)
    assert "full" not in row(falls, "KV")
    # up and down makes no line: nothing is said of it
    shaken = replica("a1", trends={"requests_waiting": (1.0, 9.0) * 15}, trend_times=times)
    assert "/s ·" not in row(shaken, "requests").partition("finished")[0]


def test_preemptions_are_ticks_under_the_plot_of_the_cache() -> None:
    times = tuple(AT - 2 * step for step in range(149, -1, -1))
    preempted = (0.0,) * 140 + (0.5,) * 10
    trends = {"kv_usage_ratio": (1.0,) * 150, "preemptions_per_second": preempted}
    text = rows(replica("a1", trends=trends, trend_times=times), 75)
    caption = next(number for number, line in enumerate(text) if "KV %" in line and "preempted" in line)
    # the last 20 s in steps of 5 s: four columns, and a fifth that they begin in
    assert text[caption + 5].strip() in ("▴▴▴▴", "▴▴▴▴▴")
    quiet = rows(replica("a1", trends={**trends, "preemptions_per_second": (0.0,) * 150}, trend_times=times))
    assert not any("▴" in line for line in quiet)


def test_a_narrow_view_shows_one_row_of_plots_first_and_the_others_further_down() -> None:
    times = tuple(AT - 2 * step for step in range(149, -1, -1))
    names = ("kv_usage_ratio", "ttft_seconds.p95", "requests_running", "generation_tokens_per_second")
    one = replica("a1", trends=dict.fromkeys(names, (1.0,) * 150), trend_times=times)
    text = rows(one, 80)
    place = {
        word: next(n for n, line in enumerate(text) if f"{word}, last" in line or f"{word} (" in line)
        for word in ("KV %", "TTFT p95 ms", "running", "tok/s")
    }
    latencies = next(n for n, line in enumerate(text) if line.startswith(" latency ms"))
    assert place["KV %"] == place["TTFT p95 ms"] < latencies < place["running"] == place["tok/s"]
    wide = rows(one, 200)
    assert max(n for n, line in enumerate(wide) if ", last" in line) < wide.index(
        next(line for line in wide if line.startswith(" latency ms"))
    )


def test_an_outlier_says_how_many_times_the_median_it_is() -> None:
    one = replica("a1", outliers=(Outlier("ttft_seconds.p95", 0.84, 0.4, 6),))
    assert row(one, "outlier") == " outlier     TTFT p95 840 ms, median of 6: 400 ms (2.10×)"


def test_what_is_beyond_the_objective_stands_out_in_the_plot() -> None:
    """4 s against 1 s, in four rows of 1 s: three rows lie above the line, the lowest does not."""
    times = tuple(AT - 2 * step for step in range(449, -1, -1))
    slow = replica("a1", trends={"ttft_seconds.p95": (4.0,) * 450}, trend_times=times)
    lines = detail_lines(Picture(fleet([slow])), slow.target.url, 75)
    caption = next(number for number, line in enumerate(lines) if "TTFT p95 ms" in line_text(line))
    inks = [{span.ink for span in line if "█" in span.text} for line in lines[caption + 1 : caption + 5]]
    assert inks == [{"warn"}, {"warn"}, {"warn"}, {"spark"}]
