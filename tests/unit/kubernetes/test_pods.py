"""Which pods serve, as what, and where: one case a rule of the stacks' own labels."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.kubernetes.pods import serving_pod
from collectors.kubernetes.source import with_pairs
from collectors.kubernetes.stacks import Stack
from enginetop.fleet.model import EngineKind, Role
from tests.support.kubernetes_pods import GRAPH, KSERVE, SGLANG, TYPE, VLLM_STACK, pod

_OME = {"ome.io/inferenceservice": "chat", "component": "engine"}
_PROXY = {
    "name": "routing-proxy",
    "image": "llm-d-routing-sidecar",
    "ports": [{"name": "sidecar", "containerPort": 8000}],
}
_LLM_D = {
    "llm-d.ai/guide": "pd",
    "llm-d.ai/role": "decode",
    "llm-d.ai/model": "qwen3",
    "llm-d.ai/engine-type": "vllm",
}

CASES: dict[str, tuple[dict[str, Any], tuple[Stack, str, Role, EngineKind, int]]] = {
    "OME engine": (
        pod("a", _OME, container="ome-container", image="sgl:1", command=SGLANG),
        (Stack.OME, "chat", Role.AGGREGATED, EngineKind.SGLANG, 8080),
    ),
    "OME engine, annotated": (
        pod("a", _OME, image="x/sglang:1", annotations={"prometheus.io/port": "29000"}),
        (Stack.OME, "chat", Role.AGGREGATED, EngineKind.SGLANG, 29000),
    ),
    "OME decoder": (
        pod("a", {**_OME, "component": "decoder"}, command=SGLANG),
        (Stack.OME, "chat", Role.DECODE, EngineKind.SGLANG, 8080),
    ),
    "OME router": (
        pod("a", {**_OME, "component": "router"}, image="router", args=("--port", "8080")),
        (Stack.OME, "chat", Role.ROUTER, EngineKind.UNKNOWN, 8080),
    ),
    "production stack engine": (
        pod("a", VLLM_STACK, container="vllm", ports={"container-port": 8001}),
        (Stack.PRODUCTION_STACK, "llama70", Role.AGGREGATED, EngineKind.VLLM, 8001),
    ),
    "production stack prefill": (
        pod("a", VLLM_STACK, args=("--kv-transfer-config", '{"kv_role": "kv_producer"}')),
        (Stack.PRODUCTION_STACK, "llama70", Role.PREFILL, EngineKind.VLLM, 8000),
    ),
    "production stack router": (
        pod("a", {**VLLM_STACK, "app.kubernetes.io/component": "router"}, image="lmcache/lmstack-router"),
        (Stack.PRODUCTION_STACK, "prod", Role.ROUTER, EngineKind.ROUTER, 8000),
    ),
    "Dynamo worker, alpha labels": (
        pod(
            "a",
            {GRAPH: "g", TYPE: "worker", "nvidia.com/dynamo-sub-component-type": "prefill"},
            image="nvcr.io/x",
            args=("python3 -m dynamo.trtllm --model m",),
            ports={"system": 9091},
        ),
        (Stack.DYNAMO, "g", Role.PREFILL, EngineKind.TRTLLM, 9091),
    ),
    "Dynamo decode, beta labels": (
        pod("a", {GRAPH: "g", TYPE: "decode"}, image="x", args=("-m dynamo.vllm",), ports={"system-0": 9090}),
        (Stack.DYNAMO, "g", Role.DECODE, EngineKind.VLLM, 9090),
    ),
    "Dynamo frontend": (
        pod("a", {GRAPH: "g", TYPE: "frontend"}, image="x", ports={"http": 8000}),
        (Stack.DYNAMO, "g", Role.GATEWAY, EngineKind.UNKNOWN, 8000),
    ),
    "Dynamo planner": (
        pod("a", {GRAPH: "g", TYPE: "planner"}, image="x"),
        (Stack.DYNAMO, "g", Role.ROUTER, EngineKind.UNKNOWN, 9085),
    ),
    "llm-d decode behind its proxy": (
        pod("a", _LLM_D, container="modelserver", image="y", ports={"modelserver": 8200}, sidecars=(_PROXY,)),
        (Stack.LLM_D, "pd", Role.DECODE, EngineKind.VLLM, 8200),
    ),
    "llm-d endpoint picker": (
        pod("a", {"inferencepool": "pd-epp"}, image="epp", ports={"http-metrics": 9090, "grpc": 9002}),
        (Stack.LLM_D, "pd-epp", Role.ROUTER, EngineKind.UNKNOWN, 9090),
    ),
    "KServe decode behind its proxy": (
        pod("a", {**KSERVE, "llm-d.ai/role": "decode"}, ports={"http": 8001}, sidecars=(_PROXY,)),
        (Stack.KSERVE, "qwen", Role.DECODE, EngineKind.VLLM, 8001),
    ),
    "KServe scheduler": (
        pod(
            "a",
            {**KSERVE, "app.kubernetes.io/component": "llminferenceservice-router-scheduler"},
            image="epp",
            ports={"metrics": 9090},
        ),
        (Stack.KSERVE, "qwen", Role.ROUTER, EngineKind.UNKNOWN, 9090),
    ),
    "plain SGLang": (
        pod("a", {"app": "chat"}, image="lmsysorg/sglang:latest", command=("sglang serve",)),
        (Stack.PLAIN, "chat", Role.AGGREGATED, EngineKind.SGLANG, 30000),
    ),
    "plain, port of the command line": (
        pod("a", {"app": "chat"}, args=("vllm serve m --port=9000",), ports={"x": 7000}),
        (Stack.PLAIN, "chat", Role.AGGREGATED, EngineKind.VLLM, 9000),
    ),
    "plain prefill": (
        pod("a", {"app": "p"}, command=SGLANG, args=("--disaggregation-mode", "prefill")),
        (Stack.PLAIN, "p", Role.PREFILL, EngineKind.SGLANG, 8080),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_pod_serves(case: str) -> None:
    given_pod, expected = CASES[case]
    found = serving_pod(given_pod)
    assert found is not None
    assert (found.stack, found.pool, found.role, found.engine, found.port) == expected


def test_the_operators_pods_are_told_by_their_owner() -> None:
    one = pod("a", {"app": "chat"}, container="vllm", ports={"http": 8123})
    found = serving_pod(one, "VLLMRuntime")
    assert found is not None
    assert (found.stack, found.port) == (Stack.PRODUCTION_STACK_OPERATOR, 8123)
    found = serving_pod(one, "Deployment")
    assert found is not None
    assert found.stack is Stack.PLAIN


@pytest.mark.parametrize(
    "other",
    [
        pod("a", {"app": "shop"}, image="nginx"),
        pod("a", VLLM_STACK, phase="Succeeded"),
        pod("a", {**_OME, "leaderworkerset.sigs.k8s.io/worker-index": "3"}, command=SGLANG),
        pod("a", {**KSERVE, "app.kubernetes.io/component": "llminferenceservice-workload-worker"}),
        {**pod("a", VLLM_STACK), "spec": {"containers": []}},
        {},
    ],
)
def test_what_serves_nothing(other: dict[str, Any]) -> None:
    assert serving_pod(other) is None


def test_a_leader_stands_for_its_workers() -> None:
    leader = pod("a", {**_OME, "leaderworkerset.sigs.k8s.io/worker-index": "0"}, command=SGLANG)
    assert serving_pod(leader) is not None


def test_a_pod_on_its_way_out_is_gone() -> None:
    leaving = pod("a", VLLM_STACK)
    leaving["metadata"]["deletionTimestamp"] = "2026-11-30T00:00:00Z"
    assert serving_pod(leaving) is None


def test_tls_is_told_by_the_probe_or_the_annotation() -> None:
    assert [
        found.scheme
        for one in (
            pod("a", KSERVE, scheme="HTTPS"),
            pod("a", VLLM_STACK, annotations={"prometheus.io/scheme": "https"}),
            pod("a", VLLM_STACK),
        )
        if (found := serving_pod(one)) is not None
    ] == ["https", "https", "http"]


def test_ome_engines_beside_a_decoder_do_prefill() -> None:
    pods = (
        pod("e", _OME, command=SGLANG),
        pod("d", {**_OME, "component": "decoder"}, command=SGLANG),
        pod("e", _OME, command=SGLANG, namespace="elsewhere"),
    )
    found = with_pairs(one for given_pod in pods if (one := serving_pod(given_pod)) is not None)
    assert [one.role for one in found] == [Role.PREFILL, Role.DECODE, Role.AGGREGATED]


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(("metadata", "spec", "status")), _json)
def test_no_pod_however_strange_stops_us(part: str, junk: Any) -> None:
    serving_pod({**pod("a", VLLM_STACK), part: junk})
    strange = pod("a", VLLM_STACK)
    strange["spec"]["containers"][0].update({"ports": junk, "args": junk, "env": junk, "command": junk})
    strange["metadata"].update({"annotations": junk, "ownerReferences": junk})
    serving_pod(strange)


@pytest.mark.parametrize(
    ("said", "page"),
    [
        ("/metrics", "/metrics"),
        ("metrics", "/metrics"),
        ("/v1/stats/", "/v1/stats/"),
        ("/metrics?format=text", "/metrics"),
        ("/stats?format=text", "/stats"),
        ("", None),
        ("/", None),
        ("?a", None),
        ("/a b", None),
        ("/a\x1b[2J", None),
        ("/../../secrets", None),
        ("/%2e%2e/secrets", None),
        ("..", None),
        ("/a..b", "/a..b"),
    ],
)
def test_the_page_that_an_annotation_names(said: str, page: str | None) -> None:
    found = serving_pod(pod("a", VLLM_STACK, annotations={"prometheus.io/path": said}))
    assert found is not None
    assert found.metrics_path == page
