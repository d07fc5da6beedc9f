"""A cluster as a source of targets: scope, reach, owners, and a page read through the API server."""

from __future__ import annotations

import asyncio

import pytest

from collectors.discovery.listing import ListingError
from collectors.discovery.membership import Membership
from collectors.discovery.watcher import SourceWatcher
from collectors.http import HttpFetcher
from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.context import Context
from collectors.kubernetes.identity import Identity
from collectors.kubernetes.source import MOST_THROUGH_SERVER, KubernetesPods, Reach
from enginetop.fleet.model import Role, Target
from tests.support.fake_kubernetes import TOKEN, FakeKubernetes, serving
from tests.support.kubernetes_pods import VLLM_STACK, owned_by, pod
from tests.support.tls_server import CA, tls_server


def test_pods_are_reached_directly_where_that_is_asked_for(
    fake: FakeKubernetes, client: KubernetesClient
) -> None:
    fake.put("v1", "pods", pod("a", VLLM_STACK, ports={"container-port": 8001}))
    fake.put("v1", "pods", pod("b", VLLM_STACK, address="fd00::7", scheme="HTTPS"))
    fake.put("v1", "pods", pod("shop", {"app": "shop"}, image="nginx"))
    found = KubernetesPods("", Reach.DIRECT, client=client).look()
    assert [(one.target.url, one.target.name, one.identity) for one in found] == [
        ("http://10.1.0.7:8001", "a", "llm/a"),
        ("https://[fd00::7]:8000", "b", "llm/b"),
    ]
    assert [one.credentials for one in found] == [None, None], "the cluster's token is not for pods"


def test_a_page_is_read_through_the_api_server(fake: FakeKubernetes, client: KubernetesClient) -> None:
    fake.put("v1", "pods", pod("a", VLLM_STACK))
    fake.pages["llm", "a", 8000] = lambda path: (200, f"x 1\n# {path}\n".encode())
    source = KubernetesPods("", client=client)
    members = Membership(SourceWatcher((source,)), (), {}, {})
    (target,) = members.begin(0.0)
    assert target.url == f"{client.context.server}/api/v1/namespaces/llm/pods/a:8000/proxy"
    assert target.role is Role.AGGREGATED

    assert read(members, target) == (200, b"x 1\n# /metrics\n")


def test_pods_are_read_through_the_proxy_of_the_kubeconfig(fake: FakeKubernetes) -> None:
    """The fake is the proxy: nobody else knows the name of the server."""
    fake.put("v1", "pods", pod("a", VLLM_STACK))
    fake.pages["llm", "a", 8000] = lambda _: (200, b"x 1\n")
    with serving(fake) as proxy:
        context = Context("far", "http://api.invalid:6443", "llm", token=TOKEN, proxy_url=proxy)
        client = KubernetesClient(context)
        members = Membership(SourceWatcher((KubernetesPods("", client=client),)), (), {}, {})
        (target,) = members.begin(0.0)
        client.close()
        assert target.url == "http://api.invalid:6443/api/v1/namespaces/llm/pods/a:8000/proxy"
        assert read(members, target) == (200, b"x 1\n")
    assert "proxy" not in repr(members.credentials[target.url]).replace("proxy_url", "")


def test_pods_are_read_by_the_servers_name_of_the_kubeconfig() -> None:
    """A certificate for another name than that of the host, which the context names."""
    with tls_server("elsewhere", b"x 1\n") as port:
        for name, seen in (("elsewhere.test", b"x 1\n"), (None, b"")):
            context = Context(
                "far", f"https://127.0.0.1:{port}", "llm", token="t", ca_file=CA, tls_server_name=name
            )
            target = Target(f"https://127.0.0.1:{port}", "a")
            members = Membership(SourceWatcher(()), (), {target.url: Identity(context).credentials()}, {})
            assert read(members, target)[1] == seen, name


def read(members: Membership, target: Target) -> tuple[int | None, bytes]:
    """A target's page, as those are read that discovery found."""

    async def fetch() -> tuple[int | None, bytes]:
        fetcher = HttpFetcher(members.credentials)
        try:
            answer = await fetcher.fetch(target.url, "/metrics", timeout_seconds=5)
        finally:
            await fetcher.aclose()
        return answer.status, answer.body

    return asyncio.run(fetch())


def test_who_may_not_list_the_cluster_lists_the_contexts_namespace(
    fake: FakeKubernetes, client: KubernetesClient
) -> None:
    fake.put("v1", "pods", pod("a", VLLM_STACK))
    fake.put("v1", "pods", pod("b", VLLM_STACK, namespace="other"))
    fake.forbidden = {("list", "pods", "")}
    assert [one.identity for one in KubernetesPods("", client=client).look()] == ["llm/a"]
    fake.forbidden = {("list", "pods", "*")}
    with pytest.raises(ListingError, match=r'cannot list resource "pods" .* in the namespace "llm"'):
        KubernetesPods("", client=client).look()


