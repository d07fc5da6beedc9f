"""Built-in scenarios about one thing each: a knob that is set wrong, or a trouble that no knob mends.

All but the last have one kind of replica, so that replicas can be compared. What each is said to show is
shown by the exact truth in the tests.
"""

from __future__ import annotations

from dataclasses import replace

from enginetop.fleet.model import Role
from enginetop.fleet.snapshot import Slo
from enginetop.simulator.scenario import (
    EngineSettings,
    Lengths,
    Pool,
    ReplicaPlan,
    Scenario,
    StepTime,
    Traffic,
)

_REPLICAS = 4

QWEN_ENGINE = EngineSettings(
    model="Qwen3-32B",
    max_model_len=32768,
    gpus=2,
    kv_blocks=16_800,
    step=StepTime(base_ms=12.0, per_token_us=55.0, per_kv_token_ns=50.0, per_draft_ms=1.2),
)
"""bf16 weights on two H100s."""

_LONG_PROMPTS = ReplicaPlan(
    EngineSettings(
        model="Qwen3-32B",
        max_model_len=32768,
        gpus=8,
        kv_blocks=67_200,
        step=StepTime(base_ms=9.0, per_token_us=16.0, per_kv_token_ns=20.0),
        max_num_batched_tokens=8192,
        max_num_seqs=64,
    ),
    Traffic(
        requests_per_second=3.2,
        prompt_tokens=Lengths(6500, 0.5),
        answer_tokens=Lengths(60, 0.6),
        max_tokens=1024,
    ),
)
"""Long prompts and short answers: a step of 8192 tokens takes 0.14 s, one of 768 tokens 0.022 s."""
_LONG_PROMPTS_SLO = Slo(ttft_seconds=3.0, tpot_seconds=0.025)


def _scenario(name: str, summary: str, plan: ReplicaPlan, slo: Slo) -> Scenario:
    return Scenario(name, summary, (Pool("a", (plan,)),), slo, replicas=_REPLICAS, duration_seconds=900.0)


_SPLIT_TRAFFIC = Traffic(
    requests_per_second=3.0, prompt_tokens=Lengths(3000, 0.6), answer_tokens=Lengths(200, 0.6)
)

CASES: tuple[Scenario, ...] = (
    _scenario(
        "budget-too-large",
        "full steps of 8192 tokens break the TPOT SLO while TTFT has slack; 768 tokens meet both",
        _LONG_PROMPTS,
        _LONG_PROMPTS_SLO,
    ),
    _scenario(
        "already-optimal",
        "the load of budget-too-large with the best budget: a smaller one costs TTFT, a larger one TPOT",
        _LONG_PROMPTS.with_engine(max_num_batched_tokens=768),
        _LONG_PROMPTS_SLO,
    ),
    _scenario(
        "prefill-bound",
        "prompts queue for a budget of 512 tokens while TPOT has slack; 2048 tokens meet both SLOs",
        ReplicaPlan(
            QWEN_ENGINE,
            Traffic(
                requests_per_second=2.9,
                prompt_tokens=Lengths(3500, 0.6),
                answer_tokens=Lengths(40, 0.5),
                max_tokens=1024,
            ),
        ).with_engine(max_num_batched_tokens=512, max_num_seqs=128),
        Slo(ttft_seconds=3.0, tpot_seconds=0.2),
    ),
    _scenario(
        "speculation-pays",
        "small batches and good drafts: the TPOT SLO is met with four drafted tokens, never without",
        ReplicaPlan(
            QWEN_ENGINE,
            Traffic(
                requests_per_second=1.0, prompt_tokens=Lengths(900, 0.8), answer_tokens=Lengths(300, 0.7)
            ),
        ).with_engine(num_speculative_tokens=4, acceptance=(0.85, 0.72, 0.6, 0.5)),
        Slo(ttft_seconds=1.0, tpot_seconds=0.007),
    ),
    _scenario(
        "speculation-hurts",
        "large batches and poor drafts: four drafted tokens break the TPOT SLO, none to two meet it",
        ReplicaPlan(
            QWEN_ENGINE,
            Traffic(
                requests_per_second=6.0, prompt_tokens=Lengths(300, 0.8), answer_tokens=Lengths(350, 0.6)
            ),
        ).with_engine(
            num_speculative_tokens=4,
            acceptance=(0.4, 0.16, 0.06, 0.02),
            step=StepTime(base_ms=12.0, per_token_us=55.0, per_kv_token_ns=50.0, per_draft_ms=2.0),
        ),
        Slo(ttft_seconds=1.0, tpot_seconds=0.025),
    ),
    _scenario(
        "reasoning-overrun",
        "a few endless thoughts fill the KV cache; a budget that cuts one in twenty frees it",
        ReplicaPlan(
            QWEN_ENGINE,
            Traffic(
                requests_per_second=0.9,
                prompt_tokens=Lengths(600, 0.7),
                answer_tokens=Lengths(200, 0.5),
                reasoning_tokens=Lengths(700, 1.3),
                max_tokens=16384,
            ),
        ).with_engine(kv_blocks=4_200),
        Slo(ttft_seconds=2.0, tpot_seconds=0.035),
    ),
    _scenario(
        "long-context-intruder",
        "two prompts in a hundred have 80 000 tokens, and everybody else waits behind them",
        ReplicaPlan(
            QWEN_ENGINE,
            Traffic(
                requests_per_second=2.0,
                prompt_tokens=Lengths(600, 0.7),
                answer_tokens=Lengths(60, 0.6),
                long_ratio=0.02,
                long_prompt_tokens=Lengths(80_000, 0.2),
            ),
        ).with_engine(max_model_len=131_072, max_num_batched_tokens=8192, max_num_seqs=64),
        Slo(ttft_seconds=1.5, tpot_seconds=0.05),
    ),
    _scenario(
        "hot-rank",
        "four data-parallel ranks, and the first gets half of all requests: it breaks the SLO alone",
        ReplicaPlan(
            replace(QWEN_ENGINE, ranks=4, gpus=8),
            Traffic(
                requests_per_second=10.0,
                prompt_tokens=Lengths(900, 0.8),
                answer_tokens=Lengths(250, 0.7),
                rank_weights=(3.0, 1.0, 1.0, 1.0),
            ),
        ),
        Slo(ttft_seconds=1.0, tpot_seconds=0.03),
    ),
    _scenario(
        "out-of-capacity",
        "twice the load that a replica can take: queues grow, both SLOs break, no knob helps",
        ReplicaPlan(
            QWEN_ENGINE,
            Traffic(
                requests_per_second=4.0, prompt_tokens=Lengths(3500, 0.6), answer_tokens=Lengths(300, 0.6)
            ),
        ).with_engine(max_num_seqs=128),
        Slo(ttft_seconds=2.0, tpot_seconds=0.05),
    ),
    Scenario(
        "prefill-decode",
        "prefill replicas hand over to as many decode replicas: no answer waits for a prompt",
        (
            Pool("prefill", (ReplicaPlan(replace(QWEN_ENGINE, role=Role.PREFILL), _SPLIT_TRAFFIC),)),
            Pool("decode", (ReplicaPlan(replace(QWEN_ENGINE, role=Role.DECODE), _SPLIT_TRAFFIC),)),
        ),
        Slo(ttft_seconds=3.0, tpot_seconds=0.02),
        replicas=_REPLICAS,
    ),
)
