"""Pages with damage: what a bad link, a proxy or a hostile server can make of a good one."""

from __future__ import annotations

import random

_PIECES = (
    b"{",
    b"}",
    b'"',
    b"\\",
    b"\n",
    b" ",
    b"NaN",
    b"-Inf",
    b"1e999",
    b"\x1b[2J",
    b"\xff",
    b",",
    b"=",
    b"#",
)


def mutated_pages(page: bytes, count: int, seed: int = 7) -> list[bytes]:
    """`count` damaged copies of a page, the same at every call.

    They are cut, have lost, doubled or swapped lines, other bytes, or foreign pieces put in.
    """
    chance = random.Random(seed)
    return [_mutated(page, chance) for _ in range(count)]


def _mutated(page: bytes, chance: random.Random) -> bytes:
    kind = chance.randrange(5)
    if kind == 0:
        return page[: chance.randrange(len(page))]
    if kind == 1:
        lines = [line for line in page.splitlines(keepends=True) if chance.random() > 0.3]
        return b"".join(lines)
    if kind == 2:
        lines = page.splitlines(keepends=True)
        return b"".join(chance.choices(lines, k=len(lines)))
    damaged = bytearray(page)
    for _ in range(chance.randrange(1, 60)):
        at = chance.randrange(len(damaged))
        if kind == 3:
            damaged[at] = chance.randrange(256)
        else:
            damaged[at:at] = chance.choice(_PIECES)
    return bytes(damaged)
