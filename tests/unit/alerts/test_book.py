"""The book: order, inhibition, silence, acknowledgement, restarts and reloads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from enginetop.alerts.book import AlertBook
from enginetop.alerts.builtin import builtin_rules
from enginetop.alerts.configured import RuleTable, configured_rules
from enginetop.alerts.inhibit import inhibitors
from enginetop.alerts.rule import Finding, Rule, Severity, identity
from enginetop.alerts.silence import Acknowledgement, Quiet, Silence
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.model import ReplicaState
from enginetop.fleet.snapshot import Alert, FleetSnapshot
from tests.tui.snapshots import AT, alert, down_replica, fleet, gpu, replica, signals
from tests.unit.alerts.stories import book, same, tell

URL = "http://a.example:8000"
DOWN = fleet([down_replica("a", seconds=0)])
GOOD = fleet([replica("a")])


def test_the_gravest_stands_first_and_the_oldest_of_the_same() -> None:
    watched = book()
    looks = fleet(
        [
            replica("a", ReplicaState.UNAUTHORIZED, since=AT - 100),
            down_replica("b", seconds=50),
            down_replica("c", seconds=90),
            down_replica("d", seconds=5),
        ]
    )
    shown = watched(looks)
    assert [(a.target[7], a.state, a.rule) for a in shown.alerts] == [
        ("c", "firing", "TargetDown"),
        ("b", "firing", "TargetDown"),
        ("a", "firing", "Unauthorized"),
        ("d", "pending", "TargetDown"),
    ]


def test_a_resolved_alert_is_in_the_snapshot_that_resolved_it_and_in_no_other() -> None:
    watched = book()
    states = [
        [a.state for a in watched(replace(snapshot, at=AT + at)).alerts]
        for at, snapshot in ((0, DOWN), (30, DOWN), (32, GOOD), (34, GOOD))
    ]
    assert states == [["pending"], ["firing"], ["resolved"], []]


def test_two_books_over_the_same_snapshots_say_the_same() -> None:
    looks = [*same(range(0, 100, 7), changes={"preemptions_per_second": 0.3}), (120.0, DOWN), (170.0, DOWN)]
    assert tell(book(), looks) == tell(book(), looks)


def test_what_nobody_takes_does_not_grow_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enginetop.alerts.book._MOST_UNTAKEN", 50)
    watched = book("TargetDown")
    for i in range(200):
        watched(replace(DOWN if i % 2 else GOOD, at=AT + i))
    events = watched.take_events()
    assert len(events) == 50
    assert events[-1].at == AT + 199  # the oldest make room


@pytest.mark.parametrize(
    ("firing", "quiet"),
    [
        (
            ["TargetDown", "NoProgress", "TtftSlo", "MyRule"],
            {1: "TargetDown", 2: "TargetDown", 3: "TargetDown"},
        ),
        (["GpuLost", "TargetDown", "TpotSlo"], {1: "GpuLost", 2: "GpuLost"}),
        (["GpuXid", "TargetDown"], {}),
        (["NoProgress", "QueueGrowing", "ScrapeLate"], {1: "NoProgress", 2: "NoProgress"}),
        (["KvPressure", "TtftSlo", "SpeculationUseless"], {1: "KvPressure"}),
        (["Unauthorized", "TtftSlo", "GpuHot"], {1: "Unauthorized"}),
        (["TargetDown", "RollbackFailed", "CanaryFailed"], {}),
        (["TtftSlo", "TpotSlo"], {}),
    ],
)
def test_symptoms_are_quiet_while_their_cause_fires(firing: list[str], quiet: dict[int, str]) -> None:
    assert inhibitors([alert(rule, URL) for rule in firing]) == quiet
    assert inhibitors([alert(rule, f"http://{i}") for i, rule in enumerate(firing)]) == {}
    pending = [replace(alert(rule, URL), state="pending") for rule in firing]
    assert inhibitors(pending) == {}


def test_a_graver_stage_keeps_the_milder_one_quiet_about_the_same_thing_only() -> None:
    grave, mild = alert("GpuHot", URL, "critical"), alert("GpuHot", URL, "warning")
    assert inhibitors([grave, mild]) == {1: "GpuHot"}
    one, other = replace(grave, labels={"gpu_uuid": "1"}), replace(mild, labels={"gpu_uuid": "2"})
    assert inhibitors([one, other]) == {}


def test_inhibition_is_told_with_the_event() -> None:
    watched = book()
    lost = fleet([down_replica("a", seconds=40, gpus=(gpu(state="lost"),))])
    shown = watched(lost)
    assert [(a.rule, a.inhibited_by) for a in shown.alerts] == [("TargetDown", "GpuLost"), ("GpuLost", "")]
    assert {(e.alert.rule, e.alert.inhibited_by) for e in watched.take_events()} == {
        ("TargetDown", "GpuLost"),
        ("GpuLost", ""),
    }


@pytest.mark.parametrize(
    ("silence", "at", "silenced"),
    [
        (Silence(AT + 60, reason="canary"), 0, "canary"),
        (Silence(AT + 60), 0, "silenced"),
        (Silence(AT + 60), 60, ""),
        (Silence(AT + 60, rule="Target*"), 0, "silenced"),
        (Silence(AT + 60, rule="Gpu*"), 0, ""),
        (Silence(AT + 60, target="a"), 0, "silenced"),
        (Silence(AT + 60, target="http://a.*"), 0, "silenced"),
        (Silence(AT + 60, target="b*"), 0, ""),
    ],
)
def test_silences(silence: Silence, at: float, silenced: str) -> None:
    watched = AlertBook(builtin_rules(60.0), [silence])
    shown = watched(replace(DOWN, at=AT + at))
    until = silence.until if silenced else None
    assert [(a.rule, a.silenced_by, a.silenced_until) for a in shown.alerts] == [
        ("TargetDown", silenced, until)
    ]


def test_of_several_silences_the_first_gives_the_reason_and_the_last_the_end() -> None:
    silences = [Silence(AT + 60, reason="a"), Silence(AT + 90, rule="Target*"), Silence(AT + 99, rule="Gpu*")]
    watched = AlertBook(builtin_rules(60.0), silences)
    found = [watched(replace(DOWN, at=AT + at)).alerts[0] for at in (0, 60, 90)]
    assert [(one.silenced_by, one.silenced_until) for one in found] == [
        ("a", AT + 90),
        ("silenced", AT + 90),
        ("", None),
    ]


class Notes:
    """A `QuietSource` in memory."""

    def __init__(self) -> None:
        self.quiet = Quiet()

    def read(self) -> Quiet:
        return self.quiet

    def forget(self, over: Iterable[Acknowledgement]) -> None:
        gone = set(over)
        kept = tuple(one for one in self.quiet.acknowledgements if one not in gone)
        self.quiet = replace(self.quiet, acknowledgements=kept)


def acknowledge(notes: Notes, alert: Alert, at: float) -> None:
    notes.quiet = Quiet(acknowledgements=(Acknowledgement(identity(alert), at, "kim", "rebooting"),))


def marks(watched: AlertBook, snapshot: FleetSnapshot, at: float) -> list[str]:
    return [alert.acknowledged_by for alert in watched(replace(snapshot, at=AT + at)).alerts]


def test_an_acknowledgement_lasts_as_long_as_the_alert() -> None:
    notes = Notes()
    watched, other = AlertBook(builtin_rules(60.0), quiet=notes), AlertBook(builtin_rules(60.0), quiet=notes)
    assert marks(watched, GOOD, 0) == marks(other, GOOD, 0) == []
    shown = watched(replace(DOWN, at=AT + 40))
    marks(other, DOWN, 41)
    acknowledge(notes, shown.alerts[0], AT + 42)
    assert marks(watched, DOWN, 50) == marks(other, DOWN, 51) == ["kim: rebooting"]
    # a book that begins later goes by it too
    assert marks(AlertBook(builtin_rules(60.0), quiet=notes), DOWN, 55) == ["kim: rebooting"]
    assert marks(watched, GOOD, 60) == [""]  # resolved
    assert notes.quiet.acknowledgements == ()
    assert marks(watched, DOWN, 70) == marks(other, DOWN, 71) == [""]


def test_a_book_that_begins_later_cannot_know_that_it_is_another_alert() -> None:
    notes = Notes()
    shown = book()(replace(DOWN, at=AT + 40))
    acknowledge(notes, shown.alerts[0], AT + 42)
    later = AlertBook(builtin_rules(60.0), quiet=notes)
    seen_late = fleet([replace(down_replica("a"), since=AT + 1000)])
    assert marks(later, seen_late, 1000) == marks(later, seen_late, 1040) == ["kim: rebooting"]


def test_an_acknowledgement_of_what_ended_while_nobody_looked() -> None:
    notes = Notes()
    shown = book()(replace(DOWN, at=AT + 40))
    acknowledge(notes, shown.alerts[0], AT + 42)
    later = AlertBook(builtin_rules(60.0), quiet=notes)
    for at in (1000, 1330):  # the grace after a start and the rule's hold: 300 s and 30 s
        assert marks(later, GOOD, at) == []
        assert len(notes.quiet.acknowledgements) == 1
    assert marks(later, GOOD, 1331) == []
    assert notes.quiet.acknowledgements == ()


def test_an_acknowledgement_about_another_fleet_is_left_alone() -> None:
    notes = Notes()
    elsewhere = replace(book()(replace(DOWN, at=AT)).alerts[0], target="http://elsewhere:1")
    acknowledge(notes, elsewhere, AT)
    watched = AlertBook(builtin_rules(60.0), quiet=notes)
    for at in (1, 5000):
        marks(watched, GOOD, at)
    assert len(notes.quiet.acknowledgements) == 1


def test_an_alert_that_began_anew_is_not_acknowledged_by_the_old_note() -> None:
    class Keeps(Notes):
        def forget(self, over: Iterable[Acknowledgement]) -> None:
            """Somebody else has the file."""

    notes = Keeps()
    watched = AlertBook(builtin_rules(60.0), quiet=notes)
    marks(watched, GOOD, 0)
    fresh = fleet([down_replica("a", seconds=1)])
    shown = watched(replace(fresh, at=AT + 10))
    acknowledge(notes, shown.alerts[0], AT + 11)
    assert marks(watched, fresh, 12) == ["kim: rebooting"]
    marks(watched, GOOD, 20)
    late = fleet([replace(down_replica("a"), since=AT + 100)])
    assert marks(watched, late, 140) == [""]


def test_silences_that_people_made_count_like_those_of_the_config_file() -> None:
    notes = Notes()
    notes.quiet = Quiet((Silence(AT + 60, "Target*", reason="upgrade", id="1", by="ana"),))
    watched = AlertBook(builtin_rules(60.0), quiet=notes)
    found = [[alert.silenced_by for alert in watched(replace(DOWN, at=AT + at)).alerts] for at in (0, 59, 60)]
    assert found == [["ana: upgrade"], ["ana: upgrade"], [""]]


UNSEEN = fleet([replica("a", ReplicaState.UNKNOWN, changes=dict(signals()), scraped_at=None)])


def restarted(watched: AlertBook) -> AlertBook:
    fresh = book()
    fresh.restore(watched.current())
    return fresh


def test_a_restart_neither_repeats_nor_ends_what_fires() -> None:
    watched = book()
    tell(watched, [(0, DOWN), (30, DOWN)])
    fresh = restarted(watched)
    assert tell(fresh, [(100, UNSEEN), (102, DOWN), (200, DOWN), (210, GOOD)]) == [
        (210, "TargetDown", "critical", "resolved")
    ]


def test_after_a_restart_evidence_ends_an_alert_at_once_and_silence_after_five_minutes() -> None:
    watched = book()
    tell(watched, [(0, DOWN), (30, DOWN)])
    resolved = "TargetDown", "critical", "resolved"
    assert tell(restarted(watched), [(100, UNSEEN), (102, GOOD)]) == [(102, *resolved)]
    looks = [(t, UNSEEN) for t in (100.0, 399.0, 400.0)]
    assert tell(restarted(watched), looks) == [(400, *resolved)]
    assert tell(restarted(watched), [(100, fleet([replica("b")]))]) == [
        (100, *resolved)
    ]  # no such target now


def test_an_alert_has_the_name_of_its_target_as_long_as_it_lasts() -> None:
    watched = book("TargetDown")
    tell(watched, [(0, DOWN), (30, DOWN)])
    gone = restarted(watched)(replace(fleet([replica("b")]), at=AT + 100))
    assert [(one.state, one.name) for one in gone.alerts] == [("resolved", "a")]


def test_gpu_alerts_survive_a_restart_under_their_own_name() -> None:
    watched = book("GpuLost")
    lost = {"gpus": (gpu(0), gpu(1, state="lost"))}
    assert len(tell(watched, same([0], **lost))) == 1
    fresh = book("GpuLost")
    fresh.restore(watched.current())
    assert tell(fresh, [*same([10]), *same([20, 30], **lost), *same([40], gpus=(gpu(0), gpu(1)))]) == [
        (40, "GpuLost", "critical", "resolved")
    ]


def test_other_rules_from_the_next_snapshot_on() -> None:
    watched = book()
    tell(watched, [(0, DOWN), (30, DOWN)])
    watched.set_rules([rule for rule in builtin_rules(60.0) if rule.name != "TargetDown"], ())
    assert tell(watched, [(32, DOWN)]) == [(32, "TargetDown", "critical", "resolved")]


def test_a_check_that_mentions_a_subject_twice_is_one_alert() -> None:
    def twice(_: FleetSnapshot) -> Iterator[Finding]:
        yield Finding("t", True, 1.0)
        yield Finding("t", True, 2.0)

    watched = AlertBook([Rule("R", Severity.INFO, twice)])
    assert [a.value for a in watched(GOOD).alerts] == [1.0]


def rules(*tables: RuleTable) -> dict[tuple[str, str], Rule]:
    return {rule.id: rule for rule in configured_rules(tables, 60.0)}


def test_built_in_rules_can_be_bent() -> None:
    bent = rules(
        RuleTable("TargetDown", for_seconds=5.0, keep_firing_seconds=7.0),
        RuleTable("Preempting", for_seconds=90.0),
        RuleTable("GpuHot", enabled=False, severity="warning"),
        RuleTable("ScrapeLate", enabled=False),
    )
    assert bent["TargetDown", "critical"].hold_seconds == 5.0
    assert bent["TargetDown", "critical"].keep_seconds == 7.0
    assert {bent["Preempting", s].hold_seconds for s in ("warning", "critical")} == {90.0}
    assert ("GpuHot", "critical") in bent
    assert not {("GpuHot", "warning"), ("ScrapeLate", "warning")} & set(bent)
    assert bent["KvPressure", "warning"].hold_seconds == 60.0


def test_an_own_rule_fires_after_its_hold_and_shows_its_first_comparison() -> None:
    table = RuleTable(
        "MyKv", "kv_usage_ratio > 0.95 and requests_waiting > 3", 60.0, 30.0, "info", True, "full"
    )
    watched = AlertBook([rules(table)["MyKv", "info"]])
    full: dict[str, Any] = {"changes": {"kv_usage_ratio": 0.97, "requests_waiting": 9}}
    looks = [*same([0, 30, 60], **full), *same([70, 89, 90])]
    assert tell(watched, looks) == [
        (0, "MyKv", "info", "pending"),
        (60, "MyKv", "info", "firing"),
        (90, "MyKv", "info", "resolved"),
    ]
    watched(fleet([replica("a", **full)], at=AT + 100))
    (shown,) = watched.current()
    assert (shown.value, shown.threshold, shown.summary, shown.target) == (0.97, 0.95, "full", URL)


def test_own_rules_see_only_replicas_that_are_up() -> None:
    watched = AlertBook([rules(RuleTable("MyRun", "requests_running >= 0"))["MyRun", "warning"]])
    old = fleet([replica("a", ReplicaState.STALE)])
    assert tell(watched, [(0, old)]) == []


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ([RuleTable("MyKv", "kv > 1")], "alerts.0.when: unknown signal 'kv'"),
        (
            [RuleTable("TargetDown"), RuleTable("MyKv")],
            "alerts.1.rule: 'MyKv' is no built-in rule; an own rule",
        ),
        ([RuleTable("TargetDwn")], "did you mean 'TargetDown'?"),
        ([RuleTable("TargetDown", "kv_usage_ratio > 1")], "alerts.0.when: TargetDown is a built-in rule"),
        ([RuleTable("TargetDown", severity="info")], "alerts.0.severity: TargetDown is critical, not info"),
        ([RuleTable("A", "kv_usage_ratio > 1")] * 2, "alerts.1.rule: a rule of this name and severity"),
    ],
)
def test_mistakes_in_rules_are_named(tables: Sequence[RuleTable], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configured_rules(tables, 60.0)
    assert words in str(caught.value)


def test_what_fires_keeps_firing_through_hostile_labels() -> None:
    evil = 'x"}\n\x1b[2J'
    watched = book()
    shown = watched(fleet([down_replica("a", seconds=60, model=evil)]))
    assert [a.labels["model"] for a in shown.alerts] == [evil]
    restored: Alert = watched.current()[0]
    assert restored.labels["model"] == evil
