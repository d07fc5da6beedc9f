"""From a target back to its pod."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote, urlsplit

from collectors.json_fields import items
from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.context import KubernetesError
from enginetop.fleet.foreign_json import Fields
from enginetop.fleet.model import Target

_THROUGH_SERVER = re.compile(r"/api/v1/namespaces/([^/]+)/pods/(?:https:)?([^/:]+)(?::\d+)?/proxy$")


def is_pods(url: str) -> bool:
    """Whether a URL goes through an API server's pod proxy."""
    return _THROUGH_SERVER.search(urlsplit(url).path) is not None


def pod_of(client: KubernetesClient, target: Target) -> Fields:
    """The pod behind a target: the one that discovery found it in, else by the pod proxy's path or by its
    address. KubernetesError: there is none.
    """
    if target.pod:
        namespace, _, name = target.pod.partition("/")
        return client.get(f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}")
    found = _THROUGH_SERVER.search(urlsplit(target.url).path)
    if found is not None:
        return client.get(f"/api/v1/namespaces/{found[1]}/pods/{found[2]}")
    asked = {"fieldSelector": f"status.podIP={target.host},status.phase=Running"}
    try:
        listed = client.send("GET", "/api/v1/pods", asked)
    except KubernetesError as error:
        if error.status != 403:
            raise
        own = quote(client.context.namespace, safe="")
        listed = client.send("GET", f"/api/v1/namespaces/{own}/pods", asked)
    pods = [pod for pod in items(listed, "items") if isinstance(pod, dict)]
    if len(pods) != 1:
        raise KubernetesError(
            f"{unquote(target.name)}: {len(pods) or 'no'} pods have the address {target.host}"
        )
    return pods[0]
