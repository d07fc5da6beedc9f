"""A change as text for those who write it themselves: kubectl, Kustomize, Helm values. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence

from enginetop.fleet.foreign_json import Fields
from tuners.control.flags import masked
from tuners.control.kubernetes.arguments import Style, words_of
from tuners.control.kubernetes.change_points import ChangePoint
from tuners.control.kubernetes.patches import Also, json_patch

_CHART = "helm.sh/chart"


class SecretInPatchError(Exception):
    """The text would hold a key that stands among the flags."""


def emitted(
    owner: Fields,
    point: ChangePoint,
    value: Sequence[str] | str,
    *,
    change: str,
    context: str,
    also: Also = (),
) -> Iterator[str]:
    """The lines of all three forms, as far as they exist for this object.

    SecretInPatchError: the flags can only be replaced as a whole, and one of them names a secret.
    """
    operations = json_patch(owner, point, value, change, guarded=False, also=also)
    _refuse_secrets(operations, point)
    meta = owner.get("metadata", {})
    namespace, name, kind = meta.get("namespace"), meta.get("name"), owner.get("kind")
    group, _, version = str(owner.get("apiVersion", "")).rpartition("/")
    yield f"# {namespace}/{kind}/{name}: restarts {point.rolls}"
    yield f"# canary: {point.sibling}" if point.sibling else "# canary: none; one change rolls all"
    yield "# kubectl"
    resource = f"{str(kind).lower()}.{version}.{group}" if group else str(kind).lower()
    command = (
        "kubectl",
        "--server" if "://" in context else "--context",
        context,
        "-n",
        str(namespace),
        "patch",
        resource,
        str(name),
        "--type=json",
    )
    yield f"{shlex.join(command)} -p {shlex.quote(json.dumps(operations))}"
    yield "# Kustomize"
    yield from ("patches:", "- target:")
    for key, said in (("group", group), ("version", version), ("kind", kind), ("name", name)):
        if said:
            yield f"    {key}: {json.dumps(said)}"
    yield "  patch: |-"
    for operation in operations:
        yield f"    - {json.dumps(operation)}"
    yield from _values(owner, point, value)


def _values(owner: Fields, point: ChangePoint, value: Sequence[str] | str) -> Iterator[str]:
    """Values of the vllm-stack chart, whose engines are named in a list that Helm replaces whole."""
    labels = owner.get("metadata", {}).get("labels") or {}
    chart = str(labels.get(_CHART, ""))
    if not chart.startswith("vllm-stack") or isinstance(value, str):
        return
    model = labels.get("model", "NAME")
    before = set(words_of(point.present, point.style))
    yield f"# Helm values (merge into the entry {json.dumps(model)} of your own; extraArgs go last and win)"
    yield from ("servingEngineSpec:", "  modelSpec:", f"  - name: {json.dumps(model)}", "    vllmConfig:")
    changed = [word for word in words_of(value, point.style) if word not in before]
    places = [index for index, word in enumerate(value) if word in changed]
    first = min(places, default=0)
    flag = value[first - 1 : first] if first and not str(value[first]).startswith("--") else ()
    yield f"      extraArgs: {json.dumps([*flag, *(value[index] for index in places)])}"


def _refuse_secrets(operations: Sequence[Fields], point: ChangePoint) -> None:
    """Whole lists and texts are repeated in a patch: none with a key in it leaves us."""
    whole = point.style in (Style.SCRIPT, Style.EVALUATED_TEXT) or any(
        isinstance(one["value"], list) for one in operations
    )
    words = words_of(point.present, point.style)
    if whole and masked(words) != words:
        raise SecretInPatchError("its flags can only be replaced as a whole, and one of them is a secret")
