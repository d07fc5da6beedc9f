"""The companion before two data-parallel ranks: both or none, also when one of them does not answer."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator

import httpx
import pytest

from tests.sglang.installation import install
from tests.sglang.server import CHUNK_TOKENS, Server
from tests.vllm.load import Load
from tests.vllm.server import wait_for
from tuners.control.knob_api import KnobReply, ReplyKind

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(1800)]

CHUNK, RUNNING = "max_num_batched_tokens", "max_num_seqs"
_PREFILL = re.compile(r"DP(\d)\] Prefill batch.*#new-token: (\d+)")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(install(), tmp_path_factory.mktemp("ranks") / "a", companion=True, ranks=2)
    try:
        running.wait_until_ready()
        wait_for(lambda: running.knobs.read().sheet is not None)
        yield running
    finally:
        running.stop()


def write(server: Server, knob: str, value: int) -> KnobReply:
    """Write it once the knob takes it: what was there before may have been set back a moment ago."""
    replies: list[KnobReply] = []

    def taken() -> bool:
        replies.append(
            server.knobs.write(
                knob, value, if_version=None, ttl_seconds=600.0, change=str(value), reason="test"
            )
        )
        return replies[-1].kind is not ReplyKind.TOO_SOON

    wait_for(taken)
    return replies[-1]


def live(server: Server, knob: str) -> list[int]:
    """What each rank says of a knob."""
    states = httpx.get(f"{server.url}/server_info", timeout=30.0).json()["internal_states"]
    return [row["value"] for state in states for row in state["enginetop"]["knobs"] if row["name"] == knob]


def test_both_ranks_take_it(server: Server) -> None:
    for knob, value in ((CHUNK, 64), (RUNNING, 2)):
        reply = write(server, knob, value)
        assert (reply.kind, reply.applied, reply.total) == (ReplyKind.OK, 2, 2)
        assert live(server, knob) == [value, value]
    start = len(server.log())
    with Load(server.url, concurrency=4, max_tokens=4, prompt_bytes=180) as load:
        wait_for(lambda: len(_PREFILL.findall(server.log()[start:])) >= 40)
    batches = [(int(rank), int(tokens)) for rank, tokens in _PREFILL.findall(server.log()[start:])]
    print(f"\nFIGURE largest prefill batch of two ranks at 64: {max(tokens for _, tokens in batches)}")
    assert {rank for rank, _ in batches} == {0, 1}
    assert max(tokens for _, tokens in batches) == 64
    assert load.failures == []
    for knob in (CHUNK, RUNNING):
        assert server.knobs.reset(knob).kind is ReplyKind.OK
    assert live(server, CHUNK) == [CHUNK_TOKENS, CHUNK_TOKENS]


def test_a_rank_that_does_not_answer(server: Server) -> None:
    (stopped,) = server.processes("sglang::scheduler_DP1")
    os.kill(stopped, signal.SIGSTOP)
    try:
        reply = write(server, CHUNK, 128)
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert reply.kind is ReplyKind.NOT_ALL_RANKS
    # The change was on its way to both of them: it is taken back behind itself.
    wait_for(lambda: server.row(CHUNK).value == CHUNK_TOKENS)
    wait_for(lambda: live(server, CHUNK) == [CHUNK_TOKENS, CHUNK_TOKENS])
    sheet = server.knobs.read().sheet
    assert sheet is not None
    assert (sheet.applied, sheet.total) == (2, 2)
    print("\nFIGURE one of two ranks stopped: 503, both back at 256 once it goes on")
