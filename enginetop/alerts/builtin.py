"""The built-in rules: one table. Names are identities in Alertmanager and never change."""

from __future__ import annotations

from enginetop.alerts import load_checks as load
from enginetop.alerts.gateway_checks import backends_down
from enginetop.alerts.gpu_checks import HOT_CELSIUS, TOO_HOT_CELSIUS, hot, lost, throttled
from enginetop.alerts.objective_checks import (
    NO_CHANGES,
    Changes,
    budget_burn,
    canary_failed,
    rollback_failed,
)
from enginetop.alerts.remembering_checks import GpuXid, prefix_cache_drop
from enginetop.alerts.rule import Rule, Severity
from enginetop.alerts.state_checks import in_state, late, slow_or_silent, stalled
from enginetop.fleet.model import ReplicaState
from enginetop.fleet.objective_half import TPOT, TTFT

_WARNING, _CRITICAL = Severity.WARNING, Severity.CRITICAL

FLAPPING_SECONDS = 60.0
"""How long rules on windowed figures stay after the last breach: about one window."""

AT_ONCE: frozenset[str] = frozenset({"TargetDown", "Unauthorized", "NoEngineMetrics"})
"""Rules that a one-shot check counts without their hold."""


def builtin_rules(window_seconds: float, changes: Changes = NO_CHANGES) -> tuple[Rule, ...]:
    """The rules, for windows of that length, in the order of the contract.

    Some of them remember what they saw: every book needs its own. `changes` is the audit.
    """
    keep = FLAPPING_SECONDS
    ttft, tpot = load.slower_than_slo(TTFT), load.slower_than_slo(TPOT)
    return (
        Rule("TargetDown", _CRITICAL, in_state(ReplicaState.DOWN, "down"), 30, meaning="cannot be reached"),
        Rule("NoProgress", _CRITICAL, stalled(True), 30, meaning="requests at hand, and nothing moves"),
        Rule("NoProgress", _WARNING, slow_or_silent(), 30, meaning="nothing ends, or no token comes out"),
        Rule(
            "NoEngineMetrics",
            _WARNING,
            in_state(ReplicaState.NO_ENGINE_METRICS, "no engine metrics"),
            60,
            meaning="answers, without an engine's series",
        ),
        Rule(
            "Unauthorized",
            _WARNING,
            in_state(ReplicaState.UNAUTHORIZED, "unauthorized"),
            60,
            meaning="the key is missing or refused",
        ),
        Rule(
            "BackendDown",
            _WARNING,
            backends_down(every=False),
            60,
            meaning="a gateway cannot route to some of its backends",
        ),
        Rule(
            "BackendDown",
            _CRITICAL,
            backends_down(every=True),
            30,
            meaning="a gateway has no backend to route to",
        ),
        Rule("RequestErrors", _WARNING, load.each(load.errors), 60, keep, "requests end in errors"),
        Rule(
            "Preempting",
            _WARNING,
            load.each(load.preempting),
            window_seconds,
            meaning="preemptions in two windows in a row",
        ),
        Rule(
            "Preempting",
            _CRITICAL,
            load.each(load.preempting_badly),
            300,
            meaning="preemptions above 0.1/s or 1 % of finished requests",
        ),
        Rule(
            "KvPressure",
            _WARNING,
            load.each(load.kv_pressure),
            60,
            keep,
            "KV above 95 % with preemptions or a growing queue",
        ),
        Rule(
            "QueueGrowing",
            _WARNING,
            load.each(load.queue_growing),
            120,
            keep,
            "at least 5 requests wait, and ever more",
        ),
        Rule(
            "QueueGrowing",
            _CRITICAL,
            load.each(load.long_wait),
            900,
            keep,
            "requests wait for more than 30 s on average",
        ),
        Rule("TtftSlo", _WARNING, load.each(ttft), 120, keep, "TTFT misses the objective"),
        Rule("TpotSlo", _WARNING, load.each(tpot), 120, keep, "TPOT misses the objective"),
        Rule(
            "BudgetBurn", _CRITICAL, budget_burn(page=True), meaning="the error budget burns at 14.4x or 6x"
        ),
        Rule("BudgetBurn", _WARNING, budget_burn(page=False), meaning="the error budget burns at 3x or 1x"),
        Rule(
            "SpeculationUseless",
            _WARNING,
            load.each(load.speculation_useless),
            300,
            keep,
            "less than 1.1 tokens per draft step",
        ),
        Rule(
            "PrefixCacheDrop",
            _WARNING,
            prefix_cache_drop(),
            300,
            keep,
            "prefix hits fell to less than half of what was usual",
        ),
        Rule(
            "ReplicaImbalance",
            _WARNING,
            load.ReplicaImbalance(),
            300,
            keep,
            "KV 25 points above the mean of its model's replicas",
        ),
        Rule(
            "RankImbalance",
            _WARNING,
            load.each(load.rank_imbalance),
            300,
            keep,
            "one rank's KV 25 points above the mean of the ranks",
        ),
        Rule(
            "ThinkingBudgetNotEnforced",
            _WARNING,
            load.each(load.budget_not_enforced),
            60,
            keep,
            "more than 1 % of requests think past the budget",
        ),
        Rule("GpuXid", _CRITICAL, GpuXid(fatal=True), meaning="an Xid that a GPU does not recover from"),
        Rule("GpuXid", _WARNING, GpuXid(fatal=False), meaning="an Xid, mostly a program's fault"),
        Rule("GpuThrottled", _WARNING, throttled(), 60, keep, "below its clock: heat, power or a fault"),
        Rule("GpuHot", _WARNING, hot(HOT_CELSIUS), 120, keep, "above 85 °C"),
        Rule("GpuHot", _CRITICAL, hot(TOO_HOT_CELSIUS), 30, keep, "above 95 °C"),
        Rule("GpuLost", _CRITICAL, lost(), meaning="the driver lost the GPU"),
        Rule("ScrapeLate", _WARNING, late(), 60, meaning="the page is old, fails or takes too long"),
        Rule("CanaryFailed", _WARNING, canary_failed(changes), meaning="a change was undone"),
        Rule(
            "RollbackFailed", _CRITICAL, rollback_failed(changes), meaning="a changed value may be in force"
        ),
    )


BUILTIN_NAMES: tuple[str, ...] = tuple(dict.fromkeys(rule.name for rule in builtin_rules(60.0)))
"""Every name of a built-in rule."""
