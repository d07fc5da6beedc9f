"""The API server's protocol: pages, watches, and refusals in its own words with what helps."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from collectors.kubernetes.client import KubernetesClient, VersionGoneError
from collectors.kubernetes.context import Context, ExecPlugin, KubernetesError
from collectors.kubernetes.exec_plugin import Printed
from collectors.kubernetes.identity import Identity
from collectors.kubernetes.pod_list import PodList
from tests.support.fake_kubernetes import TOKEN, FakeKubernetes, serving
from tests.support.kubernetes_pods import VLLM_STACK, pod

PODS = "/api/v1/pods"


@pytest.fixture
def client(fake: FakeKubernetes) -> Iterator[KubernetesClient]:
    with serving(fake) as url:
        one = KubernetesClient(Context("test", url, "llm", token=TOKEN), page_items=3)
        yield one
        one.close()


def fill(fake: FakeKubernetes, count: int) -> None:
    for number in range(count):
        fake.put("v1", "pods", pod(f"p{number}", VLLM_STACK))


def names(items: object) -> list[str]:
    assert isinstance(items, list | tuple)
    return [item["metadata"]["name"] for item in items]


def test_a_list_comes_whole_however_many_pages_it_takes(
    fake: FakeKubernetes, client: KubernetesClient
) -> None:
    fill(fake, 8)
    assert names(client.list(PODS).items) == [f"p{number}" for number in range(8)]
    assert len(fake.asked) == 3


def test_a_list_whose_continue_expired_is_read_again(fake: FakeKubernetes, client: KubernetesClient) -> None:
    fill(fake, 8)
    fake.continues_expire = 1
    assert names(client.list(PODS).items) == [f"p{number}" for number in range(8)]
    fake.continues_expire = 2
    with pytest.raises(KubernetesError, match="410"):
        client.list(PODS)


def test_a_watch_tells_what_happened_after_the_list(fake: FakeKubernetes, client: KubernetesClient) -> None:
    fill(fake, 1)
    version = client.list(PODS).version
    key = fake.put("v1", "pods", pod("late", VLLM_STACK))
    fake.remove(key)
    events = [(one.kind, one.item["metadata"].get("name")) for one in client.watch(PODS, version, seconds=1)]
    assert events == [("ADDED", "late"), ("DELETED", "late"), ("BOOKMARK", None)]


def test_an_expired_version_comes_inside_a_stream(fake: FakeKubernetes, client: KubernetesClient) -> None:
    fake.compacted = 10**6
    with pytest.raises(VersionGoneError):
        list(client.watch(PODS, "1", seconds=1))


@pytest.mark.parametrize(
    ("forbidden", "path", "said"),
    [
        (
            {("list", "pods", "*")},
            PODS,
            '403, ask for that verb in a Role of yours: pods is forbidden.* "pods".*at the cluster scope',
        ),
        (
            set(),
            "/api/v1/namespaces/llm/pods/none",
            '404, the kind or the object is not there: GET .*pods "none" not found',
        ),
    ],
)
def test_a_refusal_is_the_servers_own_words(
    fake: FakeKubernetes, client: KubernetesClient, forbidden: set[tuple[str, str, str]], path: str, said: str
) -> None:
    fake.forbidden = forbidden
    with pytest.raises(KubernetesError, match=said):
        client.get(path)


def test_a_token_that_is_refused_is_told_without_it(fake: FakeKubernetes, client: KubernetesClient) -> None:
    fake.tokens.clear()
    with pytest.raises(KubernetesError, match="401, log in to the cluster again: Unauthorized") as raised:
        client.list(PODS)
    assert TOKEN not in str(raised.value)


def test_a_plugin_is_asked_again_when_the_server_refuses_its_token(fake: FakeKubernetes) -> None:
    printed = iter((Printed("stale", None, None, None), Printed(TOKEN, None, None, None)))
    plugin = ExecPlugin("x", (), (), "client.authentication.k8s.io/v1", "Never", "", False)
    with serving(fake) as url:
        context = Context("test", url, "llm", exec_plugin=plugin)
        client = KubernetesClient(context, Identity(context, run=lambda _: next(printed)))
        assert client.list(PODS).items == ()
        client.close()


def test_a_dead_server_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    client = KubernetesClient(Context("old", f"http://127.0.0.1:{port}", "llm", token="t"))
    with pytest.raises(
        KubernetesError, match=rf"Kubernetes old \(http://127\.0\.0\.1:{port}\): connection refused"
    ):
        client.list(PODS)
    client.close()


def test_the_pods_stay_true(fake: FakeKubernetes, client: KubernetesClient) -> None:
    fill(fake, 2)
    pods = PodList(client, "llm", watch_seconds=5)
    pods.look()
    assert names(pods.pods) == ["p0", "p1"]
    key = fake.put("v1", "pods", pod("p2", VLLM_STACK))
    fake.put("v1", "pods", pod("elsewhere", VLLM_STACK, namespace="other"))
    pods.look()
    assert names(pods.pods) == ["p0", "p1", "p2"]
    fake.remove(key)
    fake.compacted = 10**6
    pods.look()
    assert names(pods.pods) == ["p0", "p1"], "an expired version is no gap: the list is read anew"


def test_a_watch_that_is_cut_misses_nothing(fake: FakeKubernetes, client: KubernetesClient) -> None:
    pods = PodList(client, watch_seconds=1)
    pods.look()
    for number in range(4):
        fake.put("v1", "pods", pod(f"p{number}", VLLM_STACK))
    fake.cut_watches = 2
    for _ in range(4):
        pods.look()
    assert names(pods.pods) == ["p0", "p1", "p2", "p3"]


def test_after_a_refusal_the_list_is_read_anew(fake: FakeKubernetes, client: KubernetesClient) -> None:
    fill(fake, 1)
    pods = PodList(client, watch_seconds=1)
    pods.look()
    fake.forbidden = {("watch", "pods", "*")}
    with pytest.raises(KubernetesError, match='cannot watch resource "pods"'):
        pods.look()
    fake.put("v1", "pods", pod("p1", VLLM_STACK))
    pods.look()
    assert names(pods.pods) == ["p0", "p1"]
