"""The serving pods of a cluster as a source of targets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from urllib.parse import quote

from collectors.discovery.listing import Listed, ListingError, target_at
from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.context import KubernetesError
from collectors.kubernetes.inference_pools import InferencePool, InferencePools, complaints
from collectors.kubernetes.kubeconfig import find_context, split_place
from collectors.kubernetes.owners import Owners
from collectors.kubernetes.pod_list import PodList
from collectors.kubernetes.pods import ServingPod, serving_pod
from collectors.kubernetes.stacks import PICKER, Stack
from enginetop.fleet.foreign_json import Fields
from enginetop.fleet.model import Role, Target, in_brackets

MOST_THROUGH_SERVER = 50
"""Pods read through the API server, which every byte then passes; a larger fleet is asked of a Prometheus."""

_FORBIDDEN = 403


class Reach(StrEnum):
    """How pods are reached."""

    AUTO = "auto"
    DIRECT = "direct"
    PROXY = "proxy"


class KubernetesPods:
    """A `Source`. `place` is `[CONTEXT][/NAMESPACE]` (see `split_place`); without a namespace all that we may
    list.

    `reach` AUTO: directly from a pod of the cluster, else through the API server's pod proxy.
    """

    every_seconds = 1.0

    def __init__(
        self, place: str = "", reach: Reach = Reach.AUTO, *, client: KubernetesClient | None = None
    ) -> None:
        context, namespace = split_place(place)
        self.title = f"kubernetes {place}".rstrip()
        self._note = ""
        self._context_name = context
        self._namespace = namespace
        self._reach = reach
        self._client = client
        self._pods: PodList | None = None
        self._owners: Owners | None = None
        self._pools: InferencePools | None = None

    @property
    def note(self) -> str:
        """See `Source`; before the first list it says what is waited for."""
        waits_for = self._client.identity.waits_for if self._client is not None else ""
        return f"it waits for a login: run {waits_for}" if waits_for else self._note

    def look(self) -> Sequence[Listed]:
        """The serving pods now; waits for a change after the first look. ListingError: it cannot be told."""
        try:
            pods, owners = self._scope()
            try:
                pods.look()
            except KubernetesError as error:
                if error.status != _FORBIDDEN or self._namespace is not None:
                    raise
                pods = self._narrowed()
                pods.look()
            pools = self._inference_pools().look()
            found = with_pairs(_serving(pods.pods, owners, pools))
            return self._listed(found, tuple(complaints(pools, pods.pods)))
        except KubernetesError as error:
            raise ListingError(str(error)) from None
        finally:
            if self._client is not None:
                self._client.close()  # looks are far apart, and nobody would end a connection between them

    @property
    def _through_server(self) -> bool:
        if self._reach is Reach.AUTO:
            return self._client is None or not self._client.context.in_cluster
        return self._reach is Reach.PROXY

    def _scope(self) -> tuple[PodList, Owners]:
        if self._client is None:
            self._client = KubernetesClient(find_context(self._context_name))
        if self._pods is None:
            self._pods = PodList(self._client, self._namespace)
        if self._owners is None:
            self._owners = Owners(self._client)
        return self._pods, self._owners

    def _narrowed(self) -> PodList:
        """Who may not list the cluster's pods may list those of the context's namespace."""
        assert self._client is not None
        self._namespace = self._client.context.namespace
        self._pods = PodList(self._client, self._namespace)
        return self._pods

    def _inference_pools(self) -> InferencePools:
        assert self._client is not None
        if self._pools is None:
            self._pools = InferencePools(self._client, self._namespace)
        return self._pools

    def _listed(self, pods: Sequence[ServingPod], complaints: Sequence[str]) -> Sequence[Listed]:
        there = [pod for pod in pods if pod.address]
        waiting = len(pods) - len(there)
        have = "1 pod has" if waiting == 1 else f"{waiting} pods have"
        notes = [f"{self.title}: {complaint}" for complaint in complaints]
        if waiting:
            notes.append(f"{self.title}: {have} no address yet")
        if self._through_server and len(there) > MOST_THROUGH_SERVER:
            notes.append(
                f"{self.title}: {len(there)} pods, {MOST_THROUGH_SERVER} of them read through the API "
                "server; use --prometheus for all, or run in the cluster"
            )
            rest = [pod for pod in there if not pod.on_trial]
            there = [pod for pod in there if pod.on_trial] + rest[:MOST_THROUGH_SERVER]
        self._note = "; ".join(notes)
        several = len({pod.namespace for pod in there}) > 1
        how = (
            self._client.identity.credentials() if self._client is not None and self._through_server else None
        )
        return [
            Listed(replace(self._target(pod, several), inference_pool=pod.inference_pool), pod.identity, how)
            for pod in there
        ]

    def _target(self, pod: ServingPod, several: bool) -> Target:
        name = pod.identity if several else pod.name
        if not self._through_server:
            return target_at(
                f"{in_brackets(pod.address)}:{pod.port}",
                scheme=pod.scheme,
                metrics_path=pod.metrics_path,
                name=name,
                model=pod.model,
                role=pod.role,
                pod=pod.identity,
                container=pod.container,
            )
        assert self._client is not None
        scheme = "https:" if pod.scheme == "https" else ""
        place = f"/api/v1/namespaces/{quote(pod.namespace)}/pods/{scheme}{quote(pod.name)}:{pod.port}/proxy"
        return Target(
            url=f"{self._client.context.server}{place}",
            name=name,
            metrics_path=pod.metrics_path,
            model=pod.model,
            role=pod.role,
            pod=pod.identity,
            container=pod.container,
        )


def _serving(pods: Iterable[Fields], owners: Owners, pools: Sequence[InferencePool]) -> Iterator[ServingPod]:
    """Owners are asked for only where the labels leave it open: a cluster has many pods that are not ours."""
    for pod in pods:
        picks = next((pool for pool in pools if pool.is_picked_by(pod)), None)
        found = serving_pod(pod, known=PICKER if picks is not None else None)
        if found is not None and found.stack is Stack.PLAIN:
            found = serving_pod(pod, owners.root_kind(pod))
        if found is not None:
            pool = picks or next((pool for pool in pools if pool.routes_to(pod)), None)
            yield found if pool is None else replace(found, inference_pool=pool.identity)


def with_pairs(pods: Iterable[ServingPod]) -> Sequence[ServingPod]:
    """OME calls the engine of a pool with a decoder `engine` too: there it does prefill alone."""
    found = list(pods)
    paired = {
        (pod.namespace, pod.pool) for pod in found if pod.stack is Stack.OME and pod.role is Role.DECODE
    }
    return [
        replace(pod, role=Role.PREFILL)
        if pod.stack is Stack.OME and pod.role is Role.AGGREGATED and (pod.namespace, pod.pool) in paired
        else pod
        for pod in found
    ]
