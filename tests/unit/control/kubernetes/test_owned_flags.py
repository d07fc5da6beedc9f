"""The right object, the right place and the right words, for six stacks; what stands against a write."""

from __future__ import annotations

import copy
import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as st

from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.context import Context
from enginetop.fleet.model import EngineKind, Role
from tests.support.fake_kubernetes import TOKEN, FakeKubernetes, serving
from tests.support.kubernetes_pods import pod
from tests.support.kubernetes_stacks import STACKS, Served
from tuners.control.flags import FlagError
from tuners.control.kubernetes.arguments import Style, style_of, words_of, written
from tuners.control.kubernetes.change_points import BUMP_KEY, ChangePoint, NoPlaceError, change_point
from tuners.control.kubernetes.emit import SecretInPatchError, emitted
from tuners.control.kubernetes.inspect import OwnedFlags, inspect
from tuners.control.kubernetes.owner import RecordError, owner_of, parse_record, record_document
from tuners.control.kubernetes.patches import json_patch, pointer, written_at
from tuners.control.kubernetes.siblings import sibling_of

SEATS = {"max_num_seqs": 32}
KINDS = {"OME": EngineKind.SGLANG}


@pytest.fixture
def fake() -> FakeKubernetes:
    return FakeKubernetes()


@pytest.fixture
def client(fake: FakeKubernetes) -> Iterator[KubernetesClient]:
    with serving(fake) as url:
        one = KubernetesClient(Context("prod", url, "llm", token=TOKEN))
        yield one
        one.close()


def planned(served: Served, stack: str = "") -> tuple[ChangePoint, list[str] | str]:
    point = change_point(served.root, served.pod, served.container, served.role)
    kind = KINDS.get(stack, EngineKind.VLLM)
    return point, written(point.present, point.style, kind, SEATS)


@pytest.mark.parametrize("stack", STACKS)
def test_the_place_of_each_stack(stack: str) -> None:
    point, value = planned(STACKS[stack], stack)
    assert (pointer(point.place), value) == (STACKS[stack].pointer, STACKS[stack].after)


@pytest.mark.parametrize("stack", STACKS)
def test_a_patch_changes_that_and_nothing_else(
    stack: str, fake: FakeKubernetes, client: KubernetesClient
) -> None:
    served = copy.deepcopy(STACKS[stack])
    served.put(fake)
    api, plural, item = served.owners[-1]
    key = (api, plural, "llm", item["metadata"]["name"])
    before = fake.get(key)
    point, value = planned(served, stack)
    patch = json_patch(before, point, value, "c1")
    fake.patch(key, "application/json-patch+json", patch, {"dryRun": "All"})
    assert fake.get(key) == before
    fake.patch(key, "application/json-patch+json", patch, {})
    after = fake.get(key)["spec"]
    at: Any = {"spec": after}
    for step in served.pointer.split("/")[1:]:
        at = at[int(step)] if isinstance(at, list) else at[step]
    assert at == served.after
    if point.bump is not None:
        assert after["deploymentConfig"]["podAnnotations"] == {BUMP_KEY: "c1"}


def test_the_operator_that_looks_at_annotations_alone_gets_one() -> None:
    bumped = [stack for stack in STACKS if planned(STACKS[stack], stack)[0].bump is not None]
    assert bumped == ["production stack, operator"]


def test_who_rolls_what_is_said() -> None:
    dynamo, _ = planned(STACKS["Dynamo"])
    assert dynamo.rolls.startswith("ALL workers of the graph")
    assert dynamo.sibling == ""
    assert "one replica" in planned(STACKS["llm-d"])[0].sibling


def test_dynamos_older_form() -> None:
    owner = {
        "kind": "DynamoGraphDeployment",
        "spec": {
            "services": {"Worker": {"extraPodSpec": {"mainContainer": {"args": ["--max-num-seqs", "8"]}}}}
        },
    }
    point = change_point(owner, STACKS["Dynamo"].pod, "main", Role.DECODE)
    assert pointer(point.place) == "/spec/services/Worker/extraPodSpec/mainContainer/args"
    assert point.present == ("--max-num-seqs", "8")


