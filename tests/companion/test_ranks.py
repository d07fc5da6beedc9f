"""All ranks or none: each rank a real board, the wire between them made to fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from enginetop_companion_vllm import engine_side
from enginetop_companion_vllm.ranks import Ranks
from tests.companion.fakes import FakeCore, FakeScheduler, config_of

CHANGE: dict[str, Any] = {
    "knob": "max_num_batched_tokens",
    "value": 128,
    "if_version": 0,
    "ttl_seconds": 180.0,
    "change": "a",
}

pytestmark = pytest.mark.usefixtures("fake_vllm")


class Wire:
    """Calls every core, as vLLM's client does; `before` may answer for rank and verb, or raise."""

    def __init__(self, cores: list[FakeCore]) -> None:
        self.cores = cores
        self.before: Callable[[int, str], Awaitable[dict[str, Any] | None]] | None = None
        self.verbs: list[str] = []

    async def __call__(self, verb: str, asked: dict[str, Any]) -> list[dict[str, Any]]:
        self.verbs.append(verb)
        answers = []
        for rank, core in enumerate(self.cores):
            instead = await self.before(rank, verb) if self.before else None
            answers.append(instead or engine_side.call(core, verb, asked))
        return answers

    def values(self) -> list[int]:
        return [core.scheduler.max_num_scheduled_tokens for core in self.cores]


def world(ranks: int, *, total: int | None = None, timeout: float = 5.0) -> tuple[Wire, Ranks]:
    wire = Wire([FakeCore(FakeScheduler(), config_of(ranks=ranks)) for _ in range(ranks)])
    return wire, Ranks(wire, ranks if total is None else total, timeout)


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_every_rank_takes_it(ranks: int) -> None:
    wire, them = world(ranks)
    answer = asyncio.run(them.change(CHANGE))
    assert (answer.status, answer.body["applied"], answer.body["total"]) == (200, ranks, ranks)
    assert answer.body["expires_in_seconds"] == pytest.approx(180.0, abs=1.0)
    assert wire.values() == [128] * ranks


def test_one_rank_that_cannot_means_none_has() -> None:
    wire, them = world(3)

    async def refuse(rank: int, verb: str) -> dict[str, Any] | None:
        return {"status": 501, "error": "no"} if (rank, verb) == (1, "change") else None

    async def scene() -> Any:
        wire.before = refuse
        answer = await them.change(CHANGE)
        await asyncio.gather(*them._undoing)
        return answer

    answer = asyncio.run(scene())
    assert (answer.status, answer.body["applied"], answer.body["total"]) == (503, 0, 3)
    assert wire.values() == [512] * 3
    wire.before = None
    sheet = asyncio.run(them.sheet())
    assert (sheet.body["applied"], sheet.body["knobs"][0]["version"]) == (3, 0)


def test_a_rank_that_fails_after_the_others_confirmed_is_undone_everywhere() -> None:
    wire, them = world(2)

    async def fail(rank: int, verb: str) -> dict[str, Any] | None:
        if (rank, verb) == (1, "hold"):
            raise RuntimeError("rank died")
        return None

    async def scene() -> Any:
        wire.before = fail
        answer = await them.change(CHANGE)
        await asyncio.gather(*them._undoing)
        return answer

    assert asyncio.run(scene()).status == 503
    assert wire.values() == [512] * 2


def test_a_change_that_arrives_too_late_is_taken_back() -> None:
    wire, them = world(1, timeout=0.05)
    gate = asyncio.Event()

    async def late(rank: int, verb: str) -> dict[str, Any] | None:
        if verb == "change":
            await gate.wait()
        elif verb == "undo":
            await applied.wait()  # the engine's queue keeps the order
        return None

    applied = asyncio.Event()

    async def scene() -> Any:
        wire.before = late
        answer = await them.change(CHANGE)
        gate.set()
        while wire.values() != [128]:
            await asyncio.sleep(0)
        applied.set()
        await asyncio.gather(*them._undoing)
        return answer

    answer = asyncio.run(scene())
    assert (answer.status, answer.body["applied"]) == (503, 0)
    assert wire.values() == [512]


