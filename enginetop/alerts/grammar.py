"""The closed grammar of user rules: `SIGNAL OP NUMBER`, joined by `and` and `or`; never run as code.

expression = all_of ("or" all_of)*          `and` binds tighter than `or`
all_of     = comparison ("and" comparison)*
comparison = SIGNAL OP NUMBER
SIGNAL     = a name of either catalogue, the core's or the one beyond it; of a distribution with
             .p50 .p90 .p95 .p99 .mean or .count; or an engine's own gauge of the same meaning, with the
             engine's prefix in either spelling (vllm:num_requests_waiting, vllm_num_requests_waiting)
OP         = > >= < <= == !=
"""

from __future__ import annotations

import difflib
import math
import re

from enginetop.fleet.beyond_catalogue import BEYOND, Form
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.frozen import frozen
from enginetop.fleet.signals import DISTRIBUTIONS, PERCENTILES, SIGNALS, Shape

OPERATORS: tuple[str, ...] = (">=", "<=", "==", "!=", ">", "<")

PARTS: tuple[str, ...] = (*(name for name, _ in PERCENTILES), "mean", "count")
"""What a distribution can be asked for."""

_DISTRIBUTIONS: tuple[str, ...] = (
    *(signal.name for signal in DISTRIBUTIONS),
    *(row.name for row in BEYOND if row.form is Form.DISTRIBUTION),
)

NAMES: tuple[str, ...] = (
    *(signal.name for signal in SIGNALS.values() if signal.shape is Shape.SCALAR),
    *(row.name for row in BEYOND if row.form is not Form.DISTRIBUTION),
    *(f"{name}.{part}" for name in _DISTRIBUTIONS for part in PARTS),
)
"""Every SIGNAL that a rule may name."""

_MOST_CHARACTERS = 1000
_HOW = "write SIGNAL OP NUMBER, as in kv_usage_ratio > 0.95"
_TOKEN = re.compile(r"\s*(?:(?P<op>[<>=!]=?)|(?P<word>[^\s<>=!]+))")

_ENGINE_GAUGES: dict[str, str] = {
    "num_requests_running": "requests_running",
    "num_running_reqs": "requests_running",
    "num_requests_waiting": "requests_waiting",
    "num_queue_reqs": "requests_waiting",
    "kv_cache_usage_perc": "kv_usage_ratio",
    "gpu_cache_usage_perc": "kv_usage_ratio",
    "token_usage": "kv_usage_ratio",
}
"""Series of engines, without the engine's prefix, that say what a signal says, in the same unit."""

_ENGINE_NAMES: dict[str, str] = {
    **_ENGINE_GAUGES,
    "num_preemptions_total": "preemptions_per_second",
    "num_preemptions": "preemptions_per_second",
    "time_to_first_token_seconds": "ttft_seconds.p95",
    "request_time_per_output_token_seconds": "tpot_seconds.p95",
    "time_per_output_token_seconds": "tpot_seconds.p95",
    "inter_token_latency_seconds": "itl_seconds.p95",
    "e2e_request_latency_seconds": "e2e_seconds.p95",
    "cache_hit_rate": "prefix_hit_ratio",
}
"""What people know an engine's series by, without the engine's prefix, and the signal that it became."""

_ENGINE_PREFIX = re.compile(r"^(?:ray_)?(?:vllm|sglang|llamacpp|trtllm|tgi|lmdeploy)[:_]")


@frozen
class Comparison:
    """One `SIGNAL OP NUMBER`. `part` is empty for a scalar."""

    signal: str
    part: str
    operator: str
    number: float

    @property
    def name(self) -> str:
        """The signal as it was written."""
        return f"{self.signal}.{self.part}" if self.part else self.signal


@frozen
class Expression:
    """True where all comparisons of at least one inner tuple are. Neither tuple is ever empty."""

    any_of: tuple[tuple[Comparison, ...], ...]

    @property
    def first(self) -> Comparison:
        """The comparison whose value and threshold an alert shows."""
        return self.any_of[0][0]


def parse_expression(text: str) -> Expression:
    """Read an expression. ConfigError in one line: what is wrong with which word, and what would do."""
    words = _words(text)
    if not words:
        raise ConfigError(f"it is empty; {_HOW}")
    any_of: list[tuple[Comparison, ...]] = []
    all_of: list[Comparison] = []
    while True:
        all_of.append(_comparison(words[:3]))
        joiner, words = words[3:4], words[4:]
        if not joiner:
            return Expression((*any_of, tuple(all_of)))
        if joiner[0].lower() not in ("and", "or"):
            raise ConfigError(f"{_shown(joiner[0])} where `and` or `or` should stand")
        if not words:
            raise ConfigError(f"nothing follows the last {_shown(joiner[0])}; {_HOW}")
        if joiner[0].lower() == "or":
            any_of.append(tuple(all_of))
            all_of = []


def _words(text: str) -> list[str]:
    if len(text) > _MOST_CHARACTERS:
        raise ConfigError(f"longer than {_MOST_CHARACTERS} characters; split it into several rules")
    words: list[str] = []
    at = 0
    while found := _TOKEN.match(text, at):
        words.append(found["op"] or found["word"])
        at = found.end()
    return words


def _comparison(words: list[str]) -> Comparison:
    if len(words) < 3:
        raise ConfigError(f"{_shown(' '.join(words))} is no comparison; {_HOW}")
    name, operator, number = words
    signal, part = _signal(name)
    if operator not in OPERATORS:
        raise ConfigError(f"{_shown(operator)} is no operator; use one of {' '.join(OPERATORS)}")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or "_" in number:
        raise ConfigError(f"{_shown(number)} is no number; {_HOW}")
    return Comparison(signal, part, operator, value)


def _signal(name: str) -> tuple[str, str]:
    bare = _ENGINE_PREFIX.sub("", name)
    if bare != name and bare in _ENGINE_GAUGES:
        return _ENGINE_GAUGES[bare], ""
    if name in NAMES:
        signal, _, part = name.partition(".")
        return signal, part
    base, dot, part = name.partition(".")
    if base in _DISTRIBUTIONS:
        said = f"{part!r} is no part of {base}" if dot else f"{base} is a distribution"
        raise ConfigError(f"{_clean(said)}; name one of {' '.join(f'{base}.{one}' for one in PARTS)}")
    if base in SIGNALS and SIGNALS[base].shape is Shape.LIST and not dot:
        raise ConfigError(f"{base} is a list, which a rule cannot compare")
    near = _nearest(name)
    hint = f"did you mean {near!r}?" if near else "see the signal names in the documentation of snapshots"
    raise ConfigError(f"unknown signal {_shown(name)}; {hint}")


def _nearest(name: str) -> str:
    bare = _ENGINE_PREFIX.sub("", name)
    if bare in _ENGINE_NAMES:
        return _ENGINE_NAMES[bare]
    near = difflib.get_close_matches(bare, NAMES, n=1, cutoff=0.5)
    return near[0] if near else ""


def _shown(text: str) -> str:
    return repr(_clean(text))


def _clean(text: str) -> str:
    printable = "".join(c if c.isprintable() else "?" for c in text)
    return printable if len(printable) <= 60 else printable[:59] + "…"
