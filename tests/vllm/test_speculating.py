"""A real engine that drafts 4 tokens with ngram: every knob of the scheduler, live, under load."""

from __future__ import annotations

import stat
import time

import httpx
import pytest

from enginetop.fleet.snapshot import ReplicaSnapshot
from tests.support.watching import Watch, scalar
from tests.vllm.load import Load
from tests.vllm.server import DRAFT_TOKENS, Server, drafts_per_step, run_for, settle, wait_for

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

BUDGET = "max_num_batched_tokens"
RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
STEPS = "vllm:iteration_tokens_total"


@pytest.fixture(autouse=True)
def as_started(speculating: Server) -> None:
    speculating.reset_all()


def test_the_sheet(speculating: Server) -> None:
    sheet = speculating.knobs("GET", "knobs").json()
    assert (sheet["schema"], sheet["engine"]) == ("enginetop.knobs/1", "vllm")
    assert (sheet["engine_version"], sheet["applied"], sheet["total"]) == ("0.32.0", 1, 1)
    assert [(one["name"], one["value"], one["min"], one["max"]) for one in sheet["knobs"]] == [
        (BUDGET, 512, 80, 512),
        ("max_num_seqs", 16, 1, 16),
        ("long_prefill_token_threshold", 0, 0, 512),
        ("kv_watermark_blocks", 0, 0, 200),
        ("num_speculative_tokens", 4, 0, 4),
        ("thinking_token_budget", -1, -1, 512),
        ("max_num_queued_reqs", -1, -1, 1 << 20),
        ("max_num_queued_tokens", -1, -1, 1 << 30),
    ]
    assert stat.S_IMODE(speculating.socket_path.stat().st_mode) == 0o600


def test_nothing_of_it_is_on_the_serving_port(speculating: Server) -> None:
    assert speculating.web.get("/enginetop/v1/knobs").status_code == 404


def test_refusals_change_nothing(speculating: Server) -> None:
    version = speculating.row(BUDGET)["version"]
    body = {
        "knob": BUDGET,
        "value": 128,
        "if_version": version,
        "ttl_seconds": 60,
        "change": "x",
        "reason": "x",
    }
    for token in ("", "wrong"):
        assert speculating.knobs("PATCH", "knobs", body, token=token).status_code == 401
    out = speculating.knobs("PATCH", "knobs", body | {"value": 79})
    assert (out.status_code, out.json()["min"], out.json()["max"]) == (422, 80, 512)
    assert speculating.knobs("PATCH", "knobs", body | {"value": 513}).status_code == 422
    conflict = speculating.knobs("PATCH", "knobs", body | {"if_version": version + 5})
    assert (conflict.status_code, conflict.json()["version"]) == (409, version)
    assert speculating.knobs("PATCH", "knobs", body | {"knob": "max_num_running_reqs"}).status_code == 404
    row = speculating.row(BUDGET)
    assert (row["value"], row["version"]) == (512, version)


def test_budget_live_under_load(speculating: Server, record: dict[str, object]) -> None:
    with Load(speculating.url, max_tokens=12, prompt_bytes=70) as load:
        before = run_for(speculating, 60)
        assert max(before) > 128
        answer = speculating.change(BUDGET, 128)
        assert (answer.status_code, answer.json()["applied"]) == (200, 1)
        settle(speculating)
        since = speculating.page()
        lowered = run_for(speculating, 150)[2:]  # what was under way when the log was opened
        page = speculating.page()
        assert max(lowered) <= 128
        # A prompt counts in the histogram with its whole length where its last chunk is computed.
        assert page.above(STEPS, 256.0) == since.above(STEPS, 256.0)
        histogram_before = since.above(STEPS, 256.0)
        speculating.reset(BUDGET)
        raised = run_for(speculating, 60)
    assert max(raised) > 128
    assert histogram_before > 0
    assert load.failures == []
    record["budget 512 -> 128 -> 512: largest step, tokens"] = [max(before), max(lowered), max(raised)]
    record["budget: requests completed, failed"] = [len(load.usages), len(load.failures)]


def test_drafts_live_under_load(speculating: Server, record: dict[str, object]) -> None:
    with Load(speculating.url, max_tokens=100) as load:
        before = drafts_per_step(speculating)
        assert speculating.change("num_speculative_tokens", 1).status_code == 200
        lowered = drafts_per_step(speculating)
        assert speculating.row(BUDGET)["min"] == 32  # 16 x 2
        assert speculating.change("num_speculative_tokens", 0).status_code == 200
        settle(speculating)
        run_for(speculating, 5)
        off = speculating.page()
        run_for(speculating, 60)
        still = speculating.page()
        assert still.value(DRAFT_TOKENS) == off.value(DRAFT_TOKENS)
        assert speculating.change("num_speculative_tokens", 4).status_code == 200
        after = drafts_per_step(speculating)
    assert lowered == 1.0
    assert before > 2.0
    assert after > 2.0
    assert load.failures == []
    record["K 4 -> 1 -> 4: draft tokens a draft"] = [round(before, 2), round(lowered, 2), round(after, 2)]


