"""A strip that ends with its last reference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual.strip import Strip


class LooseStrip(Strip):
    """As Textual's, which holds itself once the compositor has asked for all of it: its cache of pieces has
    the whole as the only piece. Such lines, with all their segments, would lie about until Python looks for
    cycles, which it seldom does here (`enginetop.cli.garbage`): up to 9 MB of them with 200 replicas.
    """

    __slots__ = ()

    def divide(self, cuts: Iterable[int]) -> Sequence[Strip]:
        """The pieces up to these cuts, each in cells; what lies beyond the strip is no cut."""
        inside = [cut for cut in cuts if cut <= self.cell_length]
        return [self] if inside == [self.cell_length] else super().divide(inside)
