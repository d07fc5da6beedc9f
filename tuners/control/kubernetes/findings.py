"""What else has a say in an object: GitOps, Helm, autoscalers, disruption budgets, other managers. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from enginetop.fleet.foreign_json import Fields
from enginetop.fleet.frozen import frozen
from tuners.control.kubernetes.change_points import ChangePoint
from tuners.control.kubernetes.patches import MANAGER

_GITOPS = (
    ("argocd.argoproj.io/tracking-id", "Argo CD"),
    ("argocd.argoproj.io/instance", "Argo CD"),
    ("kustomize.toolkit.fluxcd.io/name", "Flux"),
    ("helm.toolkit.fluxcd.io/name", "Flux"),
)
_HELM = "meta.helm.sh/release-name"
_TOOLS = ("kubectl", "helm", MANAGER)
"""Beginnings of the names under which people's tools write: they wrote once, and do not put anything back."""


@frozen
class Finding:
    """One thing to know before a write. `refuses`: nothing may be written because of it. `disturbs`: what is
    compared would not stand still, so that enginetop itself does not begin; whoever applies a patch may.
    """

    text: str
    refuses: bool = False
    disturbs: bool = False

    @property
    def stops(self) -> bool:
        """Whether enginetop does not begin because of it."""
        return self.refuses or self.disturbs


def of_object(owner: Fields) -> Iterator[Finding]:
    """What the labels and annotations of the owner tell."""
    marks = {**_words(owner, "labels"), **_words(owner, "annotations")}
    for key, who in _GITOPS:
        if key in marks:
            yield Finding(
                f"{who} owns it ({marks[key]}): commit the change there; see --emit-patch", refuses=True
            )
            break
    if release := marks.get(_HELM):
        yield Finding(
            f"Helm release {release}: its next upgrade takes the change away; put it into the values too"
        )


def writes_by_hand(manager: str) -> bool:
    """Whether a field manager is a tool of people rather than a controller."""
    return manager.startswith(_TOOLS)


def of_managers(owner: Fields, point: ChangePoint) -> Iterator[Finding]:
    """Who last wrote the field, as the server keeps it."""
    for entry in owner.get("metadata", {}).get("managedFields") or ():
        manager = entry.get("manager") if isinstance(entry, dict) else None
        if isinstance(manager, str) and manager != MANAGER and _owns(entry.get("fieldsV1"), point):
            yield Finding(f"{manager} wrote these flags last")


def of_autoscalers(owners: Collection[str], scalers: Sequence[Fields]) -> Iterator[Finding]:
    """Horizontal pod autoscalers, KEDA's included, that scale one of the owners (`Kind/name`)."""
    for scaler in scalers:
        aim = scaler.get("spec", {}).get("scaleTargetRef", {})
        if f"{aim.get('kind')}/{aim.get('name')}" in owners:
            who = scaler.get("metadata", {}).get("name")
            text = f"the autoscaler {who} may add or take replicas while they are compared: pause it first"
            yield Finding(text, disturbs=True)


def of_budgets(pod: Fields, budgets: Sequence[Fields]) -> Iterator[Finding]:
    """Disruption budgets over the pod: two of them make every eviction fail."""
    labels = pod.get("metadata", {}).get("labels") or {}
    over = [
        str(budget.get("metadata", {}).get("name"))
        for budget in budgets
        if (wanted := budget.get("spec", {}).get("selector", {}).get("matchLabels"))
        and wanted.items() <= labels.items()
    ]
    if len(over) > 1:
        text = f"disruption budgets {', '.join(over)} are over the same pods: evictions fail"
        yield Finding(text, disturbs=True)


def _owns(fields: Any, point: ChangePoint) -> bool:
    """Whether a `fieldsV1` tree holds the place; of lists, which are keyed there, any member may."""
    names = [step for step in point.place if isinstance(step, str)]
    return _holds(fields, names)


def _holds(fields: Any, names: Sequence[str]) -> bool:
    if not names:
        return True
    if not isinstance(fields, dict):
        return False
    name = f"f:{names[0]}"
    if name in fields:
        return _holds(fields[name], names[1:])
    return any(_holds(inner, names) for key, inner in fields.items() if key.startswith("k:"))


def _words(owner: Fields, part: str) -> Mapping[str, str]:
    found = owner.get("metadata", {}).get(part)
    return found if isinstance(found, dict) else {}
