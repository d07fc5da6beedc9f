"""The metrics page of a simulated process, in the names of the engine that it imitates."""

from __future__ import annotations

from collections.abc import Sequence

from enginetop.fleet.model import EngineKind
from enginetop.simulator.companion_families import companion_families
from enginetop.simulator.family import VLLM_LABELS
from enginetop.simulator.model import EngineModel
from enginetop.simulator.pages import PageTemplate
from enginetop.simulator.sglang_families import REQUEST_LABELS, common_labels, sglang_families
from enginetop.simulator.vllm_families import vllm_families


def page_template(ranks: Sequence[EngineModel], begun_at: float, *, reasons: bool) -> PageTemplate:
    """The page of the process that runs `ranks` and began at the Unix time `begun_at`.

    `reasons` tells whether its model thinks before it answers. The objectives that requests are counted for
    are those of now: after a change of the SLO a new template is needed.
    """
    settings = ranks[0].settings
    objectives = tuple(ranks[0].metrics.within)
    if settings.kind is EngineKind.SGLANG:
        layout = (
            *sglang_families(settings),
            *companion_families(objectives, reasons, REQUEST_LABELS, summed=True),
        )
        # Prometheus's multiprocess mode, which SGLang always uses, knows no times of creation.
        return PageTemplate(layout, ranks, [common_labels(settings, n) for n in range(len(ranks))], None)
    labels = [{"engine": str(rank), "model_name": settings.model} for rank in range(len(ranks))]
    layout = (
        *vllm_families(settings, begun_at),
        *companion_families(objectives, reasons, VLLM_LABELS),
    )
    return PageTemplate(layout, ranks, labels, begun_at)
