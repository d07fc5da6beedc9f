"""Checks of load and speed: KV cache, queue, objectives, speculation, prefix cache, balance, thinking budget.

Thresholds are those that operators publish, or follow from the engines' own documentation; each is named
beside its reason. Without traffic nothing here is in breach.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from enginetop.alerts.rule import Finding, untold
from enginetop.alerts.seen import distribution, engines, grows, number, recent
from enginetop.alerts.standing import EachReplica, OneCheck
from enginetop.fleet.bound_by import KV_FULL_RATIO
from enginetop.fleet.goodput import ERRORS_MIN_PER_SECOND, ERRORS_SHARE
from enginetop.fleet.model import ReplicaState
from enginetop.fleet.objective_half import LEAST_REQUESTS, Half, is_missed, miss_of
from enginetop.fleet.outliers import UNEVEN_KV_RATIO
from enginetop.fleet.pools import pools
from enginetop.fleet.snapshot import FleetSnapshot, Quantile, ReplicaSnapshot, Scalar
from enginetop.fleet.thinking import SLACK_TOKENS, budget_of

KV_EASED_RATIO = 0.90
"""At or below it a pending alert is over: each request that ends gives a few percent of the cache back."""
PREEMPTIONS_CRITICAL_PER_SECOND = 0.1
PREEMPTIONS_CRITICAL_SHARE = 0.01
LONG_QUEUE_REQUESTS = 5.0
LONG_WAIT_SECONDS = 30.0
"""A mean queue time that a healthy engine (0.002 to 3 s) never has; it precedes an outage by hours."""
USELESS_LENGTH_TOKENS = 1.1
BUDGET_MIN_REQUESTS = 100.0


def each(check: OneCheck) -> EachReplica:
    """A check of every engine by itself."""
    return EachReplica(check, engines_only=True)


def preempting(replica: ReplicaSnapshot, _: FleetSnapshot) -> Finding | None:
    """Preemptions in the window; held for one window it says that the window before had some too."""
    url, rate = replica.target.url, number(replica, "preemptions_per_second")
    if rate is None:
        return untold(url)
    if rate <= 0:
        return None
    return Finding(url, True, rate, 0.0, f"{rate:.3g} preemptions/s{_at_kv(replica)}")


def preempting_badly(replica: ReplicaSnapshot, _: FleetSnapshot) -> Finding | None:
    """Preemptions above 0.1/s, or above 1 % of the requests that finish."""
    url, rate = replica.target.url, number(replica, "preemptions_per_second")
    if rate is None:
        return untold(url)
    if rate > PREEMPTIONS_CRITICAL_PER_SECOND:
        limit = PREEMPTIONS_CRITICAL_PER_SECOND
        return Finding(url, True, rate, limit, f"{rate:.3g} preemptions/s{_at_kv(replica)}")
    if rate <= 0:
        return None
    finished = number(replica, "requests_finished_per_second")
    if finished is None:
        return Finding(url, None, rate, PREEMPTIONS_CRITICAL_PER_SECOND)
    share = rate / finished if finished > 0 else math.inf
    if share <= PREEMPTIONS_CRITICAL_SHARE:
        return None
    said = f"{100 * share:.2g} % of finished requests" if finished > 0 else "no request finishes"
    return Finding(
        url,
        True,
        share if math.isfinite(share) else None,
        PREEMPTIONS_CRITICAL_SHARE,
        f"{rate:.3g} preemptions/s, {said}{_at_kv(replica)}",
    )


def kv_pressure(replica: ReplicaSnapshot, snapshot: FleetSnapshot) -> Finding | None:
    """A full KV cache together with preemptions or a growing queue."""
    url, kv = replica.target.url, number(replica, "kv_usage_ratio")
    if kv is None:
        return untold(url)
    if kv <= KV_EASED_RATIO:
        return None
    rate = number(replica, "preemptions_per_second")
    growth = queue_growth(replica, snapshot)
    known = rate is not None and growth is not None
    breached = bool(rate) or bool(growth) or (False if known else None)
    if kv <= KV_FULL_RATIO:
        return Finding(url, False, kv, KV_FULL_RATIO, near=bool(breached))
    because = f"{rate:.3g} preemptions/s" if rate else f"the queue grows by {growth or 0:.2g}/s"
    return Finding(url, breached, kv, KV_FULL_RATIO, f"{because}{_at_kv(replica)}")


def queue_growing(replica: ReplicaSnapshot, snapshot: FleetSnapshot) -> Finding | None:
    """A queue of at least 5 requests that has grown over the window."""
    url, waiting = replica.target.url, number(replica, "requests_waiting")
    if waiting is None:
        return untold(url)
    if waiting < LONG_QUEUE_REQUESTS:
        return None
    growth = queue_growth(replica, snapshot)
    if growth is not None and growth <= 0:
        return None
    return Finding(
        url,
        None if growth is None else True,
        waiting,
        LONG_QUEUE_REQUESTS,
        f"{waiting:.0f} requests wait, {growth or 0:+.2g}/s",
    )


def errors(replica: ReplicaSnapshot, _: FleetSnapshot) -> Finding | None:
    """More than one in twenty of the requests that end does so in an error, three a minute at least."""
    url, finished = replica.target.url, number(replica, "requests_finished_per_second")
    failed = replica.goodput.errored_per_second
    if finished is None or failed is None:
        return untold(url)
    share = failed / finished if finished > 0 else 0.0
    if share <= ERRORS_SHARE or failed < ERRORS_MIN_PER_SECOND:
        return None
    said = f"{100 * share:.2g} % of requests end in an error, {failed:.2g}/s"
    return Finding(url, True, share, ERRORS_SHARE, said)


def long_wait(replica: ReplicaSnapshot, _: FleetSnapshot) -> Finding | None:
    """Requests wait for half a minute on average before they are scheduled."""
    url, queue = replica.target.url, distribution(replica, "queue_seconds")
    mean = None if queue is None else queue.mean.value
    if mean is None:
        return untold(url)
    if mean <= LONG_WAIT_SECONDS:
        return None
    said = f"requests wait {mean:.0f} s on average before they are scheduled"
    return Finding(url, True, mean, LONG_WAIT_SECONDS, said)


def queue_growth(replica: ReplicaSnapshot, snapshot: FleetSnapshot) -> float | None:
    """Requests per second by which the queue has grown over the window; 0: it has not."""
    span = snapshot.window_seconds
    return grows(recent(replica, "requests_waiting", snapshot.at - span), span)


def slower_than_slo(half: Half) -> OneCheck:
    """The objective's share of requests is not within the bound of one half (`objective_half.is_missed`)."""

    def check(replica: ReplicaSnapshot, _: FleetSnapshot) -> Finding | None:
        url, slo = replica.target.url, replica.slo
        times = distribution(replica, half.signal)
        if times is None:
            return untold(url)
        if (times.count or 0) < LEAST_REQUESTS:
            return None
        missed = is_missed(half, replica, times, slo.target)
        if not missed:
            return None if missed is False else untold(url)
        miss = miss_of(half, replica, times, slo.target, _short_time)
        said = f"{miss.shown}, {miss.allowed}"
        return Finding(url, True, miss.seconds, half.limit_seconds(slo), said)

    return check


