"""The immutable picture of the fleet that screens, JSON, alerts and tuners read.

One `FleetSnapshot` is built per tick and never changed; compare by identity. Its JSON form is the snapshot
contract (`enginetop.snapshot/1`), written by `document.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType

from enginetop.fleet.frozen import frozen
from enginetop.fleet.gpu_device import GpuDevice as GpuDevice
from enginetop.fleet.gpu_device import GpuReport as GpuReport
from enginetop.fleet.model import UP_STATES, EngineKind, Quality, ReplicaState, Role, Target
from enginetop.fleet.observation import Failure
from enginetop.fleet.quickly_made import quickly_made
from enginetop.fleet.reading import ConfigValue


@quickly_made
class Scalar:
    """One number, or a list of numbers, with its quality. `value` None is "not known", never zero.

    `mean` (over data-parallel ranks) and `worst` (labels of the rank that holds the maximum) exist for
    `kv_usage_ratio` only.
    """

    value: float | tuple[float, ...] | None
    unit: str
    quality: Quality
    note: str = ""
    mean: float | None = None
    worst: Mapping[str, str] | None = None

    @property
    def number(self) -> float | None:
        """The value when it is a single number, else None."""
        return None if isinstance(self.value, tuple) else self.value


@quickly_made
class Quantile:
    """A quantile with the bounds of its bucket. Censored: past the last finite bound, `low` is that bound."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    censored: bool = False

    @property
    def at_least(self) -> float | None:
        """The value; past the last finite bound that bound."""
        return self.low if self.censored else self.value


NO_QUANTILE = Quantile()


@quickly_made
class Distribution:
    """A distribution over the window. `count` 0: nothing observed; None: not exported or not known."""

    count: float | None
    sum: float | None
    mean: Quantile
    quantiles: Mapping[str, Quantile]
    unit: str
    quality: Quality
    note: str = ""


SignalValue = Scalar | Distribution
Signals = Mapping[str, SignalValue]


def number_of(signals: Signals, name: str) -> float | None:
    """The number of the scalar signal `name`; None: not known, or no single number."""
    value = signals.get(name)
    return value.number if isinstance(value, Scalar) else None


@frozen
class RankSnapshot:
    """One data-parallel rank that the page names."""

    labels: Mapping[str, str]
    signals: Signals


@frozen
class Event:
    """Something that happened to a replica: `appeared gone restarted state_changed config_changed
    preemptions_began preemptions_ended`.
    """

    at: float
    kind: str
    detail: str = ""


@frozen
class Outlook:
    """What a knob would do at another value, by what was seen: `action` is `predicted` or `withheld`.

    `expected` is as in an advice, `limits` is what bounds the prediction.
    """

    knob: str
    value: int
    action: str
    because: tuple[str, ...]
    current: float | None = None
    expected: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    limits: tuple[str, ...] = ()


@quickly_made
class Advice:
    """One advice row; see the contract for the words of `action` and `apply`."""

    knob: str
    action: str
    because: tuple[str, ...]
    current: float | None = None
    proposed: float | None = None
    bound_by: str = "unknown"
    expected: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    confidence: str = "low"
    apply: str = "none"
    via: str = ""


WhatIf = Callable[[str, int], Outlook]
"""What a knob (by its name) would do at a value."""


@frozen
class PoolAdvice:
    """Advice on all replicas of a model and role as one; `replicas` are their target URLs."""

    model: str | None
    role: Role
    replicas: tuple[str, ...]
    advice: tuple[Advice, ...]


@quickly_made
class Alert:
    """One alert as the contract names its keys. `state` is `pending`, `firing` or `resolved`.

    `target` is a replica's URL, or `fleet`; `name` what it is called, empty where that is not known. What
    keeps a firing alert from being told, empty where nothing does: `inhibited_by` (the rule of its cause),
    `silenced_by` (a reason), `acknowledged_by` (a person). `silenced_until`: Unix time, None where it is not.
    """

    rule: str
    severity: str
    state: str
    target: str
    since: float
    value: float | None
    threshold: float | None
    summary: str
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    inhibited_by: str = ""
    silenced_by: str = ""
    acknowledged_by: str = ""
    name: str = ""
    silenced_until: float | None = None


