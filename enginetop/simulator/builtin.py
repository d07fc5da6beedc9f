"""The built-in scenarios.

Step times and cache sizes are what bf16 weights and the KV bytes of a token give on H100s: Qwen3-32B on two,
Llama-3.3-70B on four. Rates are chosen so that a healthy replica runs 20 to 60 requests at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from enginetop.fleet.errors import ConfigError
from enginetop.simulator.cases import CASES, QWEN_ENGINE
from enginetop.simulator.faults import outage
from enginetop.simulator.scenario import (
    Arrival,
    EngineSettings,
    Lengths,
    Pool,
    ReplicaPlan,
    Scenario,
    StepTime,
    Traffic,
)

_QWEN = ReplicaPlan(
    QWEN_ENGINE,
    Traffic(
        requests_per_second=2.3,
        prompt_tokens=Lengths(900, 0.9),
        answer_tokens=Lengths(250, 0.8),
        reasoning_tokens=Lengths(380, 0.7),
        shared_prefix_tokens=640,
        shared_prefix_ratio=0.6,
        max_tokens=4096,
        abort_ratio=0.015,
        arrival=Arrival.DIURNAL,
        wave_ratio=0.25,
        wave_period_seconds=240.0,
    ),
)
_LLAMA = ReplicaPlan(
    EngineSettings(
        model="Llama-3.3-70B",
        max_model_len=32768,
        gpus=4,
        kv_blocks=25_600,
        step=StepTime(base_ms=17.0, per_token_us=68.0, per_kv_token_ns=35.0, per_draft_ms=1.8),
    ),
    Traffic(
        requests_per_second=1.9,
        prompt_tokens=Lengths(1100, 0.9),
        answer_tokens=Lengths(320, 0.8),
        shared_prefix_tokens=1024,
        shared_prefix_ratio=0.45,
        max_tokens=2048,
        abort_ratio=0.01,
        arrival=Arrival.DIURNAL,
        wave_ratio=0.3,
        wave_period_seconds=180.0,
    ),
)

_QWEN_SPECULATING = _QWEN.with_engine(
    num_speculative_tokens=3, acceptance=(0.76, 0.57, 0.41), max_num_batched_tokens=4096
)
_LLAMA_SPECULATING = _LLAMA.with_engine(
    num_speculative_tokens=3, acceptance=(0.71, 0.49, 0.33), max_num_batched_tokens=4096
)
_QWEN_SHORT_OF_KV = _QWEN.with_engine(kv_blocks=3_800).with_traffic(requests_per_second=1.7)
_LLAMA_THROTTLED = _LLAMA.with_engine(step=_LLAMA.engine.step.slowed(3.6), gpu_throttled=True).with_traffic(
    requests_per_second=0.9
)
_LLAMA_CRASHING = _LLAMA.with_faults(outage(at_seconds=60.0, every_seconds=300.0, for_seconds=45.0))

DEFAULT_SCENARIO = "demo"

_ALL = (
    Scenario(
        DEFAULT_SCENARIO,
        "two models; one replica short of KV, one throttled, three speculating, one that crashes every 5 min",
        (
            Pool("a", (_QWEN, _QWEN, _QWEN_SHORT_OF_KV, _QWEN, _QWEN_SPECULATING, _QWEN)),
            Pool(
                "b",
                (_LLAMA_SPECULATING, _LLAMA_SPECULATING, _LLAMA, _LLAMA_THROTTLED, _LLAMA, _LLAMA_CRASHING),
            ),
        ),
    ),
    Scenario("steady", "two models, every replica healthy", (Pool("a", (_QWEN,)), Pool("b", (_LLAMA,)))),
    Scenario(
        "kv-pressure",
        "every replica has too few KV blocks for its traffic: preemptions and queues",
        (Pool("a", (_QWEN_SHORT_OF_KV,)),),
    ),
    Scenario(
        "burst",
        "half of all requests come in bursts of about 20 s: queues build up and drain",
        (Pool("a", (_QWEN.with_traffic(requests_per_second=3.0, arrival=Arrival.BURSTY),)),),
    ),
    Scenario(
        "flapping",
        "every third replica dies for 20 s each minute and comes back with empty counters",
        (
            Pool(
                "a",
                (
                    _QWEN,
                    _QWEN,
                    _QWEN.with_faults(outage(at_seconds=20.0, every_seconds=60.0, for_seconds=20.0)),
                ),
            ),
        ),
    ),
    *CASES,
)

SCENARIOS: Mapping[str, Scenario] = MappingProxyType({scenario.name: scenario for scenario in _ALL})
"""Every built-in scenario by name, in the order in which they are listed."""


def scenario_named(name: str) -> Scenario:
    """The built-in scenario `name`.

    Raises:
        ConfigError: there is none of that name.
    """
    try:
        return SCENARIOS[name]
    except KeyError:
        raise ConfigError(f"no scenario {name!r}; there are: {', '.join(SCENARIOS)}") from None
