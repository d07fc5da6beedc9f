"""Scenario files: TOML in, a scenario out, or one line that names the key and the fix."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

from enginetop.fleet.errors import ConfigError
from enginetop.fleet.model import EngineKind, Role
from enginetop.fleet.snapshot import Slo
from enginetop.fleet.strict_tables import read_table
from enginetop.fleet.toml_text import parse_toml
from enginetop.simulator.builtin import SCENARIOS, scenario_named
from enginetop.simulator.faults import Fault
from enginetop.simulator.scenario import (
    EngineSettings,
    Lengths,
    Pool,
    ReplicaPlan,
    Scenario,
    StepTime,
    Traffic,
)
from enginetop.simulator.scenario_schema import EngineTable, FaultTable, ScenarioTable, TrafficTable

_LONGEST_MODEL_LEN = 32_768


def find_scenario(name_or_file: str) -> Scenario:
    """The built-in scenario of that name, else the one in that file.

    Raises:
        ConfigError: there is neither, or the file cannot be used.
    """
    if name_or_file in SCENARIOS:
        return SCENARIOS[name_or_file]
    path = Path(name_or_file)
    if path.suffix != ".toml" and not os.access(path, os.F_OK):
        return scenario_named(name_or_file)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    return parse_scenario(text, str(path))


def parse_scenario(text: str, origin: str) -> Scenario:
    """Read a scenario file's text.

    Raises ConfigError with one line: `FILE: KEY: what is wrong and how to mend it`.
    """
    data = parse_toml(text, origin)
    table = read_table(ScenarioTable, data, origin)
    try:
        return _scenario(table)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from error


def _scenario(table: ScenarioTable) -> Scenario:
    if (table.engine is None) is (not table.pools):
        raise ConfigError("give either [engine] or [[pools]]")
    named: list[tuple[str, EngineTable]] = [(pool.name, pool) for pool in table.pools]
    if table.engine is not None:
        named = [("r", table.engine)]
    if len({name for name, _ in named}) < len(named):
        raise ConfigError("pools: two have the same name; rename one")
    replicas = sum(engine.replicas for _, engine in named)
    scenario = Scenario(
        name=table.name,
        summary=table.summary,
        pools=tuple(
            Pool(name, (ReplicaPlan(_engine(engine), _traffic(table.traffic, engine)),), engine.replicas)
            for name, engine in named
        ),
        slo=Slo(table.slo.ttft_seconds, table.slo.tpot_seconds, table.slo.target, source="config"),
        replicas=replicas,
        duration_seconds=table.duration_seconds,
        transfer_seconds=table.transfer_seconds,
        faults=tuple((fault.replica, _fault(fault)) for fault in table.faults),
    )
    scenario.plans(replicas)
    return scenario


def _engine(table: EngineTable) -> EngineSettings:
    return EngineSettings(
        model=table.model,
        max_model_len=_model_len(table),
        gpus=table.gpus or table.ranks,
        kv_blocks=table.kv_blocks,
        step=StepTime(**asdict(table.step)),
        max_num_batched_tokens=table.max_num_batched_tokens,
        max_num_seqs=table.max_num_seqs,
        num_speculative_tokens=table.num_speculative_tokens,
        acceptance=table.acceptance,
        block_size=table.block_size,
        thinking_token_budget=table.thinking_token_budget,
        restart_seconds=table.restart_seconds,
        kind=EngineKind(table.kind),
        role=Role(table.role),
        ranks=table.ranks,
    )


def _model_len(table: EngineTable) -> int:
    """As named, else what the cache holds, up to 32 768."""
    room = table.kv_blocks * table.block_size - 1 - table.num_speculative_tokens
    return table.max_model_len or max(1, min(_LONGEST_MODEL_LEN, room))


def _traffic(table: TrafficTable, engine: EngineTable) -> Traffic:
    fields = asdict(table)
    longest = _model_len(engine)
    output = table.max_tokens or min(8192, longest // 2)
    prompt = max(1.0, table.prompt_tokens.median, table.long_prompt_tokens.median)
    if prompt + table.shared_prefix_tokens + output > longest:
        raise ConfigError(
            f"traffic: a prompt of {prompt:g} tokens (the median), shared_prefix_tokens and max_tokens = "
            f"{output} do not fit in max_model_len = {longest}; lower them, or raise max_model_len, kv_blocks"
        )
    lengths = ("prompt_tokens", "answer_tokens", "reasoning_tokens", "long_prompt_tokens")
    fields |= {name: Lengths(**fields[name]) for name in lengths}
    return Traffic(**(fields | {"max_tokens": output}))


def _fault(table: FaultTable) -> Fault:
    fields = asdict(table)
    del fields["replica"]
    return Fault(**fields)
