"""SGLang 0.4.6 to 0.5.23: its metrics page, and beside it `/v1/loads` at each scrape.

The gauges of the metrics page can be tens of seconds old on a slow server; those that `/v1/loads` tells are
taken from there. `/server_info` is asked once: it makes a round trip to each scheduler, and it shows keys of
the server in clear, so that nothing but the fields named here is kept of it. `/health` and
`/health_generate` are never asked: both make an idle server generate a token.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from collectors.engines import sglang_config as config
from collectors.engines import sglang_speculation as speculation
from collectors.engines.base import EngineTable, Look, SidePage
from collectors.engines.json_fields import model_name
from collectors.engines.mapping import LayoutMemo
from collectors.engines.matching import Plan, compile_layout
from collectors.engines.picks import Pick, first, samples, spelled, value_at
from collectors.engines.samples import ROUTER_LABELS
from collectors.engines.sglang_loads import KEPT_FIELDS, LOADS, NO_LOADS, Loads, disaggregation_mode, loads_of
from collectors.engines.sglang_table import NOT_IN_0_4, TABLE
from collectors.page import Layout, Page
from enginetop.fleet.model import EngineKind, Role
from enginetop.fleet.reading import EngineFlags, Identity, Reading, Series

_ROUTER_PREFIX = "sglang_router_"
_ROLES = {"unified": Role.AGGREGATED, "null": Role.AGGREGATED, "prefill": Role.PREFILL, "decode": Role.DECODE}
_SPECULATION = (
    Series("spec_accepted_tokens", "", "sglang accepted drafts"),
    Series("spec_draft_tokens", "", "sglang drafted tokens"),
)
_OWN_MEANS = ("spec_accepted_length_now", "spec_acceptance_ratio_now")
_MAX_VARIANTS = 16


def _names(*names: str) -> tuple[str, ...]:
    return spelled(TABLE.prefixes, *names)


class _Facts:
    """What the lines of a page tell apart from its numbers."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.recognised = False
        self.model: str | None = None
        self.engine_type: str | None = None
        for name, labels in zip(layout.names, layout.labels, strict=True):
            own = TABLE.owns(name) and not name.startswith(_ROUTER_PREFIX)
            if own and ROUTER_LABELS.isdisjoint(labels):
                self.recognised = True
                self.model = self.model or model_name(labels.get("model_name"))
                self.engine_type = self.engine_type or labels.get("engine_type") or None
        self.stack = "dynamo" if any(name.startswith("dynamo_") for name in layout.names) else None
        self.started = first(layout, _names("startup_time_seconds"), {"phase": "scheduler_e2e"})
        self.settings: Mapping[str, Pick] = {
            "block_size": first(layout, _names("page_size")),
            "max_model_len": first(layout, _names("context_len")),
        }
        self.drafts_per_step = first(layout, _names("spec_num_draft_tokens"))
        self.ended = tuple(
            tuple(index for index, _ in samples(layout, _names(name)))
            for name in ("generation_tokens_total", "num_requests_total", "spec_verify_calls_total")
        )
        self.counts_steps = bool(self.ended[2])
        self.live = bool(
            next(samples(layout, _names("realtime_tokens_total", "inter_token_latency_seconds_count")), ())
        )
        paused = list(samples(layout, _names("num_paused_reqs")))
        # A scheduler that is gone leaves its number behind, under its own process id.
        one_process = len({labels.get("pid") for _, labels in paused}) == 1
        self.paused = tuple(index for index, _ in paused) if one_process else ()
        self._plans: dict[tuple[frozenset[str], tuple[int, ...]], Plan] = {}

    def plan(self, loads: Loads) -> tuple[Plan, tuple[float, ...]]:
        """The plan beside these loads, and the numbers that they put in; without them if they do not fit."""
        alone = self._plan(NO_LOADS)
        ranks = loads.labels(alone.columns.ranks) if loads.measures else None
        if ranks is None:
            return alone, ()
        return self._plan(loads, ranks), tuple(x for values in loads.measures.values() for x in values)

    def _plan(self, loads: Loads, ranks: Mapping[str, Mapping[str, str]] = MappingProxyType({})) -> Plan:
        variant = (frozenset(loads.measures), loads.ranks)
        if variant not in self._plans:
            if len(self._plans) >= _MAX_VARIANTS:
                self._plans.clear()
            rows = tuple(row for row in TABLE.rows if row.measure not in loads.measures)
            told = [
                Series(measure, rank, f"{LOADS} {measure} {rank}")
                for measure in loads.measures
                for rank in ranks
            ]
            counted = _SPECULATION if self.counts_steps else ()
            self._plans[variant] = compile_layout(
                replace(TABLE, rows=rows),
                self._layout,
                extra=(*told, *counted),
                estimated={one.measure: speculation.NOTE for one in counted},
                absent=NOT_IN_0_4 if self.engine_type is None else MappingProxyType({}),
                ranks={rank: labels for rank, labels in ranks.items() if labels},
            )
        return self._plans[variant]


facts_of = LayoutMemo(_Facts)


def recognise(layout: Layout) -> bool:
    """Whether the page holds series of an SGLang server; a gateway's copies of them do not count."""
    return any(map(TABLE.owns, layout.names)) and facts_of(layout).recognised


