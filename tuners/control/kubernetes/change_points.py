"""Where the flags of an engine stand in the object that owns them, one row a kind of owner. Pure.

The right object is the one that its controller does not overwrite. Sources: the operators' own reconcilers
(OME, production-stack, Dynamo, KServe), as read and tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from enginetop.fleet.foreign_json import Fields, field_at, texts
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import Role
from tuners.control.flags import engine_of
from tuners.control.kubernetes.arguments import Style, style_of

Pointer = tuple[str | int, ...]

BUMP_KEY = "enginetop/change"
"""Annotation whose new value makes a controller look that ignores a change of flags alone."""


class NoPlaceError(Exception):
    """The object has no place where the flags could be changed; the text says why."""


@frozen
class ChangePoint:
    """One place. `present` is what stands there, or what the running container has where nothing does.

    `there`: whether the object has the place now. `bump` is an annotation that has to change with it. `rolls`
    says what a change restarts, `sibling` how a canary of one replica can be had (empty: not at all).
    `others` are places that have to say the same: those of the workers behind a leader.
    """

    place: Pointer
    style: Style
    present: Sequence[str] | str
    there: bool
    rolls: str
    sibling: str = ""
    bump: Pointer | None = None
    others: tuple[ChangePoint, ...] = ()


def change_point(owner: Fields, pod: Fields, container: str, role: Role) -> ChangePoint:
    """The place in `owner`, the object at the top of the pod's owners. NoPlaceError: there is none."""
    kind = str(owner.get("kind", ""))
    finder = _FINDERS.get(kind)
    if finder is None:
        raise NoPlaceError(f"it is owned by a {kind or 'nobody'}, whose flags are not known here")
    running = _container(field_at(pod, "spec", "containers"), container)
    if running is None:
        raise NoPlaceError(f"its pod has no container {container!r}")
    return finder(owner, pod, running[1], role)


def _workload(owner: Fields, _pod: Fields, running: Fields, _role: Role) -> ChangePoint:
    """Deployment, StatefulSet, LeaderWorkerSet: of nobody, of a Helm chart, or of llm-d's Kustomize."""
    rolls = "all replicas of this object, by its own strategy"
    sibling = "a second object with one replica and the labels that its Service or pool selects"
    top: Pointer = ("spec", "template", "spec", "containers")
    if owner.get("kind") != "LeaderWorkerSet":
        return _listed(owner, top, running, rolls=rolls, sibling=sibling)
    leaders, workers = (
        ("spec", "leaderWorkerTemplate", name, "spec", "containers")
        for name in ("leaderTemplate", "workerTemplate")
    )
    if field_at(owner, *leaders) is None:
        return _listed(owner, workers, running, rolls=rolls, sibling=sibling)
    found = _listed(owner, leaders, running, rolls=rolls, sibling=sibling)
    behind = (field_at(one, "name") for one in field_at(owner, *workers) or () if _runs_engine(one))
    others = tuple(_listed(owner, workers, running, rolls=rolls, container=str(name)) for name in behind)
    return replace(found, others=others)


def _runtime(owner: Fields, _pod: Fields, _running: Fields, _role: Role) -> ChangePoint:
    place: Pointer = ("spec", "vllmConfig", "extraArgs")
    found = field_at(owner, *place)
    return ChangePoint(
        place=place,
        style=Style.LIST,
        present=texts(found),
        there=isinstance(found, list),
        rolls="all replicas of this VLLMRuntime",
        sibling="a second VLLMRuntime with one replica and the labels of the router's selector",
        bump=("spec", "deploymentConfig", "podAnnotations", BUMP_KEY),
    )


def _inference_service(owner: Fields, _pod: Fields, running: Fields, role: Role) -> ChangePoint:
    part = "decoder" if role is Role.DECODE else "engine"
    if field_at(owner, "spec", part, "leader") is not None:
        return _leader_and_worker(owner, running, part)
    place: Pointer = ("spec", part, "runner", "args")
    found = field_at(owner, *place)
    return ChangePoint(
        place=place,
        style=Style.LIST,
        present=texts(found) if isinstance(found, list) else texts(running.get("args")),
        there=isinstance(found, list),
        rolls=f"all replicas of the {part}, one after the other",
        sibling="a second InferenceService with one replica, which an SGLang router has to select too",
    )


