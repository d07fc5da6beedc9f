"""Deflate for pieces of a few KiB: its usual window takes 256 KiB while one of them is compressed."""

from __future__ import annotations

import zlib
from array import array
from typing import Final

_WINDOW_BITS: Final = 12
_MEMORY_LEVEL: Final = 5


def deflated(piece: bytes | array[float], level: int) -> bytes:
    """The piece compressed; `level` as zlib's, 1 (quick) to 9 (small)."""
    packer = zlib.compressobj(level, zlib.DEFLATED, -_WINDOW_BITS, _MEMORY_LEVEL)
    return packer.compress(piece) + packer.flush()


def inflated(packed: bytes) -> bytes:
    """What was compressed."""
    return zlib.decompress(packed, -_WINDOW_BITS)
