"""All serving pods of a cluster or of some namespaces, kept true by a watch. Blocking; one thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import quote

from collectors.json_fields import text
from collectors.kubernetes.client import Event, ItemList, KubernetesClient, VersionGoneError
from enginetop.fleet.foreign_json import Fields

_LIVE = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
_GATHERED_SECONDS = 1.0
"""So long after the first event of a burst its others are waited for."""


class PodList:
    """The pods of one scope (`namespace` None: the cluster), as their server tells.

    After whatever breaks the next look lists anew, so that nothing is missed for good.
    """

    def __init__(
        self,
        client: KubernetesClient,
        namespace: str | None = None,
        *,
        watch_seconds: float = 30.0,
    ) -> None:
        self._client = client
        self._path = (
            "/api/v1/pods" if namespace is None else f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
        )
        self._watch_seconds = watch_seconds
        self._pods: dict[str, Fields] = {}
        self._version: str | None = None

    @property
    def pods(self) -> Sequence[Fields]:
        """As of the newest look."""
        return list(self._pods.values())

    def look(self) -> None:
        """List at first; afterwards wait until something changes, or the watch's time is over.

        KubernetesError: it cannot be told; the next look lists anew.
        """
        version, self._version = self._version, None
        if version is None:
            self._take(self._client.list(self._path, _LIVE))
            return
        try:
            self._follow(version)
        except VersionGoneError:
            self._take(self._client.list(self._path, _LIVE))

    def _take(self, found: ItemList) -> None:
        self._pods = {_key(pod): pod for pod in found.items}
        self._version = found.version

    def _follow(self, version: str) -> None:
        """The first event, and then what else comes within a second: a rollout is a burst of them."""
        for event in self._events(version, self._watch_seconds):
            version = self._heard(event, version)
            if event.kind != "BOOKMARK":
                break
        else:
            self._version = version
            return
        for event in self._events(version, _GATHERED_SECONDS):
            version = self._heard(event, version)
        self._version = version

    def _events(self, version: str, seconds: float) -> Iterator[Event]:
        return self._client.watch(self._path, version, _LIVE, seconds=seconds)

    def _heard(self, event: Event, version: str) -> str:
        if event.kind == "DELETED":
            self._pods.pop(_key(event.item), None)
        elif event.kind != "BOOKMARK":
            self._pods[_key(event.item)] = event.item
        return text(event.item, "metadata", "resourceVersion") or version


def _key(pod: Fields) -> str:
    return f"{text(pod, 'metadata', 'namespace')}/{text(pod, 'metadata', 'name')}"
