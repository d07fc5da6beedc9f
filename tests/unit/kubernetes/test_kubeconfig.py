"""kubeconfig: merging, contexts, in-cluster, and one line for whatever is wrong."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from collectors.kubernetes.context import Context, KubernetesError
from collectors.kubernetes.kubeconfig import find_context, split_place

NO_POD = Path("/nonexistent")
_OF_X = "current-context: x\ncontexts: [{name: x, context: {cluster: c}}]"
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A kubeconfig with one context of a name, whose user and cluster have the given fields."""

    def written(
        name: str,
        *,
        user: Mapping[str, object] | None = None,
        cluster: Mapping[str, object] | None = None,
        file: str = "config",
        current: bool = True,
    ) -> Path:
        path = tmp_path / file
        path.write_text(
            yaml.safe_dump(
                {
                    **({"current-context": name} if current else {}),
                    "contexts": [
                        {"name": name, "context": {"cluster": name, "user": name, "namespace": f"ns-{name}"}}
                    ],
                    "clusters": [
                        {"name": name, "cluster": {"server": f"https://{name}:6443/", **(cluster or {})}}
                    ],
                    "users": [{"name": name, "user": dict(user or {"token": "t"})}],
                }
            ),
            encoding="utf-8",
        )
        return path

    return written


def found(*paths: Path | str, name: str | None = None) -> Context:
    environment = {"KUBECONFIG": ":".join(map(str, paths)), "HOME": "/nonexistent"}
    return find_context(name, environment=environment, service_account=NO_POD)


def test_the_current_context(write: Write) -> None:
    context = found(write("prod"))
    assert (context.name, context.server, context.namespace) == ("prod", "https://prod:6443", "ns-prod")


def test_files_are_merged_and_the_first_to_name_something_wins(write: Write, tmp_path: Path) -> None:
    first = write("a", file="one", cluster={"server": "https://first:1"})
    second = write("a", file="two", cluster={"server": "https://second:2"})
    third = write("b", file="three")
    paths = (tmp_path / "missing", first, second, third)
    assert found(*paths).server == "https://first:1"
    assert found(*paths, name="b").server == "https://b:6443"


