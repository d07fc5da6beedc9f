"""How far a change of an owner is, as its pods and its own conditions tell. Pure.

The same for every stack: what the containers of live pods run with is the truth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from enginetop.fleet.foreign_json import Fields, field_at, objects_at, texts
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import EngineKind
from tuners.control.flags import FLAGS, FlagError, value_of
from tuners.control.kubernetes.arguments import Style, style_of, words_of

SCHEDULING_SECONDS = 300.0
"""So long a pod may wait for a node: a cluster that grows has to start one first."""
_HOPELESS = frozenset(
    {
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)
"""Reasons of a waiting container that time does not mend."""
_GRACE_SECONDS = 30
"""What a pod has that says nothing."""
_MORE_ARGUMENTS = ("VLLM_ADDITIONAL_ARGS", "EXTRA_ARGS")


@frozen
class Member:
    """One live pod. `value` is what its container runs with (None: no such flag, or not to be told);
    `trouble` says why it does not come up, empty: nothing speaks against it.
    """

    name: str
    address: str
    value: int | None
    ready: bool
    trouble: str


def members(
    pods: Sequence[Fields], container: str, kind: EngineKind, knob: str, now: float
) -> tuple[Member, ...]:
    """The pods that are not on their way out, in order of their age and name."""
    live = [pod for pod in pods if field_at(pod, "metadata", "deletionTimestamp") is None]
    live.sort(key=lambda pod: (str(field_at(pod, "metadata", "creationTimestamp") or ""), _name(pod)))
    return tuple(
        Member(
            name=_name(pod),
            address=str(field_at(pod, "status", "podIP") or ""),
            value=running_value(pod, container, kind, knob),
            ready=any(one.get("type") == "Ready" and one.get("status") == "True" for one in _conditions(pod)),
            trouble=next(_troubles(pod, now), ""),
        )
        for pod in live
    )


def running_value(pod: Fields, container: str, kind: EngineKind, knob: str) -> int | None:
    """What a pod's container gives a knob at its start; None: nothing, or it cannot be told."""
    flag = FLAGS.get(kind, {}).get(knob)
    found = next((one for one in objects_at(pod, "spec", "containers") if one.get("name") == container), None)
    if flag is None or found is None:
        return None
    command, args = texts(found.get("command")), texts(found.get("args"))
    words: tuple[str, ...] = (*command, *args)
    try:
        if style_of(command, args) is Style.SCRIPT:
            words = words_of(words, Style.SCRIPT)
        for variable in objects_at(found, "env"):
            if variable.get("name") in _MORE_ARGUMENTS:
                words = (*words, *words_of(str(variable.get("value") or ""), Style.EVALUATED_TEXT))
    except FlagError:
        return None
    return value_of(words, flag)


def drained(pods: Sequence[Fields]) -> Iterator[str]:
    """How long a pod that goes has for its requests, in words."""
    for pod in pods:
        said = field_at(pod, "spec", "terminationGracePeriodSeconds")
        seconds = said if isinstance(said, int) else _GRACE_SECONDS
        yield (
            f"a pod that goes has {seconds} s to end its requests (terminationGracePeriodSeconds), then they "
            "are cut"
        )


def trouble_of(owner: Fields) -> str:
    """Why the owner itself says that its rollout does not go on; empty: it does not say so."""
    seen = field_at(owner, "status", "observedGeneration")
    if isinstance(seen, int) and seen < (field_at(owner, "metadata", "generation") or 0):
        return ""  # it tells of the former one
    for one in _conditions(owner):
        if one.get("status") == "False" and one.get("reason") == "ProgressDeadlineExceeded":
            return f"ProgressDeadlineExceeded: {one.get('message') or 'no reason given'}"
    return ""


def _troubles(pod: Fields, now: float) -> Iterator[str]:
    name = _name(pod)
    for key in ("initContainerStatuses", "containerStatuses"):
        for status in objects_at(pod, "status", key):
            waiting = field_at(status, "state", "waiting") or {}
            if waiting.get("reason") in _HOPELESS:
                last = field_at(status, "lastState", "terminated") or {}
                why = last.get("reason") if last.get("reason") not in (None, "Error", "Completed") else ""
                code = f"exit code {last['exitCode']}" if "exitCode" in last else ""
                words = ", ".join(filter(None, (str(waiting["reason"]), why, code)))
                yield f"pod {name}: {words}"
    for one in _conditions(pod):
        if one.get("type") == "PodScheduled" and one.get("reason") == "Unschedulable":
            since = _time(one.get("lastTransitionTime"))
            if since is None or now - since >= SCHEDULING_SECONDS:
                yield f"pod {name} cannot be scheduled: {one.get('message') or 'no reason given'}"


def _conditions(item: Fields) -> list[Fields]:
    return objects_at(item, "status", "conditions")


def _name(pod: Fields) -> str:
    return str(field_at(pod, "metadata", "name") or "")


def _time(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None