def test_kserves_words_pass_a_shell_twice() -> None:
    text = "--speculative-config '{\"num_speculative_tokens\": 3}'"
    changed = written(text, Style.EVALUATED_TEXT, EngineKind.VLLM, {"num_speculative_tokens": 1})
    assert changed == "--speculative-config '{\"num_speculative_tokens\": 1}'"
    listed = written(
        ["--speculative-config", '\'{"num_speculative_tokens":', "3}'"],
        Style.EVALUATED,
        EngineKind.VLLM,
        {"num_speculative_tokens": 1},
    )
    assert listed == ["--speculative-config", "'{\"num_speculative_tokens\": 1}'"]


@pytest.mark.parametrize(
    ("script", "readable"),
    [
        ("vllm serve m --max-num-seqs 64", True),
        ("vllm serve m --speculative-config '{\"a\": 1}'", True),
        ("vllm serve $MODEL --max-num-seqs 64", False),
        ("cd /x && vllm serve m", False),
        ("vllm serve m --a 'open", False),
    ],
)
def test_a_script_is_changed_only_where_no_shell_is_needed_to_read_it(script: str, readable: bool) -> None:
    command = ["/bin/sh", "-c", script]
    assert style_of(command, ()) is Style.SCRIPT
    if readable:
        changed = written(command, Style.SCRIPT, EngineKind.VLLM, SEATS)
        assert changed[:2] == ["/bin/sh", "-c"]
        assert "--max-num-seqs 32" in changed[2]
    else:
        with pytest.raises(FlagError):
            written(command, Style.SCRIPT, EngineKind.VLLM, SEATS)


@pytest.mark.parametrize(
    ("owner", "said"),
    [
        ({"kind": "Job"}, "owned by a Job"),
        ({}, "owned by a nobody"),
        ({"kind": "Deployment", "spec": {}}, "no container 'main'"),
        (
            {"kind": "InferenceService", "spec": {"engine": {"leader": {}, "worker": {}}}},
            r"write spec\.engine\.worker\.runner\.args first",
        ),
        ({"kind": "DynamoGraphDeployment", "spec": {}}, "which component"),
        ({"kind": "LLMInferenceService", "spec": {}}, "no container main of its own"),
    ],
)
def test_an_object_without_a_place_says_why(owner: dict[str, Any], said: str) -> None:
    with pytest.raises(NoPlaceError, match=said):
        change_point(owner, pod("a", {}, args=("--max-running-requests", "8")), "main", Role.AGGREGATED)


def engine_args(seats: int, rank: int) -> list[str]:
    return ["--max-running-requests", str(seats), "--node-rank", str(rank)]


def ome(parts: dict[str, Any]) -> dict[str, Any]:
    meta = {"name": "big", "namespace": "llm"}
    return {"kind": "InferenceService", "metadata": meta, "spec": {"engine": parts}}


def both_written(owner: dict[str, Any], running: dict[str, Any]) -> dict[str, Any]:
    """The object after a patch of both places to 32."""
    fake = FakeKubernetes()
    key = fake.put("x/v1", "things", copy.deepcopy(owner))
    point = change_point(owner, running, "main", Role.AGGREGATED)
    value, also = written_at(point, EngineKind.SGLANG, SEATS)
    before = fake.get(key)
    patch = json_patch(before, point, value, "c1", also=also)
    return fake.patch(key, "application/json-patch+json", patch, {})


def test_a_leader_and_its_workers_are_changed_together() -> None:
    parts = {
        who: {"runner": {"args": engine_args(64, rank)}} for rank, who in enumerate(("leader", "worker"))
    }
    owner = {
        "kind": "InferenceService",
        "metadata": {"name": "big", "namespace": "llm"},
        "spec": {"engine": parts},
    }
    after = both_written(owner, pod("a", {}, args=engine_args(64, 0)))["spec"]["engine"]
    assert after["leader"]["runner"]["args"] == engine_args(32, 0)
    assert after["worker"]["runner"]["args"] == engine_args(32, 1)