def test_active_requests_drain_and_come_back(speculating: Server) -> None:
    running = "vllm:num_requests_running"
    with Load(speculating.url, max_tokens=60) as load:
        wait_for(lambda: speculating.page().value(running) > 8)
        assert speculating.change("max_num_seqs", 4).status_code == 200
        wait_for(lambda: 0 < speculating.page().value(running) <= 4)
        run_for(speculating, 40)
        assert speculating.page().value(running) <= 4
        assert speculating.row("max_num_seqs")["max"] == 16
        speculating.reset("max_num_seqs")
        wait_for(lambda: speculating.page().value(running) > 8)
    assert load.failures == []


def test_chunk_threshold(speculating: Server) -> None:
    """Of 8 requests none gets more than 32 tokens of a step, be it a piece of its prompt or its drafts; a
    request that is alone gets what it wants.
    """
    with Load(speculating.url, max_tokens=8, prompt_bytes=300, concurrency=8) as load:
        assert max(run_for(speculating, 40)) > 8 * 32
        assert speculating.change("long_prefill_token_threshold", 32).status_code == 200
        settle(speculating)
        assert max(run_for(speculating, 60, requests=2)[2:]) <= 8 * 32
    assert load.failures == []


def test_the_watermark_keeps_blocks_free(speculating: Server, record: dict[str, object]) -> None:
    """Of 400 blocks a request takes 13 to 16: 16 of them run. Where the last one is let in only beside 200
    free ones, 187 are taken at most before: 12 to 14 requests.
    """

    def usually_running() -> float:
        seen = []
        for _ in range(20):
            seen.append(speculating.page().value(RUNNING))
            run_for(speculating, 3)
        return sum(seen) / len(seen)

    with Load(speculating.url, max_tokens=80, prompt_bytes=380, concurrency=20) as load:
        wait_for(lambda: speculating.page().value(RUNNING) > 14)
        before = usually_running()
        assert speculating.change("kv_watermark_blocks", 200).status_code == 200
        run_for(speculating, 60)
        lowered = usually_running()
        speculating.reset("kv_watermark_blocks")
        wait_for(lambda: speculating.page().value(RUNNING) > 14)
    assert load.failures == []
    record["watermark 0 -> 200 of 400 blocks: running in the mean"] = [before, lowered]
    assert lowered < min(14.0, before - 1)


def test_queue_limits_refuse_what_is_beyond_them(speculating: Server, record: dict[str, object]) -> None:
    with Watch(speculating.url) as watch:

        def there(row: ReplicaSnapshot) -> float:
            return scalar(row, "requests_running") + scalar(row, "requests_waiting")

        watch.until_idle()
        with Load(speculating.url, max_tokens=100) as load:
            watch.until(lambda row: there(row) > 8)
            assert load.failures == []
            assert speculating.change("max_num_queued_reqs", 4).status_code == 200
            watch.until(lambda row: 0 < there(row) <= 4)
            refused = len(load.failures)
            assert refused > 0
            speculating.reset("max_num_queued_reqs")
            watch.until(lambda row: there(row) > 8)
        last = watch.until_idle()
    # Those that slip by vLLM's first look together are refused in their streams by the second.
    assert {"HTTP 503"} <= set(load.failures) <= {"HTTP 503", "HTTP 503 in its stream"}
    shown = scalar(last, "requests_rejected_per_second") * watch.seconds
    assert shown == pytest.approx(len(load.failures))
    record["max_num_queued_reqs 4 with 12 clients: in the server, refused until then"] = [4, refused]
    record["refused in all by clients, of these in their streams, by enginetop"] = [
        len(load.failures),
        load.failures.count("HTTP 503 in its stream"),
        round(shown, 1),
    ]
    body = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
    assert speculating.change("max_num_queued_tokens", 0).status_code == 200
    assert speculating.web.post("/v1/chat/completions", json=body).status_code == 503
    speculating.reset("max_num_queued_tokens")
    assert speculating.web.post("/v1/chat/completions", json=body).status_code == 200


