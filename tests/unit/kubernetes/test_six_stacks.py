"""Six stacks and plain Deployments at once, 203 pods: role, port, owner and patch, in few requests."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.source import KubernetesPods, Reach
from enginetop import __version__
from enginetop.cli.kubernetes_owners import Cluster, engine_kind, patch_lines
from enginetop.fleet.plan import Plan, PlannedChange, Scope
from tests.support.fake_kubernetes import FakeKubernetes
from tests.support.kubernetes_stacks import STACKS
from tuners.control.kubernetes.arguments import written
from tuners.control.kubernetes.patches import pointer

EACH = 29
PORTS = {"OME": 8080, "Dynamo": 9090}
"""All others: 8000."""
OWNERS = {
    "plain": "Deployment/chat",
    "production stack, Helm": "Deployment/prod-llama70",
    "production stack, operator": "VLLMRuntime/chat",
    "OME": "InferenceService/chat",
    "Dynamo": "DynamoGraphDeployment/g",
    "llm-d": "Deployment/ms",
    "KServe": "LLMInferenceService/qwen",
}


def moved(item: Any, namespace: str) -> Any:
    """The object in another namespace."""
    return {**item, "metadata": {**item["metadata"], "namespace": namespace}}


@pytest.fixture
def fake() -> FakeKubernetes:
    made = FakeKubernetes()
    for number, (stack, served) in enumerate(STACKS.items()):
        namespace = f"ns{number}"
        for replica in range(EACH):
            pod = moved(copy.deepcopy(served.pod), namespace)
            pod["metadata"]["name"] = f"{'-'.join(stack.lower().replace(',', '').split())}-{replica}"
            pod["status"]["podIP"] = f"10.{number}.0.{replica}"
            owners = [
                (api, plural, moved(copy.deepcopy(item), namespace)) for api, plural, item in served.owners
            ]
            type(served)(pod, owners, served.container, served.role, served.pointer, served.after).put(made)
    return made


def test_each_of_203_pods_has_its_role_port_owner_and_patch(
    fake: FakeKubernetes, client: KubernetesClient
) -> None:
    listed = KubernetesPods("", Reach.DIRECT, client=client).look()
    assert len(listed) == len(STACKS) * EACH == 203
    assert len(fake.asked) <= 8, "one page of pods; owners only where no label tells, each once"
    cluster = Cluster(client=client)
    changes = []
    for number, (stack, served) in enumerate(STACKS.items()):
        own = [one.target for one in listed if one.target.pod.startswith(f"ns{number}/")]
        own.sort(key=lambda target: int(target.pod.rpartition("-")[2]))
        assert len(own) == EACH
        for replica, target in enumerate(own):
            assert target.url == f"http://10.{number}.0.{replica}:{PORTS.get(stack, 8000)}", stack
            assert target.role is served.role, stack
            flags = cluster.flags(target)
            assert flags.name == OWNERS[stack]
            assert flags.namespace == f"ns{number}"
            assert pointer(flags.point.place) == served.pointer
            value = written(flags.point.present, flags.point.style, engine_kind(flags), {"max_num_seqs": 32})
            assert value == served.after
            instance = f"{flags.namespace}/{flags.name}"
            changes.append(PlannedChange(target.url, instance, "max_num_seqs", 64, 32, via="kubernetes"))
    fake.asked.clear()
    scope = Scope(None, "aggregated", changes[0].target)
    plan = Plan("plan0001", 0.0, 600.0, __version__, "0" * 64, scope, tuple(changes))
    lines = list(patch_lines(plan, [one.target for one in listed], cluster))
    assert sum(line.startswith("kubectl ") for line in lines) == len(STACKS), "one patch an owner"
    assert sum("canary: none; one change rolls all" in line for line in lines) == 1, "Dynamo"
    assert not any(line.startswith("# refused") for line in lines)
    assert len(fake.asked) <= 2 * len(changes) + 10 * len(STACKS)
