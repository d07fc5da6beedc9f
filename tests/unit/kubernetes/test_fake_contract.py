"""The fake API server does what enginetop needs, as a real one does: `make test-k8s` asks that the same."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.context import Context
from tests.support.api_server_contract import CHECKS
from tests.support.fake_kubernetes import TOKEN, FakeKubernetes, serving


class _Fake:
    def __init__(self, fake: FakeKubernetes, client: KubernetesClient) -> None:
        self._fake, self.client = fake, client
        fake.forbidden = {("list", "secrets", "*"), ("patch", "llminferenceservices", "*")}
        fake.known["vllmruntimes"] = _known

    def put(self, api: str, plural: str, item: dict[str, Any]) -> None:
        self._fake.put(api, plural, item)

    def remove(self, api: str, plural: str, name: str) -> None:
        self._fake.remove((api, plural, "llm", name))

    def forget(self) -> None:
        self._fake.compacted = self._fake._version


def _known(item: dict[str, Any]) -> dict[str, Any]:
    kept = copy.deepcopy(item)
    kept["spec"] = {
        key: kept["spec"][key] for key in ("vllmConfig", "deploymentConfig") if key in kept["spec"]
    }
    return kept


@pytest.mark.parametrize("check", CHECKS)
def test_the_fake(check: str) -> None:
    fake = FakeKubernetes()
    with serving(fake) as url:
        client = KubernetesClient(Context("fake", url, "llm", token=TOKEN))
        try:
            CHECKS[check](_Fake(fake, client))
        finally:
            client.close()
