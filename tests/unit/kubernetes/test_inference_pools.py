"""Inference pools of the Gateway API beside the pods they route to, and the pods that pick for them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.inference_pools import InferencePools
from collectors.kubernetes.source import KubernetesPods, Reach
from enginetop.fleet.model import Role
from tests.support.fake_kubernetes import FakeKubernetes
from tests.support.kubernetes_pods import pod

V1, OLDER = "inference.networking.k8s.io/v1", "inference.networking.x-k8s.io/v1alpha2"
SELECTED = {"app": "qwen", "tier": "gpu"}


def pool(fake: FakeKubernetes, api: str, name: str = "qwen", **spec: Any) -> None:
    newer = {
        "selector": {"matchLabels": SELECTED},
        "targetPorts": [{"number": 8000}],
        "endpointPickerRef": {"name": "qwen-epp", "port": {"number": 9002}},
    }
    older = {"selector": SELECTED, "targetPortNumber": 8000, "extensionRef": {"name": "qwen-epp"}}
    item = {
        "kind": "InferencePool",
        "metadata": {"name": name, "namespace": "llm"},
        "spec": {**(newer if api == V1 else older), **spec},
    }
    fake.put(api, "inferencepools", item)


def picker(fake: FakeKubernetes) -> None:
    """A Service and its pod, which has no label that tells what it is."""
    service = {"metadata": {"name": "qwen-epp", "namespace": "llm"}, "spec": {"selector": {"app": "epp"}}}
    fake.put("v1", "services", service)
    fake.put(
        "v1",
        "pods",
        pod(
            "qwen-epp-1",
            {"app": "epp"},
            image="ghcr.io/llm-d/llm-d-inference-scheduler:v0.4",
            container="epp",
            ports={"grpc": 9002, "metrics": 9090},
            address="10.1.0.99",
        ),
    )


@pytest.mark.parametrize("api", [V1, OLDER])
def test_a_pool_its_pods_and_its_picker(fake: FakeKubernetes, client: KubernetesClient, api: str) -> None:
    fake.put("v1", "pods", pod("a", SELECTED))
    fake.put("v1", "pods", pod("b", {"app": "qwen"}, address="10.1.0.8"))
    picker(fake)
    pool(fake, api)
    source = KubernetesPods("", Reach.DIRECT, client=client)
    found = {one.target.name: one.target for one in source.look()}
    assert {name: target.inference_pool for name, target in found.items()} == {
        "a": "llm/qwen",
        "b": "",
        "qwen-epp-1": "llm/qwen",
    }
    assert (found["qwen-epp-1"].url, found["qwen-epp-1"].role) == ("http://10.1.0.99:9090", Role.ROUTER)
    assert found["a"].pod == "llm/a"
    assert source.note == ""


def test_a_pool_that_routes_nowhere_or_whose_picker_is_gone_is_said(
    fake: FakeKubernetes, client: KubernetesClient
) -> None:
    fake.put("v1", "pods", pod("a", SELECTED))
    pool(fake, V1)
    pool(fake, V1, "empty", selector={"matchLabels": {"app": "none"}}, endpointPickerRef={"name": "none"})
    service = {"metadata": {"name": "qwen-epp", "namespace": "llm"}, "spec": {"selector": {"app": "epp"}}}
    fake.put("v1", "services", service)
    source = KubernetesPods("", Reach.DIRECT, client=client)
    source.look()
    assert "the inference pool llm/empty selects no pod" in source.note
    assert "the endpoint picker qwen-epp of the inference pool llm/qwen has no pod" in source.note


@pytest.mark.parametrize("forbidden", [set(), {("list", "inferencepools", "*")}])
def test_a_cluster_without_pools_or_with_none_for_us(
    fake: FakeKubernetes, client: KubernetesClient, forbidden: set[tuple[str, str, str]]
) -> None:
    fake.forbidden = forbidden
    fake.put("v1", "pods", pod("a", SELECTED))
    (one,) = KubernetesPods("", Reach.DIRECT, client=client).look()
    assert one.target.inference_pool == ""


def test_pools_are_listed_once_a_minute(fake: FakeKubernetes, client: KubernetesClient) -> None:
    clock = [0.0]
    pools = InferencePools(client, None, now=lambda: clock[0])
    pool(fake, V1)
    assert [one.identity for one in pools.look()] == ["llm/qwen"]
    asked = len(fake.asked)
    clock[0] = 59.0
    pools.look()
    assert len(fake.asked) == asked
    clock[0] = 60.0
    pools.look()
    assert len(fake.asked) > asked


@pytest.mark.parametrize(
    "spec", [None, {}, {"selector": 3}, {"selector": {"matchLabels": []}}, {"selector": {"a": 1}}]
)
def test_a_pool_of_another_shape_routes_to_nobody(
    fake: FakeKubernetes, client: KubernetesClient, spec: object
) -> None:
    fake.put("v1", "pods", pod("a", SELECTED))
    item = json.loads(json.dumps({"metadata": {"name": "odd", "namespace": "llm"}, "spec": spec}))
    fake.put(V1, "inferencepools", item)
    (one,) = KubernetesPods("", Reach.DIRECT, client=client).look()
    assert one.target.inference_pool == ""
