"""How engines are named, and why a value of one is not there."""

from __future__ import annotations

from enginetop.fleet.model import EngineKind, Quality
from enginetop.fleet.snapshot import Distribution, ReplicaSnapshot, Scalar

ENGINE_NAMES = {
    EngineKind.VLLM: "vLLM",
    EngineKind.SGLANG: "SGLang",
    EngineKind.TRTLLM: "TensorRT-LLM",
    EngineKind.TRITON: "Triton",
    EngineKind.DYNAMO: "Dynamo",
    EngineKind.LLAMACPP: "llama.cpp",
    EngineKind.TGI: "TGI",
    EngineKind.LMDEPLOY: "LMDeploy",
    EngineKind.ROUTER: "router",
    EngineKind.UNKNOWN: "unknown",
}


def absence(value: Scalar | Distribution | None, engine: EngineKind) -> str:
    """Why a value is not there, in words; empty when it is."""
    if value is None:
        return "not known"
    if value.quality is Quality.UNSUPPORTED:
        return value.note or f"not exported by {ENGINE_NAMES[engine]}"
    if isinstance(value, Scalar) and value.value is None:
        return value.note or ("not known yet" if value.quality is Quality.UNKNOWN else str(value.quality))
    if isinstance(value, Distribution) and value.count is None:
        return value.note or "not known yet"
    return ""


def engine_name(replica: ReplicaSnapshot) -> str:
    """Engine or gateway by name: `vLLM`, `llm-d endpoint picker`."""
    return replica.product or ENGINE_NAMES[replica.engine]


def engine_text(replica: ReplicaSnapshot) -> str:
    """Engine or gateway with its version and stack: `vLLM 0.32.0`, `SGLang 0.5.23 (dynamo)`."""
    version = f" {replica.engine_version}" if replica.engine_version else ""
    stack = f" ({replica.stack})" if replica.stack else ""
    return f"{engine_name(replica)}{version}{stack}"
