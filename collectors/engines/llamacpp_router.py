"""A llama.cpp server in router mode: which of its models are loaded, asleep or neither.

The list of models is the one page of a router that touches no model. Its `/metrics` and `/slots` want a model
named, and load that model, which may evict the one in service. So a router has a row of its own that tells
how many models are where; what the models do is read from their own servers, where those are targets.
"""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType

from collectors.engines.base import Json, SidePage, Sides
from collectors.engines.identities import identity
from collectors.json_fields import items, text
from enginetop.fleet.foreign_json import model_name
from enginetop.fleet.model import EngineKind, Quality, Role
from enginetop.fleet.observation import Failure, FailureKind
from enginetop.fleet.reading import Absence, Columns, ConfigValue, EngineFlags, Reading, Series
from enginetop.fleet.signals import MEASURES

PROPS = "/props"
MODELS = "/models"

_ELSEWHERE = "told by the servers of the models: name them as targets"
_REFUSED = (
    "llama.cpp router: it has no metrics of its own, and asking for a model's would load that model; "
    "name the model servers as targets"
)
_MOST_LISTED = 8
_COUNTED = {
    "models_loaded": "loaded",
    "models_loading": "loading",
    "models_sleeping": "sleeping",
    "models_unloaded": "unloaded",
}
"""Measures, and the word of `status.value` that each counts."""

_STATUS = tuple(Series(measure, "", f"/models status {word}") for measure, word in _COUNTED.items())
_NO_WORK = tuple(
    Series(measure, "", f"no model for {measure}") for measure in ("requests_running", "requests_waiting")
)
_ABSENT = MappingProxyType({measure: Absence(Quality.UNKNOWN, _ELSEWHERE) for measure in MEASURES})
_SERVING = Columns(_STATUS, absent=_ABSENT)
_RESTING = Columns((*_STATUS, *_NO_WORK), absent=_ABSENT)
"""Without a model in memory nothing can run, which is as good as a gauge that says so."""


def is_router(sides: Sides) -> bool:
    """Whether the server says that it is a router."""
    return text(sides.get(PROPS), "role") == "router"


MODELS_PAGE = SidePage(
    MODELS,
    # The status holds the command line of each model's server too.
    keep=("data[].id", "data[].status.value"),
    every_scrape=True,
    before_metrics=True,
    when=is_router,
)


def read_router(sides: Sides, at: float) -> Reading | Failure:
    """The reading of a router; a failure where its list of models is not readable."""
    listed = items(sides.get(MODELS), "data")
    if not listed and not isinstance(sides.get(MODELS), dict):
        return Failure(FailureKind.NO_ENGINE_METRICS, at, _REFUSED, answered=True)
    status = Counter(text(one, "status", "value") for one in listed)
    counts = [float(status[word]) for word in _COUNTED.values()]
    resting = status["loaded"] == status["loading"] == 0
    loaded = [name for one in listed if text(one, "status", "value") == "loaded" and (name := _name(one))]
    return Reading(
        at=at,
        columns=_RESTING if resting else _SERVING,
        values=(*counts, 0.0, 0.0) if resting else tuple(counts),
        progress_token=hash(tuple(counts)),
        live_progress=False,
        identity=identity(
            EngineKind.LLAMACPP,
            (loaded[0] if len(loaded) == 1 else None, "/models"),
            version=(text(sides.get(PROPS), "build_info"), "/props build_info"),
            role=(Role.ROUTER, ""),
        ),
        flags=EngineFlags(sleeping=resting and status["sleeping"] > 0),
        config=_loaded_models(loaded),
    )


def _name(entry: Json) -> str | None:
    return model_name(text(entry, "id"))


def _loaded_models(names: list[str]) -> MappingProxyType[str, ConfigValue]:
    if not names:
        return MappingProxyType({})
    more = "" if len(names) <= _MOST_LISTED else f" and {len(names) - _MOST_LISTED} more"
    return MappingProxyType(
        {"models": ConfigValue(", ".join(names[:_MOST_LISTED]) + more, f"{MODELS}, loaded")}
    )
