"""An API server to fill, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.context import Context
from tests.support.fake_kubernetes import TOKEN, FakeKubernetes, serving


@pytest.fixture
def fake() -> FakeKubernetes:
    """Empty."""
    return FakeKubernetes()


@pytest.fixture
def client(fake: FakeKubernetes) -> Iterator[KubernetesClient]:
    """Of the context `prod`, namespace `llm`."""
    with serving(fake) as url:
        one = KubernetesClient(Context("prod", url, "llm", token=TOKEN))
        yield one
        one.close()
