"""Keys are read by a thread that sleeps until something is typed: what it tells, how often it wakes up."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator, Sequence

import pytest
from textual import events
from textual.constants import ESCAPE_DELAY
from textual.message import Message

from tui.key_input import Leaving, read_keys


class Typed:
    """Blocks that are typed into a pipe, one before each wait; an empty one is a pause. Then we leave."""

    def __init__(self, blocks: Sequence[bytes]) -> None:
        self.fd, self._keyboard = os.pipe()
        self.leaving = Leaving()
        self.waits: list[float | None] = []
        self._blocks = iter(blocks)
        self.told: list[Message] = []

    def wait(self, seconds: float | None) -> Collection[int]:
        """The next block is there, or nothing came for so long."""
        self.waits.append(seconds)
        block = next(self._blocks, None)
        if block is None:
            self.leaving.set()
            return ()
        if block:
            os.write(self._keyboard, block)
            return (self.fd,)
        assert seconds is not None, "nobody would have woken us"
        threading.Event().wait(seconds)  # the parser has a clock of its own
        return ()

    def read(self) -> list[str]:
        """The keys that were told."""
        read_keys(self.fd, self.leaving, self.told.append, self.wait)
        return [message.key for message in self.told if isinstance(message, events.Key)]


@pytest.fixture
def keys(request: pytest.FixtureRequest) -> Iterator[Typed]:
    typed = Typed(request.param)
    yield typed
    for fd in (typed.fd, typed._keyboard, typed.leaving._reader, typed.leaving._writer):
        os.close(fd)


@pytest.mark.parametrize("keys", [()], indirect=True)
def test_with_nothing_typed_it_sleeps_for_good(keys: Typed) -> None:
    assert keys.read() == []
    assert keys.waits == [None]


@pytest.mark.parametrize("keys", [(b"a", b"", b"b", b"")], indirect=True)
def test_it_wakes_once_more_after_the_last_key(keys: Typed) -> None:
    assert keys.read() == ["a", "b"]
    assert keys.waits == [None, ESCAPE_DELAY, None, ESCAPE_DELAY, None]


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ((b"\x1b", b""), ["escape"]),
        ((b"\x1b", b"[A"), ["up"]),
        ((b"\x1b[", b"B"), ["down"]),
        (("ä".encode()[:1], "ä".encode()[1:]), ["ä"]),
        (("ä".encode()[:1], b"", "ä".encode()[1:]), ["ä"]),
        ((b"\xffq",), ["replacement_character", "q"]),
    ],
    indirect=["keys"],
)
def test_keys_in_pieces(keys: Typed, told: list[str]) -> None:
    assert keys.read() == told


def test_an_input_that_ends_is_over() -> None:
    fd, keyboard = os.pipe()
    os.write(keyboard, b"x")
    os.close(keyboard)
    told: list[Message] = []
    leaving = Leaving()
    read_keys(fd, leaving, told.append)
    assert [message.key for message in told if isinstance(message, events.Key)] == ["x"]
    assert not leaving.is_set()
    for used in (fd, leaving._reader, leaving._writer):
        os.close(used)


def test_who_sleeps_is_woken_by_leaving_and_can_sleep_again() -> None:
    fd, keyboard = os.pipe()
    leaving = Leaving()
    for _ in range(3):
        reader = threading.Thread(target=read_keys, args=(fd, leaving, list[Message]().append))
        reader.start()
        leaving.set()
        leaving.set()
        reader.join(10.0)
        assert not reader.is_alive()
        leaving.clear()
        leaving.clear()
    for used in (fd, keyboard, leaving._reader, leaving._writer):
        os.close(used)