def test_paths_are_relative_to_their_file(write: Write, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    path = write(
        "a",
        file="sub/config",
        user={"tokenFile": "token", "client-certificate": "/abs/c.pem", "client-key": "k.pem"},
        cluster={"certificate-authority": "ca.pem"},
    )
    context = found(path)
    assert context.token_file == str(tmp_path / "sub" / "token")
    assert (context.cert_file, context.key_file) == ("/abs/c.pem", str(tmp_path / "sub" / "k.pem"))
    assert context.ca_file == str(tmp_path / "sub" / "ca.pem")


def test_data_in_line_is_decoded(write: Write) -> None:
    path = write("a", cluster={"certificate-authority-data": b64encode(b"PEM").decode()})
    assert found(path).ca_data == b"PEM"


def test_secrets_show_in_no_repr(write: Write) -> None:
    context = found(write("a", user={"token": "very-secret-token", "password": "pass-word-1"}))
    assert context.token == "very-secret-token"
    assert "secret" not in repr(context)
    assert "pass-word" not in repr(context)


def test_a_pods_own_account_where_there_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    (tmp_path / "namespace").write_text("llm\n")
    environment = {
        "HOME": "/nonexistent",
        "KUBERNETES_SERVICE_HOST": "fd00::1",
        "KUBERNETES_SERVICE_PORT": "6443",
    }
    context = find_context(environment=environment, service_account=tmp_path)
    assert (context.server, context.namespace, context.in_cluster) == ("https://[fd00::1]:6443", "llm", True)
    assert context.token_file == str(tmp_path / "token")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{a: [", "no YAML"),
        ("- a", "no kubeconfig"),
        ("{}", "no current context"),
        ("current-context: x", "no context 'x'"),
        (_OF_X, "names a cluster that is not there"),
        (f"{_OF_X}\nclusters: [{{name: c, cluster: {{}}}}]", "names a cluster that is not there"),
        (f"{_OF_X}\nclusters: [{{name: c, cluster: {{server: 'ftp://x'}}}}]", "no URL"),
        (
            _OF_X
            + "\nclusters: [{name: c, cluster: {server: 'https://x', certificate-authority-data: '%'}}]",
            "no base64",
        ),
    ],
)
def test_a_file_that_is_wrong_is_one_line(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "config"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(KubernetesError) as raised:
        found(path)
    assert said in str(raised.value)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_no_file_at_all_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(KubernetesError, match=r"no kubeconfig: .*/config not there; set KUBECONFIG"):
        find_context(environment={"HOME": str(tmp_path)}, service_account=NO_POD)


def test_a_context_that_is_not_there_names_those_that_are(write: Write) -> None:
    with pytest.raises(KubernetesError, match=r"no context 'prd'; there are prod"):
        found(write("prod"), name="prd")


def test_what_kubectl_gave_up_is_told(write: Write) -> None:
    with pytest.raises(KubernetesError, match="auth-provider"):
        found(write("a", user={"auth-provider": {"name": "gcp"}}))


@pytest.mark.parametrize(
    ("place", "split"),
    [
        ("", (None, None)),
        ("prod", ("prod", None)),
        ("prod/llm", ("prod", "llm")),
        ("/llm", (None, "llm")),
        ("http://127.0.0.1:8001", ("http://127.0.0.1:8001", None)),
        ("http://[::1]:8001/llm", ("http://[::1]:8001", "llm")),
    ],
)
def test_a_place_is_a_context_or_a_proxy_and_a_namespace(
    place: str, split: tuple[str | None, str | None]
) -> None:
    assert split_place(place) == split


EKS = "arn:aws:eks:eu-west-1:123456789012:cluster/prod"
OPENSHIFT = "default/api-prod-example-com:6443/kube:admin"


@pytest.mark.parametrize("name", [EKS, OPENSHIFT, "a/b"])
@pytest.mark.parametrize("namespace", [None, "llm"])
def test_a_context_may_have_slashes_in_its_name(write: Write, name: str, namespace: str | None) -> None:
    environment = {"KUBECONFIG": str(write(name)), "HOME": "/nonexistent"}
    place = name if namespace is None else f"{name}/{namespace}"
    assert split_place(place, environment=environment) == (name, namespace)
    # what no file names is split as ever
    assert split_place("prod/llm", environment=environment) == ("prod", "llm")
    assert split_place("prod/llm", environment={"KUBECONFIG": "/nonexistent"}) == ("prod", "llm")


ODD = [5, "x", [1], {"a": 1}, None, [None], [{"name": 5}]]


@pytest.mark.parametrize("kind", ["contexts", "clusters", "users"])
@pytest.mark.parametrize("value", ODD, ids=map(str, ODD))
def test_a_kubeconfig_of_odd_lists_is_refused_in_words(write: Write, kind: str, value: object) -> None:
    path = write("prod")
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), kind: value}))
    with suppress(KubernetesError):
        found(path)
    assert split_place("prod/x", environment={"KUBECONFIG": str(path)}) == ("prod", "x")


@pytest.mark.parametrize("key", ["args", "env", "command", "installHint"])
@pytest.mark.parametrize("value", ODD, ids=map(str, ODD))
def test_an_exec_plugin_of_odd_fields_is_taken_as_far_as_it_goes(
    write: Write, key: str, value: object
) -> None:
    path = write("prod", user={"exec": {"command": "login", "args": ["a"], key: value}})
    with suppress(KubernetesError):
        plugin = found(path).exec_plugin
        assert plugin is not None
        assert all(isinstance(one, str) for one in plugin.arguments)


def test_a_kubectl_proxy_of_this_machine_is_a_context_without_secrets() -> None:
    context = find_context("http://localhost:8001", environment={"KUBECONFIG": "/nonexistent"})
    assert (context.server, context.namespace) == ("http://localhost:8001", "default")
    assert (context.token, context.token_file, context.exec_plugin) == (None, None, None)
    assert find_context("http://[::1]:9", environment={}).server == "http://[::1]:9"


@pytest.mark.parametrize(
    "url", ["http://10.0.0.1:8001", "https://127.0.0.1:8001", "http://u:p@127.0.0.1", "http://x:y:z", "://"]
)
def test_no_other_url_is_a_context(url: str) -> None:
    with pytest.raises(KubernetesError, match="no `kubectl proxy` of this machine") as raised:
        find_context(url, environment={})
    assert ":p@" not in str(raised.value)
