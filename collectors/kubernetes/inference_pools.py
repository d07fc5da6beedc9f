"""Inference pools of the Gateway API: which pods one routes to, and whose endpoint picker decides.

Both groups are read: `inference.networking.k8s.io/v1` and the older `inference.networking.x-k8s.io/v1alpha2`.
Source: the API reference of the Gateway API inference extension.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from urllib.parse import quote

from collectors.json_fields import text
from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.context import KubernetesError
from enginetop.fleet.foreign_json import Fields, field_at
from enginetop.fleet.frozen import frozen

_COLLECTIONS = ("inference.networking.k8s.io/v1", "inference.networking.x-k8s.io/v1alpha2")
_EVERY_SECONDS = 60.0
_UNTOLD = frozenset({403, 404})


@frozen
class InferencePool:
    """One pool. `selector` are labels of its pods; `picker` is the Service of its endpoint picker, and
    `picker_selector` the labels of that one's pods (empty: not known).
    """

    namespace: str
    name: str
    selector: Mapping[str, str]
    picker: str
    picker_selector: Mapping[str, str]

    @property
    def identity(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    def routes_to(self, pod: Fields) -> bool:
        """Whether its picker may choose that pod."""
        return self._selects(pod, self.selector)

    def is_picked_by(self, pod: Fields) -> bool:
        """Whether that pod is its endpoint picker."""
        return self._selects(pod, self.picker_selector)

    def _selects(self, pod: Fields, wanted: Mapping[str, str]) -> bool:
        here = text(pod, "metadata", "namespace") == self.namespace
        labels = field_at(pod, "metadata", "labels")
        return here and bool(wanted) and isinstance(labels, dict) and wanted.items() <= labels.items()


class InferencePools:
    """The pools of a cluster or of one namespace, listed once a minute. One thread."""

    def __init__(
        self,
        client: KubernetesClient,
        namespace: str | None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._namespace, self._now = client, namespace, now
        self._due = float("-inf")
        self._pools: tuple[InferencePool, ...] = ()

    def look(self) -> Sequence[InferencePool]:
        """The pools now; none where the kind is not there, or not for us. KubernetesError: no answer."""
        if self._now() >= self._due:
            self._pools = tuple(self._listed())
            self._due = self._now() + _EVERY_SECONDS
        return self._pools

    def _listed(self) -> Iterator[InferencePool]:
        where = "" if self._namespace is None else f"/namespaces/{quote(self._namespace, safe='')}"
        known: set[str] = set()
        for group in _COLLECTIONS:
            try:
                found = self._client.list(f"/apis/{group}{where}/inferencepools").items
            except KubernetesError as error:
                if error.status not in _UNTOLD:
                    raise
                continue
            for item in found:
                pool = self._pool(item)
                if pool is not None and pool.identity not in known:
                    known.add(pool.identity)
                    yield pool

    def _pool(self, item: Fields) -> InferencePool | None:
        namespace, name = text(item, "metadata", "namespace"), text(item, "metadata", "name")
        if namespace is None or name is None:
            return None
        said = field_at(item, "spec", "selector")
        nested = field_at(said, "matchLabels")
        picker = text(item, "spec", "endpointPickerRef", "name") or text(item, "spec", "extensionRef", "name")
        return InferencePool(
            namespace=namespace,
            name=name,
            selector=_words(nested if isinstance(nested, dict) else said),
            picker=picker or "",
            picker_selector=self._selector_of(namespace, picker) if picker else {},
        )

    def _selector_of(self, namespace: str, service: str) -> Mapping[str, str]:
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/services/{quote(service, safe='')}"
        try:
            return _words(field_at(self._client.get(path), "spec", "selector"))
        except KubernetesError as error:
            if error.status not in _UNTOLD:
                raise
            return {}


def complaints(pools: Sequence[InferencePool], pods: Sequence[Fields]) -> Iterator[str]:
    """What is wrong with pools, one line each."""
    for pool in pools:
        if not any(pool.routes_to(pod) for pod in pods):
            yield f"the inference pool {pool.identity} selects no pod"
        if pool.picker_selector and not any(pool.is_picked_by(pod) for pod in pods):
            yield f"the endpoint picker {pool.picker} of the inference pool {pool.identity} has no pod"


def _words(found: object) -> Mapping[str, str]:
    if not isinstance(found, dict):
        return {}
    return {key: value for key, value in found.items() if isinstance(value, str)}
