"""Which children of a family count: a total instead of its breakdown, one shard of those with the same work.

A label that is missing and one that is empty are the same to Prometheus, and here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from collectors.engines.mapping import Labels

Child = frozenset[tuple[str, str]]


def child_of(labels: Labels, shard_labels: Collection[str] = ()) -> Child:
    """What tells the children of a family apart: all labels but the bucket's bound, and its shard."""
    return frozenset((k, v) for k, v in labels.items() if k != "le" and k not in shard_labels)


def counted(children: Sequence[Labels], total_label: str, shard_labels: Sequence[str]) -> list[int]:
    """Positions of the children of one family that count.

    Where children differ in `total_label` only, the one without a value for it is the total of the others and
    stands for them; without a total they all count. Where children differ in `shard_labels` only, they
    describe the same requests, and the lowest shard stands for them.
    """
    kept = list(range(len(children)))
    if total_label:
        apart = (total_label, *shard_labels)
        totals = {child_of(labels, apart) for labels in children if not labels.get(total_label)}
        kept = [
            i for i in kept if not children[i].get(total_label) or child_of(children[i], apart) not in totals
        ]
    if not shard_labels:
        return kept
    lowest: dict[Child, tuple[tuple[int, str], ...]] = {}
    shards = {i: tuple(_order(children[i].get(label, "")) for label in shard_labels) for i in kept}
    for i, shard in shards.items():
        child = child_of(children[i], shard_labels)
        lowest[child] = min(shard, lowest.get(child, shard))
    return [i for i in kept if shards[i] == lowest[child_of(children[i], shard_labels)]]


def _order(rank: str) -> tuple[int, str]:
    """Ranks in the order of their numbers; none comes first, words last."""
    if not rank:
        return -1, ""
    is_number = rank.isascii() and rank.isdigit() and len(rank) <= 9
    return (int(rank), rank) if is_number else (10**9, rank)
