"""The tables and keys of a scenario file, strict: what is not listed here is refused."""

from __future__ import annotations

from typing import Annotated, Literal

from enginetop.fleet.frozen import frozen
from enginetop.fleet.strict_tables import Float, Int, Within
from enginetop.simulator.faults import FaultKind
from enginetop.simulator.scenario import Arrival

_Count = Annotated[Int, Within(ge=1, le=10_000_000)]
_Tokens = Annotated[Int, Within(ge=0, le=10_000_000)]
_Positive = Annotated[Float, Within(gt=0, allow_inf_nan=False)]
_NotNegative = Annotated[Float, Within(ge=0, allow_inf_nan=False)]
_Ratio = Annotated[Float, Within(ge=0, le=1)]


@frozen(kw_only=True)
class StepTable:
    """`step`: the time of one engine step."""

    base_ms: _Positive
    per_token_us: _NotNegative
    per_kv_token_ns: _NotNegative = 0.0
    per_draft_ms: _NotNegative = 0.0


@frozen(kw_only=True)
class LengthsTable:
    """A log-normal length; a median of 0 means none."""

    median: _NotNegative
    sigma: Annotated[Float, Within(ge=0, le=5)] = 0.0


@frozen(kw_only=True)
class EngineTable:
    """`[engine]`: one kind of replica, and how many of it."""

    kind: Literal["vllm", "sglang"] = "vllm"
    model: Annotated[str, Within(min_length=1, max_length=200)] = "simulated-model"
    replicas: Annotated[Int, Within(ge=1, le=1000)] = 1
    ranks: Annotated[Int, Within(ge=1, le=64)] = 1
    gpus: Annotated[Int, Within(ge=1, le=512)] | None = None
    role: Literal["aggregated", "prefill", "decode"] = "aggregated"
    max_num_batched_tokens: _Count = 8192
    max_num_seqs: _Count = 256
    num_speculative_tokens: Annotated[Int, Within(ge=0, le=64)] = 0
    thinking_token_budget: Annotated[Int, Within(ge=-1)] = -1
    max_model_len: _Count | None = None
    kv_blocks: _Count = 12_000
    block_size: Annotated[Int, Within(ge=1, le=1024)] = 16
    restart_seconds: _Positive = 60.0
    step: StepTable
    acceptance: tuple[_Ratio, ...] = ()


@frozen(kw_only=True)
class PoolTable(EngineTable):
    """One `[[pools]]` entry: an engine and a name."""

    name: Annotated[str, Within(min_length=1, max_length=40, pattern=r"^[A-Za-z0-9._-]+$")]


@frozen(kw_only=True)
class TrafficTable:
    """`[traffic]`: what one replica is asked for."""

    arrival: Arrival = Arrival.POISSON
    requests_per_second: _Positive
    prompt_tokens: LengthsTable
    answer_tokens: LengthsTable
    reasoning_tokens: LengthsTable = LengthsTable(median=0.0)
    shared_prefix_tokens: _Tokens = 0
    shared_prefix_ratio: _Ratio = 0.0
    shared_prefixes: _Count = 1
    long_ratio: _Ratio = 0.0
    long_prompt_tokens: LengthsTable = LengthsTable(median=0.0)
    max_tokens: Annotated[Int, Within(ge=2)] | None = None
    abort_ratio: _Ratio = 0.0
    burst_ratio: Annotated[Float, Within(gt=1, le=1000)] = 3.0
    burst_seconds: _Positive = 20.0
    wave_ratio: _Ratio = 0.5
    wave_period_seconds: _Positive = 600.0
    rank_weights: tuple[_Positive, ...] = ()


@frozen(kw_only=True)
class SloTable:
    """`[slo]`."""

    ttft_seconds: _Positive = 1.0
    tpot_seconds: _Positive = 0.1
    target: Annotated[Float, Within(gt=0, lt=1)] = 0.95


@frozen(kw_only=True)
class FaultTable:
    """One `[[faults]]` entry; `replica` is a number in the fleet, from 1 on."""

    at_seconds: _NotNegative
    replica: Annotated[Int, Within(ge=1)] = 1
    kind: FaultKind
    for_seconds: _NotNegative = 0.0
    every_seconds: _Positive | None = None
    factor: _Positive = 3.0
    ratio: _Ratio = 0.2


@frozen(kw_only=True)
class ScenarioTable:
    """The whole file. Either `engine` or `pools` is there."""

    name: Annotated[str, Within(min_length=1, max_length=80)]
    summary: Annotated[str, Within(max_length=200)] = ""
    duration_seconds: _Positive = 300.0
    transfer_seconds: _NotNegative = 0.02
    engine: EngineTable | None = None
    pools: tuple[PoolTable, ...] = ()
    traffic: TrafficTable
    slo: SloTable = SloTable()
    faults: tuple[FaultTable, ...] = ()
