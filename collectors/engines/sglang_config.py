"""How an SGLang server was started, and its limits: from its info pages, its loads and its metrics page.

`/server_info` shows `api_key`, `admin_api_key` and the whole command line: the fields below are all that is
read or kept of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import is_
from types import MappingProxyType

from collectors.engines.base import Json, Sides
from collectors.engines.sglang_loads import LOADS, Loads
from collectors.json_fields import flag, integer, items, number, text
from enginetop.fleet.foreign_json import model_name
from enginetop.fleet.reading import ConfigValue

SERVER_INFO = "/server_info"
OLD_SERVER_INFO = "/get_server_info"
"""Its name before 0.5.9."""
MODEL_INFO = "/model_info"
_MODELS = "/v1/models"

Setting = int | float | str | bool | None

_AS_STARTED: Mapping[str, Callable[[Json], Setting]] = MappingProxyType(
    {
        "max_num_seqs": lambda info: _positive(info, "max_running_requests"),
        "num_speculative_tokens": lambda info: _drafts(integer(info, "speculative_num_draft_tokens")),
        "block_size": lambda info: _positive(info, "page_size"),
        "max_model_len": lambda info: _positive(info, "context_length"),
        "max_prefill_tokens": lambda info: _positive(info, "max_prefill_tokens"),
        "speculative_algorithm": lambda info: text(info, "speculative_algorithm"),
        "reasoning_parser": lambda info: text(info, "reasoning_parser"),
        "kv_cache_dtype": lambda info: text(info, "kv_cache_dtype"),
        "schedule_policy": lambda info: text(info, "schedule_policy"),
        "schedule_conservativeness": lambda info: number(info, "schedule_conservativeness"),
        "mem_fraction_static": lambda info: number(info, "mem_fraction_static"),
        "enable_prefix_caching": lambda info: _opposite(flag(info, "disable_radix_cache")),
        "enable_hierarchical_cache": lambda info: flag(info, "enable_hierarchical_cache"),
        "enable_priority_scheduling": lambda info: flag(info, "enable_priority_scheduling"),
        "tp_size": lambda info: _positive(info, "tp_size"),
        "pp_size": lambda info: _positive(info, "pp_size"),
        "dp_size": lambda info: _positive(info, "dp_size"),
    }
)
"""Settings by name, and how they stand in the info."""

SERVER_FIELDS: tuple[str, ...] = (
    "version",
    "served_model_name",
    "model_path",
    "chunked_prefill_size",
    "max_prefill_tokens",
    "max_running_requests",
    "max_total_num_tokens",
    "page_size",
    "context_length",
    "speculative_algorithm",
    "speculative_num_draft_tokens",
    "reasoning_parser",
    "kv_cache_dtype",
    "schedule_policy",
    "schedule_conservativeness",
    "mem_fraction_static",
    "disable_radix_cache",
    "enable_hierarchical_cache",
    "enable_priority_scheduling",
    "tp_size",
    "pp_size",
    "dp_size",
    "disaggregation_mode",
    "internal_states[].effective_max_running_requests_per_dp",
    "internal_states[].pp_max_micro_batch_size",
)
MODEL_FIELDS: tuple[str, ...] = ("served_model_name", "model_path", "reasoning_parser", "disaggregation_mode")


def has_no_info(sides: Sides) -> bool:
    """Whether the info page did not answer under its newer name."""
    return SERVER_INFO not in sides


Told = tuple[str, str]
"""What a page says, and where it says so."""


def version(sides: Sides) -> Told | None:
    """SGLang's version."""
    path, info = _info(sides)
    return _first_told((sides.get(LOADS), LOADS, "version"), (info, path, "version"))


def model(sides: Sides) -> Told | None:
    """The served model's name, else the path it was loaded from."""
    card = model_name(text(sides.get(_MODELS), "data", 0, "id"))
    if card is not None:
        return card, _MODELS
    pages = ((sides.get(MODEL_INFO), MODEL_INFO), _info(sides)[::-1])
    told = (
        _first_told((page, path, name))
        for name in ("served_model_name", "model_path")
        for page, path in pages
    )
    return next((one for one in told if one is not None and model_name(one[0]) is not None), None)