def test_where_a_runtime_keeps_all_flags_in_its_command_both_lists_are_begun() -> None:
    after = both_written(ome({"leader": {}, "worker": {}}), pod("a", {}))["spec"]["engine"]
    assert after["leader"] == after["worker"] == {"runner": {"args": ["--max-running-requests", "32"]}}


@pytest.mark.parametrize("behind", ["engine", "ray"])
def test_the_workers_of_a_leader_worker_set_are_changed_where_they_run_the_engine(behind: str) -> None:
    launch = ["python3", "-m", "sglang.launch_server"]
    ray = ["bash", "-c", "ray start --address $LWS_LEADER_ADDRESS:6379 --block"]
    worker = [*launch, *engine_args(64, 1)] if behind == "engine" else ray
    templates = {
        "leaderTemplate": {
            "spec": {"containers": [{"name": "main", "args": [*launch, *engine_args(64, 0)]}]}
        },
        "workerTemplate": {"spec": {"containers": [{"name": "worker", "args": worker}]}},
    }
    meta = {"name": "big", "namespace": "llm"}
    owner = {"kind": "LeaderWorkerSet", "metadata": meta, "spec": {"leaderWorkerTemplate": templates}}
    running = pod("a", {}, args=[*launch, *engine_args(64, 0)])
    after = both_written(owner, running)["spec"]["leaderWorkerTemplate"]
    args = [after[name]["spec"]["containers"][0]["args"] for name in templates]
    assert args[0] == [*launch, *engine_args(32, 0)]
    assert args[1] == ([*launch, *engine_args(32, 1)] if behind == "engine" else ray)
    point = change_point(owner, running, "main", Role.AGGREGATED)
    value, also = written_at(point, EngineKind.SGLANG, SEATS)
    sibling = sibling_of(owner, point, value, plan="c1", expires=60.0, also=also)
    made = sibling["spec"]["leaderWorkerTemplate"]
    assert [made[name]["spec"]["containers"][0]["args"] for name in templates] == args
    assert sibling["spec"]["replicas"] == 1
    assert {name: made[name]["metadata"]["labels"]["enginetop/canary"] for name in templates} == {
        "leaderTemplate": "c1",
        "workerTemplate": "c1",
    }


def test_a_record_is_read_as_it_was_written_and_holds_no_word_of_the_flags() -> None:
    owner = ome({"leader": {}, "worker": {}})
    running = pod("a", {"component": "engine"}, args=())
    point = change_point(owner, running, "main", Role.AGGREGATED)
    flags = OwnedFlags("/apis/ome.io/v1beta1/x", owner, running, point, "main", Role.AGGREGATED)
    made = {"http://a": owner_of(flags, EngineKind.SGLANG, "max_num_seqs", None, 32, 2)}
    text = json.dumps(record_document(made))
    assert parse_record(json.loads(text)) == made
    assert made["http://a"].added == (
        ("spec", "engine", "leader", "runner"),
        ("spec", "engine", "worker", "runner"),
    )
    assert "--max-running-requests" not in text


@pytest.mark.parametrize("document", [None, 3, {}, {"schema": "enginetop.kubernetes/1", "owners": {"a": {}}}])
def test_what_is_no_record_says_so(document: object) -> None:
    with pytest.raises(RecordError):
        parse_record(document)


def owned(stack: str, fake: FakeKubernetes) -> OwnedFlags:
    served = copy.deepcopy(STACKS[stack])
    served.put(fake)
    api, plural, item = served.owners[-1]
    name = item["metadata"]["name"]
    root = {**fake.get((api, plural, "llm", name)), "apiVersion": api}
    point = change_point(root, served.pod, served.container, served.role)
    return OwnedFlags(f"/apis/{api}/namespaces/llm/{plural}/{name}", root, served.pod, point)


