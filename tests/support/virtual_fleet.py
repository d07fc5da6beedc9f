"""A virtual fleet with a knob API, for tests of control: time jumps, counts are drawn, nothing listens."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from enginetop.fleet.admin_surface import AdminFacts
from enginetop.fleet.knobs import KNOBS_PATH, KnobAnswer, KnobRow, KnobSheet, row_document, sheet_document
from enginetop.fleet.model import EngineKind, Quality, ReplicaState, Role, Target
from enginetop.fleet.plan import Plan, PlannedChange, Scope
from enginetop.fleet.snapshot import (
    Distribution,
    Event,
    FleetSnapshot,
    FleetSummary,
    Quantile,
    ReplicaSnapshot,
    Scalar,
    Slo,
)
from tuners.control.knob_api import HttpKnobClient

KNOB = "max_num_batched_tokens"
START = 1_000_000.0
VERSION = "0.1.0"


@dataclass
class Engine:
    """One replica: its knob with the dead man's switch of the contract, its counts, its faults."""

    url: str
    seed: int
    rate: float = 4.0
    value: int = 2048
    start: int = 2048
    minimum: int = 80
    version: int = 1
    instance: str = ""
    state: ReplicaState = ReplicaState.OK
    attainment: Callable[[int], float] = lambda _: 0.95
    error_ratio: float = 0.0
    preemptions_per_second: float = 0.0
    tokens_per_request: float = 250.0
    prompt_tokens: float = 900.0
    reachable: bool = True
    deaf: bool = False
    """Answers 200 to writes and does nothing."""
    statuses: list[int | None] = field(default_factory=list)
    """Answers to the next requests instead of the true ones; None: no answer at all, 0: the true one."""
    expires_at: float | None = None
    former: int = 2048
    totals: dict[str, float] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    writes: list[tuple[float, int, float | None]] = field(default_factory=list)
    frozen_steps: float | None = None
    """Mean step that its counters show whatever the knob says; None: 0.8 of the knob."""
    exact: bool = True
    seats: int | None = None
    """Its `max_num_seqs`; None: it has no such knob."""
    lent_seats_seconds: float | None = None
    """What is left of the ttl of `seats`; None: they stand."""
    admin: AdminFacts | None = None
    """What it tells of who else may change it; None: nobody looks."""

    def __post_init__(self) -> None:
        self.instance = self.instance or f"i-{self.url[-6:]}"
        self._random = random.Random(self.seed)
        self._load = 0.0
        self.seen_at: float | None = None
        names = "requests_finished requests_errored requests_aborted preemptions generation_tokens "
        names += "prompt_tokens_processed"
        self.totals = dict.fromkeys(names.split(), 0.0)
        if self.exact:
            self.totals |= {"requests_judged": 1000.0, "requests_within_slo": 950.0}

    def pass_time(self, now: float, seconds: float) -> None:
        """Count what happened in the seconds up to `now`."""
        if self.state is not ReplicaState.STALE:
            self.seen_at = now
        if self.expires_at is not None and now >= self.expires_at:
            self.value, self.expires_at = self.former, None
            self.version += 1
        # attainment drifts with the load from minute to minute, on each replica by itself
        keep = 0.5 ** (seconds / 30.0)
        self._load = keep * self._load + (1 - keep * keep) ** 0.5 * self._random.gauss(0, 1)
        ratio = min(1.0, max(0.0, self.attainment(self.value) + 0.02 * self._load))
        count = _poisson(self._random, self.rate * seconds)
        within = sum(self._random.random() < ratio for _ in range(count))
        bad = sum(self._random.random() < self.error_ratio for _ in range(count))
        new = dict(self.totals)
        new["requests_finished"] += count
        new["requests_errored"] += bad
        new["preemptions"] += _poisson(self._random, self.preemptions_per_second * seconds)
        new["generation_tokens"] += count * self.tokens_per_request * self._random.gauss(1, 0.05)
        new["prompt_tokens_processed"] += count * self.prompt_tokens
        if self.exact:
            new["requests_judged"] += count
            new["requests_within_slo"] += within
        self.totals = new

    def restart(self, now: float) -> None:
        """Come back as a new process."""
        self.instance += "+"
        self.value, self.expires_at, self.version = self.start, None, 1
        self.events.append(Event(now, "restarted"))

    def sheet(self, now: float) -> KnobSheet:
        """The knobs now."""
        left = None if self.expires_at is None else self.expires_at - now
        row = KnobRow(KNOB, self.value, self.start, self.minimum, self.start, "tokens", self.version, left)
        rows = (row,) if self.seats is None else (row, self._seats(self.seats))
        return KnobSheet("vllm", "0.32.0", self.instance, 1, 1, rows)

    def _seats(self, value: int) -> KnobRow:
        return KnobRow("max_num_seqs", value, 256, 1, 256, "requests", 1, self.lent_seats_seconds)

    def handle(self, now: float, method: str, path: str, body: bytes | None) -> KnobAnswer:
        """Answer one request as the contract says."""
        if not self.reachable:
            return KnobAnswer(None, detail="refused")
        forced = self.statuses.pop(0) if self.statuses else 0
        if forced is None:
            return KnobAnswer(None, detail="timeout")
        if forced < 0:  # done, but the answer is lost
            self._do(now, method, path, body)
            return KnobAnswer(None, detail="timeout")
        if forced:
            return KnobAnswer(forced, json.dumps({"detail": f"forced {forced}"}).encode())
        return self._do(now, method, path, body)

    def _do(self, now: float, method: str, path: str, body: bytes | None) -> KnobAnswer:
        if method == "GET" and path == KNOBS_PATH:
            return KnobAnswer(200, json.dumps(sheet_document(self.sheet(now))).encode())
        if method == "DELETE":
            self._set(now, self.start, None)
            return self._row(now, 200)
        asked: Mapping[str, Any] = json.loads(body or b"{}")
        if asked.get("if_version", self.version) != self.version:
            return self._row(now, 409)
        if not self.minimum <= asked["value"] <= self.start:
            return KnobAnswer(422, json.dumps({"detail": f"{self.minimum} to {self.start}"}).encode())
        if not self.deaf:
            self._set(now, asked["value"], asked["ttl_seconds"])
        return self._row(now, 200)

    def _set(self, now: float, value: int, ttl: float | None) -> None:
        self.writes.append((now, value, ttl))
        if ttl is not None and self.expires_at is None:
            self.former = self.value
        if value != self.value:
            self.version += 1
        self.value = value
        self.expires_at = None if ttl is None else now + ttl

    def _row(self, now: float, status: int) -> KnobAnswer:
        row = row_document(self.sheet(now).knobs[0])
        return KnobAnswer(status, json.dumps({**row, "applied": 1, "total": 1}).encode())