def test_until_all_confirmed_a_rank_keeps_it_only_for_moments() -> None:
    """The API server dies between the two rounds: each rank still has its short lease."""
    wire, them = world(2)

    async def die(rank: int, verb: str) -> dict[str, Any] | None:
        if verb == "hold":
            raise asyncio.CancelledError
        return None

    async def scene() -> None:
        wire.before = die
        with pytest.raises(asyncio.CancelledError):
            await them.change(CHANGE)

    asyncio.run(scene())
    left = [engine_side.call(core, "sheet", {})["knobs"][0]["expires_in_seconds"] for core in wire.cores]
    assert all(one is not None and one <= 15.0 for one in left)


def test_ranks_elsewhere_cannot_be_confirmed() -> None:
    wire, them = world(1, total=4)
    answer = asyncio.run(them.change(CHANGE))
    assert (answer.status, answer.body["applied"], answer.body["total"]) == (503, 1, 4)
    assert wire.values() == [512]
    sheet = asyncio.run(them.sheet())
    assert (sheet.body["applied"], sheet.body["total"]) == (1, 4)


def test_ranks_that_differ_take_nothing() -> None:
    """As after scaling up: a new rank knows nothing of earlier changes."""
    wire, them = world(2)
    engine_side.call(wire.cores[0], "change", CHANGE | {"ticket": "x"})
    answer = asyncio.run(them.change(CHANGE | {"if_version": 1, "value": 256}))
    assert (answer.status, answer.body["applied"]) == (503, 1)
    assert wire.values() == [128, 512]
    assert asyncio.run(them.reset("max_num_batched_tokens")).status == 200
    assert wire.values() == [512, 512]


def test_what_all_refuse_is_told_as_it_is() -> None:
    wire, them = world(2)
    assert asyncio.run(them.change(CHANGE | {"if_version": 9})).status == 409
    assert asyncio.run(them.change(CHANGE | {"value": 7})).body["min"] == 80
    drafts = asyncio.run(them.change(CHANGE | {"knob": "num_speculative_tokens", "value": 1}))
    assert (drafts.status, drafts.body["min"], drafts.body["max"]) == (422, 4, 4)
    assert "undo" not in wire.verbs


def test_a_renewal_reaches_every_rank() -> None:
    wire, them = world(2)
    asyncio.run(them.change(CHANGE | {"ttl_seconds": 30.0}))
    renewed = asyncio.run(them.change(CHANGE | {"if_version": 1, "ttl_seconds": 90.0}))
    assert (renewed.status, renewed.body["version"]) == (200, 1)
    for core in wire.cores:
        left = engine_side.call(core, "sheet", {})["knobs"][0]["expires_in_seconds"]
        assert left == pytest.approx(90.0, abs=1.0)


def test_an_engine_that_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    async def dead(verb: str, asked: dict[str, Any]) -> list[dict[str, Any]]:
        raise RuntimeError("EngineDeadError")

    them = Ranks(dead, 1)

    async def scene() -> list[int]:
        answers = [await them.sheet(), await them.change(CHANGE), await them.reset("x")]
        answers.append(await them.set_objective([1.0, 0.1]))
        return [answer.status for answer in answers]

    assert asyncio.run(scene()) == [503] * 4
    assert asyncio.run(them.view()) is None
    assert caplog.text.count("was not answered") == 1


def test_the_instance_of_several_ranks_changes_with_any_of_them() -> None:
    wire, them = world(2)
    before = asyncio.run(them.sheet()).body["instance"]
    wire.cores[1] = FakeCore(config=SimpleNamespace(**vars(config_of(ranks=2))))
    assert asyncio.run(them.sheet()).body["instance"] != before
