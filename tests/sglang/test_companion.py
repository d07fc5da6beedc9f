"""The companion in a real SGLang: knobs live and back under load, exact counts, the whole loop, a kill."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from enginetop import __version__
from enginetop.fleet.plan import Plan, PlannedChange, Scope, plan_text
from tests.sglang.installation import install
from tests.sglang.server import CHUNK_TOKENS, MAX_RUNNING, Server
from tests.support.watching import Watch
from tests.vllm.load import Load
from tests.vllm.server import wait_for
from tuners.control.effect import Effect, find_effect
from tuners.control.knob_api import ReplyKind
from tuners.control.trace import NO_TRACE, Trace, trace_of

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(1800)]

CHUNK, RUNNING = "max_num_batched_tokens", "max_num_seqs"
PROMPT_BYTES = 180
ANSWERED = 'enginetop_requests_total{outcome="length"}'
ABORTED = 'enginetop_requests_total{outcome="abort"}'
_PREFILL = re.compile(r"Prefill batch.*#new-token: (\d+)")
_DECODE = re.compile(r"Decode batch.*#running-req: (\d+)")
_COUNT = re.compile(r"^(enginetop_\w+)(\{.*?\})? ([\d.e+-]+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    here, folder = install(), tmp_path_factory.mktemp("companion")
    # Room for long answers, so that nothing but the knobs holds requests back.
    room = ("--max-total-tokens", "4096", "--schedule-conservativeness", "1.0")
    pair = tuple(Server(here, folder / name, *room, companion=True) for name in ("a", "b"))
    try:
        for one in pair:
            one.wait_until_ready()
        wait_for(lambda: all(one.knobs.read().sheet is not None for one in pair))
        yield pair[0], pair[1]
    finally:
        for one in pair:
            one.stop()


@pytest.fixture
def server(servers: tuple[Server, Server]) -> Server:
    for name in (CHUNK, RUNNING):
        for one in servers:
            assert one.knobs.reset(name).kind is ReplyKind.OK
    return servers[0]


def change(server: Server, knob: str, value: int, ttl_seconds: float | None = 600.0) -> None:
    reply = server.knobs.write(
        knob, value, if_version=None, ttl_seconds=ttl_seconds, change="a test", reason="a test"
    )
    assert reply.kind is ReplyKind.OK, reply.detail
    assert (reply.applied, reply.total) == (1, 1)


def logged(server: Server, pattern: re.Pattern[str], start: int, enough: int) -> list[int]:
    """Figures of the server's log from `start` on, once there are enough of them."""
    wait_for(lambda: len(pattern.findall(server.log()[start:])) >= enough)
    return [int(one) for one in pattern.findall(server.log()[start:])]


def counts(server: Server) -> dict[str, float]:
    page = httpx.get(f"{server.url}/metrics", timeout=10.0).text
    return {f"{name}{labels}": float(value) for name, labels, value in _COUNT.findall(page)}


def test_smaller_chunks_and_back(server: Server) -> None:
    def largest() -> int:
        return max(logged(server, _PREFILL, len(server.log()), 30))

    with Load(server.url, concurrency=4, max_tokens=8, prompt_bytes=PROMPT_BYTES) as load:
        figures = [largest()]
        change(server, CHUNK, 64)
        figures.append(largest())
        assert server.knobs.reset(CHUNK).kind is ReplyKind.OK
        figures.append(largest())
    print(f"\nFIGURE largest prefill batch at chunks of 256, 64, 256 tokens: {figures}")
    assert load.failures == []
    print(f"FIGURE requests meanwhile: {len(load.usages)}, none failed")
    assert figures[1] == 64
    assert 64 < figures[0] <= CHUNK_TOKENS
    assert 64 < figures[2] <= CHUNK_TOKENS


def test_the_size_of_chunks_is_seen_in_force(server: Server) -> None:
    """By the counters of the page alone, as `apply` looks for it before a change counts as done."""
    with (
        Watch(server.url) as watch,
        Load(server.url, concurrency=4, max_tokens=8, prompt_bytes=PROMPT_BYTES) as load,
    ):
        watch.look()  # counts begin at the first look
        findings = []
        for old, new in ((CHUNK_TOKENS, 64), (64, CHUNK_TOKENS)):
            before = watched(watch, NO_TRACE)
            change(server, CHUNK, new)
            time.sleep(2.0)  # the least time between two changes of a knob; late steps end meanwhile
            settled = trace_of(watch.look())
            watched(watch, settled)
            planned = PlannedChange(server.url, "i", CHUNK, old, new)
            told = find_effect(watch.look(), planned, before, settled)
            never = find_effect(watch.look(), replace(planned, after=16), before, settled)
            findings.append((told.effect, never.effect))
            print(f"\nFIGURE chunks of {old} -> {new} tokens: {told.effect}, {told.words}")
    assert findings == [(Effect.SEEN, Effect.CONTRADICTED)] * 2
    assert load.failures == []