class VirtualFleet:
    """A `World` of engines. `events` happen at their times; `tick` is the step of the clock."""

    def __init__(self, engines: list[Engine], *, tick: float = 10.0, minutes: float = 300.0) -> None:
        self.engines = {engine.url: engine for engine in engines}
        self.tick = tick
        self.time = START
        self.events: list[tuple[float, Callable[[], None]]] = []
        self._until = START + 60 * minutes
        self._sequence = 0
        self.hidden: set[str] = set()
        self.looks: list[float] = []
        for engine in engines:
            engine.pass_time(self.time, tick)

    def at(self, seconds: float, happens: Callable[[], None]) -> None:
        """Let something happen so many seconds after the start."""
        self.events.append((START + seconds, happens))

    def now(self) -> float:
        """See `World`."""
        return self.time

    def advance(self) -> None:
        """See `World`."""
        self.time += self.tick
        assert self.time < self._until, "the change never ended"
        for event in [event for event in self.events if event[0] <= self.time]:
            self.events.remove(event)
            event[1]()
        for engine in self.engines.values():
            engine.pass_time(self.time, self.tick)

    def client(self, target: str) -> HttpKnobClient | None:
        """See `World`."""
        engine = self.engines.get(target)
        if engine is None:
            return None
        admin = engine.admin
        if admin is None:
            return HttpKnobClient(_Wire(self, engine))

        def others(_: str) -> AdminFacts:
            self.looks.append(self.time)
            return admin

        return HttpKnobClient(_Wire(self, engine), others)

    def snapshot(self) -> FleetSnapshot:
        """See `World`."""
        self._sequence += 1
        replicas = tuple(
            _replica(engine, self.time) for url, engine in self.engines.items() if url not in self.hidden
        )
        summary = FleetSummary(len(replicas), {}, {}, Slo())
        return FleetSnapshot(self.time, self._sequence, self.tick, 60.0, summary, replicas)


@dataclass
class _Wire:
    fleet: VirtualFleet
    engine: Engine

    def request(self, method: str, path: str, body: bytes | None = None) -> KnobAnswer:
        return self.engine.handle(self.fleet.time, method, path, body)


def three(seed: int = 1, **settings: Any) -> VirtualFleet:
    """One canary and two baselines."""
    return VirtualFleet([Engine(f"http://r{n}:8000", 1000 * seed + n, **settings) for n in (1, 2, 3)])


def plan_for(fleet: VirtualFleet, to: int = 512, *, promote: bool = True, **over: Any) -> Plan:
    """A plan that fits the fleet; its canary is the first engine."""
    engines = list(fleet.engines.values())[: None if promote else 1]
    made: dict[str, Any] = {
        "id": "7f3a",
        "created": fleet.time,
        "expires": fleet.time + 3600.0,
        "tool_version": VERSION,
        "evidence_hash": "e" * 64,
        "scope": Scope("m", "aggregated", engines[0].url),
        "changes": tuple(
            PlannedChange(engine.url, engine.instance, KNOB, engine.value, to) for engine in engines
        ),
    }
    return Plan(**(made | over))


def _replica(engine: Engine, now: float) -> ReplicaSnapshot:
    mean = engine.frozen_steps if engine.frozen_steps is not None else 0.8 * engine.value
    edge = 2.0 ** (int(max(mean, 1)).bit_length())
    p99 = Quantile(mean, edge / 2, edge)
    steps = Distribution(1000, 1000 * mean, Quantile(mean), {"p99": p99}, "tokens", Quality.OK)
    return ReplicaSnapshot(
        target=Target(engine.url, engine.url.removeprefix("http://")),
        engine=EngineKind.VLLM,
        engine_version="0.32.0",
        stack=None,
        model="m",
        role=Role.AGGREGATED,
        state=engine.state,
        since=START,
        reasons=(),
        scraped_at=engine.seen_at,
        scrape_seconds=0.01,
        bad_lines=0,
        signals={
            "requests_finished_per_second": Scalar(engine.rate, "requests/s", Quality.OK),
            "requests_running": Scalar(8.0, "requests", Quality.OK),
            "iteration_tokens": steps,
        },
        ranks=(),
        config={},
        events=tuple(engine.events),
        gpus=(),
        advice=(),
        slo=Slo(),
        totals=engine.totals,
    )


def _poisson(source: random.Random, mean: float) -> int:
    if mean > 50:
        return max(0, round(source.gauss(mean, mean**0.5)))
    count, product = 0, source.random()
    limit = 2.718281828459045**-mean
    while product > limit:
        count += 1
        product *= source.random()
    return count
