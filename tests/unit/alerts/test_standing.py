"""Findings that stay while a picture is the same: what is judged at a look is counted, not timed."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest

from enginetop.alerts.book import AlertBook
from enginetop.alerts.rule import Finding, Rule, Severity
from enginetop.alerts.standing import EachReplica, Standing
from enginetop.fleet.lazy import Lazy
from enginetop.fleet.model import EngineKind
from enginetop.fleet.snapshot import FleetSnapshot, ReplicaSnapshot, SignalValue
from tests.tui.snapshots import AT, fleet, replica
from tests.unit.alerts.stories import book


class Fever:
    """Breached where KV is above a half, not known where it is not told; names who was judged."""

    def __init__(self) -> None:
        self.judged: list[str] = []

    def __call__(self, one: ReplicaSnapshot, snapshot: FleetSnapshot) -> Finding | None:
        self.judged.append(one.target.name)
        kv = one.scalar("kv_usage_ratio").number
        if kv is None:
            return Finding(one.target.url, None)
        return Finding(one.target.url, True, snapshot.at) if kv > 0.5 else None

    def since_then(self) -> list[str]:
        judged, self.judged = self.judged, []
        return judged


def at_kv(name: str, kv: float | None, **fields: object) -> ReplicaSnapshot:
    one = replica(name, **fields)  # type: ignore[arg-type]
    told = replace(one.scalar("kv_usage_ratio"), value=kv)
    return replace(one, signals={**one.signals, "kv_usage_ratio": told})


def looked(standing: Standing, check: EachReplica, *replicas: ReplicaSnapshot, at: float = AT) -> list[str]:
    standing.look(replace(fleet(list(replicas)), at=at))
    return [finding.target for finding in standing.findings(check, only_breaches=True)]


def test_a_replica_is_judged_once_for_each_picture() -> None:
    fever, standing = Fever(), Standing()
    check = EachReplica(fever)
    a, b, c = at_kv("a", 0.9), at_kv("b", 0.1), at_kv("c", None)
    assert looked(standing, check, a, b, c) == [a.target.url]
    assert fever.since_then() == ["a", "b", "c"]
    assert looked(standing, check, a, b, c) == [a.target.url]
    assert fever.since_then() == []
    hot = at_kv("b", 0.6)
    assert looked(standing, check, a, hot, c) == [a.target.url, b.target.url]
    assert fever.since_then() == ["b"]
    assert looked(standing, check, at_kv("a", 0.2), hot, c) == [b.target.url]
    assert fever.since_then() == ["a"]


def test_a_breach_that_moves_with_the_clock_is_judged_at_every_look() -> None:
    fever, standing = Fever(), Standing()
    check = EachReplica(fever, by_clock=True)
    a, b = at_kv("a", 0.9), at_kv("b", 0.1)
    looked(standing, check, a, b)
    fever.since_then()
    looked(standing, check, a, b, at=AT + 7)
    assert fever.since_then() == ["a"]
    assert [finding.value for finding in standing.findings(check, only_breaches=True)] == [AT + 7]


def test_who_comes_goes_or_takes_anothers_place_is_judged() -> None:
    fever, standing = Fever(), Standing()
    check = EachReplica(fever)
    a, b, c = at_kv("a", 0.9), at_kv("b", 0.9), at_kv("c", 0.1)
    looked(standing, check, a, b)
    fever.since_then()
    assert looked(standing, check, a, b, c) == [a.target.url, b.target.url]
    assert fever.since_then() == ["c"]
    assert looked(standing, check, b, c) == [b.target.url]
    assert looked(standing, check, c) == []
    fever.since_then()
    assert looked(standing, check, b) == [b.target.url]
    assert fever.since_then() == ["b"]


def test_a_router_is_judged_until_an_engine_was_read() -> None:
    standing, check = Standing(), EachReplica(Fever(), engines_only=True)
    router = at_kv("r", 0.9, engine=EngineKind.ROUTER)
    unread = at_kv("a", None, scraped_at=None)
    assert looked(standing, check, router, unread) == [router.target.url]
    assert looked(standing, check, router, at_kv("a", 0.9)) == [unread.target.url]


def test_what_cannot_be_told_is_told_to_those_who_ask_for_it() -> None:
    standing, check = Standing(), EachReplica(Fever())
    a, b = at_kv("a", None), at_kv("b", 0.9)
    standing.look(fleet([a, b]))
    found = list(standing.findings(check, only_breaches=False))
    assert [(finding.target, finding.breached) for finding in found] == [
        (a.target.url, None),
        (b.target.url, True),
    ]


def test_a_check_that_missed_a_look_judges_all_anew() -> None:
    fever, standing = Fever(), Standing()
    check = EachReplica(fever)
    a, b = at_kv("a", 0.1), at_kv("b", 0.1)
    looked(standing, check, a, b)
    standing.look(fleet([at_kv("a", 0.9), b]))  # another rule failed at this look, and ours was not asked
    fever.since_then()
    assert looked(standing, check, at_kv("a", 0.9), b) == [a.target.url]
    assert fever.since_then() == ["a", "b"]


def test_rules_on_the_same_pictures_ask_no_signal_again() -> None:
    """Every built-in rule at once, a quiet fleet: a second look at the same pictures asks nothing."""
    asked: list[str] = []

    class Asked(Lazy[str, SignalValue]):
        def get(self, name: str, *default: object) -> SignalValue | None:  # type: ignore[override]
            asked.append(name)
            return super().get(name)

    calm = [replica(name) for name in "abcd"]
    calm = [replace(one, signals=Asked(tuple(one.signals), one.signals.get)) for one in calm]
    alerts = book()
    alerts(fleet(calm))
    assert len(asked) > len(calm)
    asked.clear()
    alerts(replace(fleet(calm), at=AT + 1))
    assert asked == []


def test_other_rules_judge_what_stood() -> None:
    fever = Fever()
    one = at_kv("a", 0.9)
    alerts = AlertBook([Rule("Mine", Severity.WARNING, EachReplica(fever))])
    alerts(fleet([one]))
    alerts.set_rules([Rule("Mine", Severity.WARNING, EachReplica(fever))], ())
    alerts(fleet([one]))
    assert fever.judged == ["a", "a"]


def test_what_is_usual_is_sorted_only_where_half_of_the_best_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sorts: list[int] = []

    def counted(values: list[float]) -> float:
        sorts.append(len(values))
        return median(values)

    monkeypatch.setattr("enginetop.alerts.remembering_checks.median", counted)
    alerts = book("PrefixCacheDrop")

    def look(seconds: float, hits: float) -> tuple[str, ...]:
        seen = replica("a", changes={"prefix_hit_ratio": hits}, scraped_at=AT + seconds)
        shown = alerts(replace(fleet([seen]), at=AT + seconds))
        return tuple(alert.state for alert in shown.alerts)

    for seconds in range(0, 400, 10):
        assert look(seconds, 0.6 + 0.2 * (seconds % 20 == 0)) == ()  # 0.6 is more than half of 0.8
    assert sorts == []
    assert look(400, 0.3) == ("pending",)  # half of 0.8 is 0.4, and the median of 20 of each is 0.7
    assert sorts == [40]
