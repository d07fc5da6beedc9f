"""The commands on a cluster: pods found and read through the API server, knobs told, patches printed."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.context import Context
from enginetop import __version__
from enginetop.cli.kubernetes_owners import Cluster, KnobsOfPods, OwnedKnobs
from enginetop.cli.main import main
from enginetop.cli.parser import parse
from enginetop.cli.resolve import resolve
from enginetop.fleet.knobs import KnobAnswer, KnobSheet, sheet_document
from enginetop.fleet.model import Target
from enginetop.fleet.plan import Plan, PlannedChange, Scope, plan_text
from tests.support.fake_kubernetes import TOKEN, FakeKubernetes, serving
from tests.support.kubernetes_stacks import STACKS
from tuners.control.knob_api import HttpKnobClient, ReplyKind

PAGE = Path("tests/fixtures/vllm/0.32.0/vllm-0.32.0-loaded.prom").read_bytes()


@pytest.fixture
def fake() -> FakeKubernetes:
    return FakeKubernetes()


@pytest.fixture
def server(fake: FakeKubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The fake cluster as the current context."""
    with serving(fake) as url:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(
            yaml.safe_dump(
                {
                    "current-context": "prod",
                    "contexts": [
                        {"name": "prod", "context": {"cluster": "c", "user": "u", "namespace": "llm"}}
                    ],
                    "clusters": [{"name": "c", "cluster": {"server": url}}],
                    "users": [{"name": "u", "user": {"token": TOKEN}}],
                }
            )
        )
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        yield url


def target_url(server: str) -> str:
    return f"{server}/api/v1/namespaces/llm/pods/a:8000/proxy"


def served(fake: FakeKubernetes, stack: str) -> None:
    copy.deepcopy(STACKS[stack]).put(fake)
    fake.pages["llm", "a", 8000] = lambda path: (200, PAGE) if path == "/metrics" else (404, b"")


def plan(server: str, knob: str = "max_num_seqs", after: int = 32) -> Plan:
    change = PlannedChange(target_url(server), "llm/Deployment/chat", knob, 64, after, via="kubernetes")
    now = time.time()
    scope = Scope(model=None, role="aggregated", canary=change.target)
    return Plan("plan0001", now, now + 600, __version__, "0" * 64, scope, (change,))


