"""`/v1/loads` of SGLang: the load of each data-parallel rank, as the schedulers publish it.

About a millisecond for the server, and fresher than the gauges of the metrics page, which are set once in
many decode steps (40 by default; here 15) and at least each 30 s of idleness.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from types import MappingProxyType

from collectors.engines.base import Json
from collectors.json_fields import integer, items, number, text
from enginetop.fleet.foreign_json import field_at
from enginetop.fleet.frozen import frozen

LOADS = "/v1/loads"
MAX_RANKS = 1024
"""A page with more ranks than that is not believed."""

KEPT_FIELDS = (
    "version",
    "loads[].timestamp",
    "loads[].dp_rank",
    "loads[].num_running_reqs",
    "loads[].num_waiting_reqs",
    "loads[].max_total_num_tokens",
    "loads[].max_running_requests",
    "loads[].token_usage",
    "loads[].queues.waiting",
    "loads[].disaggregation.mode",
)


@frozen
class Loads:
    """What the ranks tell: for each measure that all of them tell, the numbers in the order of `ranks`."""

    ranks: tuple[int, ...] = ()
    measures: Mapping[str, tuple[float, ...]] = field(default_factory=lambda: MappingProxyType({}))
    max_running_requests: int | None = None

    def labels(self, named: Collection[str]) -> Mapping[str, Mapping[str, str]] | None:
        """Keys and labels of the ranks beside a page that names the ranks `named`; None: they do not match.

        The only rank of a page that names none has the empty key. A page may not yet have every rank.
        """
        if len(self.ranks) == 1 and not named:
            return {"": {}}
        keyed = {str(rank): {"dp_rank": str(rank)} for rank in self.ranks}
        return keyed if keyed.keys() >= set(named) else None


NO_LOADS = Loads()


def loads_of(body: Json) -> Loads:
    """The loads of a page; none where the page is not believable or a rank has not published yet."""
    entries = items(body, "loads")
    ranks = [integer(entry, "dp_rank") for entry in entries]
    known = tuple(rank for rank in ranks if rank is not None and rank >= 0)
    unpublished = any(number(entry, "timestamp") == 0 for entry in entries)
    if unpublished or not 0 < len(entries) <= MAX_RANKS or len(set(known)) < len(entries):
        return NO_LOADS
    told = {
        "requests_running": [number(entry, "num_running_reqs") for entry in entries],
        "requests_waiting": [_waiting(entry) for entry in entries],
        "kv_usage_ratio": [number(entry, "token_usage") for entry in entries],
        "kv_capacity_tokens": [number(entry, "max_total_num_tokens") or None for entry in entries],
    }
    whole = {
        measure: tuple(value for value in values if value is not None and value >= 0)
        for measure, values in told.items()
    }
    limits = [integer(entry, "max_running_requests") for entry in entries]
    limit = sum(one for one in limits if one) if all(one and one > 0 for one in limits) else None
    return Loads(
        ranks=known,
        measures=MappingProxyType({m: values for m, values in whole.items() if len(values) == len(entries)}),
        max_running_requests=limit,
    )


def disaggregation_mode(body: Json) -> str | None:
    """`prefill`, `decode` or `null`, as the first rank tells it."""
    return text(body, "loads", 0, "disaggregation", "mode")


def _waiting(entry: Json) -> float | None:
    """The waiting queue alone; `num_waiting_reqs` holds the queues of a disaggregated server as well."""
    waiting = number(entry, "queues", "waiting")
    if waiting is not None or field_at(entry, "disaggregation", "mode") not in (None, "null"):
        return waiting
    return number(entry, "num_waiting_reqs")
