"""The facts of a fleet, kept merged: a change of one replica costs a few merges, not one over all."""

from __future__ import annotations

from collections.abc import Sequence

from enginetop.fleet.facts import Facts, WindowFacts, merge_facts, merge_parts
from enginetop.fleet.frozen import frozen

_FAN_OUT = 8


@frozen(eq=False)
class _Node:
    """A merge and what it was made of."""

    parts: tuple[object, ...]
    merged: Facts


class MergeTree:
    """`merge_facts` with a memory. Parts are told apart by identity: facts never change.

    A tick in which a twentieth of a thousand replicas changed merges a third of them; a replay, where one
    target changes at a time, some thirty.
    """

    def __init__(self) -> None:
        self._leaves: list[_Node] = []
        self._rows: list[list[_Node]] = []

    def merged(self, windows: Sequence[WindowFacts], names: Sequence[str]) -> Facts:
        """All windows as one; see `merge_facts`, also for `names`."""
        self._leaves = [
            old
            if old is not None and old.parts[0] is window and old.parts[1] == name
            else _leaf(window, name)
            for window, name, old in zip(windows, names, _padded(self._leaves, len(windows)), strict=True)
        ]
        parts = [leaf.merged for leaf in self._leaves]
        depth = 0
        while len(parts) > 1:
            if depth == len(self._rows):
                self._rows.append([])
            self._rows[depth] = row = self._merge_row(parts, self._rows[depth])
            parts = [node.merged for node in row]
            depth += 1
        del self._rows[depth:]
        return parts[0] if parts else merge_parts(())

    def _merge_row(self, parts: Sequence[Facts], old_row: Sequence[_Node]) -> list[_Node]:
        groups = [tuple(parts[i : i + _FAN_OUT]) for i in range(0, len(parts), _FAN_OUT)]
        return [
            old if old is not None and old.parts == group else _Node(group, merge_parts(group))
            for group, old in zip(groups, _padded(old_row, len(groups)), strict=True)
        ]


def _leaf(window: WindowFacts, name: str) -> _Node:
    return _Node((window, name), merge_facts((window,), (name,)))


def _padded(nodes: Sequence[_Node], length: int) -> list[_Node | None]:
    return [*nodes[:length], *[None] * (length - len(nodes))]
