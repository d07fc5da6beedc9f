"""The board of one server before real handlers of its schedulers: leases, ranks that fail, late answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from enginetop.fleet.knobs import KnobRow, parse_row, parse_sheet
from enginetop_companion.api import SCHEMA
from enginetop_companion.board import Answer
from enginetop_companion.settings import Objective
from enginetop_companion_sglang import engine as engine_module
from enginetop_companion_sglang.engine import Engine
from enginetop_companion_sglang.serving_side import AskedSchedulers
from tests.companion.sglang.fakes import SECRET, Contexts, FakeController, FakeManager, FakeScheduler

CHUNK, RUNNING = "max_num_batched_tokens", "max_num_seqs"
LOG = logging.getLogger("tests.companion.sglang")

pytestmark = pytest.mark.usefixtures("fake_sglang")


class World:
    """An engine over ranks of its own, at a time that the test sets."""

    def __init__(self, contexts: Contexts, ranks: int = 1) -> None:
        self.now = 0.0
        self.controllers = [FakeController(FakeScheduler(), contexts) for _ in range(ranks)]
        self.manager = FakeManager(*self.controllers)
        self.engine: Engine

    async def start(self) -> None:
        schedulers = AskedSchedulers(self.manager, SECRET)
        ranks = [rank for rank in await schedulers.read() if rank is not None]
        self.engine = Engine(schedulers, ranks, Objective(), lambda: self.now, LOG, patience_seconds=0.05)

    def chunks(self) -> list[int | None]:
        return [one.scheduler.chunked_prefill_size for one in self.controllers]

    async def change(self, value: int, **others: Any) -> Answer:
        asked = {"knob": CHUNK, "value": value, "if_version": None, "ttl_seconds": 60.0, "change": "c"}
        return await self.engine.change(asked | others)

    async def sheet(self) -> tuple[int, int, dict[str, KnobRow]]:
        answer = await self.engine.sheet()
        assert answer.status == 200
        document = {"schema": SCHEMA, "engine": "sglang", "engine_version": "0.5.23"} | answer.body
        sheet = parse_sheet(document)
        return sheet.applied, sheet.total, {row.name: row for row in sheet.knobs}


Scene = Callable[[World], Awaitable[None]]


def play(fake_sglang: Any, scene: Scene, ranks: int = 1) -> None:
    async def all_of_it() -> None:
        world = World(fake_sglang.contexts, ranks)
        await world.start()
        await scene(world)

    asyncio.run(all_of_it())


async def until(what: Callable[[], bool]) -> None:
    """Let other tasks run until it is so."""
    async with asyncio.timeout(10):
        while not what():
            await asyncio.sleep(0.005)


def test_a_change_a_conflict_a_renewal_and_the_way_back(fake_sglang: Any) -> None:
    async def scene(world: World) -> None:
        done = await world.change(64, if_version=0)
        assert (done.status, done.body["applied"], done.body["total"]) == (200, 1, 1)
        assert (parse_row(done.body).value, parse_row(done.body).version) == (64, 1)
        assert world.chunks() == [64]
        conflict = await world.change(128, if_version=0)
        assert (conflict.status, parse_row(conflict.body).version) == (409, 1)
        told = len(world.manager.asked)
        world.now = 30.0
        renewed = await world.change(64, if_version=1)
        assert (renewed.status, renewed.body["version"], renewed.body["expires_in_seconds"]) == (200, 1, 60.0)
        assert len(world.manager.asked) == told  # nothing moved, nobody is told
        back = await world.engine.reset(CHUNK)
        assert (back.status, back.body["value"], back.body["version"]) == (200, 256, 2)
        assert world.chunks() == [256]

    play(fake_sglang, scene)


def test_the_value_that_is_there_already_is_confirmed_by_all(fake_sglang: Any) -> None:
    async def scene(world: World) -> None:
        answer = await world.change(256)
        assert (answer.status, answer.body["applied"], answer.body["total"]) == (200, 2, 2)
        assert world.manager.asked == []

    play(fake_sglang, scene, ranks=2)


@pytest.mark.parametrize(
    ("knob", "value", "status"),
    [
        (CHUNK, 31, 422),
        (CHUNK, 257, 422),
        (CHUNK, 0, 422),
        (CHUNK, -64, 422),
        (CHUNK, 1 << 40, 422),
        (RUNNING, 0, 422),
        (RUNNING, 9, 422),
        ("max_prefill_tokens", 255, 422),
        ("new_token_ratio", 36, 422),
        ("new_token_ratio", 4, 422),
        ("num_speculative_tokens", 1, 404),
        ("", 1, 404),
    ],
)
def test_what_is_refused_reaches_no_scheduler(fake_sglang: Any, knob: str, value: int, status: int) -> None:
    async def scene(world: World) -> None:
        answer = await world.change(value, knob=knob)
        assert answer.status == status
        assert answer.body["error"]
        assert world.manager.asked == []

    play(fake_sglang, scene)


def test_a_mode_that_refuses_is_named(fake_sglang: Any) -> None:
    async def scene() -> None:
        world = World(fake_sglang.contexts)
        world.controllers[0].scheduler.is_hybrid_ssm = True
        await world.start()
        answer = await world.change(64)
        assert answer.status == 422
        assert "Mamba" in answer.body["error"]
        cap = await world.change(2, knob=RUNNING)
        assert cap.status == 200

    asyncio.run(scene())


def test_sglangs_own_names_are_taken(fake_sglang: Any) -> None:
    async def scene(world: World) -> None:
        assert (await world.change(64, knob="chunked_prefill_size")).body["name"] == CHUNK
        assert (await world.engine.reset("chunked_prefill_size")).body["value"] == 256
        assert (await world.change(2, knob="max_running_requests")).body["name"] == RUNNING
        assert fake_sglang.contexts.parallel.pp_max_micro_batch_size == 2

    play(fake_sglang, scene)


def test_a_lease_that_ends_needs_no_request(fake_sglang: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        keeper = asyncio.ensure_future(world.engine.keep())
        await world.change(128, ttl_seconds=None)
        world.now = 10.0
        await world.change(64, ttl_seconds=0.05)
        assert world.chunks() == [64]
        world.now = 10.05
        await until(lambda: world.chunks() == [128])
        rows = (await world.sheet())[2]
        assert (rows[CHUNK].value, rows[CHUNK].version, rows[CHUNK].expires_in_seconds) == (128, 3, None)
        keeper.cancel()

    with caplog.at_level(logging.WARNING):
        play(fake_sglang, scene)
    assert f"{CHUNK} is back at 128, nobody renewed the change" in caplog.text


def test_a_lease_that_ended_unseen_is_over_before_the_next_change(fake_sglang: Any) -> None:
    async def scene(world: World) -> None:
        await world.change(64, if_version=0, ttl_seconds=5.0)
        world.now = 6.0
        late = await world.change(64, if_version=1)
        assert (late.status, late.body["value"], late.body["version"]) == (409, 256, 2)
        assert world.chunks() == [256]

    play(fake_sglang, scene)


def test_all_ranks_or_none(fake_sglang: Any) -> None:
    async def scene(world: World) -> None:
        assert (await world.change(128)).body["total"] == 3
        world.now = 10.0
        world.controllers[1].hooked = False  # a rank that lost the companion takes nothing
        answer = await world.change(64)
        assert (answer.status, answer.body["applied"], answer.body["total"]) == (503, 0, 3)
        assert world.chunks() == [128, 128, 128]
        applied, total, rows = await world.sheet()
        assert (applied, total, rows[CHUNK].value, rows[CHUNK].version) == (2, 3, 128, 1)

    play(fake_sglang, scene, ranks=3)


def test_one_that_says_yes_and_does_nothing_is_found_out(fake_sglang: Any) -> None:
    """SGLang through 0.5.14 answers true to keys that it does not know."""

    async def scene(world: World) -> None:
        world.controllers[0].set_internal_state = lambda requested: True  # type: ignore[method-assign]
        answer = await world.change(64)
        assert answer.status == 503
        assert (await world.sheet())[2][CHUNK].value == 256

    play(fake_sglang, scene)


def test_what_somebody_else_set_is_not_taken_for_ours(fake_sglang: Any) -> None:
    async def scene(world: World) -> None:
        await world.change(4, knob=RUNNING)
        world.controllers[0].set_internal_state({"pp_max_micro_batch_size": 7})
        applied, total, rows = await world.sheet()
        assert (applied, total, rows[RUNNING].value) == (0, 1, 4)
        await world.engine.reset(RUNNING)
        assert (await world.sheet())[0] == 1
        assert fake_sglang.contexts.parallel.pp_max_micro_batch_size == 8

    play(fake_sglang, scene)


def test_late_schedulers_are_told_again_until_the_former_value_holds(
    fake_sglang: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "RETRY_SECONDS", 0.02)

    async def scene(world: World) -> None:
        keeper = asyncio.ensure_future(world.engine.keep())
        world.manager.hold = asyncio.Event()
        answer = await world.change(64)
        assert (answer.status, answer.body["error"]) == (503, "the schedulers did not answer in time")
        assert (await world.engine.sheet()).status == 503
        held, world.manager.hold = world.manager.hold, None
        held.set()  # the step ends: the change itself comes late, and is taken back behind it
        await until(lambda: [list(one.values()) for one in world.manager.asked] == [[64], [256]])
        assert (await world.sheet())[:2] == (1, 1)
        assert world.chunks() == [256]
        keeper.cancel()

    play(fake_sglang, scene)


def test_a_lease_ends_although_the_schedulers_are_late(
    fake_sglang: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "RETRY_SECONDS", 0.02)

    async def scene(world: World) -> None:
        await world.change(64, ttl_seconds=5.0)
        world.manager.hold = asyncio.Event()
        world.now = 6.0
        keeper = asyncio.ensure_future(world.engine.keep())
        await asyncio.sleep(0.15)  # longer than its patience: it has asked in vain
        assert world.chunks() == [64]
        held, world.manager.hold = world.manager.hold, None
        held.set()
        await until(lambda: world.chunks() == [256])
        keeper.cancel()

    play(fake_sglang, scene)


def test_schedulers_that_cannot_be_asked(fake_sglang: Any) -> None:
    async def scene(world: World) -> None:
        async def broken() -> list[dict[str, Any]]:
            raise ConnectionError("the pipe is gone")

        world.manager.get_internal_state = broken  # type: ignore[method-assign]
        answer = await world.change(64)
        assert (answer.status, answer.body["error"]) == (
            503,
            "the schedulers cannot be asked: ConnectionError",
        )
        assert (await world.engine.sheet()).status == 503

    play(fake_sglang, scene)


def test_changes_at_the_same_time_take_turns(fake_sglang: Any) -> None:
    async def scene(world: World) -> None:
        answers = await asyncio.gather(
            *(world.change(value, if_version=0, change=str(value)) for value in (64, 128, 192))
        )
        assert sorted(answer.status for answer in answers) == [200, 409, 409]
        (winner,) = (answer.body["value"] for answer in answers if answer.status == 200)
        assert world.chunks() == [winner]

    play(fake_sglang, scene)


def test_the_objective_is_told_to_the_counters(fake_sglang: Any) -> None:
    async def scene(world: World) -> None:
        told: list[Objective] = []
        world.engine.on_objective = told.append
        await world.engine.set_objective([0.6, 0.05])
        assert told == [Objective(0.6, 0.05)]
        assert world.engine.objective() == Objective(0.6, 0.05)

    play(fake_sglang, scene)