@frozen
class Slo:
    """The objective that requests are held against. `source`: config, flag or default."""

    ttft_seconds: float = 1.0
    tpot_seconds: float = 0.1
    target: float = 0.95
    source: str = "default"

    @property
    def limits(self) -> tuple[float, float]:
        """TTFT and TPOT in seconds: what tells objectives apart where requests are counted one by one."""
        return self.ttft_seconds, self.tpot_seconds


@quickly_made
class Span:
    """Hard bounds of a figure, and what it would be if the parts of the objective were independent."""

    low: float | None = None
    high: float | None = None
    independent: float | None = None


NO_SPAN = Span()


@quickly_made
class BurnRow:
    """How fast the error budget burns over a long and a short window; 1 uses it up exactly in its period.

    A burn is None where the history does not reach so far back. It fires when both are above `threshold`,
    which is `reachable` when all requests bad would be.
    """

    long_seconds: float
    short_seconds: float
    long: float | None
    short: float | None
    threshold: float
    firing: bool = False
    reachable: bool = True


@frozen
class Outlier:
    """A figure of a replica (`signal`, or `signal.p95`) that stands out from the median of so many of its
    like; see `outliers`.
    """

    signal: str
    value: float
    median: float
    replicas: int


@quickly_made
class Goodput:
    """Requests within the objective, over the window.

    `offered_per_second` are requests ended for all reasons. `exact` is the share of completed requests within
    the objective, and `good_per_second` the rate of such requests, both from counts of single requests; None
    where nobody counts them. `counted_for` is the objective (TTFT and TPOT in seconds) that they were counted
    for, where it is known to be one. `ttft` and `tpot` are the shares of requests within each half of the
    objective, from histograms; `joint` the share within both, and `within_per_second` the rate of such
    requests. `completed_per_second` are requests ended and neither aborted nor errored, `errored_per_second`
    those that ended in an error: 0 where the engine counts none, None where it counts no requests.
    """

    offered_per_second: float | None = None
    good_per_second: float | None = None
    exact: float | None = None
    counted_for: tuple[float, float] | None = None
    quality: Quality = Quality.UNKNOWN
    note: str = ""
    ttft: Quantile = NO_QUANTILE
    tpot: Quantile = NO_QUANTILE
    joint: Span = NO_SPAN
    within_per_second: Span = NO_SPAN
    burn: tuple[BurnRow, ...] = ()
    completed_per_second: float | None = None
    errored_per_second: float | None = None


NO_GOODPUT = Goodput()


@quickly_made(eq=False)
class ReplicaSnapshot:
    """Everything known about one replica at the snapshot's instant.

    `since` is when the present state began, or its cause if that is older (the first failure, the last
    movement). `scraped_at` is the time of the last good page. `trends` holds recent values of a few signals,
    oldest first, None where nothing was known, at the times of `trend_times`.
    `failed_looks` counts looks in a row, up to the newest, that failed; `unanswered_seconds` is how long the
    look under way has waited, where that is longer than it should.
    `next_try_at` is when a failing target is asked again, if known. `gone_at` is when discovery ceased to
    list it; None while it is listed. `live_progress`: as in `Reading`.
    `totals` holds running totals of counters since the first good page, of Unix time `first_page_at`, resets
    included, as of `scraped_at`: they never fall, and the difference of two snapshots is what happened in
    between, as long as they begin at the same page: a replica that was forgotten and is listed again, or
    another one that moves to its address, begins at another. What the page does not count has no entry; names
    in `totals.TOTALS`. `bound_by`: what limited the replica, as shares of the window. `load`: what was
    achieved at which load, a point a window (`load_log.LOAD_NAMES`).
    `beyond` holds what the page exports of the catalogue `beyond_catalogue`. `product` and `sources`: as
    in `reading.Identity`. `what_if` tells what a knob would do, by the newest page; None: nobody can tell.
    """

    target: Target
    engine: EngineKind
    engine_version: str | None
    stack: str | None
    model: str | None
    role: Role
    state: ReplicaState
    since: float
    reasons: tuple[str, ...]
    scraped_at: float | None
    scrape_seconds: float | None
    bad_lines: int
    signals: Signals
    ranks: tuple[RankSnapshot, ...]
    config: Mapping[str, ConfigValue]
    events: tuple[Event, ...]
    gpus: tuple[GpuDevice, ...]
    advice: tuple[Advice, ...]
    slo: Slo
    simulated: bool = False
    last_failure: Failure | None = None
    failed_looks: int = 0
    unanswered_seconds: float | None = None
    next_try_at: float | None = None
    gone_at: float | None = None
    spacing_seconds: float | None = None
    live_progress: bool = True
    trends: Mapping[str, Sequence[float | None]] = field(default_factory=lambda: MappingProxyType({}))
    trend_times: Sequence[float] = ()
    product: str | None = None
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    outliers: tuple[Outlier, ...] = ()
    load: Mapping[str, Sequence[float | None]] = field(default_factory=lambda: MappingProxyType({}))
    totals: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    first_page_at: float | None = None
    goodput: Goodput = NO_GOODPUT
    bound_by: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({"unknown": 1.0}))
    beyond: Signals = field(default_factory=lambda: MappingProxyType({}))
    what_if: WhatIf | None = field(default=None, compare=False, repr=False)

    @property
    def in_doubt(self) -> bool:
        """Whether it is up by what was seen before, while its newest look failed or waits for an answer."""
        return (self.failed_looks > 0 or self.unanswered_seconds is not None) and self.state in UP_STATES

    def scalar(self, name: str) -> Scalar:
        """The scalar signal `name`; KeyError: no such signal, TypeError: it is a distribution."""
        value = self.signals[name]
        if not isinstance(value, Scalar):
            raise TypeError(f"{name} is a distribution")
        return value

    def restarted_after(self, at: float) -> bool:
        """Whether a restart was noticed after Unix time `at`."""
        return any(event.kind == "restarted" and event.at > at for event in self.events)

    def distribution(self, name: str) -> Distribution:
        """The distribution `name`; KeyError if there is no such signal, TypeError if it is a scalar."""
        value = self.signals[name]
        if not isinstance(value, Distribution):
            raise TypeError(f"{name} is a scalar")
        return value


