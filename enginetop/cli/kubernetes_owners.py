"""Engines in Kubernetes and the objects that own their flags: knobs to read, patches to print."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from collectors.control_http import HttpKnobTransport
from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.kubeconfig import find_context, split_place
from collectors.kubernetes.lookup import is_pods, pod_of
from collectors.kubernetes.owners import Owners
from collectors.kubernetes.pods import serving_pod
from enginetop.cli.admin_look import AdminLook
from enginetop.cli.discovering import DiscoverySetting
from enginetop.fleet.errors import ClusterError, ConfigError
from enginetop.fleet.knobs import KnobAnswer, KnobRow, KnobSheet, KnobTransport, sheet_document
from enginetop.fleet.model import EngineKind, Target
from enginetop.fleet.plan import VIA_KUBERNETES, Plan
from tuners.control.flags import FLAGS, FlagError, can_set, engine_of, value_of
from tuners.control.knob_api import HttpKnobClient, KnobClient
from tuners.control.kubernetes.arguments import words_of
from tuners.control.kubernetes.change_points import NoPlaceError, change_point
from tuners.control.kubernetes.emit import SecretInPatchError, emitted
from tuners.control.kubernetes.inspect import OwnedFlags, inspect
from tuners.control.kubernetes.owner import canary_target, is_canary
from tuners.control.kubernetes.patches import written_at
from tuners.control.kubernetes.siblings import why_none

_NO_KNOB_API = (404, 405, 501)
_KEPT_SECONDS = 60.0


class Cluster:
    """One cluster, asked when it is first needed. Any thread may ask."""

    def __init__(self, context: str | None = None, client: KubernetesClient | None = None) -> None:
        self._name = context
        self._client = client
        self._owners: Owners | None = None
        self._lock = threading.Lock()

    @property
    def client(self) -> KubernetesClient:
        """ClusterError: no such context."""
        if self._client is None:
            self._client = KubernetesClient(find_context(self._name))
        return self._client

    def reads(self, url: str) -> bool:
        """Whether a URL is that of a pod behind this API server. ClusterError: no such context."""
        return url.startswith(f"{self.client.context.server}/") and is_pods(url)

    def flags(self, target: Target) -> OwnedFlags:
        """Who has the say over the flags of a target. ClusterError, NoPlaceError: nobody that we know."""
        with self._lock:
            try:
                return self._found(target)
            finally:
                self.client.close()

    def _found(self, target: Target) -> OwnedFlags:
        pod = pod_of(self.client, target)
        self._owners = self._owners or Owners(self.client)
        chain = self._owners.chain(pod)
        serves = serving_pod(pod, chain[-1].kind if chain else "")
        if not chain or serves is None:
            raise NoPlaceError(f"{target.name}: nobody owns its pod")
        owner = self._owners.read(chain[-1])
        top = self._owners.as_served(chain[-1])
        owner.setdefault("kind", top.kind)
        owner.setdefault("apiVersion", top.api_version)
        point = change_point(owner, pod, serves.container, serves.role)
        below = tuple(f"{one.kind}/{one.name}" for one in chain[:-1])
        return OwnedFlags(top.path, owner, pod, point, serves.container, serves.role, below)

    # As the `Cluster` of the owners' boards

    def send(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str] = MappingProxyType({}),
        body: Any = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        """See `ObjectApi`."""
        with self._lock:
            return self.client.send(method, path, parameters, body, content_type)

    def top_of(self, pod: Mapping[str, Any]) -> str:
        """The path of the object at the top of a pod's owners; empty: nobody's. ClusterError."""
        with self._lock:
            self._owners = self._owners or Owners(self.client)
            chain = self._owners.chain(pod)
            return self._owners.as_served(chain[-1]).path if chain else ""

    def close(self) -> None:
        """Nothing is asked for a while."""
        with self._lock:
            if self._client is not None:
                self._client.close()


def cluster_of(discovery: Sequence[DiscoverySetting]) -> Cluster | None:
    """The cluster that targets were found in; None: in none."""
    place = next((one.place for one in discovery if one.kind == "kubernetes"), None)
    return None if place is None else Cluster(split_place(place)[0])


class OwnedKnobs:
    """A `KnobTransport`: the engine's own knob API where it has one, else the flags that its owner gives it.

    The latter are only read here: a plan changes them by their owner's board. They are asked for once a
    minute, since a change of them is a new pod, and every question of every target meets the API server.
    `owner_first`: they count even where the engine has knobs of its own.
    """

    def __init__(
        self,
        target: Target,
        engine: KnobTransport,
        cluster: Cluster,
        now: Callable[[], float] = time.monotonic,
        *,
        owner_first: bool = False,
    ) -> None:
        self._target, self._engine, self._cluster, self._now = target, engine, cluster, now
        self._owner_first = owner_first
        self._kept: KnobAnswer | None = None
        self._kept_until = 0.0

    def request(self, method: str, path: str, body: bytes | None = None) -> KnobAnswer:
        """See `KnobTransport`."""
        if method == "GET" and self._kept is not None and self._now() < self._kept_until:
            return self._kept
        if self._owner_first and method == "GET":
            answer = KnobAnswer(_NO_KNOB_API[0])
        else:
            answer = self._engine.request(method, path, body)
        if answer.status not in _NO_KNOB_API or method != "GET":
            return answer
        try:
            sheet = sheet_of(self._cluster.flags(self._target))
        except (ClusterError, NoPlaceError, FlagError) as error:
            return KnobAnswer(answer.status, json.dumps({"detail": str(error)}).encode())
        self._kept = KnobAnswer(200, json.dumps(sheet_document(sheet)).encode())
        self._kept_until = self._now() + _KEPT_SECONDS
        return self._kept


class KnobsOfPods:
    """The knobs of targets by their URLs: those that were `known` at the start, and those of pods that came
    since, as every rollout brings them. Nothing outside of the cluster is ever asked.
    """

    def __init__(
        self, known: Callable[[str], KnobClient | None], cluster: Cluster, *, owner_first: bool
    ) -> None:
        self._known, self._cluster, self._owner_first = known, cluster, owner_first
        self._came: dict[str, KnobClient] = {}

    def __call__(self, url: str) -> KnobClient | None:
        """The knobs of a target; None: it is neither known nor read through the API server."""
        found = self._known(url) or self._came.get(url)
        if found is not None:
            return found
        try:
            if not self._cluster.reads(url):
                return None
            credentials = self._cluster.client.identity.credentials()
        except ClusterError:
            return None
        target = Target(url, url)
        engine = HttpKnobTransport(url, credentials)
        knobs = OwnedKnobs(target, engine, self._cluster, owner_first=self._owner_first)
        return self._came.setdefault(url, HttpKnobClient(knobs, AdminLook(target, credentials)))


def sheet_of(flags: OwnedFlags) -> KnobSheet:
    """The knobs that flags of the owner set. FlagError: they cannot be read."""
    words = words_of(flags.point.present, flags.point.style)
    kind = engine_kind(flags)
    rows = tuple(
        KnobRow(
            name=knob,
            value=value_of(words, flag),
            start=value_of(words, flag),
            min=flag.min,
            max=flag.max,
            unit=flag.unit,
            version=0,
            note=f"restarts {flags.point.rolls}",
            apply="restart",
        )
        for knob, flag in FLAGS.get(kind, {}).items()
        if can_set(words, flag)
    )
    return KnobSheet(
        engine=kind.value,
        engine_version="",
        instance=f"{flags.namespace}/{flags.name}",
        applied=1,
        total=1,
        knobs=rows,
        writer=VIA_KUBERNETES,
        canary="" if why_none(flags.owner) else canary_target(f"{flags.namespace}/{flags.name}"),
    )


def engine_kind(flags: OwnedFlags) -> EngineKind:
    """The engine whose flags these are."""
    serves = serving_pod(flags.pod, str(flags.owner.get("kind", "")))
    if serves is not None and serves.engine is not EngineKind.UNKNOWN:
        return serves.engine
    return engine_of(words_of(flags.point.present, flags.point.style)) or EngineKind.UNKNOWN


def patch_lines(plan: Plan, targets: Sequence[Target], cluster: Cluster) -> Iterator[str]:
    """The patches of a plan, one an owner, with what stands against each as comments.

    ConfigError: nothing of the plan is owned by an object of Kubernetes, or it cannot be written as a patch.
    """
    known = {target.url: target for target in targets}
    done: set[str] = set()
    for change in plan.changes:
        if is_canary(change):
            continue
        target = known.get(change.target) or Target(change.target, change.target)
        try:
            flags = cluster.flags(target)
            if flags.path in done:
                continue
            done.add(flags.path)
            point = flags.point
            value, also = written_at(point, engine_kind(flags), {change.knob: change.after})
            for finding in inspect(cluster.client, flags, value, plan.id, also):
                yield f"# {'refused' if finding.refuses else 'note'}: {finding.text}"
            context = cluster.client.context.name
            yield from emitted(flags.owner, point, value, change=plan.id, context=context, also=also)
        except (ClusterError, NoPlaceError, FlagError, SecretInPatchError) as error:
            raise ConfigError(f"{change.target}: no patch: {error}") from None
        finally:
            cluster.client.close()
