"""Six stacks that serve: the objects that own engines, as their users write them, and a pod of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from enginetop.fleet.model import Role
from tests.support.fake_kubernetes import FakeKubernetes
from tests.support.kubernetes_pods import GRAPH, KSERVE, SGLANG, TYPE, VLLM_STACK, owned_by, pod

Item = dict[str, Any]
VLLM = ("vllm", "serve", "m", "--max-num-seqs", "64")


@dataclass(frozen=True)
class Served:
    """A pod, the objects above it from its controller to the root, and where the root's flags stand.

    `seats` is the pointer of what an apply of `max_num_seqs` 32 changes, `after` what stands there then.
    """

    pod: Item
    owners: Sequence[tuple[str, str, Item]]
    container: str
    role: Role
    pointer: str
    after: object

    @property
    def root(self) -> Item:
        """The object at the top."""
        api, _, item = self.owners[-1]
        return {"apiVersion": api, **item}

    def put(self, fake: FakeKubernetes) -> None:
        """Into a cluster, each object owned by the next."""
        below: tuple[str, str, Item] = ("v1", "pods", self.pod)
        for owner in self.owners:
            above = owner[2]
            meta = below[2]["metadata"]
            meta["ownerReferences"] = [owned_by(owner[0], above["kind"], above["metadata"]["name"])]
            fake.put(*below)
            below = owner
        fake.put(*below)


def _object(kind: str, name: str, spec: Item, **meta: object) -> Item:
    return {"kind": kind, "metadata": {"name": name, "namespace": "llm", **meta}, "spec": spec}


def _deployment(name: str, container: str, words: Sequence[str], **meta: object) -> Item:
    containers = [{"name": container, "image": "x", "args": list(words)}]
    return _object(
        "Deployment", name, {"replicas": 2, "template": {"spec": {"containers": containers}}}, **meta
    )


def _replica_set() -> tuple[str, str, Item]:
    return "apps/v1", "replicasets", _object("ReplicaSet", "rs", {})


_CHART = {"labels": {"helm.sh/chart": "vllm-stack-0.1.12", "model": "llama70"}}

STACKS: dict[str, Served] = {
    "plain": Served(
        pod("a", {"app": "chat"}, args=VLLM),
        (_replica_set(), ("apps/v1", "deployments", _deployment("chat", "main", VLLM))),
        "main",
        Role.AGGREGATED,
        "/spec/template/spec/containers/0/args",
        ["vllm", "serve", "m", "--max-num-seqs", "32"],
    ),
    "production stack, Helm": Served(
        pod("a", VLLM_STACK, container="vllm", args=VLLM),
        (_replica_set(), ("apps/v1", "deployments", _deployment("prod-llama70", "vllm", VLLM, **_CHART))),
        "vllm",
        Role.AGGREGATED,
        "/spec/template/spec/containers/0/args",
        ["vllm", "serve", "m", "--max-num-seqs", "32"],
    ),
    "production stack, operator": Served(
        pod("a", {"app": "chat"}, container="vllm", args=VLLM),
        (
            _replica_set(),
            ("apps/v1", "deployments", _deployment("chat", "vllm", VLLM)),
            (
                "production-stack.vllm.ai/v1alpha1",
                "vllmruntimes",
                _object("VLLMRuntime", "chat", {"vllmConfig": {"extraArgs": ["--max-num-seqs=64"]}}),
            ),
        ),
        "vllm",
        Role.AGGREGATED,
        "/spec/vllmConfig/extraArgs",
        ["--max-num-seqs=32"],
    ),
    "OME": Served(
        pod(
            "a",
            {"ome.io/inferenceservice": "chat", "component": "decoder"},
            container="ome-container",
            command=SGLANG,
            args=("--max-running-requests", "64"),
        ),
        (
            _replica_set(),
            ("apps/v1", "deployments", _deployment("chat-decoder", "ome-container", ())),
            (
                "ome.io/v1beta1",
                "inferenceservices",
                _object("InferenceService", "chat", {"decoder": {"minReplicas": 1}}),
            ),
        ),
        "ome-container",
        Role.DECODE,
        "/spec/decoder/runner/args",
        ["--max-running-requests", "32"],
    ),
    "Dynamo": Served(
        pod(
            "a",
            {GRAPH: "g", TYPE: "worker", "nvidia.com/dynamo-component": "Worker"},
            image="x",
            command=("python3", "-m", "dynamo.vllm"),
            args=("--max-num-seqs", "64"),
            ports={"system": 9090},
        ),
        (
            _replica_set(),
            ("apps/v1", "deployments", _deployment("g-worker", "main", ())),
            (
                "nvidia.com/v1beta1",
                "dynamocomponentdeployments",
                _object("DynamoComponentDeployment", "g-worker", {}),
            ),
            (
                "nvidia.com/v1beta1",
                "dynamographdeployments",
                _object(
                    "DynamoGraphDeployment",
                    "g",
                    {
                        "components": [
                            {"name": "Frontend"},
                            {
                                "name": "Worker",
                                "podTemplate": {
                                    "spec": {
                                        "containers": [
                                            {"name": "main", "args": ["--max-num-seqs", "64"]},
                                        ]
                                    }
                                },
                            },
                        ]
                    },
                ),
            ),
        ),
        "main",
        Role.AGGREGATED,
        "/spec/components/1/podTemplate/spec/containers/0/args",
        ["--max-num-seqs", "32"],
    ),
    "llm-d": Served(
        pod("a", {"llm-d.ai/guide": "g", "llm-d.ai/role": "both"}, container="modelserver", args=VLLM),
        (_replica_set(), ("apps/v1", "deployments", _deployment("ms", "modelserver", VLLM))),
        "modelserver",
        Role.AGGREGATED,
        "/spec/template/spec/containers/0/args",
        ["vllm", "serve", "m", "--max-num-seqs", "32"],
    ),
    "KServe": Served(
        pod("a", {**KSERVE, "llm-d.ai/role": "both"}, env={"VLLM_ADDITIONAL_ARGS": "--max-num-seqs 64"}),
        (
            _replica_set(),
            ("apps/v1", "deployments", _deployment("qwen-kserve", "main", ())),
            (
                "serving.kserve.io/v1alpha2",
                "llminferenceservices",
                _object(
                    "LLMInferenceService",
                    "qwen",
                    {
                        "template": {
                            "containers": [
                                {
                                    "name": "main",
                                    "env": [
                                        {
                                            "name": "VLLM_ADDITIONAL_ARGS",
                                            "value": "--max-num-seqs 64 --speculative-config "
                                            '\'{"method": "mtp", "num_speculative_tokens": 3}\'',
                                        }
                                    ],
                                }
                            ]
                        }
                    },
                ),
            ),
        ),
        "main",
        Role.AGGREGATED,
        "/spec/template/containers/0/env/0/value",
        '--max-num-seqs 32 --speculative-config \'{"method": "mtp", "num_speculative_tokens": 3}\'',
    ),
}