def watched(watch: Watch, since: Trace, steps: float = 40.0) -> Trace:
    """Look until so many prefill steps were counted since; the last trace."""
    deadline = time.monotonic() + 90.0
    while ((now := trace_of(watch.look())).prefill_steps or 0.0) - (since.prefill_steps or 0.0) < steps:
        assert time.monotonic() < deadline
        time.sleep(0.5)
    return now


def test_a_running_cap_and_back(server: Server) -> None:
    def running() -> tuple[int, int]:
        answer = httpx.get(f"{server.url}/v1/loads?include=core", timeout=10.0).json()["loads"][0]
        return answer["num_running_reqs"], answer["num_waiting_reqs"]

    with Load(server.url, concurrency=12, max_tokens=120) as load:
        wait_for(lambda: running()[0] == MAX_RUNNING)
        change(server, RUNNING, 2)
        wait_for(lambda: running() == (2, 10))  # what ran above it has ended, nobody was let in
        start = len(server.log())
        held = logged(server, _DECODE, start, 20)
        assert server.knobs.reset(RUNNING).kind is ReplyKind.OK
        wait_for(lambda: running()[0] == MAX_RUNNING)
    print(f"\nFIGURE running: 8, then {max(held)} in {len(held)} reports at a cap of 2, then 8")
    print(f"FIGURE requests meanwhile: {len(load.usages)}, none failed")
    assert set(held) <= {1, 2}
    assert load.failures == []


def test_ratio_and_prefill_tokens_are_taken_and_returned(server: Server) -> None:
    for knob, value in (("new_token_ratio", 30), ("max_prefill_tokens", 1024)):
        change(server, knob, value)
        assert server.row(knob).value == value
        states = httpx.get(f"{server.url}/server_info", timeout=10.0).json()["internal_states"]
        live = {row["name"]: row["value"] for row in states[0]["enginetop"]["knobs"]}
        assert live[knob] == value
        assert server.knobs.reset(knob).kind is ReplyKind.OK
        assert server.row(knob).value == server.row(knob).start


def test_the_open_route_of_sglang_reaches_none_of_it(server: Server) -> None:
    for key in ("chunked_prefill_size", CHUNK, f"enginetop.{CHUNK}"):
        body = {"server_args": {key: 64}}
        answer = httpx.post(f"{server.url}/set_internal_state", json=body, timeout=10.0)
        assert (answer.status_code, answer.json()) == (200, [False])
    # The running cap is SGLang's own, open to all who reach the port: then it is said that it is not ours.
    body = {"server_args": {"pp_max_micro_batch_size": 3}}
    assert httpx.post(f"{server.url}/set_internal_state", json=body, timeout=10.0).json() == [True]
    sheet = server.knobs.read().sheet
    assert sheet is not None
    assert (sheet.applied, sheet.total) == (0, 1)
    change(server, RUNNING, 2)
    assert server.knobs.reset(RUNNING).kind is ReplyKind.OK
    sheet = server.knobs.read().sheet
    assert sheet is not None
    assert sheet.applied == 1


def test_a_lease_ends_in_an_idle_engine(server: Server) -> None:
    change(server, CHUNK, 64, ttl_seconds=3.0)
    began = time.monotonic()
    wait_for(lambda: f"{CHUNK} is back at {CHUNK_TOKENS}" in server.log(), 10.0)
    print(f"\nFIGURE a lease of 3 s, nobody asks: back after {time.monotonic() - began:.1f} s")
    assert 2.5 < time.monotonic() - began < 6.0
    assert server.row(CHUNK).value == CHUNK_TOKENS


def test_every_request_is_counted_once(server: Server) -> None:
    before = counts(server)
    with Load(server.url, concurrency=6, max_tokens=20) as load:
        wait_for(lambda: len(load.usages) >= 40)
    with httpx.Client(base_url=server.url, timeout=30.0) as client:
        body = {"model": "tiny", "messages": [{"role": "user", "content": "on and on"}], "stream": True}
        body |= {"max_tokens": 300, "ignore_eos": True}
        with client.stream("POST", "/v1/chat/completions", json=body) as response:
            next(response.iter_lines())  # and goes away

    def gained(key: str) -> float:
        return counts(server)[key] - before[key]

    wait_for(lambda: gained(ABORTED) == 1)
    ended = len(load.usages)
    print(f"\nFIGURE requests counted: {gained(ANSWERED):.0f} of {ended}, and one abort")
    assert gained(ANSWERED) == ended
    assert gained("enginetop_ttft_seconds_count") == ended
    assert gained("enginetop_tpot_seconds_count") == ended