def _leader_and_worker(owner: Fields, running: Fields, part: str) -> ChangePoint:
    """Both run the engine, each with a list of its own that replaces the runtime's."""
    rolls = f"all replicas of the {part}, leaders with their workers"
    points = []
    for who in ("leader", "worker"):
        place: Pointer = ("spec", part, who, "runner", "args")
        found = field_at(owner, *place)
        given = texts(running.get("args"))
        if found is None and who == "worker" and given:
            raise NoPlaceError(
                f"the flags of its workers are not in it: write {'.'.join(map(str, place))} first"
            )
        present = texts(found) if isinstance(found, list) else given
        points.append(ChangePoint(place, Style.LIST, present, isinstance(found, list), rolls))
    leader, worker = points
    return replace(leader, others=(worker,))


def _runs_engine(container: Any) -> bool:
    """Whether a worker's container starts an engine by itself, and so needs its flags; ray's do not."""
    command, args = (texts(field_at(container, key)) for key in ("command", "args"))
    return engine_of((*command, *args)) is not None


def _graph(owner: Fields, pod: Fields, running: Fields, _role: Role) -> ChangePoint:
    name = field_at(pod, "metadata", "labels", "nvidia.com/dynamo-component")
    if not isinstance(name, str):
        raise NoPlaceError("its pod does not say which component of the graph it is")
    rolls = "ALL workers of the graph, into a new generation"
    services = field_at(owner, "spec", "services")
    if isinstance(services, dict) and isinstance(services.get(name), dict):
        place: Pointer = ("spec", "services", name, "extraPodSpec", "mainContainer", "args")
        found = field_at(owner, *place)
        present = texts(found) if isinstance(found, list) else texts(running.get("args"))
        return ChangePoint(
            place, style_of(texts(running.get("command")), present), present, isinstance(found, list), rolls
        )
    components = field_at(owner, "spec", "components")
    for index, component in enumerate(components if isinstance(components, list) else ()):
        if field_at(component, "name") == name:
            top: Pointer = ("spec", "components", index, "podTemplate", "spec", "containers")
            return _listed(owner, top, running, rolls=rolls, container="main")
    raise NoPlaceError(f"the graph has no component {name!r}")


def _llm_service(owner: Fields, _pod: Fields, _running: Fields, role: Role) -> ChangePoint:
    top: Pointer = ("spec", "template", "containers")
    if role is Role.PREFILL and field_at(owner, "spec", "prefill") is not None:
        top = ("spec", "prefill", "template", "containers")
    found = _container(field_at(owner, *top), "main")
    rolls = "all replicas of this service's workload, by its rolloutStrategy"
    sibling = "a second LLMInferenceService with one replica, the same router.route.group and a small weight"
    if found is None:
        raise NoPlaceError("it names no container main of its own; add one with its args first")
    index, container = found
    env = container.get("env")
    for at, variable in enumerate(env if isinstance(env, list) else ()):
        text = field_at(variable, "value")
        if field_at(variable, "name") == "VLLM_ADDITIONAL_ARGS" and isinstance(text, str):
            place = (*top, index, "env", at, "value")
            return ChangePoint(place, Style.EVALUATED_TEXT, text, True, rolls, sibling)
    args = container.get("args")
    present = texts(args) if isinstance(args, list) else ()
    return ChangePoint(
        (*top, index, "args"), Style.EVALUATED, present, isinstance(args, list), rolls, sibling
    )


def _listed(
    owner: Fields, top: Pointer, running: Fields, *, rolls: str, sibling: str = "", container: str = ""
) -> ChangePoint:
    """The `args` of a container in a list, or its `command` where a shell's script stands there."""
    name = container or str(running.get("name", ""))
    found = _container(field_at(owner, *top), name)
    if found is None:
        raise NoPlaceError(f"{owner.get('kind')} has no container {name!r}")
    index, fields = found
    command, args = texts(fields.get("command")), texts(fields.get("args"))
    if "command" not in fields and "args" not in fields:  # the operator fills in what the object leaves out
        command, args = texts(running.get("command")), texts(running.get("args"))
    style = style_of(command, args)
    key = "command" if style is Style.SCRIPT and not args else "args"
    return ChangePoint(
        place=(*top, index, key),
        style=style,
        present=command if key == "command" else args,
        there=isinstance(fields.get(key), list),
        rolls=rolls,
        sibling=sibling,
    )


_FINDERS = {
    "Deployment": _workload,
    "StatefulSet": _workload,
    "LeaderWorkerSet": _workload,
    "VLLMRuntime": _runtime,
    "InferenceService": _inference_service,
    "DynamoGraphDeployment": _graph,
    "LLMInferenceService": _llm_service,
}


def _container(containers: Any, name: str) -> tuple[int, Fields] | None:
    """The container of that name and its place in the list."""
    for index, one in enumerate(containers if isinstance(containers, list) else ()):
        if field_at(one, "name") == name:
            return index, one
    return None
