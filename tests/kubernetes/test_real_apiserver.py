"""The same checks that the fake passes, on a real kube-apiserver: `make test-k8s`."""

from __future__ import annotations

import pytest

from tests.kubernetes.conftest import RealServer
from tests.support.api_server_contract import CHECKS

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("check", CHECKS)
def test_the_real_server(check: str, server: RealServer) -> None:
    CHECKS[check](server)