def findings(client: KubernetesClient, flags: OwnedFlags, stack: str) -> list[tuple[bool, str]]:
    value = written(flags.point.present, flags.point.style, KINDS.get(stack, EngineKind.VLLM), SEATS)
    return [(one.refuses, one.text) for one in inspect(client, flags, value, "c1")]


@pytest.mark.parametrize("stack", STACKS)
def test_nothing_stands_against_a_change_of_ours(
    stack: str, fake: FakeKubernetes, client: KubernetesClient
) -> None:
    flags = owned(stack, fake)
    version = fake._version
    assert findings(client, flags, stack) == []
    assert fake._version == version, "an inspection writes nothing"
    assert all("dryRun=All" in asked for asked in fake.asked if asked.startswith("PATCH"))


def test_a_field_that_the_crd_does_not_know_is_found_dropped(
    fake: FakeKubernetes, client: KubernetesClient
) -> None:
    def without_annotations(item: dict[str, Any]) -> dict[str, Any]:
        kept = copy.deepcopy(item)
        kept["spec"].pop("deploymentConfig", None)
        return kept

    fake.known["vllmruntimes"] = without_annotations
    ((refuses, text),) = findings(client, owned("production stack, operator", fake), "")
    assert refuses
    assert text.startswith("/spec/deploymentConfig/podAnnotations/enginetop~1change was dropped")


def test_another_manager_of_the_field_is_named(fake: FakeKubernetes, client: KubernetesClient) -> None:
    flags = owned("OME", fake)
    key = ("ome.io/v1beta1", "inferenceservices", "llm", "chat")
    fake.owned[key, "spec.decoder.runner.args"] = "argocd-controller"
    ((refuses, text),) = findings(client, flags, "OME")
    assert refuses
    assert 'conflict with "argocd-controller"' in text


@pytest.mark.parametrize("tool", ["kubectl-client-side-apply", "kubectl-edit", "helm", "enginetop"])
def test_who_wrote_once_by_hand_does_not_stand_in_the_way(
    tool: str, fake: FakeKubernetes, client: KubernetesClient
) -> None:
    flags = owned("OME", fake)
    fake.owned[("ome.io/v1beta1", "inferenceservices", "llm", "chat"), "spec.decoder.runner.args"] = tool
    assert [text for refuses, text in findings(client, flags, "OME") if refuses] == []


def test_an_object_that_changed_meanwhile_is_refused(fake: FakeKubernetes, client: KubernetesClient) -> None:
    flags = owned("plain", fake)
    item = fake.get(("apps/v1", "deployments", "llm", "chat"))
    fake.put("apps/v1", "deployments", item)
    ((refuses, text),) = findings(client, flags, "plain")
    assert refuses
    assert "422" in text


def test_a_missing_right_is_named_by_its_verb(fake: FakeKubernetes, client: KubernetesClient) -> None:
    flags = owned("KServe", fake)
    fake.forbidden = {("patch", "llminferenceservices", "llm")}
    found = findings(client, flags, "KServe")
    assert (True, "we may not patch llminferenceservices in llm; a Role with that verb is needed") in found


