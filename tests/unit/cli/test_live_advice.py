"""Whose knobs are asked, how often, and what becomes of the answers."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace

import pytest

from enginetop.cli.live_advice import LiveAdvice
from enginetop.fleet.knobs import KnobRow, KnobSheet
from enginetop.fleet.snapshot import FleetSnapshot
from tests.tui.snapshots import AT, fleet, replica
from tuners.control.knob_api import KnobClient, KnobReply, ReplyKind

SHEET = KnobSheet(
    "vllm", "0.32.0", "i1", 1, 1, (KnobRow("max_num_batched_tokens", 2048, 2048, 256, 2048, "t", 0),)
)


class Client:
    """A knob API that gives one reply to every read and takes no writes."""

    def __init__(self, reply: KnobReply, asked: Callable[[], None]) -> None:
        self._reply = reply
        self._asked = asked

    def read(self) -> KnobReply:
        self._asked()
        return self._reply

    def examine(self) -> KnobReply:
        raise AssertionError("advice asks nobody who else may change it")

    def write(
        self,
        knob: str,
        value: int,
        *,
        if_version: int | None,
        ttl_seconds: float | None,
        change: str,
        reason: str,
    ) -> KnobReply:
        raise AssertionError("advice never writes")

    def reset(self, knob: str) -> KnobReply:
        raise AssertionError("advice never writes")


class World:
    """Replicas with and without companions, and their knob APIs."""

    def __init__(self, replies: dict[str, KnobReply], configured: Collection[str] = ()) -> None:
        self.replies = replies
        self.asked: Counter[str] = Counter()
        self.made = 0
        self._answering = threading.Event()
        self.live = LiveAdvice(self._clients, configured=configured)

    def _clients(self) -> Callable[[str], KnobClient | None]:
        self.made += 1
        return self._client

    def _client(self, url: str) -> KnobClient | None:
        reply = self.replies.get(url)
        return None if reply is None else Client(reply, lambda: self._answer(url))

    def _answer(self, url: str) -> None:
        assert self._answering.wait(10)
        self.asked.update([url])

    def look(self, seconds: float, *names: str, counting: bool = True) -> FleetSnapshot:
        """One snapshot, and all questions that it leads to answered."""
        totals = {"requests_judged": 5.0} if counting else {}
        shown = [replica(name, totals=totals) for name in names]
        self._answering.clear()
        seen = self.live(replace(fleet(shown), at=AT + seconds))  # returns before anybody answers
        self._answering.set()
        for thread in threading.enumerate():
            if thread.name == "enginetop-knobs":
                thread.join(10)
        return seen


def url(name: str) -> str:
    return f"http://{name}.example:8000"


def test_a_sheet_reaches_the_advice() -> None:
    world = World({url("a"): KnobReply(ReplyKind.OK, sheet=SHEET)})
    first = world.look(0, "a")
    assert first.replicas[0].advice[0].current is None
    assert world.look(2, "a").replicas[0].advice[0].current == 2048
    assert world.live.sheets == {url("a"): SHEET}


def test_only_those_who_count_requests_are_asked() -> None:
    world = World({url("a"): KnobReply(ReplyKind.OK, sheet=SHEET)})
    for seconds in range(0, 60, 2):
        world.look(seconds, "a", counting=False)
    assert (world.made, world.asked) == (0, Counter())


def test_those_whose_path_the_config_file_names_are_asked_as_well() -> None:
    world = World({url("a"): KnobReply(ReplyKind.OK, sheet=SHEET)}, configured={url("a")})
    world.look(0, "a", "b", counting=False)
    assert world.asked == Counter({url("a"): 1})


def test_every_ten_seconds_and_all_of_them() -> None:
    names = [f"a{i}" for i in range(20)]
    world = World({url(name): KnobReply(ReplyKind.OK, sheet=SHEET) for name in names})
    for seconds in range(0, 31, 2):
        world.look(seconds, *names)
    assert world.asked == Counter({url(name): 4 for name in names})  # at 0, 10, 20 and 30 s
    assert world.made == 1


@pytest.mark.parametrize("kind", [ReplyKind.MISSING, ReplyKind.UNAUTHORIZED])
def test_who_refuses_is_left_alone_for_a_minute(kind: ReplyKind) -> None:
    world = World({url("a"): KnobReply(kind), url("b"): KnobReply(ReplyKind.OK, sheet=SHEET)})
    for seconds in range(0, 59, 2):
        world.look(seconds, "a", "b")
    assert world.asked == Counter({url("a"): 1, url("b"): 6})
    for seconds in range(60, 71, 2):
        world.look(seconds, "a", "b")
    assert world.asked[url("a")] == 2


def test_a_clock_that_is_set_back_keeps_nobody_from_being_asked() -> None:
    world = World({url("a"): KnobReply(ReplyKind.OK, sheet=SHEET), url("b"): KnobReply(ReplyKind.MISSING)})
    world.look(3600, "a", "b")
    world.look(0, "a", "b")
    assert world.asked == Counter({url("a"): 2, url("b"): 2})


def test_who_is_gone_is_forgotten() -> None:
    world = World({url(name): KnobReply(ReplyKind.OK, sheet=SHEET) for name in "ab"})
    world.look(0, "a", "b")
    world.look(10, "a")
    assert world.live.sheets == {url("a"): SHEET}


def test_a_fault_leaves_what_was_known() -> None:
    world = World({url("a"): KnobReply(ReplyKind.OK, sheet=SHEET)})
    world.look(0, "a")
    world.replies[url("a")] = KnobReply(ReplyKind.UNREACHABLE, "timeout")
    world.look(10, "a")
    assert world.asked[url("a")] == 2
    assert world.look(12, "a").replicas[0].advice[0].current == 2048


def test_the_thinking_budget_is_told_once_for_each_reading() -> None:
    world = World({})
    told: list[tuple[str, float | None]] = []
    live = LiveAdvice(world._clients, lambda url, tokens: told.append((url, tokens)))
    thinks = replace(SHEET.knobs[0], name="thinking_token_budget", value=4096)
    live.sheets = {"http://a": SHEET, "http://b": replace(SHEET, knobs=(*SHEET.knobs, thinks))}
    for seconds in (0, 2):
        live(replace(fleet([]), at=AT + seconds))
    assert told == [("http://a", None), ("http://b", 4096)]


def test_a_target_without_a_way_to_its_knobs() -> None:
    world = World({})
    assert world.look(0, "a").replicas[0].advice[0].action == "withheld"
    assert world.live.sheets == {}