def test_names_say_the_namespace_where_there_are_several(
    fake: FakeKubernetes, client: KubernetesClient
) -> None:
    fake.put("v1", "pods", pod("a", VLLM_STACK))
    fake.put("v1", "pods", pod("a", VLLM_STACK, namespace="other"))
    found = KubernetesPods("", client=client).look()
    assert [one.target.name for one in found] == ["llm/a", "other/a"]
    assert [one.target.name for one in KubernetesPods("/other", client=client).look()] == ["a"]


def test_owners_are_asked_for_once_and_only_where_the_labels_leave_it_open(
    fake: FakeKubernetes, client: KubernetesClient
) -> None:
    fake.put("apps/v1", "replicasets", _owned("rs", "apps/v1", "Deployment", "chat"))
    fake.put(
        "apps/v1", "deployments", _owned("chat", "production-stack.vllm.ai/v1alpha1", "VLLMRuntime", "chat")
    )
    fake.put(
        "production-stack.vllm.ai/v1alpha1",
        "vllmruntimes",
        {"metadata": {"name": "chat", "namespace": "llm"}},
    )
    for number in range(3):
        owner = ("apps/v1", "ReplicaSet", "rs")
        fake.put("v1", "pods", pod(f"p{number}", {"app": "chat"}, ports={"http": 8123}, owner=owner))
        fake.put("v1", "pods", pod(f"s{number}", VLLM_STACK, owner=owner))
    found = KubernetesPods("", Reach.DIRECT, client=client).look()
    assert (
        sorted(one.target.url for one in found) == ["http://10.1.0.7:8000"] * 3 + ["http://10.1.0.7:8123"] * 3
    )
    assert sum("replicasets" in asked for asked in fake.asked) == 1


def test_pods_without_an_address_and_too_many_for_the_server_are_told_of(
    fake: FakeKubernetes, client: KubernetesClient
) -> None:
    for number in range(MOST_THROUGH_SERVER + 2):
        fake.put("v1", "pods", pod(f"p{number:03}", VLLM_STACK))
    fake.put("v1", "pods", pod("pending", VLLM_STACK, address="", phase="Pending"))
    source = KubernetesPods("", client=client)
    assert len(source.look()) == MOST_THROUGH_SERVER
    assert "1 pod has no address yet" in source.note
    assert f"{MOST_THROUGH_SERVER + 2} pods, {MOST_THROUGH_SERVER} of them" in source.note
    assert len(KubernetesPods("", Reach.DIRECT, client=client).look()) == MOST_THROUGH_SERVER + 2
    fake.put("v1", "pods", pod("zz-canary", {**VLLM_STACK, "enginetop/canary": "0a1b"}))
    names = [one.target.name for one in KubernetesPods("", client=client).look()]
    assert (len(names), names[0]) == (MOST_THROUGH_SERVER + 1, "zz-canary"), "what is compared is there"


@pytest.mark.parametrize("reach", [Reach.DIRECT, Reach.PROXY])
@pytest.mark.parametrize("said", ["metrics", "/a b", "/..", "?x", "/stats?x"])
def test_what_one_pod_says_of_its_page_hides_no_other(
    fake: FakeKubernetes, client: KubernetesClient, reach: Reach, said: str
) -> None:
    fake.put("v1", "pods", pod("odd", VLLM_STACK, annotations={"prometheus.io/path": said}))
    fake.put("v1", "pods", pod("plain", VLLM_STACK))
    found = KubernetesPods("", reach, client=client).look()
    assert [one.target.name for one in found] == ["odd", "plain"]
    assert all((one.target.metrics_path or "/").startswith("/") for one in found)


def test_a_pod_that_comes_back_elsewhere_is_the_same(fake: FakeKubernetes, client: KubernetesClient) -> None:
    fake.put("v1", "pods", pod("engine-0", VLLM_STACK, address="10.1.0.7"))
    source = KubernetesPods("", Reach.DIRECT, client=client)
    before = source.look()
    fake.put("v1", "pods", pod("engine-0", VLLM_STACK, address="10.1.0.9"))
    after = source.look()
    assert before[0].identity == after[0].identity
    assert before[0].target.url != after[0].target.url


def _owned(name: str, api: str, kind: str, owner: str) -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": "llm", "ownerReferences": [owned_by(api, kind, owner)]}}
