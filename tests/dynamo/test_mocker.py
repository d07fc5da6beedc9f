"""What enginetop reads of a real Dynamo fleet, held against its clients and the mocker's own steps."""

from __future__ import annotations

import bisect
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from collectors.control_http import HttpKnobTransport
from collectors.engines.base import Look
from collectors.engines.detect import recognise
from collectors.engines.dynamo import DynamoReader
from collectors.engines.dynamo_frontend import BUSY_THRESHOLD, OPENAPI
from collectors.fetch import NO_CREDENTIALS
from enginetop.fleet.model import EngineKind, ReplicaState, Role
from enginetop.fleet.reading import Reading
from enginetop.fleet.snapshot import Distribution
from tests.dynamo.fleet import MODEL, Fleet
from tests.dynamo.installation import install
from tests.dynamo.load import serve
from tests.dynamo.run import OUTPUT_TOKENS, PROMPT_BYTES, Run
from tests.support.engine_pages import measures, page_of, total
from tuners.control.stock.dynamo_busy import BusyThreshold
from tuners.control.stock.exchange import StockError
from tuners.control.stock.live_board import LiveBoard

pytestmark = [pytest.mark.dynamo, pytest.mark.timeout(900)]

WITHIN = 0.01
KV_TOKENS = 840.0
"""Tokens in the KV cache of a worker of the `whole` fleet: 420 blocks of 2."""
BLOCKS_IN_ALL = 420
BLOCKS = "active_decode_blocks_threshold"


def near(value: float | None, wanted: float) -> bool:
    return value is not None and abs(value - wanted) <= WITHIN * wanted


def summed(run: Run, name: str) -> float:
    """A running total over the rows of all workers; a worker that nobody asked has none."""
    return sum(row.totals.get(name, 0.0) for row in run.rows)


# Requests and tokens


def test_the_load_was_served(whole: Run, split: Run) -> None:
    for run, requests in ((whole, 128), (split, 64)):
        assert run.served.statuses == {200: requests}
        assert run.served.output_tokens == requests * OUTPUT_TOKENS
        assert run.served.prompt_tokens >= requests * PROMPT_BYTES


def test_requests_and_tokens_agree_with_the_clients(whole: Run, record: dict[str, object]) -> None:
    served, gateway = whole.served, whole.gateway.totals
    at_frontend = (
        gateway["requests_finished"],
        gateway["prompt_tokens_processed"],
        gateway["generation_tokens"],
    )
    at_workers = (summed(whole, "requests_finished"), summed(whole, "generation_tokens"))
    wanted = (served.complete, served.prompt_tokens, served.output_tokens)
    assert [near(*both) for both in zip(at_frontend, wanted, strict=True)] == [True] * 3
    assert near(at_workers[0], served.complete)
    assert near(at_workers[1], served.output_tokens)
    record["16 workers: requests by clients, frontend, workers"] = (
        f"{served.complete}, {at_frontend[0]:g}, {at_workers[0]:g}"
    )
    record["16 workers: prompt tokens by clients, frontend"] = f"{served.prompt_tokens}, {at_frontend[1]:g}"
    record["16 workers: output tokens by clients, frontend, workers"] = (
        f"{served.output_tokens}, {at_frontend[2]:g}, {at_workers[1]:g}"
    )


def test_the_printed_fleet_counts_each_request_once(
    whole: Run, split: Run, record: dict[str, object]
) -> None:
    for run, name in ((whole, "16 workers"), (split, "4 prefill and 12 decode workers")):
        document = run.document()
        fleet = document["fleet"]["signals"]
        requests = fleet["e2e_seconds"]["count"]
        tokens = fleet["ttft_seconds"]["count"] + fleet["itl_seconds"]["count"]
        assert near(requests, run.served.complete)
        assert near(tokens, run.served.output_tokens)
        (gateway,) = (row for row in document["replicas"] if row["role"] == "gateway")
        assert near(gateway["signals"]["e2e_seconds"]["count"], run.served.complete)
        assert near(gateway["signals"]["prompt_tokens"]["sum"], run.served.prompt_tokens)
        record[f"{name}: requests, output tokens of the printed fleet"] = f"{requests:g}, {tokens:g}"


def test_prefill_and_decode_workers_count_once(split: Run, record: dict[str, object]) -> None:
    by_role: defaultdict[Role, float] = defaultdict(float)
    for row in split.rows:
        by_role[row.role] += row.totals["requests_finished"]
    # Every request is finished by one worker of each kind.
    assert by_role == {Role.PREFILL: split.served.complete, Role.DECODE: split.served.complete}
    e2e = split.snapshot.fleet.signals["e2e_seconds"]
    assert isinstance(e2e, Distribution)
    assert near(e2e.count, split.served.complete)
    record["4 prefill and 12 decode workers: requests by prefill, by decode, by the fleet"] = (
        f"{by_role[Role.PREFILL]:g}, {by_role[Role.DECODE]:g}, {e2e.count:g}"
    )