def test_nobody_renews_under_load(speculating: Server) -> None:
    with Load(speculating.url) as load:
        speculating.change(BUDGET, 96, ttl=2.0, change="short")
        row = speculating.row(BUDGET)
        assert row["value"] == 96
        renewed = speculating.change(BUDGET, 96, ttl=3.0, change="short", version=row["version"])
        assert (renewed.status_code, renewed.json()["version"]) == (200, row["version"])
        wait_for(lambda: speculating.row(BUDGET)["value"] == 512, 5.0)
        assert speculating.row(BUDGET)["version"] == row["version"] + 1
        late = speculating.change(BUDGET, 96, change="short", version=row["version"])
        assert late.status_code == 409
    assert load.failures == []


def test_nobody_renews_and_the_engine_is_idle(speculating: Server, record: dict[str, object]) -> None:
    """Seen in the engine's log: asking the knob API would wake it."""
    wait_for(lambda: speculating.page().value("vllm:num_requests_running") == 0)
    start = speculating.log_size()
    assert speculating.change(BUDGET, 100, ttl=1.5, change="idle").status_code == 200
    began = time.monotonic()
    wait_for(lambda: f"{BUDGET} is back at 512" in speculating.log()[start:], 10.0, pause=0.02)
    record["lease of 1.5 s on an idle engine: back after, s"] = round(time.monotonic() - began, 2)


def test_every_request_is_counted_once_and_as_vllm_times_it(speculating: Server) -> None:
    before = speculating.page()
    with Load(speculating.url, max_tokens=20) as load:
        wait_for(lambda: len(load.usages) >= 40)
    page = speculating.page()

    def risen(name: str, **labels: str) -> float:
        return page.value(name, **labels) - before.value(name, **labels)

    assert risen("enginetop_requests_total", outcome="length") == len(load.usages)
    assert risen("enginetop_requests_total") == risen("vllm:request_success_total")
    for ours, theirs in (
        ("enginetop_ttft_seconds", "vllm:time_to_first_token_seconds"),
        ("enginetop_tpot_seconds", "vllm:request_time_per_output_token_seconds"),
    ):
        assert risen(f"{ours}_count") == risen(f"{theirs}_count")
        assert risen(f"{ours}_sum") == pytest.approx(risen(f"{theirs}_sum"), rel=1e-6)
    assert risen("enginetop_requests_within_slo_total") == len(load.usages)


def test_a_client_that_goes_away_is_an_abort(speculating: Server) -> None:
    before = speculating.page()
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "x"}],
        "max_tokens": 400,
        "stream": True,
        "ignore_eos": True,
    }
    with httpx.stream("POST", f"{speculating.url}/v1/chat/completions", json=body, timeout=30) as answer:
        next(answer.iter_lines())
    outcome = {"outcome": "abort"}
    wait_for(lambda: speculating.page().value("enginetop_requests_total", **outcome) > 0)
    after = speculating.page()
    assert after.value("enginetop_requests_total", **outcome) == 1 + before.value(
        "enginetop_requests_total", **outcome
    )
    assert after.value("enginetop_ttft_seconds_count") == before.value("enginetop_ttft_seconds_count")


def test_a_new_objective(speculating: Server) -> None:
    slo = {"ttft_seconds": 1e-6, "tpot_seconds": 0.5}
    assert speculating.knobs("PUT", "slo", slo).json() == slo
    labels = {"ttft_seconds": "1e-06", "tpot_seconds": "0.5"}
    assert speculating.page().value("enginetop_requests_within_slo_total", **labels) == 0
    with Load(speculating.url, max_tokens=4) as load:
        wait_for(lambda: len(load.usages) >= 12)
    assert speculating.page().value("enginetop_requests_within_slo_total", **labels) == 0
    restored = {"ttft_seconds": 5.0, "tpot_seconds": 0.5}
    assert speculating.knobs("PUT", "slo", restored).json() == restored


def test_a_thinking_budget_while_drafting(speculating: Server, record: dict[str, object]) -> None:
    """Some releases ignore the budget when they speculate; this one does not."""
    name = "enginetop_reasoning_tokens"
    assert speculating.change("thinking_token_budget", 10).status_code == 200
    before = speculating.page()
    with Load(speculating.url, max_tokens=60) as load:
        wait_for(lambda: len(load.usages) >= 24)
    page = speculating.page()
    told = [usage["completion_tokens_details"]["reasoning_tokens"] for usage in load.usages]
    record["default thinking budget 10 while drafting: largest reasoning tokens"] = max(told)
    assert page.value(f"{name}_sum") - before.value(f"{name}_sum") == sum(told)
    assert max(told) <= 12