@dataclass(frozen=True)
class Desk:
    """A person's config and state folder, and two engines of which the first is the canary."""

    folder: Path
    servers: tuple[Server, Server]

    def popen(self, *words: str, pipe: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        # Both companions are found by their sockets.
        environment = os.environ | {
            "XDG_STATE_HOME": str(self.folder / "state"),
            "XDG_RUNTIME_DIR": str(self.servers[0].runtime_folder),
            "ENGINETOP_COMPANION_TOKEN_FILE": str(self.servers[0].token_file),
        }
        words = (str(Path(sys.executable).with_name("enginetop")), *words)
        return subprocess.Popen(words, env=environment, stdout=pipe, stderr=pipe, text=True)

    def plan(self, name: str, after: int) -> Path:
        changes = []
        for server in self.servers:
            sheet = server.knobs.read().sheet
            assert sheet is not None
            changes.append(PlannedChange(server.url, sheet.instance, CHUNK, CHUNK_TOKENS, after))
        now = time.time()
        plan = Plan(
            id=name,
            created=now,
            expires=now + 600,
            tool_version=__version__,
            evidence_hash="0" * 64,
            scope=Scope(model="tiny", role="aggregated", canary=changes[0].target),
            changes=tuple(changes),
        )
        file = self.folder / f"{name}.json"
        file.write_text(plan_text(plan))
        return file


@pytest.fixture
def desk(server: Server, servers: tuple[Server, Server], tmp_path: Path) -> Desk:
    assert server is servers[0]
    targets = "\n".join(f'[[targets]]\nurl = "{one.url}"' for one in servers)
    (tmp_path / "config.toml").write_text(f"""
interval_seconds = 2.0
timeout_seconds = 20.0
window_seconds = 12.0
{targets}
[[slo]]
model = "*"
ttft_seconds = 5.0
tpot_seconds = 0.5
[control]
warmup_seconds = 4.0
blocks = 12
block_seconds = 3.0
margin = 0.2
ttl_seconds = 30.0
accept_open_admin = true  # these servers have no key
""")
    return Desk(tmp_path, servers)


@contextmanager
def traffic(desk: Desk) -> Iterator[list[Load]]:
    """The same pace on both, as behind a load balancer."""
    loads = [Load(one.url, per_second=4.0, max_tokens=16, prompt_bytes=PROMPT_BYTES) for one in desk.servers]
    with loads[0], loads[1]:
        wait_for(lambda: all(len(load.usages) >= 20 for load in loads))
        yield loads


def test_a_plan_is_tried_and_promoted(desk: Desk) -> None:
    plan, config = desk.plan("lower", 64), str(desk.folder / "config.toml")
    began = time.monotonic()
    with traffic(desk) as loads:
        words = ("apply", str(plan), "--yes", "--format", "json", "--config", config)
        with desk.popen(*words, pipe=subprocess.PIPE) as running:
            told, said = running.communicate(timeout=300)
    assert running.returncode == 0, f"{told}\n{said}"
    outcome = json.loads(told)
    requests = sum(len(load.usages) for load in loads)
    print(f"\nFIGURE enginetop apply, chunks 256 -> 64 on two: {outcome['state']}, {outcome['verdict']},")
    print(f"FIGURE   {time.monotonic() - began:.0f} s, {requests} requests, none failed; {outcome['detail']}")
    assert (outcome["state"], outcome["verdict"]) == ("DONE", "not_worse")
    assert [load.failures for load in loads] == [[], []]
    for one in desk.servers:
        assert (one.row(CHUNK).value, one.row(CHUNK).expires_in_seconds) == (64, None)


def test_enginetop_is_killed_and_the_engine_goes_back(desk: Desk) -> None:
    plan, config, canary = desk.plan("killed", 64), str(desk.folder / "config.toml"), desk.servers[0]
    with traffic(desk) as loads:
        with desk.popen("apply", str(plan), "--yes", "--config", config) as running:
            try:
                wait_for(lambda: canary.row(CHUNK).value == 64)
                assert canary.row(CHUNK).expires_in_seconds is not None
            finally:
                running.send_signal(signal.SIGKILL)
        killed, start = time.monotonic(), len(canary.log())
        wait_for(lambda: f"{CHUNK} is back at {CHUNK_TOKENS}" in canary.log()[start:], 32.0)
        back = time.monotonic() - killed
        assert canary.row(CHUNK).value == CHUNK_TOKENS
    requests = sum(len(load.usages) for load in loads)
    print(f"\nFIGURE enginetop killed while trying 64: back at 256 after {back:.0f} s (ttl 30 s),")
    print(f"FIGURE   {requests} requests, none failed")
    assert [load.failures for load in loads] == [[], []]
    assert desk.servers[1].row(CHUNK).value == CHUNK_TOKENS
