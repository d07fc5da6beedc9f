"""SGLang 0.4.6 to 0.5.23: its metrics page, and beside it `/v1/loads` at each scrape.

The gauges of the metrics page can be tens of seconds old on a slow server; those that `/v1/loads` tells are
taken from there. `/server_info` is asked once: it makes a round trip to each scheduler, and it shows keys of
the server in clear, so that nothing but the fields named here is kept of it. `/health` and
`/health_generate` are never asked: both make an idle server generate a token. A pause shows neither on the
metrics page nor in the loads, where all figures stay as they were: `/ready` and `/ping` tell it.
"""

from __future__ import annotations

import math

from collectors.engines import sglang_config as config
from collectors.engines import sglang_experts as experts
from collectors.engines import sglang_speculation as speculation
from collectors.engines.base import EngineTable, Look, PageReader, SidePage, Sides
from collectors.engines.identities import NOT_TOLD, identity
from collectors.engines.picks import value_at
from collectors.engines.sglang_loads import KEPT_FIELDS, LOADS, NO_LOADS, disaggregation_mode, loads_of
from collectors.engines.sglang_page import PageFacts, facts_of, recognise
from collectors.engines.sglang_table import TABLE
from collectors.page import Page
from enginetop.fleet.model import EngineKind, Role
from enginetop.fleet.reading import EngineFlags, Identity, Reading

_ROLES = {"unified": Role.AGGREGATED, "null": Role.AGGREGATED, "prefill": Role.PREFILL, "decode": Role.DECODE}


READY = "/ready"
"""503 while the server takes no requests: paused, shutting down, not well. Flags alone; since 0.5.23."""
PING = "/ping"
"""200 while the server is up and neither shutting down nor unhealthy, paused or not. Flags alone."""


def _is_not_ready(sides: Sides) -> bool:
    return bool(sides.get(READY) == 503)


class SglangReader(PageReader):
    """Readings of one SGLang server; keeps the counts of accepted drafts."""

    def __init__(self) -> None:
        self._drafts = speculation.AcceptedDrafts()
        self._balance = experts.ExpertBalance()
        self._settings = config.Settings()

    def read_page(self, look: Look, page: Page) -> Reading:
        """See `PageReader`."""
        facts = facts_of(page.layout)
        loads = loads_of(look.sides.get(LOADS)) if LOADS in look.fresh_sides else NO_LOADS
        plan, told = facts.plan(loads)
        values = plan.values(page, (*told, *self._computed(facts, page, plan.start_token(page))))
        for at, places in facts.zeros(plan):
            if values[at] == 0:
                for place in places:
                    values[place] = math.nan
        return plan.reading(
            look.at,
            page,
            values,
            _identity(facts, look),
            live_progress=facts.live,
            flags=EngineFlags(paused=_paused(look)),
            config=self._settings.of(look.sides, loads) | facts.settings_on(page),
        )

    def _computed(self, facts: PageFacts, page: Page, start: float | None) -> list[float]:
        """The numbers of `facts.computed`."""
        numbers: list[float] = []
        if facts.counts_steps:
            tokens, requests, steps = (sum(page.values[i] for i in indexes) for indexes in facts.ended)
            drafts = value_at(page, facts.drafts_per_step) - 1
            numbers += self._drafts.update(start, tokens, requests, steps, drafts)
        if all(facts.balance):
            total, count = (sum(page.values[i] for i in indexes) for indexes in facts.balance)
            numbers.append(self._balance.update(total, count))
        return numbers


def _identity(facts: PageFacts, look: Look) -> Identity:
    return identity(
        EngineKind.SGLANG,
        (facts.model, "label model_name") if facts.model else config.model(look.sides) or NOT_TOLD,
        version=config.version(look.sides) or NOT_TOLD,
        role=_role(facts, look),
        stack=facts.stack,
    )


def _paused(look: Look) -> bool | None:
    """Paused is a server that is up and yet takes no requests; None where it does not say."""
    if READY not in look.fresh_sides:
        return None
    if not _is_not_ready(look.sides):
        return False
    return True if PING in look.fresh_sides and look.sides.get(PING) == 200 else None


def _role(facts: PageFacts, look: Look) -> tuple[Role | None, str]:
    """A server that can switch its role is `dynamic` on the page and tells its mode with its loads."""
    mode = disaggregation_mode(look.sides.get(LOADS)) if LOADS in look.fresh_sides else None
    told = (
        (facts.engine_type, "label engine_type"),
        (mode, LOADS),
        config.disaggregation_mode(look.sides) or NOT_TOLD,
    )
    return next(((_ROLES[one], place) for one, place in told if one in _ROLES), NOT_TOLD)


SGLANG = EngineTable(
    kind=EngineKind.SGLANG,
    title="SGLang",
    recognise=recognise,
    new_reader=SglangReader,
    side_pages=(
        SidePage(LOADS, keep=KEPT_FIELDS, every_scrape=True),
        SidePage(READY, every_scrape=True, status_only=True),
        SidePage(PING, every_scrape=True, status_only=True, when=_is_not_ready),
        SidePage(config.SERVER_INFO, keep=config.SERVER_FIELDS),
        SidePage(config.OLD_SERVER_INFO, keep=config.SERVER_FIELDS, when=config.has_no_info),
        SidePage(config.MODEL_INFO, keep=config.MODEL_FIELDS),
        SidePage("/v1/models", keep=("data[].id", "data[].max_model_len")),
    ),
    liveness_path=READY,
    enable_hint="start SGLang with --enable-metrics",
    tables=(TABLE,),
    live_progress="sglang:realtime_tokens_total or inter_token_latency_seconds, else none",
    sources={
        **TABLE.sources(),
        "spec_accepted_tokens": (
            "sglang:generation_tokens_total - num_requests_total - spec_verify_calls_total",
        ),
        experts.BALANCE.measure: (f"sglang:{experts.FAMILY}_sum / _count, since the page before",),
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
    changes="prefill sizes and running requests live through its companion; the rest at a restart",
)
