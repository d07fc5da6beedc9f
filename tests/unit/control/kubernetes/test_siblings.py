"""The object that is created as a canary: whose traffic it gets, and whose it must not be taken for."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as st

from enginetop.fleet.model import EngineKind
from tests.support.fake_kubernetes import FakeKubernetes
from tests.support.kubernetes_stacks import STACKS
from tuners.control.kubernetes.change_points import BUMP_KEY, change_point
from tuners.control.kubernetes.findings import of_autoscalers
from tuners.control.kubernetes.patches import written_at
from tuners.control.kubernetes.siblings import label_of, sibling_name, sibling_of, why_none

PLAN = "0a1b2c3d"


def beside(stack: str, **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The owner of a stack with other fields, and the sibling beside it."""
    served = copy.deepcopy(STACKS[stack])
    owner = served.root
    for path, value in changes.items():
        *above, last = path.split("__")
        at = owner
        for step in above:
            at = at.setdefault(step, {})
        at[last] = value
    point = change_point(owner, served.pod, served.container, served.role)
    value, also = written_at(point, EngineKind.VLLM, {"max_num_seqs": 32})
    return owner, sibling_of(owner, point, value, plan=PLAN, expires=1000.4, also=also)


def test_a_deployment_keeps_all_labels_and_gets_one_of_ours_in_its_selector() -> None:
    labels = {"app": "chat", "tier": "gpu"}
    owner, made = beside(
        "plain", spec__selector={"matchLabels": {"app": "chat"}}, spec__template__metadata={"labels": labels}
    )
    before = copy.deepcopy(owner)
    spec = made["spec"]
    assert spec["replicas"] == 1
    assert spec["selector"]["matchLabels"] == {"app": "chat", "enginetop/canary": PLAN}
    assert spec["template"]["metadata"]["labels"] == {**labels, "enginetop/canary": PLAN}
    assert spec["template"]["spec"]["containers"][0]["args"] == STACKS["plain"].after
    assert made["metadata"] == {
        "name": f"chat-canary-{PLAN}",
        "namespace": "llm",
        "labels": {"app.kubernetes.io/managed-by": "enginetop", "enginetop/plan": PLAN},
        "annotations": {"enginetop/expires": "1000", "enginetop/of": "Deployment/chat"},
    }
    assert owner == before, "the owner is not touched"


def test_a_runtime_gets_a_bump_and_the_labels_by_which_its_pods_are_found_and_no_autoscaler() -> None:
    owner, made = beside(
        "production stack, operator",
        metadata__labels={"model": "qwen"},
        spec__autoscalingConfig={"enabled": True, "maxReplicas": 4},
        spec__deploymentConfig={"replicas": 3},
    )
    assert made["spec"]["deploymentConfig"] == {"replicas": 1, "podAnnotations": {BUMP_KEY: PLAN}}
    assert made["metadata"]["labels"] == {
        "model": "qwen",
        "enginetop/plan": PLAN,
        "enginetop/canary": PLAN,
    }
    assert "autoscalingConfig" not in made["spec"]
    assert owner["spec"]["deploymentConfig"] == {"replicas": 3}


def test_nobody_takes_the_copy_for_theirs() -> None:
    marks = {
        "meta.helm.sh/release-name": "prod",
        "argocd.argoproj.io/tracking-id": "x",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
        "deployment.kubernetes.io/revision": "7",
        "team": "llm",
    }
    _, made = beside(
        "plain",
        metadata__annotations=marks,
        metadata__labels={"app.kubernetes.io/managed-by": "Helm", "argocd.argoproj.io/instance": "x"},
        metadata__resourceVersion="9",
        metadata__uid="u",
        metadata__ownerReferences=[{"kind": "X"}],
        status={"replicas": 2},
    )
    assert set(made["metadata"]["annotations"]) == {"team", "enginetop/expires", "enginetop/of"}
    assert made["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "enginetop"
    assert "argocd.argoproj.io/instance" not in made["metadata"]["labels"]
    assert set(made) == {"apiVersion", "kind", "metadata", "spec"}
    assert set(made["metadata"]) == {"name", "namespace", "labels", "annotations"}


@pytest.mark.parametrize(
    ("kind", "spec", "possible"),
    [
        ("Deployment", {}, True),
        ("LeaderWorkerSet", {}, True),
        ("VLLMRuntime", {}, True),
        ("StatefulSet", {}, True),
        ("StatefulSet", {"volumeClaimTemplates": [{}]}, False),
        ("InferenceService", {}, False),
        ("DynamoGraphDeployment", {}, False),
        ("LLMInferenceService", {}, False),
        ("", {}, False),
    ],
)
def test_which_owners_can_have_one(kind: str, spec: dict[str, Any], possible: bool) -> None:
    assert (why_none({"kind": kind, "spec": spec}) == "") is possible


@budget(max_examples=60, deadline=None)
@given(name=st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,60}[a-z0-9])?", fullmatch=True), plan=st.text(max_size=70))
def test_names_and_labels_are_those_that_a_server_takes(name: str, plan: str) -> None:
    made = sibling_name({"metadata": {"name": name}}, f"p{plan}")
    assert len(made) <= 52, "pods add a suffix to it"
    assert re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", made), made
    assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", label_of(f"p{plan}x"))


def test_an_autoscaler_of_an_object_below_the_owner_counts() -> None:
    """KEDA scales the Deployment that an operator makes, not what a person writes."""
    scaler = {
        "metadata": {"name": "keda-hpa-x"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "chat-engine"}},
    }
    owners = ("InferenceService/chat", "ReplicaSet/chat-engine-1", "Deployment/chat-engine")
    (found,) = of_autoscalers(owners, [scaler])
    assert found.stops
    assert not found.refuses
    assert list(of_autoscalers(owners[:2], [scaler])) == []


def test_the_fake_deletes_the_object_that_was_meant_and_no_other() -> None:
    fake = FakeKubernetes()
    key = fake.put("apps/v1", "deployments", {"metadata": {"name": "a", "namespace": "llm"}, "spec": {}})
    uid = fake.get(key)["metadata"]["uid"]
    path = "/apis/apps/v1/namespaces/llm/deployments/a"
    fake.answer("DELETE", path, {}, {"preconditions": {"uid": uid}})
    assert key not in fake._items
