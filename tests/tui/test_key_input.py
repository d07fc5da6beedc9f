"""Keys are read by the event loop or by a thread that sleeps until something is typed: what they tell."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Collection, Iterator, Sequence

import pytest
from textual import events
from textual.constants import ESCAPE_DELAY
from textual.message import Message

from tui.key_input import Leaving, LoopKeys, read_keys


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


IN_PIECES = [
    ((b"\x1b", b""), ["escape"]),
    ((b"\x1br",), ["escape", "r"]),
    ((b"\x1b", b"r"), ["escape", "r"]),  # before the pause that tells an escape alone
    ((b"\x1b7",), ["escape", "7"]),
    ((b"\x1b\r",), ["escape", "enter"]),
    ((b"\x1b\x10",), ["escape", "ctrl+p"]),
    ((b"\x1b:q\r",), ["escape", "colon", "q", "enter"]),
    ((b"\x1b\x1b", b""), ["escape", "escape"]),
    ((b"\x1b\x1b[A",), ["escape", "up"]),
    ((b"\x1b[", b""), ["escape", "left_square_bracket"]),
    ((b"\x1b[\x1b[A",), ["escape", "left_square_bracket", "up"]),
    ((b"\x1b]",), ["escape", "right_square_bracket"]),
    ((b"\x1bO", b""), ["escape", "O"]),
    ((b"\x1bOA",), ["up"]),
    ((b"\x1bO7",), ["escape", "O", "7"]),
    ((b"\x1b\x7f", b""), ["ctrl+w"]),  # as Textual calls it: a word is deleted
    ((b"\x1b[200~a\x1bb\x1b[201~\x1bq",), ["escape", "q"]),  # what is pasted holds no key
    ((b"\x1b", b"[A"), ["up"]),
    ((b"\x1b[", b"B"), ["down"]),
    (("ä".encode()[:1], "ä".encode()[1:]), ["ä"]),
    (("ä".encode()[:1], b"", "ä".encode()[1:]), ["ä"]),
    ((b"\xffq",), ["replacement_character", "q"]),
    ((b"j\x1b[97;1:3uk",), ["j", "k"]),  # a release, as the kitty protocol tells it where it is asked to
    ((b"\x1b[1;1:3A\x1b[B", b"q"), ["down", "q"]),
    ((b"\x1b[99999999uq",), ["q"]),  # beyond Unicode
    ((b"\x1b[97;;99999999999uq",), ["q"]),  # beyond a C integer
    ((b"\x1b[48;24;80;0;0t\x1b[<0;1;1Mq",), ["q"]),  # a cell of no pixels, and a click
]
"""What is typed, an empty block being a pause, and the keys."""


PASTED = [
    ((b"\x1b[200~a b\x1b[201~",), "a b"),
    ((b"\x1b[200~a\x1bb\x1b[Ac\x1b\x1b[20q\x1b[201~",), "ab[Ac[20q"),
    ((b"\x1b[200~a\x1b", b"", b"[20", b"", b"1~"), "a"),
    ((b"\x1b[200~a\x1b", b"", b"b\x1b[201~"), "ab"),
]
"""What comes, and the text of it: the escapes in it would make keys of what follows them."""


@pytest.mark.parametrize(("keys", "text"), PASTED, indirect=["keys"])
def test_what_is_pasted_is_text_and_no_key(keys: Typed, text: str) -> None:
    assert keys.read() == []
    assert [message.text for message in keys.told if isinstance(message, events.Paste)] == [text]


@pytest.mark.parametrize("keys", [(b"\x1br\x1bg", b"")], indirect=True)
def test_a_letter_with_alt_where_it_is_a_key(keys: Typed) -> None:
    read_keys(keys.fd, keys.leaving, keys.told.append, keys.wait, alt={"g"})
    told = [message.key for message in keys.told if isinstance(message, events.Key)]
    assert told == ["escape", "r", "alt+g"]


@pytest.mark.parametrize(("keys", "told"), IN_PIECES, indirect=["keys"])
def test_keys_in_pieces(keys: Typed, told: list[str]) -> None:
    assert keys.read() == told


class Loop:
    """Keys typed into a pipe that the event loop reads."""

    def __init__(self) -> None:
        self.fd, self.keyboard = os.pipe2(os.O_NONBLOCK)
        self.told: list[str] = []
        self.lost = 0
        self.keys = LoopKeys(self.fd, self._hear, self._lose)

    def _hear(self, message: Message) -> None:
        if isinstance(message, events.Key):
            self.told.append(message.key)

    def _lose(self) -> None:
        self.lost += 1

    async def type(self, block: bytes) -> None:
        """Type it, and let the loop read; nothing is a pause."""
        if block:
            os.write(self.keyboard, block)
            for _ in range(3):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(2 * ESCAPE_DELAY)

    def close(self) -> None:
        """Clean up."""
        os.close(self.keys.close())
        os.close(self.keyboard)


@pytest.mark.parametrize(("blocks", "told"), IN_PIECES)
def test_the_loop_tells_the_same_keys(blocks: Sequence[bytes], told: list[str]) -> None:
    async def run() -> list[str]:
        loop = Loop()
        for block in blocks:
            await loop.type(block)
        loop.close()
        return loop.told

    assert asyncio.run(run()) == told


def test_the_loop_reads_no_more_once_closed_or_at_the_end_of_the_input() -> None:
    async def run() -> None:
        loop = Loop()
        os.close(loop.keyboard)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not asyncio.get_running_loop().remove_reader(loop.fd)
        os.close(loop.keys.close())
        assert (loop.told, loop.lost) == ([], 0)

    asyncio.run(run())


def test_a_terminal_that_is_gone_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_fd: int, _count: int) -> bytes:
        raise OSError(5, "Input/output error")

    async def run() -> int:
        loop = Loop()
        monkeypatch.setattr("tui.key_input.os.read", gone)
        await loop.type(b"a")
        monkeypatch.undo()
        await loop.type(b"b")
        loop.close()
        return loop.lost

    assert asyncio.run(run()) == 1
