"""What can be changed of an engine, and how: for each knob, whether it needs a restart.

From the engines' own documentation and sources. A companion beside an engine makes more of it live; that is
told by its knob sheet, not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import EngineKind
from enginetop.fleet.signals import KNOBS


@frozen
class Change:
    """`apply` is one of the words of advice (`live`, `restart`, `per_request`, `none`), `how` the engine's
    own flag, field or route.
    """

    apply: str
    how: str


def _knobs(budget: Change, drafts: Change, thinking: Change, sequences: Change) -> Mapping[str, Change]:
    return MappingProxyType(dict(zip(KNOBS, (budget, drafts, thinking, sequences), strict=True)))


def _restart(how: str) -> Change:
    return Change("restart", how)


_NO_BUDGET = Change("none", "no thinking budget")

CHANGEABLE: Mapping[EngineKind, Mapping[str, Change]] = MappingProxyType(
    {
        EngineKind.VLLM: _knobs(
            _restart("--max-num-batched-tokens"),
            _restart("--speculative-config"),
            Change("per_request", "thinking_token_budget (0.19), with --reasoning-parser"),
            _restart("--max-num-seqs"),
        ),
        EngineKind.SGLANG: _knobs(
            _restart("--chunked-prefill-size, --max-prefill-tokens"),
            _restart("--speculative-num-draft-tokens"),
            Change("per_request", "custom_params.thinking_budget, with --enable-strict-thinking (0.5.15)"),
            Change("live", "its /set_internal_state: pp_max_micro_batch_size (engine_api, sglang_cap)"),
        ),
        EngineKind.TRTLLM: _knobs(
            _restart("max_num_tokens"),
            _restart("speculative_config.max_draft_len"),
            Change("per_request", "thinking_token_budget (1.3)"),
            _restart("max_batch_size"),
        ),
        EngineKind.TRITON: _knobs(
            _restart("max_num_tokens of the engine build"),
            _restart("decoding_mode, by loading the model anew"),
            _NO_BUDGET,
            _restart("max_batch_size, by loading the model anew"),
        ),
        EngineKind.LLAMACPP: _knobs(
            _restart("--batch-size, --ubatch-size"),
            _restart("--spec-draft-n-max"),
            Change("per_request", "thinking_budget_tokens"),
            _restart("--parallel"),
        ),
        EngineKind.TGI: _knobs(
            _restart("--max-batch-prefill-tokens"),
            _restart("--speculate"),
            _NO_BUDGET,
            _restart("--max-concurrent-requests, --max-batch-size"),
        ),
        EngineKind.LMDEPLOY: _knobs(
            _restart("--max-prefill-token-num"),
            _restart("--speculative-num-draft-tokens"),
            _NO_BUDGET,
            _restart("--max-batch-size"),
        ),
        EngineKind.DYNAMO: _knobs(
            Change("none", "a setting of the engines behind it"),
            Change("none", "a setting of the engines behind it"),
            Change("per_request", "thinking_token_budget"),
            Change("none", "a setting of the engines behind it"),
        ),
    }
)
"""By engine and knob. Routers have no knobs of these."""
