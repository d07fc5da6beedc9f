"""Scenario files: the contract's example, every key, and one line for everything that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from enginetop.fleet.errors import ConfigError
from enginetop.fleet.model import EngineKind, Role
from enginetop.fleet.snapshot import Slo
from enginetop.simulator.builtin import SCENARIOS
from enginetop.simulator.faults import Fault, FaultKind
from enginetop.simulator.scenario import Arrival, Lengths, StepTime
from enginetop.simulator.scenario_file import find_scenario, parse_scenario
from enginetop.simulator.stepped import SteppedWorld

ENGINE = """
kind = "vllm"
replicas = 4
ranks = 1
role = "aggregated"
max_num_batched_tokens = 8192
max_num_seqs = 256
num_speculative_tokens = 0
thinking_token_budget = -1
kv_blocks = 12000
block_size = 16
restart_seconds = 60
step = { base_ms = 12.0, per_token_us = 6.0, per_kv_token_ns = 4.0, per_draft_ms = 1.0 }
acceptance = [0.8, 0.6, 0.4, 0.3]
"""
REST = """
[traffic]
arrival = "poisson"
requests_per_second = 6.0
prompt_tokens = { median = 900, sigma = 1.0 }
answer_tokens = { median = 250, sigma = 0.9 }
reasoning_tokens = { median = 0, sigma = 0.0 }
shared_prefix_tokens = 0
shared_prefix_ratio = 0.0
[slo]
ttft_seconds = 0.6
tpot_seconds = 0.05
target = 0.95
[[faults]]
at_seconds = 120
replica = 1
kind = "down"
for_seconds = 30
"""
EXAMPLE = f'name = "my-case"\nduration_seconds = 300\n[engine]{ENGINE}{REST}'
"""The example of the contract."""


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_scenario(text, "my.toml")
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("my.toml: ")
    return message.removeprefix("my.toml: ")


def test_the_example_of_the_contract() -> None:
    scenario = parse_scenario(EXAMPLE, "my.toml")
    assert (scenario.name, scenario.duration_seconds, scenario.replicas) == ("my-case", 300.0, 4)
    assert scenario.slo == Slo(0.6, 0.05, 0.95, source="config")
    plans = scenario.plans(scenario.replicas)
    assert [name for name, _ in plans] == ["r1", "r2", "r3", "r4"]
    engine, traffic = plans[0][1].engine, plans[0][1].traffic
    assert engine.step == StepTime(12.0, 6.0, 4.0, 1.0)
    assert engine.acceptance == (0.8, 0.6, 0.4, 0.3)
    assert (engine.kind, engine.role, engine.ranks) == (EngineKind.VLLM, Role.AGGREGATED, 1)
    assert (engine.max_num_batched_tokens, engine.max_num_seqs, engine.kv_blocks) == (8192, 256, 12000)
    assert traffic.prompt_tokens == Lengths(900, 1.0)
    assert (traffic.requests_per_second, traffic.arrival) == (6.0, Arrival.POISSON)
    assert [plan.faults for _, plan in plans] == [(Fault(FaultKind.DOWN, 120.0, 30.0),), (), (), ()]


def test_the_example_runs_and_its_fault_happens() -> None:
    world = SteppedWorld(parse_scenario(EXAMPLE, "my.toml"), warm_up_seconds=0.0)
    world.advance(119.0)
    assert all(world.replica(f"r{number}").engines for number in range(1, 5))
    world.advance(2.0)
    assert [bool(world.replica(f"r{number}").engines) for number in range(1, 5)] == [False, True, True, True]
    world.advance(30.0)
    assert world.replica("r1").lives == 2


POOLS = f"""
name = "split"
transfer_seconds = 0.1
[[pools]]
name = "pre"
{ENGINE.replace('"aggregated"', '"prefill"').replace("replicas = 4", "replicas = 1")}
[[pools]]
name = "dec"
{ENGINE.replace('"aggregated"', '"decode"').replace("replicas = 4", "replicas = 3")}
""" + REST.replace("replica = 1", "replica = 2")


def test_pools_replace_the_engine() -> None:
    scenario = parse_scenario(POOLS, "my.toml")
    assert (scenario.replicas, scenario.transfer_seconds) == (4, 0.1)
    plans = scenario.plans(4)
    assert [name for name, _ in plans] == ["pre1", "dec1", "dec2", "dec3"]
    assert [plan.engine.role for _, plan in plans] == [Role.PREFILL, *[Role.DECODE] * 3]
    assert plans[1][1].faults


def test_only_what_is_needed_has_to_be_named() -> None:
    scenario = parse_scenario(
        'name = "least"\n[engine]\nstep = { base_ms = 10, per_token_us = 5 }\n[traffic]\n'
        "requests_per_second = 1\nprompt_tokens = { median = 100 }\nanswer_tokens = { median = 20 }\n",
        "my.toml",
    )
    ((name, plan),) = scenario.plans(scenario.replicas)
    assert name == "r1"
    assert plan.engine.max_model_len == 32768
    assert plan.engine.kv_capacity_tokens == 12000 * 16


def test_every_other_key_of_the_traffic_and_the_engine() -> None:
    text = EXAMPLE.replace(
        'arrival = "poisson"',
        'arrival = "bursty"\nburst_ratio = 5.0\nburst_seconds = 9\nwave_ratio = 0.1\n'
        "wave_period_seconds = 50\n"
        "shared_prefixes = 3\nlong_ratio = 0.01\nlong_prompt_tokens = { median = 9000 }\nmax_tokens = 700\n"
        "abort_ratio = 0.02\nrank_weights = [1, 2]",
    ).replace("ranks = 1", 'ranks = 2\ngpus = 4\nmodel = "M"\nmax_model_len = 20000')
    ((_, plan), *_) = parse_scenario(text, "my.toml").plans(4)
    assert plan.traffic.arrival is Arrival.BURSTY
    assert (plan.traffic.burst_ratio, plan.traffic.burst_seconds) == (5.0, 9.0)
    assert (plan.traffic.wave_ratio, plan.traffic.wave_period_seconds) == (0.1, 50.0)
    assert (plan.traffic.shared_prefixes, plan.traffic.max_tokens) == (3, 700)
    assert (plan.traffic.long_ratio, plan.traffic.long_prompt_tokens) == (0.01, Lengths(9000, 0.0))
    assert (plan.traffic.abort_ratio, plan.traffic.rank_weights) == (0.02, (1.0, 2.0))
    assert (plan.engine.model, plan.engine.gpus, plan.engine.max_model_len) == ("M", 4, 20000)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("max_num_seqs", "max_num_seq", "engine.max_num_seq is an unknown key; did you mean 'max_num_seqs'?"),
        ("base_ms", "base_mss", "engine.step.base_mss is an unknown key; did you mean 'base_ms'?"),
        ("arrival =", "arival =", "traffic.arival is an unknown key; did you mean 'arrival'?"),
        (
            "for_seconds",
            "four_seconds",
            "faults.0.four_seconds is an unknown key; did you mean 'for_seconds'?",
        ),
        ("[slo]", "[zzz]", "zzz is an unknown key; known keys: name, summary"),
        ('"poisson"', '"steady"', "traffic.arrival: input should be 'poisson', 'bursty' or 'diurnal'"),
        ('"down"', '"gone"', "faults.0.kind: input should be 'down', 'hang'"),
        ("base_ms = 12.0", "base_ms = 0.0", "engine.step.base_ms: input should be greater than 0"),
        ("requests_per_second = 6.0", "requests_per_second = nan", "traffic.requests_per_second: input"),
        ("requests_per_second = 6.0", "", "traffic.requests_per_second: field required"),
        ("replicas = 4", "replicas = 0", "engine.replicas: input should be greater than or equal to 1"),
        ("replica = 1\n", "replica = 9\n", "a fault names replica 9, and there are 4"),
        ("num_speculative_tokens = 0", "num_speculative_tokens = 5", "acceptance has 4 numbers for"),
        ("[0.8, 0.6, 0.4, 0.3]", "[0.8, 0.9]", "never rise"),
        ("max_num_batched_tokens = 8192", "max_num_batched_tokens = 255", "below max_num_seqs"),
        (
            "kv_blocks = 12000",
            "kv_blocks = 1",
            "a prompt of 900 tokens (the median), shared_prefix_tokens and max_tokens = 7 do not fit",
        ),
        ("[engine]", "[engine", "not valid TOML"),
        ("for_seconds = 30", "for_seconds = 0", "needs for_seconds above 0"),
        ('role = "aggregated"', 'role = "prefill"', "prefill and decode pools need each other"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(old: str, new: str, message: str) -> None:
    assert old in EXAMPLE
    assert message in refusal(EXAMPLE.replace(old, new))


def test_engine_and_pools_exclude_each_other() -> None:
    assert "either [engine] or [[pools]]" in refusal(POOLS + f"[engine]{ENGINE}")
    assert "either [engine] or [[pools]]" in refusal('name = "x"' + REST)
    assert "two have the same name" in refusal(POOLS.replace('"dec"', '"pre"'))


def test_a_name_or_a_file(tmp_path: Path) -> None:
    assert find_scenario("steady") is SCENARIOS["steady"]
    file = tmp_path / "case.toml"
    file.write_text(EXAMPLE, encoding="utf-8")
    assert find_scenario(str(file)).name == "my-case"
    with pytest.raises(ConfigError, match="no scenario 'stedy'"):
        find_scenario("stedy")
    with pytest.raises(ConfigError, match="no scenario 'n"):
        find_scenario("n" * 256)
    with pytest.raises(ConfigError, match=r"gone\.toml: cannot be read: No such file"):
        find_scenario(str(tmp_path / "gone.toml"))
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        find_scenario(str(_folder(tmp_path / "folder.toml")))
    (tmp_path / "bad.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(ConfigError, match="not UTF-8"):
        find_scenario(str(tmp_path / "bad.toml"))


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def test_every_name_of_the_contract_is_built_in() -> None:
    names = (
        "steady prefill-bound budget-too-large kv-pressure speculation-pays speculation-hurts "
        "reasoning-overrun long-context-intruder hot-rank burst already-optimal out-of-capacity flapping demo"
    )
    assert set(names.split()) <= set(SCENARIOS)
    assert SCENARIOS["demo"].replicas == 12
