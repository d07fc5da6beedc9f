"""From a pod's JSON to what is scraped there: engine, role, pool, port. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from collectors.json_fields import integer, items, text
from collectors.kubernetes.stacks import COMMANDS, ENGINE_CONTAINERS, IMAGES, KINDS, OWNED, Kind, Stack
from enginetop.fleet.foreign_json import Fields, field_at
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import EngineKind, Role
from enginetop.fleet.plan import CANARY_LABEL

_WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
_SCRAPE = "prometheus.io/"
_ENDED = frozenset({"Succeeded", "Failed"})
_MODES = {"prefill": Role.PREFILL, "decode": Role.DECODE}
_KV_ROLE = re.compile(r'"kv_role"\s*:\s*"kv_(producer|consumer|both)"')
_KV_ROLES = {"producer": Role.PREFILL, "consumer": Role.DECODE, "both": Role.AGGREGATED}


@frozen
class ServingPod:
    """One pod that serves, as its spec tells. `container` runs the engine; `address` may be empty yet."""

    namespace: str
    name: str
    stack: Stack
    pool: str
    role: Role
    engine: EngineKind
    container: str
    address: str
    port: int
    scheme: str
    metrics_path: str | None
    model: str | None
    inference_pool: str = ""
    """Pool of the Gateway API (`namespace/name`) that routes to it, or that it picks for; empty: none."""
    on_trial: bool = False
    """A plan of ours has made it, to be compared with others."""

    @property
    def identity(self) -> str:
        """Stays when the pod of that name gets another address."""
        return f"{self.namespace}/{self.name}"


def serving_pod(pod: Fields, owner_kind: str = "", *, known: Kind | None = None) -> ServingPod | None:
    """What a pod serves; None: nothing that we read, or it is a worker behind its leader, or at its end.

    `owner_kind` is the kind of the object at the top of its owners, where that is known; `known` what it is,
    where others than its labels tell.
    """
    labels = _words(pod, "metadata", "labels")
    if field_at(pod, "metadata", "deletionTimestamp") is not None or text(pod, "status", "phase") in _ENDED:
        return None
    if labels.get(_WORKER_INDEX, "0") != "0" or labels.get("app.kubernetes.io/component", "").endswith(
        "-worker"
    ):
        return None
    containers = [one for one in items(pod, "spec", "containers") if isinstance(one, dict)]
    container = _engine_container(containers)
    namespace, name = text(pod, "metadata", "namespace"), text(pod, "metadata", "name")
    if container is None or namespace is None or name is None:
        return None
    line = _command_line(container)
    runs, runs_port = _engine_of(line, text(container, "image") or "")
    kind = known or OWNED.get(owner_kind) or next((one for one in KINDS if _matches(one, labels)), None)
    if kind is None:
        if runs is EngineKind.UNKNOWN:
            return None
        kind = Kind(Stack.PLAIN, {}, "app")
    annotations = _words(pod, "metadata", "annotations")
    engine = _engine_named(labels.get(kind.engine_label, "")) or kind.engine
    return ServingPod(
        namespace=namespace,
        name=name,
        stack=kind.stack,
        pool=labels.get(kind.pool) or _controller(pod) or name,
        role=_role(kind, labels, line),
        engine=engine if engine is not EngineKind.UNKNOWN else runs,
        container=text(container, "name") or "",
        address=text(pod, "status", "podIP") or "",
        port=_port(kind, containers, container, annotations, line, runs_port),
        scheme=_scheme(container, annotations),
        metrics_path=_metrics_path(annotations.get(f"{_SCRAPE}path", "")),
        model=labels.get(kind.model_label),
        on_trial=CANARY_LABEL in labels,
    )


def _matches(kind: Kind, labels: Mapping[str, str]) -> bool:
    return all(key in labels and value in ("*", labels[key]) for key, value in kind.labels.items())


def _engine_container(containers: Sequence[Fields]) -> Fields | None:
    """The container of the engine: by what it runs, then by its name, else the first."""
    for container in containers:
        if _engine_of(_command_line(container), text(container, "image") or "")[0] is not EngineKind.UNKNOWN:
            return container
    named = (one for name in ENGINE_CONTAINERS for one in containers if text(one, "name") == name)
    return next(named, containers[0] if containers else None)


def _command_line(container: Fields) -> str:
    words = [word for key in ("command", "args") for word in items(container, key) if isinstance(word, str)]
    environment = (
        text(one, "value") or ""
        for one in items(container, "env")
        if text(one, "name") in ("VLLM_ADDITIONAL_ARGS", "EXTRA_ARGS")
    )
    return " ".join((*words, *environment))


def _engine_of(line: str, image: str) -> tuple[EngineKind, int | None]:
    for words, engine, port in COMMANDS:
        if words in line:
            return engine, port
    for words, engine, port in IMAGES:
        if words in image.lower():
            return engine, port
    return EngineKind.UNKNOWN, None


def _engine_named(word: str) -> EngineKind | None:
    return next((engine for engine in EngineKind if engine.value == word.lower().replace("-", "")), None)


def _role(kind: Kind, labels: Mapping[str, str], line: str) -> Role:
    """The label's word, else the command line's, else what is usual for the kind."""
    if (said := kind.roles.get(labels.get(kind.role_label, ""))) is not None and said is not Role.AGGREGATED:
        return said
    if kind.role is not Role.AGGREGATED:
        return kind.role
    if (mode := _MODES.get(_flag(line, "--disaggregation-mode") or "")) is not None:
        return mode
    found = _KV_ROLE.search(line)
    return _KV_ROLES[found[1]] if found else kind.role


def _port(
    kind: Kind,
    containers: Sequence[Fields],
    container: Fields,
    annotations: Mapping[str, str],
    line: str,
    known: int | None,
) -> int:
    named = {
        text(port, "name"): number
        for one in (*(other for other in containers if other is not container), container)
        for port in items(one, "ports")
        if (number := integer(port, "containerPort")) is not None
    }
    for name in kind.ports:
        if name in named:
            return named[name]
    for said in (annotations.get(f"{_SCRAPE}port"), _flag(line, "--port")):
        if said is not None and said.isdecimal() and 0 < int(said) < 65536:
            return int(said)
    own = [
        number for port in items(container, "ports") if (number := integer(port, "containerPort")) is not None
    ]
    if kind.stack in (Stack.PLAIN, Stack.KSERVE) and own:
        return own[0]
    return kind.port or known or 8000


def _scheme(container: Fields, annotations: Mapping[str, str]) -> str:
    """`https` where the pod says so, or is asked so by its own readiness probe."""
    said = annotations.get(f"{_SCRAPE}scheme") or text(container, "readinessProbe", "httpGet", "scheme") or ""
    return "https" if said.lower() == "https" else "http"


def _metrics_path(said: str) -> str | None:
    """The page that an annotation names, without a query. As for Prometheus, its first slash may lack.

    None where it names none: then it is to be found. A pod's words become a part of an address: they must
    not lead out of the way through an API server.
    """
    path = "/" + said.partition("?")[0].removeprefix("/")
    blank = any(c.isspace() or not c.isprintable() for c in path)
    return None if path == "/" or blank or ".." in unquote(path).split("/") else path


def _flag(line: str, flag: str) -> str | None:
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    for at, word in enumerate(words):
        if word == flag and at + 1 < len(words):
            return words[at + 1]
        if word.startswith(f"{flag}="):
            return word.removeprefix(f"{flag}=")
    return None


def _controller(pod: Fields) -> str:
    """The name of the object that made the pod; empty: nobody."""
    owners = items(pod, "metadata", "ownerReferences")
    owner = next((one for one in owners if field_at(one, "controller") is True), None)
    return text(owner, "name") or ""


def _words(pod: Fields, *path: str) -> Mapping[str, str]:
    found = field_at(pod, *path)
    return {k: v for k, v in found.items() if isinstance(v, str)} if isinstance(found, dict) else {}