@pytest.mark.parametrize("engine", [EngineKind.SGLANG, EngineKind.TRTLLM])
def test_other_engines_behind_dynamo(engine: EngineKind, tmp_path: Path, record: dict[str, object]) -> None:
    """Of these the mocker exports other names than of vLLM; counts agree all the same."""
    with Fleet(install(), tmp_path / "fleet", decode=2, blocks=2000, engine=engine.value) as fleet:
        served = serve(fleet.frontend, 12, at_once=6, prompt_bytes=100, output_tokens=20)
        readings = [read(page_at(worker.url)) for worker in fleet.workers()]
    assert {(one.identity.engine, one.identity.stack) for one in readings} == {(engine, "dynamo")}
    requests = sum(total(one, "requests_finished") for one in readings)
    tokens = sum(total(one, "generation_tokens") for one in readings)
    assert (requests, tokens) == (served.complete, served.output_tokens) == (12, 240)
    record[f"2 workers of {engine.value}: requests, output tokens by clients and workers"] = (
        f"{served.complete} and {requests:g}, {served.output_tokens} and {tokens:g}"
    )


# Identity


def test_every_worker_is_known_by_the_frontend(whole: Run, split: Run) -> None:
    for run in (whole, split):
        reading = read(run.pages(run.fleet.frontend)[-1][1])
        assert set(reading.workers) == {worker.id for worker in run.workers}
        for worker in run.workers:
            page = run.pages(worker.url)[-1][1]
            assert read(page).identity.worker == worker.id


def test_rows_of_both_fleets(whole: Run, split: Run) -> None:
    assert (whole.gateway.engine, whole.gateway.role) == (EngineKind.DYNAMO, Role.GATEWAY)
    assert (whole.gateway.engine_version, whole.gateway.model) == ("1.6.1", MODEL)
    assert {(row.engine, row.role, row.stack, row.model) for row in whole.rows} == {
        (EngineKind.VLLM, Role.AGGREGATED, "dynamo", MODEL)
    }
    roles = [row.role for row in split.rows]
    assert (roles.count(Role.PREFILL), roles.count(Role.DECODE)) == (4, 12)
    limits = {name: value.value for name, value in whole.gateway.config.items()}
    assert limits["max_num_seqs"] == 16
    assert limits["max_num_batched_tokens"] == 2048
    assert (limits["num_gpu_blocks"], limits["block_size"]) == (420, 2)
    assert {row.state for row in whole.rows} == {ReplicaState.IDLE}


def test_cards_of_the_workers(whole: Run) -> None:
    for worker in whole.workers:
        assert worker.card.capacity_tokens == KV_TOKENS
        assert worker.card.config["max_num_batched_tokens"].value == 2048
        assert (worker.card.model, worker.card.role) == (MODEL, Role.AGGREGATED)


# The iteration stream


@dataclass(frozen=True, slots=True)
class Step:
    """One record of the stream: what a worker scheduled in a step, and who waits."""

    at: float
    prefills: int
    decodes: int
    decode_tokens: int
    preempted: int


def steps_of(records: Sequence[Mapping[str, object]]) -> dict[int, list[Step]]:
    """The steps of each worker, in order."""
    found: defaultdict[int, list[Step]] = defaultdict(list)
    for line in records:
        step = json.loads(json.dumps(line["metrics"]))
        scheduled, queued = step["scheduled_requests"], step["queued_requests"]
        found[int(step["worker_id"])].append(
            Step(
                at=float(str(line["received_at_ns"])) / 1e9,
                prefills=scheduled["num_prefill_requests"],
                decodes=scheduled["num_decode_requests"],
                decode_tokens=scheduled["sum_decode_kv_tokens"],
                preempted=queued["num_decode_requests"],
            )
        )
    return found


def test_preemptions_agree_with_the_steps(whole: Run, record: dict[str, object]) -> None:
    """A request that decoded and waits again was preempted; it is counted where it begins to wait."""
    counted = 0
    for steps in steps_of(whole.fleet.steps()).values():
        counted += sum(max(after.preempted - before.preempted, 0) for before, after in pairwise(steps))
    preemptions = summed(whole, "preemptions")
    assert counted >= 16
    assert near(preemptions, counted)
    record["preemptions by enginetop, by the iteration stream"] = f"{preemptions:g}, {counted}"