def test_gitops_helm_autoscalers_and_budgets_are_told(fake: FakeKubernetes, client: KubernetesClient) -> None:
    flags = owned("plain", fake)
    item = fake.get(("apps/v1", "deployments", "llm", "chat"))
    item["metadata"]["annotations"] = {
        "argocd.argoproj.io/tracking-id": "llm:apps/Deployment:llm/chat",
        "meta.helm.sh/release-name": "prod",
    }
    item["metadata"]["managedFields"] = [
        {
            "manager": "helm",
            "fieldsV1": {
                "f:spec": {"f:template": {"f:spec": {"f:containers": {'k:{"name":"main"}': {"f:args": {}}}}}}
            },
        },
        {"manager": "kube-controller-manager", "fieldsV1": {"f:status": {}}},
    ]
    fake.put("apps/v1", "deployments", item)
    meta = {"namespace": "llm"}
    aim = {"kind": "Deployment", "name": "chat"}
    fake.put(
        "autoscaling/v2",
        "horizontalpodautoscalers",
        {"metadata": {**meta, "name": "keda-hpa-chat"}, "spec": {"scaleTargetRef": aim}},
    )
    for name in ("one", "two"):
        fake.put(
            "policy/v1",
            "poddisruptionbudgets",
            {"metadata": {**meta, "name": name}, "spec": {"selector": {"matchLabels": {"app": "chat"}}}},
        )
    root = fake.get(("apps/v1", "deployments", "llm", "chat"))
    found = findings(client, OwnedFlags(flags.path, root, flags.pod, flags.point), "plain")
    assert [refuses for refuses, _ in found] == [True, False, False, False, False]
    for words in (
        "Argo CD owns it",
        "Helm release prod",
        "helm wrote these flags",
        "keda-hpa-chat",
        "one, two",
    ):
        assert any(words in text for _, text in found), words


def test_the_text_for_people(fake: FakeKubernetes) -> None:
    flags = owned("production stack, Helm", fake)
    value = written(flags.point.present, flags.point.style, EngineKind.VLLM, SEATS)
    lines = list(emitted(flags.owner, flags.point, value, change="c1", context="prod"))
    place = "/spec/template/spec/containers/0/args"
    operations = [
        {"op": "test", "path": f"{place}/3", "value": "--max-num-seqs"},
        {"op": "test", "path": f"{place}/4", "value": "64"},
        {"op": "replace", "path": f"{place}/4", "value": "32"},
    ]
    start = "kubectl --context prod -n llm patch deployment.v1.apps prod-llama70 --type=json -p "
    assert f"{start}'{json.dumps(operations)}'" in lines
    assert lines[-1] == '      extraArgs: ["--max-num-seqs", "32"]'
    assert '  - name: "llama70"' in lines


def test_a_secret_among_the_flags_leaves_only_where_it_can_stay_out(fake: FakeKubernetes) -> None:
    copy.deepcopy(STACKS["plain"]).put(fake)
    deployment = fake.get(("apps/v1", "deployments", "llm", "chat"))
    args = ["vllm", "serve", "m", "--api-key", "sk-very-secret-key", "--max-num-seqs", "64"]
    deployment["spec"]["template"]["spec"]["containers"][0]["args"] = args
    point = change_point({**deployment, "kind": "Deployment"}, STACKS["plain"].pod, "main", Role.AGGREGATED)
    value = written(point.present, point.style, EngineKind.VLLM, SEATS)
    assert "sk-very" not in "\n".join(emitted(deployment, point, value, change="c", context="x"))
    script = ["sh", "-c", " ".join(args)]
    deployment["spec"]["template"]["spec"]["containers"][0] = {"name": "main", "command": script}
    point = change_point({**deployment, "kind": "Deployment"}, STACKS["plain"].pod, "main", Role.AGGREGATED)
    value = written(point.present, point.style, EngineKind.VLLM, SEATS)
    with pytest.raises(SecretInPatchError):
        list(emitted(deployment, point, value, change="c", context="x"))


_word = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=8)


@budget(max_examples=80, deadline=None)
@given(st.lists(_word, max_size=6), st.sampled_from((Style.LIST, Style.EVALUATED, Style.EVALUATED_TEXT)))
def test_other_words_stay_as_they_are(words: list[str], style: Style) -> None:
    plain = [word for word in words if not word.startswith("-")]
    quoted = [shlex.quote(word) for word in plain]
    value: list[str] | str = {Style.LIST: plain, Style.EVALUATED: quoted}.get(style, " ".join(quoted))
    changed = written(value, style, EngineKind.VLLM, SEATS)
    assert words_of(changed, style) == (*plain, "--max-num-seqs", "32")
