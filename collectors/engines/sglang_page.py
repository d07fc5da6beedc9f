"""What the lines of an SGLang page tell apart from its numbers, kept once for all pages with these lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from collectors.engines import sglang_experts as experts
from collectors.engines import sglang_speculation as speculation
from collectors.engines.identities import stack_of
from collectors.engines.mapping import LayoutMemo
from collectors.engines.matching import Plan, compile_layout
from collectors.engines.picks import Pick, first, samples, settings_on, spelled
from collectors.engines.samples import ROUTER_LABELS
from collectors.engines.sglang_loads import LOADS, NO_LOADS, Loads
from collectors.engines.sglang_table import NOT_IN_0_4, TABLE
from collectors.page import Layout, Page
from enginetop.fleet.foreign_json import model_name
from enginetop.fleet.reading import ConfigValue, Series

_ROUTER_PREFIX = "sglang_router_"
SPECULATION = (
    Series("spec_accepted_tokens", "", "sglang accepted drafts"),
    Series("spec_draft_tokens", "", "sglang drafted tokens"),
)
_OWN_MEANS = ("spec_accepted_length_now", "spec_acceptance_ratio_now")
_MAX_VARIANTS = 16
_MOST_DRAFTS = 4096


def _names(*names: str) -> tuple[str, ...]:
    return spelled(TABLE.prefixes, *names)


class PageFacts:
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
        self.stack = stack_of(layout)
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
        self.balance = tuple(
            tuple(index for index, _ in samples(layout, _names(f"{experts.FAMILY}{part}")))
            for part in ("_sum", "_count")
        )
        self.computed = (
            *(SPECULATION if self.counts_steps else ()),
            *((experts.BALANCE,) if all(self.balance) else ()),
        )
        self.live = bool(
            next(samples(layout, _names("realtime_tokens_total", "inter_token_latency_seconds_count")), ())
        )
        self._zeros: dict[Plan, tuple[tuple[int, tuple[int, ...]], ...]] = {}
        self._plans: dict[tuple[frozenset[str], tuple[int, ...]], Plan] = {}

    def settings_on(self, page: Page) -> dict[str, ConfigValue]:
        """The settings that stand on the page, newer than those of the start."""
        told = dict(settings_on(page, self.settings))
        if self.drafts_per_step is not None:
            tokens = page.values[self.drafts_per_step]
            if 1 < tokens <= _MOST_DRAFTS:
                # Of the tokens that a step verifies, one is not drafted.
                told["num_speculative_tokens"] = ConfigValue(
                    int(tokens) - 1, page.layout.names[self.drafts_per_step]
                )
        return told

    def zeros(self, plan: Plan) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Places of values whose zero means that there is none, each with the places that it takes along.

        A capacity of 0 is not set yet; an accepted length of 0 says that there is no speculation.
        """
        if plan not in self._zeros:
            series = plan.columns.series
            means = [(at, one.rank) for at, one in enumerate(series) if one.measure in _OWN_MEANS]
            found: list[tuple[int, tuple[int, ...]]] = [
                (at, (at,)) for at, one in enumerate(series) if one.measure == "kv_capacity_tokens"
            ]
            found += [
                (at, tuple(place for place, rank in means if rank == one.rank))
                for at, one in enumerate(series)
                if one.measure == _OWN_MEANS[0]
            ]
            self._zeros[plan] = tuple(found)
        return self._zeros[plan]

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
                self._zeros.clear()
            rows = tuple(row for row in TABLE.rows if row.measure not in loads.measures)
            told = [
                Series(measure, rank, f"{LOADS} {measure} {rank}")
                for measure in loads.measures
                for rank in ranks
            ]
            plan = compile_layout(
                replace(TABLE, rows=rows),
                self._layout,
                extra=(*told, *self.computed),
                estimated={one.measure: speculation.NOTE for one in self.computed if one in SPECULATION},
                absent=NOT_IN_0_4 if self.engine_type is None else MappingProxyType({}),
                ranks={rank: labels for rank, labels in ranks.items() if labels},
            )
            self._plans[variant] = replace(plan, start_pick=self.started)
        return self._plans[variant]


facts_of = LayoutMemo(PageFacts)


def recognise(layout: Layout) -> bool:
    """Whether the page holds series of an SGLang server; a gateway's copies of them do not count."""
    return TABLE.is_on(layout) and facts_of(layout).recognised
