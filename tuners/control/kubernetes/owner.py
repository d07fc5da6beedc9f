"""The unit of a change in Kubernetes: one object and one container of it, and what is kept of it on disk."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from enginetop.fleet.foreign_json import Fields
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import EngineKind, Role
from enginetop.fleet.plan import PlannedChange
from tuners.control.kubernetes.change_points import Pointer
from tuners.control.kubernetes.inspect import OwnedFlags
from tuners.control.kubernetes.siblings import why_none

RECORD_SCHEMA = "enginetop.kubernetes/1"

_STABLE = (
    "app",
    "component",
    "ome.io/inferenceservice",
    "nvidia.com/dynamo-graph-deployment-name",
    "nvidia.com/dynamo-component",
    "app.kubernetes.io/name",
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/component",
    "kserve.io/component",
    "llm-d.ai/role",
    "leaderworkerset.sigs.k8s.io/name",
)
"""Labels of pods that tell the parts of an object apart and outlive its rollouts."""


class RecordError(ValueError):
    """A record that cannot be read; the text says what is wrong with it."""


@frozen
class Owner:
    """The object at `path` of the API, shown as `instance`, whose `container` runs an engine of `engine`.

    `selector` holds labels that all of its members have, whatever their generation. `count` is how many there
    were. `before` and `after` are the values of `knob` that the change leads from and to. `there`: the flags
    stood in the object itself; else `added` are the topmost places that a first write adds, which the way
    back takes out again.
    """

    path: str
    instance: str
    engine: EngineKind
    container: str
    role: Role
    selector: Mapping[str, str]
    count: int
    knob: str
    before: int | None
    after: int
    there: bool
    added: tuple[Pointer, ...] = ()
    canary: bool = False
    """Whether a sibling can be created beside it."""
    below: tuple[str, ...] = ()
    """The owners between it and its pods (`Kind/name`) when the change was planned."""

    @property
    def namespace(self) -> str:
        """The namespace of the object."""
        return self.instance.partition("/")[0]

    @property
    def shown(self) -> str:
        """`Kind/name`."""
        return self.instance.partition("/")[2]

    @property
    def canary_target(self) -> str:
        """The target under which the sibling is known."""
        return canary_target(self.instance)


def owner_of(
    flags: OwnedFlags, engine: EngineKind, knob: str, before: int | None, after: int, count: int
) -> Owner:
    """The owner of flags as they were found, for one change."""
    places = (flags.point.place, *(other.place for other in flags.point.others))
    return Owner(
        path=flags.path,
        instance=f"{flags.namespace}/{flags.name}",
        engine=engine,
        container=flags.container,
        role=flags.role,
        selector=MappingProxyType(_selector(flags.owner, flags.pod)),
        count=count,
        knob=knob,
        before=before,
        after=after,
        there=flags.point.there,
        added=tuple(added for place in places if (added := _missing(flags.owner, place))),
        canary=not why_none(flags.owner),
        below=flags.below,
    )


def _missing(owner: Fields, place: Pointer) -> Pointer:
    """The topmost part of a place that is not there; empty: all of it is."""
    at: Any = owner
    for depth, step in enumerate(place):
        if isinstance(at, dict) and step not in at:
            return place[: depth + 1]
        at = at[step]  # the numbers of a place are those of lists that are there
    return ()


def _selector(owner: Fields, pod: Fields) -> dict[str, str]:
    """Labels that all pods of the same part of an object have, in every generation."""
    matched = ((owner.get("spec") or {}).get("selector") or {}).get("matchLabels")
    if isinstance(matched, dict) and matched:
        return {str(key): str(value) for key, value in matched.items()}
    labels = pod.get("metadata", {}).get("labels") or {}
    return {key: str(labels[key]) for key in _STABLE if key in labels}


def is_canary(change: PlannedChange) -> bool:
    """Whether a change is that of a sibling, which is there only while its plan is carried out."""
    return change.target == canary_target(change.instance.removesuffix("/canary"))


def canary_target(instance: str) -> str:
    """The target of the canary beside the owner that is shown as `instance`."""
    return f"kubernetes://{instance}/canary"


def record_document(owners: Mapping[str, Owner]) -> dict[str, Any]:
    """What is kept of the owners, by target: where they are, nothing of their flags but the two values."""
    return {
        "schema": RECORD_SCHEMA,
        "owners": {
            target: {
                "path": one.path,
                "instance": one.instance,
                "engine": one.engine.value,
                "container": one.container,
                "role": one.role.value,
                "selector": dict(one.selector),
                "count": one.count,
                "knob": one.knob,
                "before": one.before,
                "after": one.after,
                "there": one.there,
                "added": [list(place) for place in one.added],
                "canary": one.canary,
                "below": list(one.below),
            }
            for target, one in owners.items()
        },
    }


def parse_record(document: object) -> dict[str, Owner]:
    """The owners of a record. RecordError when it is none."""
    if not isinstance(document, Mapping) or document.get("schema") != RECORD_SCHEMA:
        raise RecordError(f"not a record ({RECORD_SCHEMA})")
    try:
        return {
            str(target): Owner(
                path=str(row["path"]),
                instance=str(row["instance"]),
                engine=EngineKind(row["engine"]),
                container=str(row["container"]),
                role=Role(row["role"]),
                selector=MappingProxyType({str(k): str(v) for k, v in row["selector"].items()}),
                count=int(row["count"]),
                knob=str(row["knob"]),
                before=None if row["before"] is None else int(row["before"]),
                after=int(row["after"]),
                there=bool(row["there"]),
                added=tuple(
                    tuple(step if isinstance(step, int) else str(step) for step in place)
                    for place in row["added"]
                ),
                canary=bool(row["canary"]),
                below=tuple(map(str, row["below"])),
            )
            for target, row in document["owners"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordError(f"a damaged record: {type(error).__name__}") from None
