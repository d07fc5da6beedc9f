"""What enginetop shows of a real vLLM under load, against its clients' counts and the engine's own log."""

from __future__ import annotations

import re
import time
from statistics import median

import pytest

from collectors.engines.vllm import VLLM
from enginetop.fleet.model import EngineKind, ReplicaState
from enginetop.fleet.snapshot import ReplicaSnapshot, Scalar, number_of
from tests.support.watching import Watch, distribution, scalar
from tests.vllm.installation import VLLM as VERSION
from tests.vllm.load import Load
from tests.vllm.server import DRAFT_TOKENS, Server

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

CLIENTS = 20
MOST_RUNNING = 16
CAPACITY_TOKENS = 400 * 32
RATES = ("requests_finished_per_second", "prompt_tokens_per_second", "generation_tokens_per_second")
_ACCEPTED = re.compile(r"Accepted: (\d+) tokens, Drafted: (\d+) tokens")


@pytest.mark.parametrize("which", [0, 1], ids=["drafting", "two API servers"])
def test_what_is_shown_is_what_its_clients_counted(
    servers: tuple[Server, Server], which: int, record: dict[str, object]
) -> None:
    server = servers[which]
    rows: list[ReplicaSnapshot] = []

    def all_seen(row: ReplicaSnapshot) -> bool:
        """A quick engine is short of requests at many a look, since its clients cannot keep up."""
        rows.append(row)
        return len(load.usages) >= 3 * CLIENTS and any(full(one) for one in rows)

    with Watch(server.url) as watch:
        first = watch.look()
        with Load(server.url, concurrency=CLIENTS, max_tokens=200) as load:
            watch.until(all_seen)
        last = watch.until_idle()

    assert (first.engine, first.engine_version, first.model) == (EngineKind.VLLM, VERSION, "tiny")
    assert scalar(first, "kv_capacity_tokens") == CAPACITY_TOKENS
    assert load.failures == []
    ended = len(load.usages)
    told = (
        ended,
        sum(usage["prompt_tokens"] for usage in load.usages),
        sum(usage["completion_tokens"] for usage in load.usages),
    )
    shown = tuple(scalar(last, name) * watch.seconds for name in RATES)
    assert shown == pytest.approx(told, rel=0.001)
    for name in ("ttft_seconds", "e2e_seconds", "tpot_seconds", "queue_seconds"):
        assert distribution(last, name).count == ended, name
    for name, tokens in (("prompt_tokens", told[1]), ("output_tokens", told[2])):
        assert (distribution(last, name).count, distribution(last, name).sum) == (ended, tokens)

    # A client hears later than the engine: no quantile of the engine's begins above the clients' own.
    for name, seconds in (("ttft_seconds", load.first_tokens), ("e2e_seconds", load.durations)):
        p50 = distribution(last, name).quantiles["p50"]
        assert p50.low is not None
        assert p50.low <= median(seconds), name
        record[f"{server_name(which)}: {name} p50 of enginetop, of the clients"] = (
            f"{p50.value:.3f} ({p50.low:g} to {p50.high:g}), {median(seconds):.3f}"
        )

    rows = [row for row in rows if number_of(row.signals, "requests_running") is not None]
    running = [scalar(row, "requests_running") for row in rows]
    waiting = [scalar(row, "requests_waiting") for row in rows]
    assert max(running) == MOST_RUNNING
    assert all(sum(pair) <= CLIENTS for pair in zip(running, waiting, strict=True))
    assert all(0 < scalar(row, "kv_usage_ratio") < 1 for row in rows if scalar(row, "requests_running") > 8)
    assert {row.state for row in rows} <= {ReplicaState.OK, ReplicaState.IDLE}
    assert [scalar(last, name) for name in ("requests_running", "requests_waiting", "preemptions")] == [0] * 3
    record[f"{server_name(which)}: requests, prompt and output tokens of clients, of enginetop"] = (
        f"{told}, {tuple(round(one, 1) for one in shown)}"
    )


def full(row: ReplicaSnapshot) -> bool:
    """Whether all clients' requests are there. Several API servers have no gauges before the first step."""
    names = ("requests_running", "requests_waiting")
    return [number_of(row.signals, name) for name in names] == [MOST_RUNNING, CLIENTS - MOST_RUNNING]


def server_name(which: int) -> str:
    return ("drafting", "two API servers")[which]


def test_drafts_are_those_of_the_engines_log(speculating: Server, record: dict[str, object]) -> None:
    """Its log tells accepted and drafted tokens of every ten seconds. What repeats itself is guessed right,
    what is drawn at random is not.
    """
    with Watch(speculating.url) as watch:
        watch.until_idle()
        before = accepted_and_drafted(speculating)
        with (
            Load(speculating.url, concurrency=6, max_tokens=100) as load,
            Load(speculating.url, concurrency=6, max_tokens=100, temperature=1.0),
        ):
            while len(load.usages) < 20:
                watch.look()
                time.sleep(0.5)
        last = watch.until_idle()
    after = accepted_and_drafted(speculating)
    accepted, drafted = after[0] - before[0], after[1] - before[1]
    assert 0 < accepted < drafted
    assert scalar(last, "spec_acceptance_ratio") == pytest.approx(accepted / drafted)
    by_position = last.signals["spec_acceptance_per_position"]
    assert isinstance(by_position, Scalar)
    assert isinstance(by_position.value, tuple)
    assert len(by_position.value) == 4
    # Token k is accepted only behind token k - 1, and the mean length is the sum over positions and one more.
    assert list(by_position.value) == sorted(by_position.value, reverse=True)
    assert scalar(last, "spec_accepted_length") == pytest.approx(1 + sum(by_position.value))
    record["drafting: accepted of drafted tokens by the engine's log; acceptance shown"] = (
        f"{accepted} of {drafted}; {scalar(last, 'spec_acceptance_ratio'):.3f}"
    )


def accepted_and_drafted(server: Server) -> tuple[int, int]:
    """Sums over the whole log of an idle engine, once it has told of all drafts that its page counts."""
    counted = server.page().value(DRAFT_TOKENS)
    deadline = time.monotonic() + 60.0
    while True:
        told = [(int(accepted), int(drafted)) for accepted, drafted in _ACCEPTED.findall(server.log())]
        sums = sum(accepted for accepted, _ in told), sum(drafted for _, drafted in told)
        if sums[1] == counted:
            return sums
        assert time.monotonic() < deadline, (sums, counted)
        time.sleep(0.5)


def test_only_safe_paths_are_asked(reasoning: Server) -> None:
    with Watch(reasoning.url) as watch:
        for _ in range(3):
            watch.look()
    refused = {path for path, _ in VLLM.never}
    assert not refused & {path.partition("?")[0] for path in watch.asked}
    assert watch.asked[-1] == "/metrics"  # side pages are not asked for with every look
