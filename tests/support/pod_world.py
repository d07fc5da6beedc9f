"""A cluster whose pods are simulated engines: the fake API server, its controllers and its kubelet in virtual
time, with discovery, tracker and snapshots as they are.

Deployments roll with a surge of one; an InferenceService writes its Deployment, and puts back whatever else
does. Pods become ready after a while, or never, with the reason that a kubelet gives.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from collectors.discovery.membership import apply
from collectors.discovery.roster import Roster
from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.context import Context
from collectors.kubernetes.source import KubernetesPods
from enginetop.cli.kubernetes_apply import OwnerWorlds
from enginetop.cli.kubernetes_owners import Cluster, OwnedKnobs
from enginetop.fleet.admin_surface import AdminFacts
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.knobs import KnobAnswer, KnobSheet
from enginetop.fleet.model import EngineKind, Target
from enginetop.fleet.observation import Failure, FailureKind, Observation
from enginetop.fleet.plan import Plan
from enginetop.fleet.reading import Identity
from enginetop.fleet.snapshot import Advice, FleetSnapshot
from enginetop.simulator.builtin import scenario_named
from enginetop.simulator.readings import ReadingShape
from enginetop.simulator.replica import SimulatedReplica
from tests.support.fake_kubernetes import TOKEN, FakeKubernetes, Key, RefusedError
from tests.support.kubernetes_pods import owned_by, pod
from tuners.advice import Advisor
from tuners.control.knob_api import HttpKnobClient, KnobClient, KnobReply
from tuners.control.kubernetes.rollout import running_value
from tuners.control.planning import plan_from_advice

VERSION = "0.1.0"
KNOB = "max_num_batched_tokens"
EPOCH = 1_750_000_000.0
TICK_SECONDS = 10.0
START_SECONDS = 30.0
DEPLOYMENTS, SERVICES = "deployments", "inferenceservices"

Item = dict[str, Any]
Trouble = Callable[[int | None], Item | None]
"""By the value that a pod runs with: what its status says instead of becoming ready; None: it comes up."""


def waiting(reason: str, /, **last: object) -> Item:
    """A pod whose container waits for that reason."""
    status = {"name": "main", "state": {"waiting": {"reason": reason}}, "lastState": {"terminated": last}}
    return {"phase": "Pending", "containerStatuses": [status]}


def unschedulable(message: str) -> Item:
    """A pod that no node takes."""
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"phase": "Pending", "conditions": [said]}


class NearClient(KubernetesClient):
    """A client of the fake in the same process: what it sends arrives without a wire."""

    def __init__(self, fake: FakeKubernetes, server: str) -> None:
        super().__init__(Context("prod", server, "llm", token=TOKEN))
        self._fake = fake
        self.writes: list[tuple[str, str]] = []
        self.writing = ("", "")
        """The write that `before_write` and `after_write` are called for."""
        self.before_write: Callable[[], None] = lambda: None
        self.after_write: Callable[[], None] = lambda: None

    def _asked(
        self, method: str, path: str, parameters: Mapping[str, str], body: Any, content_type: str
    ) -> httpx.Response:
        writes = method in ("POST", "PATCH", "DELETE") and "dryRun" not in parameters
        writes = writes and not path.endswith("reviews")
        if writes:
            self.writing = (method, path)
            self.before_write()
            self.writes.append((method, path))
        try:
            answer = self._fake.answer(method, path, parameters, json.loads(json.dumps(body)), content_type)
            assert isinstance(answer, dict)
            return httpx.Response(200, json=answer)
        except RefusedError as refused:
            return httpx.Response(refused.code, json=refused.status)
        finally:
            if writes:
                self.after_write()


class PodWorld:
    """A `World` of engines in pods; every engine is `scenario`'s first, with the flags of its pod."""

    def __init__(
        self,
        folder: Path,
        scenario: str = "prefill-bound",
        *,
        fake: FakeKubernetes | None = None,
        server: str = "http://prod",
    ) -> None:
        self.fake = fake = fake or FakeKubernetes()
        self.api = NearClient(fake, server)
        self.cluster = Cluster(client=self.api)
        self.worlds = OwnerWorlds(self.cluster, folder)
        self.trouble: Trouble = lambda _: None
        self.admin: AdminFacts | None = None
        found = scenario_named(scenario)
        self._member, self._slo = found.pools[0].members[0], found.slo
        self._second = 0.0
        self._made = 0
        self._engines: dict[str, SimulatedReplica] = {}
        self._ready_at: dict[str, float] = {}
        self._shapes: dict[object, ReadingShape] = {}
        self._roster = Roster()
        self._tracker = FleetTracker(
            (),
            interval_seconds=TICK_SECONDS,
            window_seconds=60.0,
            slo_for=lambda _: found.slo,
            fixed_spacing_seconds=TICK_SECONDS,
        )
        self._listed_version = -1
        self._latest = self._look()
        fake.changed.append(self._controllers)

    # The world

    def now(self) -> float:
        """See `World`."""
        return EPOCH + self._second

    def snapshot(self) -> FleetSnapshot:
        """See `World`."""
        return self._latest

    def advance(self, seconds: float = TICK_SECONDS) -> None:
        """See `World`."""
        end = self._second + seconds
        while self._second < end:
            self._second += TICK_SECONDS
            self._kubelet()
            self._roll()
            for engine in self._engines.values():
                engine.advance(self._second)
            self._discover()
            self._latest = self._look()

    def client(self, _target: str) -> KnobClient | None:
        """See `World`: no engine has knobs of its own, but with `admin` all tell who may change them."""
        admin = self.admin
        return None if admin is None else _OpenEngine(_NoKnobApi(), lambda _: admin)

    # What a test does

    def deploy(self, name: str, value: int, replicas: int, **meta: object) -> Key:
        """A Deployment of the model server, as its user writes it."""
        labels = {"app": name}
        item = {
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": "llm", **meta},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [_container(["vllm", "serve", "m", *_flag(value)])]},
                },
            },
        }
        key = self.fake.put("apps/v1", DEPLOYMENTS, item)
        self._controllers(self.fake, key)
        return key

    def deploy_service(self, name: str, value: int, replicas: int) -> Key:
        """An InferenceService of OME, with the Deployment that its operator makes of it."""
        item = {
            "kind": "InferenceService",
            "metadata": {"name": name, "namespace": "llm"},
            "spec": {"engine": {"minReplicas": replicas, "runner": {"args": _flag(value)}}},
        }
        key = self.fake.put("ome.io/v1beta1", SERVICES, item)
        self._controllers(self.fake, key)
        return key

    def settle(self, seconds: float = 120.0) -> None:
        """Let everything start."""
        self.advance(seconds)

    def sheets(self) -> dict[str, KnobSheet]:
        """The knobs of all targets, as their owners give them."""
        found = ((one.target, self.knobs(one.target).read().sheet) for one in self.snapshot().replicas)
        return {target.url: sheet for target, sheet in found if sheet is not None}

    def suggested(self, seconds: float) -> Plan:
        """The plan of what the advisor suggests after so long a look."""
        sheets = self.sheets()
        advise = Advisor(lambda: sheets)
        snapshot = advise(self.snapshot())
        until = self._second + seconds
        while self._second < until:
            self.advance()
            snapshot = advise(self.snapshot())
        replica, advice = next(
            (replica, advice)
            for replica in snapshot.replicas
            for advice in replica.advice
            if advice.knob == KNOB and advice.proposed is not None
        )
        return plan_from_advice(snapshot, replica, advice, sheets, now=self.now(), tool_version=VERSION)

    def plan(self, to: int, place: int = 0) -> Plan:
        """A plan as `tune` writes it."""
        snapshot = self.snapshot()
        replica = snapshot.replicas[place]
        sheets = self.sheets()
        row = sheets[replica.target.url].knob(KNOB)
        assert row is not None
        assert row.value is not None
        action = "lower" if to < row.value else "raise"
        advice = Advice(KNOB, action, ("a trial",), current=row.value, proposed=to)
        return plan_from_advice(snapshot, replica, advice, sheets, now=self.now(), tool_version=VERSION)

    def report(self, name: str, reason: str, message: str) -> None:
        """A Deployment's controller says that it does not go on."""
        key = ("apps/v1", DEPLOYMENTS, "llm", name)
        item = self.fake.get(key)
        said = {"type": "Progressing", "status": "False", "reason": reason, "message": message}
        item["status"] = {"observedGeneration": item["metadata"]["generation"], "conditions": [said]}
        self.fake.put("apps/v1", DEPLOYMENTS, item)

    def set_by_hand(self, name: str, value: int) -> None:
        """Somebody edits a Deployment."""
        item = self.fake.get(("apps/v1", DEPLOYMENTS, "llm", name))
        item["spec"]["template"]["spec"]["containers"][0]["args"][-1] = str(value)
        self.fake.put("apps/v1", DEPLOYMENTS, item)

    def knobs(self, target: Target) -> HttpKnobClient:
        """The flags that the owner of a target gives it."""
        return HttpKnobClient(OwnedKnobs(target, _NoKnobApi(), self.cluster, now=self.now))

    def running(self) -> dict[str, int | None]:
        """What the live pods run with, by name."""
        found = {key[3]: self.fake.get(key) for key in self.fake.keys("pods")}
        return {name: running_value(item, "main", EngineKind.VLLM, KNOB) for name, item in found.items()}

    def siblings(self) -> list[str]:
        """Canaries that are there."""
        return [key[3] for key in self.fake.keys(DEPLOYMENTS) if "-canary-" in key[3]]

    # Controllers

    def _controllers(self, fake: FakeKubernetes, key: Key) -> None:
        if key[1] == SERVICES and key in fake._items:
            self._operate(key)
        elif key[1] == DEPLOYMENTS:
            owner = fake._items.get(key, {}).get("metadata", {}).get("ownerReferences")
            if owner:
                self._operate(("ome.io/v1beta1", SERVICES, key[2], owner[0]["name"]))

    def _operate(self, key: Key) -> None:
        """OME: the Deployment is what the service says, whatever somebody made of it."""
        service = self.fake.get(key)
        engine = service["spec"]["engine"]
        labels = {"ome.io/inferenceservice": key[3], "component": "engine"}
        words = ["vllm", "serve", "m", *engine["runner"]["args"]]
        deployment = {
            "kind": "Deployment",
            "metadata": {
                "name": f"{key[3]}-engine",
                "namespace": key[2],
                "ownerReferences": [owned_by(key[0], "InferenceService", key[3])],
            },
            "spec": {
                "replicas": engine["minReplicas"],
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [_container(words)]}},
            },
        }
        self.fake.put("apps/v1", DEPLOYMENTS, deployment)

    def _roll(self) -> None:
        """The deployment controller: a surge of one, an old pod goes when a new one is ready."""
        pods = {key: self.fake.get(key) for key in self.fake.keys("pods")}
        wanted: set[str] = set()
        for key in self.fake.keys(DEPLOYMENTS):
            deployment = self.fake.get(key)
            template = deployment["spec"]["template"]
            digest = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:8]
            made_by = f"{key[3]}-{digest}"
            own = {name: item for name, item in pods.items() if _parent(item).rpartition("-")[0] == key[3]}
            wanted |= {name[3] for name in own}
            new = [name for name, item in own.items() if _parent(item) == made_by]
            old = [name for name in own if name not in new]
            ready = [name for name in new if _is_ready(own[name])]
            replicas = deployment["spec"]["replicas"]
            for name in old[: max(0, len(old) + len(ready) - replicas)]:
                self.fake.remove(name)
            unready_old = [name for name in old if not _is_ready(own[name])]
            for name in unready_old:  # what never came up goes first
                if name in self.fake._items:
                    self.fake.remove(name)
            left = replicas - len(new)
            for _ in range(min(left, 1) if old else left):
                self._create(key, made_by, template, digest)
        for name in pods:
            if name[3] not in wanted and name in self.fake._items:
                self.fake.remove(name)  # its owner is gone

    def _create(self, key: Key, made_by: str, template: Item, digest: str) -> None:
        self._made += 1
        if not any(one[3] == made_by for one in self.fake.keys("replicasets")):
            meta = {"name": made_by, "namespace": key[2]}
            owner = owned_by("apps/v1", "Deployment", key[3])
            made: Item = {"kind": "ReplicaSet", "metadata": {**meta, "ownerReferences": [owner]}, "spec": {}}
            self.fake.put("apps/v1", "replicasets", made)
        (container,) = template["spec"]["containers"]
        item = pod(
            f"{made_by}-{self._made}",
            {**template["metadata"]["labels"], "pod-template-hash": digest},
            args=container["args"],
            address=f"10.1.0.{self._made}",
            owner=("apps/v1", "ReplicaSet", made_by),
        )
        item["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:{self._made:02d}Z"
        value = running_value(item, "main", EngineKind.VLLM, KNOB)
        trouble = self.trouble(value)
        started = {"phase": "Running", "podIP": item["status"]["podIP"], "conditions": []}
        item["status"] = started if trouble is None else trouble
        name = item["metadata"]["name"]
        if trouble is None:
            self._ready_at[name] = self._second + START_SECONDS
        self.fake.put("v1", "pods", item)

    def _kubelet(self) -> None:
        here = {key[3]: key for key in self.fake.keys("pods")}
        for name in [name for name in self._engines if name not in here]:
            del self._engines[name]
        for name, moment in list(self._ready_at.items()):
            if name in here and moment <= self._second:
                item = self.fake.get(here[name])
                item["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
                self.fake.put("v1", "pods", item)
                value = running_value(item, "main", EngineKind.VLLM, KNOB)
                plan = self._member.with_engine(**{KNOB: value})
                seed = int(name.rpartition("-")[2])
                self._engines[name] = SimulatedReplica(
                    name, plan, self._slo, seed, EPOCH, self._second, keeps_steps=False
                )
            if name not in here or moment <= self._second:
                del self._ready_at[name]

    # Discovery and pages

    def page(self, pod_name: str, path: str) -> tuple[int, bytes]:
        """What a pod's engine answers."""
        engine = self._engines.get(pod_name)
        found = engine.page() if engine is not None and path == "/metrics" else None
        return (404, b"") if found is None else (200, found)

    def _discover(self) -> None:
        if self._listed_version == self.fake._version:
            return
        self._listed_version = self.fake._version
        listed = KubernetesPods("", client=self.api).look()
        changes = self._roster.take("kubernetes", listed, self.now())
        apply(changes, self._tracker, self.now())

    def _look(self) -> FleetSnapshot:
        now = self.now()
        for target in self._roster.targets:
            self._tracker.observe(target.url, self._observation(target, now))
        return self._tracker.snapshot(now)

    def _observation(self, target: Target, now: float) -> Observation:
        engine = self._engines.get(target.pod.partition("/")[2])
        if engine is None or not engine.engines:
            return Observation(now, 0.001, failure=Failure(FailureKind.REFUSED, now, "connection refused"))
        settings = engine.plan.engine
        shape = self._shapes.get(settings)
        if shape is None:
            identity = Identity(settings.kind, "", settings.model, settings.role, simulated=True)
            shape = self._shapes[settings] = ReadingShape.of(engine.engines, self._slo, identity)
        reading = shape.read(engine.engines, now, EPOCH + engine.life_at)
        return Observation(now, 0.001, reading=reading)


class _OpenEngine(HttpKnobClient):
    """An engine without knobs of its own that tells who may change it."""

    def examine(self) -> KnobReply:
        assert self._others is not None
        return replace(self.read(), admin=self._others(""))


class _NoKnobApi:
    def request(self, method: str, path: str, body: bytes | None = None) -> KnobAnswer:
        return KnobAnswer(404, b"{}")


def _flag(value: int) -> list[str]:
    return ["--max-num-batched-tokens", str(value)]


def _container(words: list[str]) -> Item:
    return {"name": "main", "image": "vllm/vllm-openai:v0.11", "args": words}


def _parent(item: Mapping[str, Any]) -> str:
    owners = item["metadata"].get("ownerReferences") or [{}]
    return str(owners[0].get("name", ""))


def _is_ready(item: Mapping[str, Any]) -> bool:
    conditions = item["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
