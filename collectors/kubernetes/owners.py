"""Who made an object: `ownerReferences` followed up to the one that nobody owns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import quote

from collectors.json_fields import items, text
from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.context import KubernetesError
from enginetop.fleet.foreign_json import Fields, field_at
from enginetop.fleet.frozen import frozen

_LONGEST_CHAIN = 8
_NOT_FOUND = 404
_UNTOLD = frozenset({403, _NOT_FOUND})


@frozen
class Reference:
    """One object, as an owner reference names it."""

    api_version: str
    kind: str
    name: str
    namespace: str

    @property
    def collection(self) -> str:
        """The path of its collection, by the way that all kinds of serving stacks are named in the plural."""
        root = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        return f"{root}/namespaces/{quote(self.namespace, safe='')}/{plural(self.kind)}"

    @property
    def path(self) -> str:
        """The path of the object."""
        return f"{self.collection}/{quote(self.name, safe='')}"


def plural(kind: str) -> str:
    """The name of a kind's collection, by the rules that the code generators of Kubernetes have."""
    word = kind.lower()
    if word.endswith(("s", "x", "ch", "sh")):
        return f"{word}es"
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}s"


def owner_of(item: Fields) -> Reference | None:
    """The controller of an object, None: nobody."""
    namespace = text(item, "metadata", "namespace") or ""
    for owner in items(item, "metadata", "ownerReferences"):
        names = tuple(text(owner, key) for key in ("apiVersion", "kind", "name"))
        if field_at(owner, "controller") is True and all(names):
            return Reference(names[0] or "", names[1] or "", names[2] or "", namespace)
    return None


class Owners:
    """Owners of pods, each object asked for once: its owner never changes."""

    def __init__(self, client: KubernetesClient) -> None:
        self._client = client
        self._above: dict[Reference, Reference | None] = {}
        self._served: dict[Reference, Reference] = {}

    def chain(self, item: Fields) -> tuple[Reference, ...]:
        """From the object's own controller up to the root; empty: nobody owns it.

        A chain ends early where we may not look further. KubernetesError: the server does not answer.
        """
        found: list[Reference] = []
        at = owner_of(item)
        while at is not None and at not in found and len(found) < _LONGEST_CHAIN:
            found.append(at)
            at = self._owner(at)
        return tuple(found)

    def root_kind(self, item: Fields) -> str:
        """The kind at the top of the chain, empty: nobody owns it."""
        chain = self.chain(item)
        return chain[-1].kind if chain else ""

    def read(self, reference: Reference) -> dict[str, Any]:
        """The object itself, in another version of its kind where that one is not served any more.

        KubernetesError: it is not there, or not for us.
        """
        try:
            return self._client.get(self.as_served(reference).path)
        except KubernetesError as error:
            if error.status != _NOT_FOUND or "/" not in reference.api_version:
                raise
            served = self._versions(reference.api_version.partition("/")[0])
            if not served or reference.api_version in served:
                raise
        for version in served:
            other = replace(reference, api_version=version)
            try:
                found = self._client.get(other.path)
            except KubernetesError:
                continue
            self._served[reference] = other
            return found
        words = f"{reference.api_version} is not served here, and none of {', '.join(served)} has it"
        raise KubernetesError(f"{reference.kind} {reference.name}: {words}", _NOT_FOUND)

    def as_served(self, reference: Reference) -> Reference:
        """The object in the version in which it was read."""
        return self._served.get(reference, reference)

    def _versions(self, group: str) -> tuple[str, ...]:
        """The versions of a group that the server has; none where it does not say."""
        try:
            found = self._client.get(f"/apis/{group}")
        except KubernetesError:
            return ()
        versions = (text(one, "groupVersion") for one in items(found, "versions"))
        return tuple(version for version in versions if version)

    def _owner(self, reference: Reference) -> Reference | None:
        if reference not in self._above:
            try:
                self._above[reference] = owner_of(self.read(reference))
            except KubernetesError as error:
                if error.status not in _UNTOLD:
                    raise
                self._above[reference] = None
        return self._above[reference]