def test_a_fleet_is_found_and_read(
    fake: FakeKubernetes, server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    served(fake, "llm-d")
    spec = {"selector": {"matchLabels": {"llm-d.ai/guide": "g"}}, "endpointPickerRef": {"name": "epp"}}
    pool = {"metadata": {"name": "g", "namespace": "llm"}, "spec": spec}
    fake.put("inference.networking.k8s.io/v1", "inferencepools", pool)
    assert main(["snapshot", "--kubernetes", "--interval", "0.2"]) == 0
    output = capsys.readouterr()
    (replica,) = json.loads(output.out)["replicas"]
    assert (replica["engine"], replica["target"]) == ("vllm", target_url(server))
    assert (replica["pod"], replica["inference_pool"]) == ("llm/a", "llm/g")
    assert TOKEN not in output.out + output.err


def test_a_fleet_is_read_through_a_kubectl_proxy(
    fake: FakeKubernetes, server: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever logs in with what only kubectl can do: `kubectl proxy`, and its address."""
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    served(fake, "llm-d")
    arguments = ["snapshot", "--discover", f"kubernetes:{server}/llm", "--interval", "0.2"]
    assert main(arguments) == 2, "a proxy that does not know us"
    assert "log in to the cluster again" in capsys.readouterr().err
    fake.trusts_all = True
    fake.tokens.clear()
    assert main(arguments) == 0
    (replica,) = json.loads(capsys.readouterr().out)["replicas"]
    assert (replica["engine"], replica["target"]) == ("vllm", target_url(server))


def test_the_flags_of_the_owner_are_its_knobs(fake: FakeKubernetes, server: str) -> None:
    served(fake, "KServe")
    cluster = Cluster(client=KubernetesClient(Context("prod", server, "llm", token=TOKEN)))
    reply = HttpKnobClient(OwnedKnobs(Target(target_url(server), "a"), _NoKnobApi(), cluster)).read()
    assert reply.kind is ReplyKind.OK
    assert reply.sheet is not None
    assert (reply.sheet.writer, reply.sheet.instance) == ("kubernetes", "llm/LLMInferenceService/qwen")
    assert {row.name: row.value for row in reply.sheet.knobs} == {
        "max_num_batched_tokens": None,
        "num_speculative_tokens": 3,
        "max_num_seqs": 64,
    }
    write = HttpKnobClient(OwnedKnobs(Target(target_url(server), "a"), _NoKnobApi(), cluster)).write(
        "max_num_seqs", 32, if_version=0, ttl_seconds=30, change="c", reason="r"
    )
    assert write.kind is ReplyKind.MISSING, "nothing is written that all replicas would restart for"
    cluster.client.close()


def test_an_engines_own_knobs_go_first_unless_the_owners_are_wanted(
    fake: FakeKubernetes, server: str
) -> None:
    class Companion:
        def request(self, method: str, path: str, body: bytes | None = None) -> KnobAnswer:
            sheet = KnobSheet("vllm", "0.32", "here", 1, 1, ())
            return KnobAnswer(200, json.dumps(sheet_document(sheet)).encode())

    served(fake, "plain")
    cluster = Cluster(client=KubernetesClient(Context("prod", server, "llm", token=TOKEN)))
    target = Target(target_url(server), "a")
    for owner_first, writer in ((False, "knob_api"), (True, "kubernetes")):
        sheet = HttpKnobClient(OwnedKnobs(target, Companion(), cluster, owner_first=owner_first)).read().sheet
        assert sheet is not None
        assert sheet.writer == writer
        assert sheet.canary == ("kubernetes://llm/Deployment/chat/canary" if owner_first else "")
    cluster.client.close()


def test_pods_that_came_with_a_rollout_have_knobs_and_nothing_else_is_asked(
    fake: FakeKubernetes, server: str
) -> None:
    served(fake, "plain")
    cluster = Cluster(client=KubernetesClient(Context("prod", server, "llm", token=TOKEN)))
    known = {"http://known:1": HttpKnobClient(_NoKnobApi())}
    knobs = KnobsOfPods(known.get, cluster, owner_first=True)
    assert knobs("http://known:1") is known["http://known:1"]
    came = knobs(target_url(server))
    assert came is not None
    assert came is knobs(target_url(server))
    sheet = came.read().sheet
    assert sheet is not None
    assert (sheet.writer, sheet.instance) == ("kubernetes", "llm/Deployment/chat")
    for url in ("http://elsewhere:8000", f"{server}/api/v1/namespaces/llm/secrets/x", f"{server}0/pods/a"):
        assert knobs(url) is None
    cluster.client.close()


def test_the_config_says_whose_knobs_count(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[[discovery]]\nkind = "kubernetes"\ncontext = "prod"\nknobs = "owner"\n')
    _, args = parse(["watch", "--config", str(config)])
    (setting,) = resolve(args, print).discovery
    assert (setting.place, setting.knobs) == ("prod", "owner")


def test_an_owner_is_asked_once_a_minute(fake: FakeKubernetes, server: str) -> None:
    served(fake, "plain")
    cluster = Cluster(client=KubernetesClient(Context("prod", server, "llm", token=TOKEN)))
    clock = [1000.0]
    knobs = HttpKnobClient(
        OwnedKnobs(Target(target_url(server), "a"), _NoKnobApi(), cluster, now=lambda: clock[0])
    )
    first = knobs.read().sheet
    asked = len(fake.asked)
    clock[0] += 59.0
    assert knobs.read().sheet == first
    assert len(fake.asked) == asked
    clock[0] += 2.0
    assert knobs.read().sheet == first
    assert len(fake.asked) > asked


class _NoKnobApi:
    """An engine without a companion."""

    def request(self, method: str, path: str, body: bytes | None = None) -> KnobAnswer:
        return KnobAnswer(404, b"{}")


def test_a_plan_is_printed_as_patches_and_nothing_is_written(
    fake: FakeKubernetes, server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    served(fake, "plain")
    path = tmp_path / "plan.json"
    path.write_text(plan_text(plan(server)))
    version = fake._version
    assert main(["apply", str(path), "--emit-patch"]) == 0
    output = capsys.readouterr().out
    assert "kubectl --context prod -n llm patch deployment.v1.apps chat --type=json" in output
    assert "# canary: a second object with one replica" in output
    assert fake._version == version


def test_findings_stand_above_the_patch(
    fake: FakeKubernetes, server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    served(fake, "plain")
    fake.forbidden = {("patch", "deployments", "llm")}
    path = tmp_path / "plan.json"
    path.write_text(plan_text(plan(server)))
    assert main(["apply", str(path), "--emit-patch"]) == 0
    assert capsys.readouterr().out.startswith("# refused: we may not patch deployments in llm")


@pytest.mark.parametrize("knob", ["thinking_token_budget", "num_speculative_tokens"])
def test_what_no_flag_sets_is_one_line(
    fake: FakeKubernetes, server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], knob: str
) -> None:
    served(fake, "plain")
    path = tmp_path / "plan.json"
    path.write_text(plan_text(plan(server, knob)))
    assert main(["apply", str(path), "--emit-patch"]) == 2
    error = capsys.readouterr().err
    assert f"no flag of vllm sets {knob} here" in error
    assert error.count("\n") == 1


def test_a_pod_that_is_gone_is_one_line(
    fake: FakeKubernetes, server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(plan_text(plan(server)))
    assert main(["apply", str(path), "--emit-patch"]) == 2
    assert 'pods "a" not found' in capsys.readouterr().err


def test_apply_does_not_write_what_an_owner_rules(
    fake: FakeKubernetes, server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    served(fake, "plain")
    path = tmp_path / "plan.json"
    path.write_text(plan_text(plan(server)))
    config = tmp_path / "config.toml"
    config.write_text("interval_seconds = 0.2\n[control]\n")
    version = fake._version
    assert main(["apply", str(path), "--yes", "--kubernetes", "--config", str(config)]) == 2
    assert "refused: " in capsys.readouterr().err
    assert fake._version == version
