"""What a change of an owner would meet: rights, managers, dropped fields, autoscalers. Writes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import quote

from enginetop.fleet.errors import ClusterError
from enginetop.fleet.foreign_json import Fields
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import Role
from tuners.control.kubernetes.change_points import ChangePoint
from tuners.control.kubernetes.findings import (
    Finding,
    of_autoscalers,
    of_budgets,
    of_managers,
    of_object,
    writes_by_hand,
)
from tuners.control.kubernetes.patches import (
    APPLY_PATCH,
    JSON_PATCH,
    MANAGER,
    Also,
    apply_body,
    json_patch,
    missing,
)

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_CONFLICT = 409
_MANAGER = re.compile(r'conflicts? with "([^"]+)"')
_REFUSED = frozenset({400, 403, 404, 409, 415, 422})


class ObjectApi(Protocol):
    """An API server. ClusterError: it refuses, or does not answer."""

    def send(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str] = ...,
        body: Any = ...,
        content_type: str = ...,
    ) -> dict[str, Any]:
        """One request and its JSON answer."""


@frozen
class OwnedFlags:
    """The flags of one engine: its pod, the object `owner` at `path` that rules, and the place in it.

    `container` runs the engine, as a replica of `role`; `below` are the owners between pod and object
    (`Kind/name`). Empty: not asked for.
    """

    path: str
    owner: Fields
    pod: Fields
    point: ChangePoint
    container: str = ""
    role: Role = Role.UNKNOWN
    below: tuple[str, ...] = ()

    @property
    def namespace(self) -> str:
        """The owner's, empty where it says none."""
        return str(self.owner.get("metadata", {}).get("namespace", ""))

    @property
    def name(self) -> str:
        """`Kind/name`."""
        return f"{self.owner.get('kind')}/{self.owner.get('metadata', {}).get('name')}"


def inspect(
    api: ObjectApi, flags: OwnedFlags, value: Sequence[str] | str, change: str, also: Also = ()
) -> tuple[Finding, ...]:
    """All that there is to know before the flags become `value`: dry runs, reviews and lists only.

    ClusterError: the server does not answer.
    """
    return (
        *of_object(flags.owner),
        *of_managers(flags.owner, flags.point),
        *may(api, flags.path, flags.namespace, "patch"),
        *_dry_runs(api, flags, value, change, also),
        *_bystanders(api, flags),
    )


def may(api: ObjectApi, path: str, namespace: str, verb: str) -> Iterator[Finding]:
    """Whether we may do that with objects of the kind at `path`: a finding where we may not."""
    group, plural = _resource(path)
    asked = {"verb": verb, "group": group, "resource": plural, "namespace": namespace}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    allowed = api.send("POST", _REVIEWS, body=body).get("status", {}).get("allowed")
    if allowed is not True:
        yield Finding(
            f"we may not {verb} {plural} in {namespace}; a Role with that verb is needed", refuses=True
        )


def _dry_runs(
    api: ObjectApi, flags: OwnedFlags, value: Sequence[str] | str, change: str, also: Also
) -> Iterator[Finding]:
    dry = {"dryRun": "All", "fieldManager": MANAGER}
    try:
        api.send("PATCH", flags.path, dry, apply_body(flags.owner, flags.point, value), APPLY_PATCH)
    except ClusterError as error:
        if error.status == _CONFLICT:
            names = _MANAGER.findall(str(error))
            if not names or any(not writes_by_hand(name) for name in names):
                yield Finding(f"others own these flags: {error}", refuses=True)
        elif error.status not in _REFUSED:
            raise
    try:
        patch = json_patch(flags.owner, flags.point, value, change, also=also)
        answer = api.send("PATCH", flags.path, dry, patch, JSON_PATCH)
    except ClusterError as error:
        if error.status not in _REFUSED:
            raise
        yield Finding(f"the server would refuse it: {error}", refuses=True)
        return
    for point, words in ((flags.point, value), *also):
        if dropped := missing(point.place, words, answer):
            yield Finding(dropped, refuses=True)
    if flags.point.bump is not None and (dropped := missing(flags.point.bump, change, answer)):
        yield Finding(f"{dropped}; without it the controller does not act", refuses=True)


def _bystanders(api: ObjectApi, flags: OwnedFlags) -> Iterator[Finding]:
    namespace = quote(flags.namespace, safe="")
    scalers = _listed(api, f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers")
    yield from of_autoscalers((flags.name, *flags.below), scalers)
    yield from of_budgets(
        flags.pod, _listed(api, f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets")
    )


def _listed(api: ObjectApi, path: str) -> Sequence[Fields]:
    """A list that we may not see, or that is not there, is an empty one: it only adds notes."""
    try:
        items = api.send("GET", path).get("items")
    except ClusterError as error:
        if error.status not in _REFUSED:
            raise
        return ()
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else ()


def _resource(path: str) -> tuple[str, str]:
    """API group and plural of an object's path."""
    steps = path.strip("/").split("/")
    return (steps[1], steps[5]) if steps[0] == "apis" else ("", steps[4])
