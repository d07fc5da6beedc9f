"""Pods of the stacks that run engines, as their operators and charts make them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Item = dict[str, Any]


def pod(
    name: str,
    labels: Mapping[str, str],
    *,
    namespace: str = "llm",
    image: str = "vllm/vllm-openai:v0.11",
    container: str = "main",
    command: Sequence[str] = (),
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    ports: Mapping[str, int] | None = None,
    annotations: Mapping[str, str] | None = None,
    address: str = "10.1.0.7",
    owner: tuple[str, str, str] | None = None,
    phase: str = "Running",
    sidecars: Sequence[Item] = (),
    scheme: str = "",
) -> Item:
    """A pod. `owner` is API version, kind and name of its controller."""
    probe = {"readinessProbe": {"httpGet": {"scheme": scheme, "port": 8000}}} if scheme else {}
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(labels),
            "annotations": dict(annotations or {}),
            "ownerReferences": [owned_by(*owner)] if owner else [],
        },
        "spec": {
            "containers": [
                *sidecars,
                {
                    "name": container,
                    "image": image,
                    "command": list(command),
                    "args": list(args),
                    "env": [{"name": key, "value": value} for key, value in (env or {}).items()],
                    "ports": [{"name": key, "containerPort": value} for key, value in (ports or {}).items()],
                    **probe,
                },
            ]
        },
        "status": {"phase": phase, "podIP": address, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def owned_by(api: str, kind: str, name: str) -> Item:
    """An owner reference of the controller."""
    return {"apiVersion": api, "kind": kind, "name": name, "controller": True}


VLLM_STACK = {
    "app.kubernetes.io/part-of": "vllm-stack",
    "app.kubernetes.io/component": "serving-engine",
    "app.kubernetes.io/instance": "prod",
    "model": "llama70",
}
GRAPH = "nvidia.com/dynamo-graph-deployment-name"
TYPE = "nvidia.com/dynamo-component-type"
KSERVE = {
    "app.kubernetes.io/part-of": "llminferenceservice",
    "app.kubernetes.io/name": "qwen",
    "kserve.io/component": "workload",
}
SGLANG = ("python3", "-m", "sglang.launch_server", "--model-path", "/m", "--port", "8080")
