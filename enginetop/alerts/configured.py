"""The rules of a run: the built-in ones as the config file bends them, and the user's own."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from enginetop.alerts.builtin import BUILTIN_NAMES, builtin_rules
from enginetop.alerts.evaluate import holds, value_of
from enginetop.alerts.grammar import Expression, parse_expression
from enginetop.alerts.objective_checks import NO_CHANGES, Changes
from enginetop.alerts.rule import Finding, Rule, Severity
from enginetop.alerts.seen import is_up, told_by
from enginetop.alerts.standing import EachReplica
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.frozen import frozen
from enginetop.fleet.signals import SIGNALS
from enginetop.fleet.snapshot import FleetSnapshot, ReplicaSnapshot


@frozen
class RuleTable:
    """One `[[alerts]]` entry. With `when` it is a rule of the user's; without it bends a built-in one.

    `severity` of a built-in picks the stage that is meant; None: all of them.
    """

    rule: str
    when: str | None = None
    for_seconds: float | None = None
    keep_firing_seconds: float | None = None
    severity: str | None = None
    enabled: bool = True
    summary: str = ""


def configured_rules(
    tables: Sequence[RuleTable], window_seconds: float, changes: Changes = NO_CHANGES
) -> tuple[Rule, ...]:
    """All rules in force. ConfigError names the entry and its key: `alerts.0.when: ...`."""
    rules = {rule.id: rule for rule in builtin_rules(window_seconds, changes)}
    for place, table in enumerate(tables):
        try:
            if table.rule in BUILTIN_NAMES:
                _bend(rules, table)
            else:
                rule = _own(table)
                if rule.id in rules:
                    raise ConfigError("rule: a rule of this name and severity is there already; rename it")
                if table.enabled:
                    rules[rule.id] = rule
        except ConfigError as error:
            raise ConfigError(f"alerts.{place}.{error}") from None
    return tuple(rules.values())


def rule_warnings(tables: Sequence[RuleTable]) -> Iterator[str]:
    """A line for each comparison that can never hold: a share that should exceed 1, meant as a percentage."""
    for table in tables:
        expression = parse_expression(table.when) if table.when is not None and table.enabled else None
        for one in chain.from_iterable(expression.any_of if expression else ()):
            signal = SIGNALS.get(one.signal)
            if signal and signal.unit == "ratio" and one.number > 1 and one.operator in (">", ">=", "=="):
                yield (
                    f"rule {table.rule}: {one.name} {one.operator} {one.number:g} can never be, "
                    f"it lies between 0 and 1: {one.number:g} % is {one.number / 100:g}"
                )


def _bend(rules: dict[tuple[str, str], Rule], table: RuleTable) -> None:
    if table.when is not None or table.summary:
        wrong = "when" if table.when is not None else "summary"
        raise ConfigError(
            f"{wrong}: {table.rule} is a built-in rule, whose hold can be set; pick another name"
        )
    meant = [key for key in rules if key[0] == table.rule and table.severity in (None, key[1])]
    if not meant:
        stages = " or ".join(rule.severity for rule in builtin_rules(60.0) if rule.name == table.rule)
        raise ConfigError(f"severity: {table.rule} is {stages}, not {table.severity}")
    for key in meant:
        rule = rules.pop(key)
        if table.for_seconds is not None:
            rule = replace(rule, hold_seconds=table.for_seconds)
        if table.keep_firing_seconds is not None:
            rule = replace(rule, keep_seconds=table.keep_firing_seconds)
        if table.enabled:
            rules[key] = rule


def _own(table: RuleTable) -> Rule:
    if table.when is None:
        near = difflib.get_close_matches(table.rule, BUILTIN_NAMES, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]!r}? A" if near else "a"
        raise ConfigError(f"rule: {table.rule!r} is no built-in rule; {hint}n own rule needs `when`")
    try:
        expression = parse_expression(table.when)
    except ConfigError as error:
        raise ConfigError(f"when: {error}") from None
    return Rule(
        name=table.rule,
        severity=Severity(table.severity or Severity.WARNING),
        check=_expression_check(expression, table.summary or table.when),
        hold_seconds=table.for_seconds or 0.0,
        keep_seconds=table.keep_firing_seconds or 0.0,
        meaning=table.when,
    )


def _expression_check(expression: Expression, said: str) -> EachReplica:
    """A check of every replica by itself; value and threshold are those of the first comparison."""

    def judge(replica: ReplicaSnapshot, _: FleetSnapshot) -> Finding | None:
        told = told_by(replica)
        breached = holds(expression, told) if is_up(replica) else None
        if breached is False:
            return None
        seen = value_of(expression.first, told)
        return Finding(replica.target.url, breached, seen.at_least, expression.first.number, said)

    return EachReplica(judge)