class SglangReader:
    """Readings of one SGLang server; keeps the counts of accepted drafts."""

    def __init__(self) -> None:
        self._drafts = speculation.AcceptedDrafts()

    def wants_side(self, path: str, page: Page) -> bool:
        """Every side page that is due."""
        del path, page
        return True

    def read(self, look: Look) -> Reading:
        """The reading of a page; SGLang's page may always be asked."""
        page = look.page
        if page is None:
            raise ValueError("SGLang is read from its metrics page")
        facts = facts_of(page.layout)
        loads = loads_of(look.sides.get(LOADS)) if LOADS in look.fresh_sides else NO_LOADS
        plan, told = facts.plan(loads)
        started = value_at(page, facts.started)
        start = started if started > 0 and math.isfinite(started) else None
        counted: tuple[float, ...] = ()
        if facts.counts_steps:
            tokens, requests, steps = (sum(page.values[i] for i in indexes) for indexes in facts.ended)
            drafts = value_at(page, facts.drafts_per_step) - 1
            counted = self._drafts.update(start, tokens, requests, steps, drafts)
        return Reading(
            at=look.at,
            columns=plan.columns,
            values=_known(plan, plan.values(page, (*told, *counted))),
            start_token=start,
            progress_token=plan.progress_token(page),
            live_progress=facts.live,
            identity=_identity(facts, look, simulated=plan.simulated(page)),
            flags=EngineFlags(paused=any(page.values[i] > 0 for i in facts.paused) or None),
            config=config.settings(page, facts.settings, facts.drafts_per_step, look.sides, loads),
            bad_lines=page.bad_lines,
        )


def _identity(facts: _Facts, look: Look, *, simulated: bool) -> Identity:
    version = config.version(look.sides)
    model = (facts.model, "label model_name") if facts.model else config.model(look.sides)
    role, role_source = _role(facts, look)
    sources = {
        "engine_version": version and version[1],
        "model": model and model[1],
        "role": role_source,
        "stack": facts.stack and "names of the metrics page",
    }
    return Identity(
        EngineKind.SGLANG,
        engine_version=version[0] if version else None,
        model=model[0] if model else None,
        role=role,
        stack=facts.stack,
        simulated=simulated,
        sources=MappingProxyType({name: source for name, source in sources.items() if source}),
    )


def _role(facts: _Facts, look: Look) -> tuple[Role, str]:
    """A server that can switch its role is `dynamic` on the page and tells its mode with its loads."""
    mode = disaggregation_mode(look.sides.get(LOADS)) if LOADS in look.fresh_sides else None
    told = (
        (facts.engine_type, "label engine_type"),
        (mode, LOADS),
        config.disaggregation_mode(look.sides) or (None, ""),
    )
    return next(((_ROLES[one], place) for one, place in told if one in _ROLES), (Role.AGGREGATED, ""))


def _known(plan: Plan, values: array[float]) -> array[float]:
    """The values without zeros that say that there is none: no speculation, no capacity set yet."""
    off = set()
    for at, one in enumerate(plan.columns.series):
        if values[at] == 0 and one.measure == "kv_capacity_tokens":
            values[at] = math.nan
        elif values[at] == 0 and one.measure == _OWN_MEANS[0]:
            off.add(one.rank)
    if off:
        for at, one in enumerate(plan.columns.series):
            if one.measure in _OWN_MEANS and one.rank in off:
                values[at] = math.nan
    return values


SGLANG = EngineTable(
    kind=EngineKind.SGLANG,
    title="SGLang",
    recognise=recognise,
    new_reader=SglangReader,
    side_pages=(
        SidePage(LOADS, keep=KEPT_FIELDS, every_scrape=True),
        SidePage(config.SERVER_INFO, keep=config.SERVER_FIELDS),
        SidePage(config.OLD_SERVER_INFO, keep=config.SERVER_FIELDS, when=config.has_no_info),
        SidePage(config.MODEL_INFO, keep=config.MODEL_FIELDS),
        SidePage("/v1/models", keep=("data[].id", "data[].max_model_len")),
    ),
    liveness_path="/ready",
    enable_hint="start SGLang with --enable-metrics",
    tables=(TABLE,),
    sources={
        **TABLE.sources(),
        "spec_accepted_tokens": (
            "sglang:generation_tokens_total - num_requests_total - spec_verify_calls_total",
        ),
        "spec_draft_tokens": ("sglang:spec_verify_calls_total x (spec_num_draft_tokens - 1)",),
    },
    never=(
        ("/health", "generates a token on an idle server, takes a second, and fails while it is paused"),
        ("/health_generate", "generates a token"),
        ("/flush_cache", "empties the prefix cache, also by GET"),
        ("/freeze_gc", "acts, also by GET"),
        ("/start_profile", "starts profiling, also by GET"),
        ("/stop_profile", "stops profiling, also by GET"),
        ("/release_memory_occupation", "frees the KV cache and the weights, also by GET"),
        ("/resume_memory_occupation", "acts, also by GET"),
        ("/slow_down", "makes the server sleep in each step, also by GET"),
        ("/configure_logging", "acts, also by GET"),
        ("/get_load", "gone since 0.5.23; /v1/loads tells more"),
    ),
    reads="metrics page, /v1/loads, and once /server_info, /model_info, /v1/models",
    changes="running requests (pp_max_micro_batch_size) live; the rest at start, or live with a plugin",
)