@frozen(eq=False)
class ModelSummary:
    """Sums and merges over the replicas of one model that are up, held against its own objective."""

    model: str | None
    replicas: int
    signals: Signals
    slo: Slo
    goodput: Goodput = NO_GOODPUT


@frozen(eq=False)
class FleetSummary:
    """Sums and merges over the replicas that are up."""

    replicas: int
    states: Mapping[ReplicaState, int]
    signals: Signals
    slo: Slo
    goodput: Goodput = NO_GOODPUT
    beyond: Signals = field(default_factory=lambda: MappingProxyType({}))
    models: tuple[ModelSummary, ...] = ()


@frozen
class CollectorHealth:
    """How the collector itself does.

    Rates are scrapes per second over the last window; `asked` and `achieved` count scrapes, `late_ticks`
    ticks dropped, since start. Of logs of single requests, `bad_records` are lines that could not be read,
    `foreign_records` those of servers that are no target, and `record_problem` says what is wrong with a log,
    `discovery_problem` what is wrong with a source of targets. `unanswered` holds looks under way that have
    waited longer than they should: seconds, by URL.
    """

    asked_per_second: float | None = None
    achieved_per_second: float | None = None
    late_ticks: int = 0
    problem: str = ""
    asked: int = 0
    achieved: int = 0
    bad_records: int = 0
    foreign_records: int = 0
    record_problem: str = ""
    discovery_problem: str = ""
    unanswered: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}), hash=False)

    @property
    def told(self) -> str:
        """What is wrong with the collector, logs and discovery, in one line; empty when nothing is."""
        return "; ".join(filter(None, [self.problem, self.record_problem, self.discovery_problem]))


@frozen(eq=False)
class FleetSnapshot:
    """The fleet at one instant. `sequence` grows by one per tick.

    `turns`: figures of a replica are worked out anew at one tick in so many (its `scraped_at` says of when
    they are); 1: at every tick. States are always those of now.
    """

    at: float
    sequence: int
    interval_seconds: float
    window_seconds: float
    fleet: FleetSummary
    replicas: tuple[ReplicaSnapshot, ...]
    alerts: tuple[Alert, ...] = ()
    pools: tuple[PoolAdvice, ...] = ()
    collector: CollectorHealth = CollectorHealth()
    gpu_problem: str = ""
    turns: int = 1

    @property
    def names(self) -> Mapping[str, str]:
        """What the replicas are called, by URL."""
        return {replica.target.url: replica.target.name for replica in self.replicas}

    def replica(self, url: str) -> ReplicaSnapshot | None:
        """The replica of a target; None: there is none."""
        return next((replica for replica in self.replicas if replica.target.url == url), None)