def speculation_useless(replica: ReplicaSnapshot, _: FleetSnapshot) -> Finding | None:
    """Drafts are made and hardly one is accepted: outputs are the same, only time is lost."""
    url, length = replica.target.url, number(replica, "spec_accepted_length")
    if length is None:
        return untold(url)
    if length >= USELESS_LENGTH_TOKENS:
        return None
    said = f"{length:.2f} tokens per draft step; 1 is no gain at all"
    return Finding(url, True, length, USELESS_LENGTH_TOKENS, said)


def rank_imbalance(replica: ReplicaSnapshot, _: FleetSnapshot) -> Finding | None:
    """One data-parallel rank is far fuller than the mean of all."""
    url, kv = replica.target.url, replica.signals.get("kv_usage_ratio")
    highest = number(replica, "kv_usage_ratio")
    if len(replica.ranks) < 2 or not isinstance(kv, Scalar) or highest is None or kv.mean is None:
        return untold(url) if highest is None else None
    above = highest - kv.mean
    if above <= UNEVEN_KV_RATIO:
        return None
    rank = {"rank": ",".join(kv.worst.values())} if kv.worst else {}
    said = f"rank {rank.get('rank', '?')} at KV {100 * highest:.0f} %, the mean is {100 * kv.mean:.0f} %"
    return Finding(url, True, above, UNEVEN_KV_RATIO, said, labels=rank)


class ReplicaImbalance:
    """One replica is far fuller than the mean of its model's replicas of the same role.

    It remembers the KV of every picture: every book needs its own.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[ReplicaSnapshot, float | None]] = {}

    def __call__(self, snapshot: FleetSnapshot) -> Iterable[Finding]:
        """See `rule.Check`."""
        judged = engines(snapshot)
        known = self._known = {replica.target.url: self._kv_of(replica) for replica in judged}
        yield from (untold(url) for url, (_, kv) in known.items() if kv is None)
        for members in pools(judged).values():
            group = {
                member.target.url: kv
                for member in members
                if (kv := known[member.target.url][1]) is not None
                and member.state in (ReplicaState.OK, ReplicaState.IDLE)
            }
            mean = sum(group.values()) / max(len(group), 1)
            for url, kv in group.items():
                if kv - mean > UNEVEN_KV_RATIO:
                    said = f"KV {100 * kv:.0f} %, the mean of its {len(group)} is {100 * mean:.0f} %"
                    yield Finding(url, True, kv - mean, UNEVEN_KV_RATIO, said)

    def _kv_of(self, replica: ReplicaSnapshot) -> tuple[ReplicaSnapshot, float | None]:
        known = self._known.get(replica.target.url)
        if known is None or known[0] is not replica:
            known = replica, number(replica, "kv_usage_ratio")
        return known


def budget_not_enforced(replica: ReplicaSnapshot, _: FleetSnapshot) -> Finding | None:
    """More than 1 % of at least 100 requests think for longer than the budget and 32 tokens of slack.

    More than 1 % lie above a bound exactly when the 99th percentile does; of a bucket its lower bound counts.
    """
    url, budget = replica.target.url, budget_of(replica.config)
    thought = distribution(replica, "reasoning_tokens")
    if budget is None or thought is None:
        return untold(url)
    least = thought.quantiles.get("p99", Quantile()).low
    if least is None or (thought.count or 0) < BUDGET_MIN_REQUESTS:
        return untold(url)
    limit = budget + SLACK_TOKENS
    if least <= limit:
        return None
    said = f"reasoning p99 at least {least:.0f} tokens, the budget is {budget:.0f}"
    return Finding(url, True, least, limit, said)


def _at_kv(replica: ReplicaSnapshot) -> str:
    kv = number(replica, "kv_usage_ratio")
    return "" if kv is None else f" at KV {100 * kv:.0f} %"


def _short_time(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.3g} s"
