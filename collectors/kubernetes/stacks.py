"""Which labels say that a pod serves, and as what: one row a kind of pod of each stack.

Sources: the operators' own code and charts (OME, vllm-stack 0.1.12, production-stack operator, Dynamo
v1alpha1 and v1beta1, llm-d guides, KServe LLMInferenceService v1alpha2, Gateway API inference extension).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import EngineKind, Role


class Stack(StrEnum):
    """Who made a pod."""

    OME = "ome"
    PRODUCTION_STACK = "production-stack"
    PRODUCTION_STACK_OPERATOR = "production-stack-operator"
    DYNAMO = "dynamo"
    LLM_D = "llm-d"
    KSERVE = "kserve"
    PLAIN = "plain"


@frozen
class Kind:
    """One kind of serving pod.

    `labels` all have to be there (`*`: with any value). `pool` is the label whose value the replicas of a
    pool share. `role_label` picks the role by `roles`; `role` holds where that says nothing. `ports` are
    names of container ports, best first, and `port` is the number where none is named. `engine_label` says
    the engine in words.
    """

    stack: Stack
    labels: Mapping[str, str]
    pool: str
    role: Role = Role.AGGREGATED
    role_label: str = ""
    roles: Mapping[str, Role] = field(default_factory=dict)
    ports: tuple[str, ...] = ()
    port: int | None = None
    engine: EngineKind = EngineKind.UNKNOWN
    engine_label: str = ""
    model_label: str = ""


_DYNAMO_TYPE = "nvidia.com/dynamo-component-type"
_DYNAMO_SUB_TYPE = "nvidia.com/dynamo-sub-component-type"
_DYNAMO_GRAPH = "nvidia.com/dynamo-graph-deployment-name"
_PREFILL_DECODE = {"prefill": Role.PREFILL, "decode": Role.DECODE, "both": Role.AGGREGATED}
_KSERVE = {"app.kubernetes.io/part-of": "llminferenceservice"}
_VLLM_STACK = {"app.kubernetes.io/part-of": "vllm-stack"}

PICKER = Kind(
    Stack.LLM_D,
    {"inferencepool": "*"},
    "inferencepool",
    Role.ROUTER,
    ports=("http-metrics", "metrics"),
    port=9090,
)
"""The endpoint picker of an inference pool: known by its label, or by the Service that the pool names."""

KINDS: tuple[Kind, ...] = (
    Kind(
        Stack.OME,
        {"ome.io/inferenceservice": "*", "component": "router"},
        "ome.io/inferenceservice",
        Role.ROUTER,
    ),
    Kind(
        Stack.OME,
        {"ome.io/inferenceservice": "*"},
        "ome.io/inferenceservice",
        role_label="component",
        roles={"engine": Role.AGGREGATED, "predictor": Role.AGGREGATED, "decoder": Role.DECODE},
        port=8080,
    ),
    Kind(
        Stack.PRODUCTION_STACK,
        {**_VLLM_STACK, "app.kubernetes.io/component": "serving-engine"},
        "model",
        ports=("container-port",),
        port=8000,
        engine=EngineKind.VLLM,
    ),
    Kind(
        Stack.PRODUCTION_STACK,
        {**_VLLM_STACK, "app.kubernetes.io/component": "router"},
        "app.kubernetes.io/instance",
        Role.ROUTER,
        ports=("router-port", "router-container-port"),
        port=8000,
    ),
    *(
        Kind(
            Stack.DYNAMO,
            {_DYNAMO_GRAPH: "*", _DYNAMO_TYPE: word},
            _DYNAMO_GRAPH,
            role,
            role_label=_DYNAMO_SUB_TYPE,
            roles=_PREFILL_DECODE,
            ports=ports,
            port=port,
            engine=EngineKind.UNKNOWN,
        )
        for word, role, ports, port in (
            ("frontend", Role.GATEWAY, ("http",), 8000),
            ("worker", Role.AGGREGATED, ("system", "system-0"), 9090),
            ("prefill", Role.PREFILL, ("system", "system-0"), 9090),
            ("decode", Role.DECODE, ("system", "system-0"), 9090),
            ("planner", Role.ROUTER, ("metrics",), 9085),
            ("epp", Role.ROUTER, ("metrics",), 9090),
            ("default", Role.ROUTER, ("system", "metrics"), 9090),
        )
    ),
    Kind(
        Stack.KSERVE,
        {**_KSERVE, "app.kubernetes.io/component": "llminferenceservice-router-scheduler"},
        "app.kubernetes.io/name",
        Role.ROUTER,
        ports=("metrics",),
        port=9090,
    ),
    Kind(
        Stack.KSERVE,
        {**_KSERVE, "kserve.io/component": "workload"},
        "app.kubernetes.io/name",
        role_label="llm-d.ai/role",
        roles=_PREFILL_DECODE,
        port=8000,
        engine=EngineKind.VLLM,
    ),
    Kind(
        Stack.LLM_D,
        {"llm-d.ai/role": "*"},
        "llm-d.ai/guide",
        role_label="llm-d.ai/role",
        roles=_PREFILL_DECODE,
        ports=("modelserver",),
        port=8000,
        engine_label="llm-d.ai/engine-type",
        model_label="llm-d.ai/model",
    ),
    PICKER,
)
"""Tried from the top; the first whose labels are all there holds."""

OWNED: Mapping[str, Kind] = {
    "VLLMRuntime": Kind(
        Stack.PRODUCTION_STACK_OPERATOR, {}, "app", ports=("http",), port=8000, engine=EngineKind.VLLM
    ),
    "VLLMRouter": Kind(Stack.PRODUCTION_STACK_OPERATOR, {}, "app", Role.ROUTER, ports=("http",), port=8000),
}
"""Kinds of pods that only their owner's kind tells: of a Deployment's name nothing can be said."""

IMAGES: tuple[tuple[str, EngineKind, int], ...] = (
    ("vllm/vllm", EngineKind.VLLM, 8000),
    ("vllm-openai", EngineKind.VLLM, 8000),
    ("/llm-d:", EngineKind.VLLM, 8000),
    ("llm-d-cuda", EngineKind.VLLM, 8000),
    ("sglang", EngineKind.SGLANG, 30000),
    ("tritonserver", EngineKind.TRITON, 8002),
    ("tensorrt-llm", EngineKind.TRTLLM, 8000),
    ("llama.cpp", EngineKind.LLAMACPP, 8080),
    ("text-generation-inference", EngineKind.TGI, 80),
    ("lmdeploy", EngineKind.LMDEPLOY, 23333),
    ("lmstack-router", EngineKind.ROUTER, 8000),
)
"""Words of an image by which a plain Deployment's engine is known, and where that listens by default."""

COMMANDS: tuple[tuple[str, EngineKind, int], ...] = (
    ("vllm.entrypoints", EngineKind.VLLM, 8000),
    ("vllm serve", EngineKind.VLLM, 8000),
    ("sglang.launch_server", EngineKind.SGLANG, 30000),
    ("trtllm-serve", EngineKind.TRTLLM, 8000),
    ("llama-server", EngineKind.LLAMACPP, 8080),
    ("text-generation-launcher", EngineKind.TGI, 80),
    ("lmdeploy serve", EngineKind.LMDEPLOY, 23333),
    ("dynamo.vllm", EngineKind.VLLM, 9090),
    ("dynamo.sglang", EngineKind.SGLANG, 9090),
    ("dynamo.trtllm", EngineKind.TRTLLM, 9090),
)
"""Words of a command line, which go before those of an image."""

ENGINE_CONTAINERS = ("vllm", "main", "modelserver", "ome-container", "kserve-container", "engine", "sglang")
"""Names that the stacks give to the container of the engine, beside sidecars."""
