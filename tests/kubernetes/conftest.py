"""A real kube-apiserver on loopback, built from Debian's source package where it is not there yet."""

from __future__ import annotations

import copy
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.context import Context, KubernetesError

_BUILD = Path(__file__).with_name("build_apiserver.sh")
_READY_SECONDS = 120.0
_ADMIN, _SRE = "admin-token", "sre-token"

KINDS: Mapping[str, tuple[str, str, str]] = {
    "vllmruntimes": ("production-stack.vllm.ai", "v1alpha1", "VLLMRuntime"),
    "inferenceservices": ("ome.io", "v1beta1", "InferenceService"),
    "dynamographdeployments": ("nvidia.com", "v1beta1", "DynamoGraphDeployment"),
    "llminferenceservices": ("serving.kserve.io", "v1alpha2", "LLMInferenceService"),
}
"""Custom resources: group, version and kind, by plural."""


class RealServer:
    """An `ApiServer`. `client` asks as the user `sre`."""

    def __init__(self, url: str, ca_file: str, etcd: str) -> None:
        self._etcd = etcd
        self._admin = KubernetesClient(Context("admin", url, "llm", token=_ADMIN, ca_file=ca_file))
        self.client = KubernetesClient(Context("real", url, "llm", token=_SRE, ca_file=ca_file))

    def close(self) -> None:
        self._admin.close()
        self.client.close()

    def put(self, api: str, plural: str, item: dict[str, Any]) -> None:
        """See `ApiServer`. What was there is deleted first; specs get what the server demands."""
        name = item["metadata"]["name"]
        root = f"/apis/{api}" if "/" in api else f"/api/{api}"
        path = f"{root}/namespaces/llm/{plural}"
        self._deleted(path, name)
        body = copy.deepcopy(item)
        body.setdefault("apiVersion", api)
        body["metadata"].pop("ownerReferences", None)
        body["metadata"].pop("resourceVersion", None)
        if plural == "pods":
            body |= {"kind": "Pod"}
            body.pop("status", None)
        if plural == "deployments":
            labels = {"app": name}
            body["spec"]["selector"] = {"matchLabels": labels}
            body["spec"]["template"].setdefault("metadata", {})["labels"] = labels
        self._admin.send("POST", path, body=body)

    def remove(self, api: str, plural: str, name: str) -> None:
        """See `ApiServer`."""
        root = f"/apis/{api}" if "/" in api else f"/api/{api}"
        self._deleted(f"{root}/namespaces/llm/{plural}", name)

    def forget(self) -> None:
        """See `ApiServer`: etcd does it, over its gateway."""
        with httpx.Client(base_url=self._etcd, trust_env=False) as etcd:
            found = etcd.post("/v3/kv/range", json={"key": "AA=="}).json()
            etcd.post("/v3/kv/compaction", json={"revision": found["header"]["revision"]}).raise_for_status()

    def _deleted(self, path: str, name: str) -> None:
        try:
            self._admin.send("DELETE", f"{path}/{name}", {"gracePeriodSeconds": "0"})
        except KubernetesError as error:
            if error.status != 404:
                raise

    def prepare(self) -> None:
        """The namespace, the kinds, and the rights of the user."""
        self._admin.send("POST", "/api/v1/namespaces", body={"metadata": {"name": "llm"}})
        for plural, (group, version, kind) in KINDS.items():
            self._admin.send(
                "POST",
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                body=_definition(plural, group, version, kind),
            )
        everything = {"apiGroups": ["*"], "verbs": ["*"]}
        rules = [
            {
                **everything,
                "resources": ["pods", "deployments", "horizontalpodautoscalers", "poddisruptionbudgets"],
            },
            {**everything, "resources": [plural for plural in KINDS if plural != "llminferenceservices"]},
            {"apiGroups": ["*"], "verbs": ["get", "list", "watch"], "resources": ["llminferenceservices"]},
        ]
        roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/llm"
        self._admin.send("POST", f"{roles}/roles", body={"metadata": {"name": "sre"}, "rules": rules})
        binding = {
            "metadata": {"name": "sre"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "sre"},
            "subjects": [{"kind": "User", "name": "sre", "apiGroup": "rbac.authorization.k8s.io"}],
        }
        self._admin.send("POST", f"{roles}/rolebindings", body=binding)
        for plural, (group, version, _) in KINDS.items():
            self.wait_for(f"/apis/{group}/{version}/namespaces/llm/{plural}")

    def wait_for(self, path: str) -> None:
        """Wait until the server answers a GET of `path`."""
        until = time.monotonic() + _READY_SECONDS
        while True:
            try:
                self._admin.get(path)
                return
            except KubernetesError:
                if time.monotonic() > until:
                    raise
            time.sleep(0.5)


def _definition(plural: str, group: str, version: str, kind: str) -> dict[str, Any]:
    """A CRD. That of the production stack has a schema, which drops what it does not know."""
    loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    strict = {"type": "object", "properties": {"vllmConfig": loose, "deploymentConfig": loose}}
    spec = strict if plural == "vllmruntimes" else loose
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    return {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


def _binary() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "enginetop" / "kube"
    binary = cache / "kube-apiserver"
    if not (binary.exists() and shutil.which("etcd")):
        if os.getuid() != 0 or shutil.which("apt-get") is None:
            pytest.skip("no kube-apiserver: it is built as root on Debian 12 only")
        built = subprocess.run(["bash", str(_BUILD), str(cache)], capture_output=True, text=True, check=False)
        if built.returncode:
            pytest.skip(f"kube-apiserver does not build here: {built.stderr.strip()[-200:]}")
    return binary


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """The server, with an etcd of its own; both end with the session."""
    binary = _binary()
    folder = tmp_path_factory.mktemp("kube")
    client, peer, secure = _free_ports(3)
    (folder / "tokens.csv").write_text(f'{_ADMIN},admin,1,"system:masters"\n{_SRE},sre,2\n')
    key = folder / "sa.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    etcd = subprocess.Popen(
        [
            "etcd",
            *("--data-dir", str(folder / "etcd")),
            *(
                "--listen-client-urls",
                f"http://127.0.0.1:{client}",
                "--advertise-client-urls",
                f"http://127.0.0.1:{client}",
            ),
            *(
                "--listen-peer-urls",
                f"http://127.0.0.1:{peer}",
                "--initial-advertise-peer-urls",
                f"http://127.0.0.1:{peer}",
            ),
            *("--initial-cluster", f"default=http://127.0.0.1:{peer}"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    log = (folder / "apiserver.log").open("w")
    api = subprocess.Popen(
        [
            str(binary),
            f"--etcd-servers=http://127.0.0.1:{client}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={secure}",
            f"--cert-dir={folder}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--watch-cache=false",  # it remembers what etcd has forgotten
            "--disable-admission-plugins=ServiceAccount",
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=log,
    )
    log.close()
    try:
        until = time.monotonic() + _READY_SECONDS
        while not (folder / "apiserver.crt").exists():
            assert api.poll() is None, (folder / "apiserver.log").read_text()[-2000:]
            assert time.monotonic() < until, "no certificate"
            time.sleep(0.2)
        real = RealServer(
            f"https://127.0.0.1:{secure}", str(folder / "apiserver.crt"), f"http://127.0.0.1:{client}"
        )
        try:
            real.wait_for("/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin")
            real.prepare()
            yield real
        finally:
            real.close()
    finally:
        for process in (api, etcd):
            process.terminate()
            process.wait(30)
