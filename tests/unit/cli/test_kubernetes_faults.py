"""A cluster that cannot be used, through the commands: one line that says what to do, and no key in it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from collectors.discovery import watcher
from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.context import Context
from enginetop.cli.kubernetes_owners import Cluster
from enginetop.cli.main import main
from enginetop.fleet.errors import ClusterError
from enginetop.fleet.model import Target
from tests.support.fake_kubernetes import TOKEN, FakeKubernetes, serving
from tests.support.kubernetes_stacks import STACKS

Write = Callable[..., None]


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes the kubeconfig whose only context is `prod`."""

    def write(server: str, user: dict[str, Any] | None = None) -> None:
        path = tmp_path / "kubeconfig"
        context = {"cluster": "c", "user": "u", "namespace": "llm"}
        path.write_text(
            yaml.safe_dump(
                {
                    "current-context": "prod",
                    "contexts": [{"name": "prod", "context": context}],
                    "clusters": [{"name": "c", "cluster": {"server": server}}],
                    "users": [{"name": "u", "user": user or {"token": TOKEN}}],
                }
            )
        )
        monkeypatch.setenv("KUBECONFIG", str(path))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    return write


@pytest.fixture
def fake() -> FakeKubernetes:
    return FakeKubernetes()


@pytest.fixture
def server(fake: FakeKubernetes) -> Iterator[str]:
    with serving(fake) as url:
        yield url


def plugin(script: str, interactive: str = "IfAvailable") -> dict[str, Any]:
    version = "client.authentication.k8s.io/v1"
    arguments = ["-c", script]
    return {
        "exec": {
            "apiVersion": version,
            "command": "/bin/sh",
            "args": arguments,
            "interactiveMode": interactive,
        }
    }


def one_line(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command says on stderr, which is one line, and nothing on stdout."""
    assert main(["snapshot", *arguments]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1, output.err
    assert TOKEN not in output.err
    return output.err


def test_a_dead_context(kubeconfig: Write, capsys: pytest.CaptureFixture[str]) -> None:
    kubeconfig("http://127.0.0.1:1")
    said = one_line(capsys, "--kubernetes")
    assert "Kubernetes prod (http://127.0.0.1:1): connection refused" in said
    assert "--discover kubernetes:CONTEXT" in said


def test_a_context_that_is_not_there_names_those_that_are(
    kubeconfig: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig("http://127.0.0.1:1")
    assert "no context 'prodd'; there are prod" in one_line(capsys, "--discover", "kubernetes:prodd")


@pytest.mark.parametrize(
    ("user", "said"),
    [
        (
            plugin("echo 'open https://login.example' >&2; read a; exit 1"),
            "failed: open https://login.example; ",
        ),
        (plugin("exit 0", "Always"), "needs a terminal, which it does not get here; run: /bin/sh -c"),
        (plugin("echo nonsense"), "printed no credentials; run: /bin/sh -c"),
    ],
)
def test_a_plugin_that_prompts(
    kubeconfig: Write, capsys: pytest.CaptureFixture[str], user: dict[str, Any], said: str
) -> None:
    kubeconfig("http://127.0.0.1:1", user)
    assert said in one_line(capsys, "--kubernetes")


def test_a_plugin_that_hangs_is_named_with_the_command_to_run(
    kubeconfig: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher.SourceWatcher.first_looks, "__defaults__", (0.3,))
    kubeconfig("http://127.0.0.1:1", plugin("sleep 3"))
    said = one_line(capsys, "--kubernetes")
    assert "kubernetes: no list within 0.3 s; it waits for a login: run /bin/sh -c 'sleep 3'" in said


def test_a_namespace_without_rights_names_verb_and_namespace(
    fake: FakeKubernetes, server: str, kubeconfig: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig(server)
    fake.forbidden = {("list", "pods", "*")}
    said = one_line(capsys, "--discover", "kubernetes:prod/secret")
    assert 'cannot list resource "pods" in API group "" in the namespace "secret"' in said
    assert "ask for that verb in a Role of yours" in said


def test_a_refused_token_says_to_log_in(
    fake: FakeKubernetes, server: str, kubeconfig: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig(server, {"token": "expired-cluster-token"})
    said = one_line(capsys, "--kubernetes")
    assert "401, log in to the cluster again: Unauthorized" in said
    assert "expired-cluster-token" not in said


@pytest.mark.parametrize("served", ["nvidia.com/v1beta2", None])
def test_an_owner_in_another_version_of_its_kind_is_read_in_the_one_that_is_served(
    fake: FakeKubernetes, server: str, served: str | None
) -> None:
    """Pods keep the version by which they were made; a cluster that was upgraded serves another one."""
    stack = copy.deepcopy(STACKS["Dynamo"])
    stack.put(fake)
    _, plural, _ = stack.owners[-1]
    for key in list(fake._items):
        if key[0] == "nvidia.com/v1beta1":
            item = fake.get(key)
            fake.remove(key)
            if served is not None:
                fake.put(served, key[1], {**item, "apiVersion": served})
    client = KubernetesClient(Context("prod", server, "llm", token=TOKEN))
    cluster = Cluster(client=client)
    target = Target(f"{server}/api/v1/namespaces/llm/pods/a:9090/proxy", "a", pod="llm/a")
    try:
        if served is None:
            with pytest.raises(ClusterError, match='"g-worker" not found'):
                cluster.flags(target)
            return
        flags = cluster.flags(target)
        assert flags.path == f"/apis/{served}/namespaces/llm/{plural}/g"
        assert flags.owner["apiVersion"] == served
        assert cluster.top_of(flags.pod) == flags.path
    finally:
        client.close()


def test_a_kind_that_no_version_has_is_one_line_with_what_there_is(fake: FakeKubernetes, server: str) -> None:
    stack = copy.deepcopy(STACKS["Dynamo"])
    stack.put(fake)
    for key in list(fake._items):
        if key[0].startswith("nvidia.com/") and key[1] == "dynamographdeployments":
            fake.remove(key)
            fake.put("nvidia.com/v9", "other", {"metadata": {"name": "x", "namespace": "llm"}})
    for key in fake.keys("dynamocomponentdeployments"):
        item = fake.get(key)
        item["metadata"]["ownerReferences"][0]["apiVersion"] = "nvidia.com/v1alpha1"
        fake.put(key[0], key[1], item)
    client = KubernetesClient(Context("prod", server, "llm", token=TOKEN))
    try:
        with pytest.raises(
            ClusterError,
            match=r"DynamoGraphDeployment g: nvidia\.com/v1alpha1 is not served here, and none of "
            r"nvidia\.com/v1beta1, nvidia\.com/v9 has it",
        ):
            Cluster(client=client).flags(Target("http://x", "a", pod="llm/a"))
    finally:
        client.close()
