"""llama.cpp server: no page may be asked that wakes a sleeping model or loads another one.

`/props` is free of side effects in every build and is asked first. While it says `is_sleeping`, neither
`/metrics` (wakes builds before b11434) nor `/slots` (wakes all) is asked. An idle server's `/slots` is not
asked either, since that counts as work and would keep it from falling asleep. A router's `/metrics` is never
asked: with `?model=` it would load that model and may evict the one in service.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from collectors.engines.base import EngineTable, Json, Look, SidePage, Sides
from collectors.engines.identities import identity, served_model
from collectors.engines.llamacpp_router import MODELS_PAGE, is_router, read_router
from collectors.engines.llamacpp_router import PROPS as _PROPS
from collectors.engines.llamacpp_table import ASLEEP, TABLE, plan_with_slots, plan_without_slots
from collectors.engines.llamacpp_tokens import LiveTokens, slots_of
from collectors.json_fields import flag, integer, items, text
from collectors.page import Page
from enginetop.fleet.foreign_json import model_name
from enginetop.fleet.model import EngineKind
from enginetop.fleet.observation import Failure
from enginetop.fleet.reading import ConfigValue, EngineFlags, Identity, Reading

START_HEADER = "process-start-time-unix"
"""Microseconds of the monotonic clock in spite of its name: only a token that changes at a restart."""

_SLOTS = "/slots"
_FINISHED = ("llamacpp:tokens_predicted_total", "llamacpp_tokens_predicted_total")
_DECODES = ("llamacpp:n_decode_total", "llamacpp_n_decode_total")
_LOAD = (
    ("llamacpp:requests_processing", "llamacpp_requests_processing"),
    ("llamacpp:requests_deferred", "llamacpp_requests_deferred"),
)


def may_read_metrics(sides: Sides) -> bool:
    """Whether neither a sleeping model would wake nor a router be asked."""
    return flag(sides.get(_PROPS), "is_sleeping") is not True and not is_router(sides)


class LlamaReader:
    """Readings of one llama.cpp server; keeps the live token count."""

    def __init__(self) -> None:
        self._tokens = LiveTokens()
        self._last = Reading(at=0.0, columns=ASLEEP, values=())
        self._page: Page | None = None
        self._decodes_at_slots = math.nan

    def wants_side(self, path: str, page: Page) -> bool:
        """All but the slots of an idle server that has decoded nothing since they were read."""
        return path != _SLOTS or not _at_rest(page) or _sample(page, _DECODES) != self._decodes_at_slots

    def read(self, look: Look) -> Reading | Failure:
        """The reading; without a page that of a sleeping server, whose numbers are not known."""
        if is_router(look.sides):
            return read_router(look.sides, look.at)
        self._last = self._asleep(look) if look.page is None else self._awake(look, look.page)
        return self._last

    def _awake(self, look: Look, page: Page) -> Reading:
        slots = look.sides.get(_SLOTS)
        slots_known = bool(items(slots))
        plan = (plan_with_slots if slots_known else plan_without_slots)(page.layout)
        start = _start_token(look.headers)
        live = None
        if slots_known and _SLOTS in look.fresh_sides:
            live = slots_of(slots)
            self._decodes_at_slots = _sample(page, _DECODES)
        # A page seen before says nothing about slots that were read after it.
        at_rest = page is not self._page and _at_rest(page)
        self._page = page
        generated = self._tokens.update(_sample(page, _FINISHED), live, start, at_rest=at_rest)
        computed = (generated, *_kv(slots)) if slots_known else (generated,)
        reading = plan.reading(
            look.at,
            page,
            plan.values(page, computed),
            _identity(look.sides),
            moving=(generated,),
            live_progress=slots_known or not math.isnan(_sample(page, _DECODES)),
            flags=_flags(look.sides),
            config=_config(look.sides),
        )
        return replace(reading, start_token=start)

    def _asleep(self, look: Look) -> Reading:
        last = self._last
        return replace(
            last,
            at=look.at,
            values=array("d", [math.nan] * len(last.columns.series)),
            identity=replace(_identity(look.sides), simulated=last.identity.simulated),
            flags=_flags(look.sides),
            config=_config(look.sides),
            bad_lines=0,
        )


def _sample(page: Page, names: tuple[str, ...]) -> float:
    """The value of the first sample with one of the names, NaN when there is none."""
    for name in names:
        if name in page.layout.names:
            return page.values[page.layout.names.index(name)]
    return math.nan


def _at_rest(page: Page) -> bool:
    """Whether the page says that nothing runs or waits, so that its finish counter is complete."""
    return all(_sample(page, names) == 0 for names in _LOAD)


def _start_token(headers: Mapping[str, str]) -> float | None:
    try:
        token = float(headers.get(START_HEADER, ""))
    except ValueError:
        return None
    return token if math.isfinite(token) else None


def _kv(slots: Json) -> tuple[float, float]:
    """Estimated share of the KV cache in use, and its size in tokens."""
    used = capacity = 0
    for slot in items(slots):
        used += integer(slot, "n_prompt_tokens") or 0
        capacity += integer(slot, "n_ctx") or 0
    return (used / capacity, float(capacity)) if capacity > 0 else (math.nan, math.nan)


def _identity(sides: Sides) -> Identity:
    props = sides.get(_PROPS)
    return identity(
        EngineKind.LLAMACPP,
        (model_name(text(props, "model_alias")), "/props model_alias"),
        (model_name(text(props, "model_path")), "/props model_path"),
        served_model(sides),
        version=(text(props, "build_info"), "/props build_info"),
    )


def _flags(sides: Sides) -> EngineFlags:
    return EngineFlags(sleeping=flag(sides.get(_PROPS), "is_sleeping"))


def _config(sides: Sides) -> Mapping[str, ConfigValue]:
    props = sides.get(_PROPS)
    found = {
        "max_num_seqs": (integer(props, "total_slots"), "/props total_slots"),
        "max_model_len": (integer(props, "default_generation_settings", "n_ctx"), "/props n_ctx"),
    }
    return MappingProxyType({k: ConfigValue(v, source) for k, (v, source) in found.items() if v is not None})


LLAMACPP = EngineTable(
    kind=EngineKind.LLAMACPP,
    title="llama.cpp",
    recognise=TABLE.is_on,
    new_reader=LlamaReader,
    side_pages=(
        SidePage(
            _PROPS,
            keep=(
                "role",
                "is_sleeping",
                "total_slots",
                "model_alias",
                "model_path",
                "build_info",
                "default_generation_settings.n_ctx",
            ),
            every_scrape=True,
            before_metrics=True,
        ),
        MODELS_PAGE,
        SidePage(
            _SLOTS,
            keep=(
                "[].id",
                "[].n_ctx",
                "[].is_processing",
                "[].id_task",
                "[].n_prompt_tokens",
                "[].next_token[].n_decoded",
                "[].next_token.n_decoded",
            ),
            every_scrape=True,
        ),
    ),
    may_read_metrics=may_read_metrics,
    server_header="llama.cpp",
    enable_hint="start llama-server with --metrics",
    tables=(TABLE,),
    live_progress="llamacpp:n_decode_total, or the slots; none before builds that have one of them",
    sources={
        **TABLE.sources(),
        "generation_tokens": (_FINISHED[0], "/slots next_token[0].n_decoded"),
        "kv_usage_ratio": ("/slots n_prompt_tokens / n_ctx",),
        "kv_capacity_tokens": ("/slots n_ctx",),
    },
    never=(
        ("/models/sse", "stays open for as long as one listens"),
        ("/models/load", "loads a model"),
        ("/models/unload", "unloads a model"),
        ("/completion", "generates tokens"),
        ("/slots/*", "saves, restores or erases a slot"),
    ),
    reads="slots, queue, tokens while they are generated, KV (estimated), prefix cache, speculation, sleep; "
    "of a router which models are loaded",
    changes="the thinking of one running request; the rest at a restart, or by a router loading it anew",
)