def disaggregation_mode(sides: Sides) -> Told | None:
    """`prefill`, `decode` or `null`, as started."""
    path, info = _info(sides)
    name = "disaggregation_mode"
    return _first_told((info, path, name), (sides.get(MODEL_INFO), MODEL_INFO, name))


def _first_told(*places: tuple[Json, str, str]) -> Told | None:
    found = ((text(page, name), path) for page, path, name in places)
    return next(((value, path) for value, path in found if value is not None), None)


class Settings:
    """The settings that the pages beside the metrics tell, worked out anew when one of them is another."""

    def __init__(self) -> None:
        self._pages: tuple[Json, ...] = ()
        self._limit: int | None = None
        self._told: dict[str, ConfigValue] = {}

    def of(self, sides: Sides, loads: Loads) -> dict[str, ConfigValue]:
        """Every setting that these pages tell, each with its source."""
        pages = tuple(sides.get(path) for path in (SERVER_INFO, OLD_SERVER_INFO, MODEL_INFO, _MODELS))
        same = len(pages) == len(self._pages) and all(map(is_, pages, self._pages))
        if not same or loads.max_running_requests != self._limit:
            self._pages, self._limit = pages, loads.max_running_requests
            self._told = _settings(sides, loads)
        return self._told


def _settings(sides: Sides, loads: Loads) -> dict[str, ConfigValue]:
    path, info = _info(sides)
    found = {
        name: ConfigValue(value, f"{path}, as started")
        for name, read in _AS_STARTED.items()
        if (value := read(info)) is not None
    }
    for name in ("chunked_prefill_size", "max_prefill_tokens"):  # -1: prefills are not cut into chunks
        budget = _positive(info, name)
        if budget is not None:
            found["max_num_batched_tokens"] = ConfigValue(budget, f"{path} {name}, as started")
            break
    if "max_num_seqs" not in found and (limit := _running_limit(path, info, loads)) is not None:
        found["max_num_seqs"] = limit
    caps = [_positive(state, "pp_max_micro_batch_size") for state in items(info, "internal_states")]
    if caps and (cap := caps[0]) is not None:
        found["pp_max_micro_batch_size"] = ConfigValue(cap, f"{path} internal_states, when it was asked")
    parser = text(sides.get(MODEL_INFO), "reasoning_parser")
    if parser and "reasoning_parser" not in found:
        found["reasoning_parser"] = ConfigValue(parser, MODEL_INFO)
    length = integer(sides.get(_MODELS), "data", 0, "max_model_len")
    if length is not None and "max_model_len" not in found:
        found["max_model_len"] = ConfigValue(length, _MODELS)
    return found


def _info(sides: Sides) -> tuple[str, Json]:
    path = SERVER_INFO if SERVER_INFO in sides else OLD_SERVER_INFO
    return path, sides.get(path)


def _running_limit(path: str, info: Json, loads: Loads) -> ConfigValue | None:
    """What the server worked out for itself where no limit was set, summed over its ranks."""
    states = items(info, "internal_states")
    limits = [_positive(state, "effective_max_running_requests_per_dp") for state in states]
    known = [limit for limit in limits if limit is not None]
    if known and len(known) == len(limits):
        return ConfigValue(sum(known), f"{path} internal_states")
    if loads.max_running_requests is not None:
        return ConfigValue(loads.max_running_requests, LOADS)
    return None


def _positive(info: Json, name: str) -> int | None:
    value = integer(info, name)
    return value if value is not None and 0 < value < 2**53 else None


def _drafts(tokens: int | None) -> int | None:
    """Drafted tokens of a step: of those that it verifies, one is not drafted."""
    return tokens - 1 if tokens is not None and 1 < tokens < 2**53 else None


def _opposite(value: bool | None) -> bool | None:
    return None if value is None else not value