def test_kv_use_agrees_with_the_steps(whole: Run, record: dict[str, object]) -> None:
    """The gauge at a page is that of the step that runs, whose record comes at its end: the next one.

    Held against it where the batch stays the same from the record before the page to the one after it.
    """
    stream = steps_of(whole.fleet.steps())
    errors = []
    for worker in whole.workers:
        steps = stream[worker.id]
        ends = [step.at for step in steps]
        for at, body in whole.pages(worker.url):
            after = bisect.bisect_right(ends, at)
            if not 0 < after < len(steps) or not same_batch(steps[after - 1], steps[after]):
                continue
            reading = read(body)
            assert "kv_usage_ratio" in measures(reading)
            wanted = steps[after].decode_tokens / KV_TOKENS
            errors.append(abs(total(reading, "kv_usage_ratio") - wanted) / wanted)
    assert len(errors) >= 100
    errors.sort()
    assert sum(errors) / len(errors) <= WITHIN
    assert errors[int(0.95 * len(errors))] <= WITHIN
    record["KV use against the iteration stream: pages, mean and p95 of the relative error"] = (
        f"{len(errors)}, {sum(errors) / len(errors):.4f}, {errors[int(0.95 * len(errors))]:.4f}"
    )


def same_batch(one: Step, other: Step) -> bool:
    """Whether nobody came, went or computed a prompt between two steps."""
    return (
        one.prefills == other.prefills == 0
        and one.decodes == other.decodes > 0
        and one.preempted == other.preempted
        and other.decode_tokens - one.decode_tokens == one.decodes
    )


# The admission limit, and the end of the workers


def test_what_the_busy_threshold_sheds(whole: Run, record: dict[str, object]) -> None:
    """Every worker is busy before anybody is shed: the frontend hears of a worker's load by an event, so that
    a burst into an idle fleet is routed before or after that, as it happens. For the same reason a threshold
    is waited for: it counts from the next event on. At 1.0 nobody is shed as long as no worker is full, and
    a long request, one for each worker, leaves room for a short one to its end.
    """
    workers = len(whole.workers)
    url = whole.fleet.frontend
    api = BusyThreshold(HttpKnobTransport(url, NO_CREDENTIALS), MODEL)
    board = LiveBoard(api, writer="dynamo_busy", engine_name="dynamo")
    with pytest.raises(StockError, match="start the frontend with one"):
        board.sheet(0.0)  # nothing is set, and what enginetop set could not be cleared
    by_hand = {"model": MODEL, BLOCKS: 1.0}
    assert httpx.post(url + BUSY_THRESHOLD, json=by_hand).status_code == 200
    before = total_or_none(read(page_at(url)), "requests_rejected")
    statuses: Counter[int] = Counter()

    def sent(requests: int) -> Counter[int]:
        served = serve(url, requests, at_once=requests, prompt_bytes=PROMPT_BYTES, output_tokens=4)
        statuses.update(served.statuses)
        return served.statuses

    with ThreadPoolExecutor(1) as pool:
        long = pool.submit(serve, url, workers, at_once=workers, prompt_bytes=PROMPT_BYTES, output_tokens=440)
        wait_for(lambda: min(active_blocks(page_at(url)), default=0.0) > 0.2 * BLOCKS_IN_ALL)
        assert board.patch(BLOCKS, 20, if_version=None, ttl_seconds=60.0, change="c", now=0.0).status == 200
        wait_for(lambda: sent(1) == {529: 1})
        assert sent(24) == {529: 24}
        assert board.sheet(61.0).knobs[0].value == 100  # the loan is over
        sides = {path: httpx.get(url + path).json() for path in (BUSY_THRESHOLD, OPENAPI)}
        wait_for(lambda: sent(1) == {200: 1})
        assert sent(4) == {200: 4}
        assert not long.done()
    reading = read(page_at(url), sides)
    assert long.result().statuses == {200: workers}  # who was admitted runs on
    shed = total(reading, "requests_rejected") - before
    assert shed == statuses[529] == total(reading, "requests_errored")
    assert reading.config[BLOCKS].value == 1.0
    record["shed by the busy threshold: by clients, by the frontend's page"] = f"{statuses[529]}, {shed:g}"


def test_the_last_worker_ends(split: Run) -> None:
    """The gauge of the model vanishes; the row still says that there is none."""
    reader = DynamoReader()
    with_workers = reader.read(Look(at=1.0, page=page_of(page_at(split.fleet.frontend))))
    assert total(with_workers, "models_ready") == 1
    split.fleet.end_workers()
    without = reader.read(Look(at=2.0, page=page_of(page_at(split.fleet.frontend))))
    assert total(without, "models_ready") == 0


def page_at(url: str) -> str:
    answer = httpx.get(f"{url}/metrics", timeout=10.0)
    assert answer.status_code == 200
    return answer.text


def read(text: str, sides: Mapping[str, object] | None = None) -> Reading:
    page = page_of(text)
    found = recognise(page.layout)
    assert found is not None
    outcome = found.new_reader().read(Look(at=1.0, page=page, sides=sides or {}))
    assert isinstance(outcome, Reading)
    return outcome


def active_blocks(text: str) -> list[float]:
    """The blocks in use of each worker, as the frontend has heard."""
    name = "dynamo_frontend_worker_active_decode_blocks{"
    return [float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name)]


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds:g} s"
        time.sleep(0.05)


def total_or_none(reading: Reading, measure: str) -> float:
    """The sum of a counter, 0 where it has not begun."""
    return total(reading, measure) if measure in measures(reading) else 0.0
