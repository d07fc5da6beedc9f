"""What our companions and our simulator add to an engine's own page: exact counts, the same for every engine.

They see each request as a client does, so that what they count is exact where the engine's own histograms
leave a span.
"""

from __future__ import annotations

from types import MappingProxyType

from collectors.engines.mapping import Row

_PREFIXES = ("enginetop_",)
_NOTE = "needs the engine's companion"

FAILED_OUTCOMES = frozenset({"abort", "aborted", "cancelled", "error", "rejected", "timeout"})
"""Outcomes of requests that were not answered in full."""

ROWS: tuple[Row, ...] = (
    Row("requests_judged", ("requests",), prefixes=_PREFIXES, note=_NOTE),
    Row(
        "requests_judged_failed",
        ("requests",),
        where=MappingProxyType({"outcome": FAILED_OUTCOMES}),
        prefixes=_PREFIXES,
        note=_NOTE,
    ),
    Row("requests_within_slo", ("requests_within_slo",), slo_labels=True, prefixes=_PREFIXES, note=_NOTE),
    Row("reasoning_tokens", ("reasoning_tokens",), prefixes=_PREFIXES, note=_NOTE),
    Row("completed_ttft_seconds", ("ttft_seconds",), prefixes=_PREFIXES, note=_NOTE),
    Row("completed_tpot_seconds", ("tpot_seconds",), prefixes=_PREFIXES, note=_NOTE),
)
