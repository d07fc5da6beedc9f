"""A canary beside its owner: a copy of the object with one replica, the new value and labels of ours. Pure.

Whatever sends to the owner's pods by their labels sends to the sibling's too, since they keep all of them.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any

from enginetop.fleet.foreign_json import Fields
from enginetop.fleet.plan import CANARY_LABEL
from tuners.control.kubernetes.change_points import BUMP_KEY, ChangePoint
from tuners.control.kubernetes.patches import MANAGER, Also

PLAN_LABEL = "enginetop/plan"
EXPIRES_KEY = "enginetop/expires"
"""Annotation: until when (Unix seconds) the sibling is on loan, unless renewed."""

_MOST_NAME = 52
"""Pods and replica sets add a suffix to a name of at most 63 characters."""
_OF_OTHERS = (
    "kubectl.kubernetes.io/last-applied-configuration",
    "deployment.kubernetes.io/",
    "meta.helm.sh/",
    "argocd.argoproj.io/",
    "kustomize.toolkit.fluxcd.io/",
    "helm.toolkit.fluxcd.io/",
)
"""Annotations and labels by which others take an object for theirs, or keep its history."""
_MANAGED_BY = "app.kubernetes.io/managed-by"
OF_KEY = "enginetop/of"
"""Annotation: `Kind/name` of the owner that the sibling stands beside."""


def why_none(owner: Fields) -> str:
    """Why a canary of this owner cannot be a sibling that gets its share of the traffic; empty: it can."""
    kind = str(owner.get("kind", ""))
    if kind in ("Deployment", "LeaderWorkerSet", "VLLMRuntime"):
        return ""
    spec = owner.get("spec") or {}
    if kind == "StatefulSet":
        return "its replicas have volumes of their own" if spec.get("volumeClaimTemplates") else ""
    return f"a second {kind} gets no share of this one's traffic"


def label_of(plan: str) -> str:
    """A plan's id as a label may hold it."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", plan)[:63].strip("-._")


def sibling_name(owner: Fields, plan: str) -> str:
    """The name of the sibling that a plan creates."""
    name = str(owner.get("metadata", {}).get("name", ""))
    suffix = f"-canary-{re.sub('[^a-z0-9]', '-', plan.lower())[:20].strip('-')}"
    return f"{name[: max(1, _MOST_NAME - len(suffix))].rstrip('-.')}{suffix}"


def sibling_of(
    owner: Fields,
    point: ChangePoint,
    value: Sequence[str] | str,
    *,
    plan: str,
    expires: float,
    also: Also = (),
) -> dict[str, Any]:
    """The object to create. `why_none` has to be empty for its owner."""
    made: dict[str, Any] = {
        "apiVersion": owner.get("apiVersion"),
        "kind": owner.get("kind"),
        "spec": copy.deepcopy(dict(owner.get("spec") or {})),
    }
    meta = owner.get("metadata", {})
    mark = label_of(plan)
    labels = {**_kept(meta.get("labels")), PLAN_LABEL: mark}
    of = f"{owner.get('kind')}/{meta.get('name')}"
    made["metadata"] = {
        "name": sibling_name(owner, plan),
        "namespace": meta.get("namespace"),
        "labels": labels,
        "annotations": {**_kept(meta.get("annotations")), EXPIRES_KEY: f"{expires:.0f}", OF_KEY: of},
    }
    spec = made["spec"]
    match made["kind"]:
        case "VLLMRuntime":
            deployment = spec.setdefault("deploymentConfig", {})
            deployment["replicas"] = 1
            spec.pop("autoscalingConfig", None)
            deployment.setdefault("podAnnotations", {})[BUMP_KEY] = mark
            labels[CANARY_LABEL] = mark  # its pods get the labels of the object, and are selected by them
        case "LeaderWorkerSet":
            labels[_MANAGED_BY] = MANAGER
            spec["replicas"] = 1
            for part in ("leaderTemplate", "workerTemplate"):
                if isinstance(template := spec.get("leaderWorkerTemplate", {}).get(part), dict):
                    _mark(template, mark)
        case _:
            labels[_MANAGED_BY] = MANAGER
            spec["replicas"] = 1
            spec.setdefault("selector", {}).setdefault("matchLabels", {})[CANARY_LABEL] = mark
            _mark(spec.setdefault("template", {}), mark)
    for place, words in ((point, value), *also):
        _put(made, place, words)
    return made


def _mark(template: dict[str, Any], mark: str) -> None:
    template.setdefault("metadata", {}).setdefault("labels", {})[CANARY_LABEL] = mark


def _put(made: dict[str, Any], point: ChangePoint, value: Sequence[str] | str) -> None:
    at: Any = made
    for step in point.place[:-1]:
        at = at.setdefault(step, {}) if isinstance(at, dict) else at[step]
    at[point.place[-1]] = value if isinstance(value, str) else list(value)


def _kept(words: object) -> dict[str, str]:
    """Labels or annotations without those by which others would take the copy for theirs."""
    if not isinstance(words, dict):
        return {}
    return {key: value for key, value in words.items() if not key.startswith(_OF_OTHERS)}
