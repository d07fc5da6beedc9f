"""What a Prometheus scrapes, as `up` tells it: one row an engine, and the labels that its series have."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote

from collectors.discovery.listing import Listed, role_of, target_at
from enginetop.fleet.model import Target

Labels = Mapping[str, str]

_NAMES = ("pod", "hostname", "name")
_TWIN_LABELS = frozenset(
    {"job", "endpoint", "service", "container", "prometheus", "prometheus_replica", "replica"}
)
"""Labels in which two scrapes of one engine may differ."""
_HELD_BACK_SECONDS = 60.0
"""VictoriaMetrics holds new samples back from instant queries for 30 s, though not from range selectors."""

Key = tuple[tuple[str, str], ...]


@dataclass(slots=True, eq=False)
class Scraped:
    """One thing that is scraped. `labels` are those of its `up`; `newest` is the last sample that was taken.

    `has_series`: something of an engine was seen of it. `failing`: its newest scrape failed. `seen_at` is the
    time of the newest sample, `listed_at` of the last look at which it was still scraped. `is_row`: it stands
    for its engine, which another job may scrape too, and is told as `target`: `address`, apart from others.
    """

    labels: Labels
    address: Target
    target: Target
    newest: float = -math.inf
    has_series: bool = False
    failing: bool = False
    seen_at: float = -math.inf
    listed_at: float = -math.inf
    confirmed: bool = False
    is_row: bool = False


class Members:
    """The scraped things by their labels, each engine once."""

    def __init__(self) -> None:
        self.engines: set[str] = set()
        """Instances that showed an engine's series within the last hour or so."""
        self.version = 0
        """Changes when somebody comes or goes: series may belong to others then."""
        self._by_key: dict[Key, Scraped] = {}
        self._label_names: dict[str, tuple[str, ...]] = {}
        self._by_values: dict[tuple[str, ...], Scraped] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def of_up(self, labels: Labels) -> Scraped:
        """The thing that an `up` series belongs to."""
        key = tuple(sorted(labels.items()))
        known = self._by_key.get(key)
        if known is None:
            address = _target(labels)
            known = self._by_key[key] = Scraped(labels, address, address)
            self._index()
        return known

    def confirm(self, labels: Labels, at: float) -> None:
        """At the look `at` the thing with these labels is still scraped, as an instant query tells."""
        scraped = self.of_up(labels)
        scraped.listed_at, scraped.confirmed = at, True

    def of_series(self, labels: Labels) -> Scraped | None:
        """The thing that a series was scraped from, None when none is known."""
        job = labels.get("job", "")
        names = self._label_names.get(job)
        if names is None:
            return None
        return self._by_values.get((job, *(labels.get(name, "") for name in names)))

    def forget(self, before: float) -> None:
        """Forget what was not seen since Unix time `before`."""
        kept = {key: one for key, one in self._by_key.items() if one.seen_at >= before}
        if len(kept) != len(self._by_key):
            self._by_key = kept
            self._index()

    def listed(self, at: float) -> Sequence[Listed]:
        """The engines of the look `at`: what shows an engine's series, or did before its scrapes failed.

        What fails in a job that has nothing but engines is one of them.
        """
        mixed = {
            one.labels.get("job") for one in self._by_key.values() if not one.has_series and not one.failing
        }
        found: dict[str, list[Scraped]] = {}
        for one in self._by_key.values():
            one.is_row = False
            was_engine = one.labels.get("instance") in self.engines or one.labels.get("job") not in mixed
            young = not one.confirmed and at - one.seen_at < _HELD_BACK_SECONDS
            if (one.listed_at == at or young) and (one.has_series or (one.failing and was_engine)):
                found.setdefault(one.address.url, []).append(one)
        listed: list[Listed] = []
        for group in found.values():
            for one in _apart(group):
                one.is_row = True
                listed.append(Listed(one.target, pod_identity(one.labels)))
        return listed

    def _index(self) -> None:
        self.version += 1
        names: dict[str, set[str]] = {}
        for one in self._by_key.values():
            own = set(one.labels) - {"job"}
            job = one.labels.get("job", "")
            names[job] = names[job] & own if job in names else own
        self._label_names = {job: tuple(sorted(common)) for job, common in names.items()}
        self._by_values = {}
        for one in self._by_key.values():
            job = one.labels.get("job", "")
            values = (one.labels.get(name, "") for name in self._label_names[job])
            self._by_values.setdefault((job, *values), one)


def pod_identity(labels: Labels) -> str:
    """What stays with a pod wherever it is scraped; empty where the labels name none."""
    return "/".join(filter(None, (labels.get("namespace"), labels["pod"]))) if "pod" in labels else ""


def _apart(group: Sequence[Scraped]) -> Sequence[Scraped]:
    """Of things at one address each engine once; those of other clusters get other URLs."""
    first = min(group, key=lambda one: sorted(one.labels.items()))
    told: dict[tuple[str, ...], Scraped] = {}
    for one in sorted(group, key=lambda one: sorted(one.labels.items())):
        differing = sorted(
            name
            for name in (one.labels.keys() | first.labels.keys()) - _TWIN_LABELS
            if one.labels.get(name) != first.labels.get(name)
        )
        place = tuple(f"{name}={one.labels.get(name, '')}" for name in differing)
        if place not in told:
            told[place] = one
            where = "".join(f"/{quote(part, safe='=')}" for part in place)
            one.target = replace(one.address, url=one.address.url + where)
    return list(told.values())


def _target(labels: Labels) -> Target:
    instance = labels.get("instance", "")
    name = next((labels[label] for label in _NAMES if labels.get(label)), "")
    role = role_of(labels.get("role") or labels.get("llm_d_ai_role"))
    pod, container = pod_identity(labels), labels.get("container", "")
    try:
        return target_at(
            instance, name=name, role=role, model=labels.get("model"), pod=pod, container=container
        )
    except ValueError:
        shown = quote(instance or "unknown", safe="")
        return Target(f"http://{shown}", name or instance or "unknown", role=role, pod=pod)
