"""The judge over time: who gets rows, how long a symptom has to hold, what starts it anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import pytest

from enginetop.fleet.knobs import KnobRow, KnobSheet
from enginetop.fleet.model import EngineKind, ReplicaState
from enginetop.fleet.reading import ConfigValue
from enginetop.fleet.signals import KNOBS
from enginetop.fleet.snapshot import Advice, FleetSnapshot, ReplicaSnapshot
from tests.tui.snapshots import AT, fleet, replica
from tests.unit.tuners.test_token_budget import slow
from tui.view.mixed import MixedMemory
from tuners.advice import Advisor
from tuners.case import Case, Rule


def sheet(budget: int) -> KnobSheet:
    rows = (
        KnobRow("max_num_batched_tokens", budget, 8192, 256, 8192, "tokens", 0),
        KnobRow("max_num_seqs", 256, 256, 1, 256, "requests", 0),
    )
    return KnobSheet("vllm", "0.32.0", "i1", 1, 1, rows)


class Judge:
    """An advisor over one replica, `b1`, looked at every 4 s."""

    def __init__(self) -> None:
        self.sheets: Mapping[str, KnobSheet] = {"http://b1.example:8000": sheet(8192)}
        self.advisor = Advisor(lambda: self.sheets)
        self.looks = 0
        self.steps = 0.0
        self.tokens = 0.0

    def look(self, one: ReplicaSnapshot | None = None, count: int = 1) -> str:
        """So many looks; the action for the token budget, with the last reason."""
        for _ in range(count):
            steps = 40 + 8 * (self.looks % 12)  # 100 to 31 ms: 11.8 ms + 6.1 us a token
            self.steps += steps
            self.tokens += (4.0 - 0.0118 * steps) / 6.1e-6
            totals = {"iteration_tokens.count": self.steps, "iteration_tokens.sum": self.tokens}
            now = replace(
                one or slow(), scraped_at=AT + 4 * self.looks, spacing_seconds=4.0, totals=totals, events=()
            )
            self.looks += 1
            row = self.advisor(fleet([now])).replicas[0].advice[0]
        return f"{row.action} {row.because[-1]}"


def test_a_symptom_has_to_hold_for_a_minute() -> None:
    judge = Judge()
    assert judge.look(count=15).startswith("withheld seen for 56 s")
    assert judge.look().startswith("lower")


@pytest.mark.parametrize(
    "better", [slow(tpot=0.04), slow(ttft=0.5), slow(tokens=900), slow(state=ReplicaState.STALE)]
)
def test_one_page_without_it_starts_anew(better: ReplicaSnapshot) -> None:
    judge = Judge()
    judge.look(count=12)
    judge.look(better)
    assert judge.look(count=15).startswith("withheld seen for 56 s")
    assert judge.look().startswith("lower")


def test_so_does_a_changed_knob_which_also_makes_older_windows_worthless() -> None:
    judge = Judge()
    assert judge.look(count=16).startswith("lower")
    judge.sheets = {"http://b1.example:8000": sheet(7680)}
    assert judge.look().startswith("withheld seen for 0 s")
    assert judge.look(count=15).startswith("lower")


def test_what_was_learnt_of_a_replica_goes_when_it_does() -> None:
    """One that is listed again later is another: its totals begin anew."""
    judge = Judge()
    assert judge.look(count=16).startswith("lower")
    judge.advisor(fleet([replica("other")]))
    assert judge.look().startswith("withheld seen for 0 s")


def test_nor_is_it_told_of_another_that_came_to_its_address() -> None:
    judge = Judge()
    assert judge.look(replace(slow(), first_page_at=AT), count=16).startswith("lower")
    assert judge.look(replace(slow(), first_page_at=AT - 900)).startswith("withheld seen for 0 s")


def test_what_was_learnt_stays_while_it_is_away() -> None:
    judge = Judge()
    judge.look(slow(), count=16)
    judge.look(slow(state=ReplicaState.DOWN))
    judge.look(replace(slow(), first_page_at=AT), count=15)  # until now nothing was known of that
    assert judge.look(replace(slow(), first_page_at=AT)).startswith("lower")


def test_a_clock_that_is_set_back_holds_nothing_up() -> None:
    judge = Judge()
    judge.look(count=16)
    judge.looks -= 900
    assert judge.look().startswith("withheld seen for 0 s")
    assert judge.look(count=15).startswith("lower")


def test_every_engine_has_a_row_for_every_knob_and_a_router_none() -> None:
    shown = Advisor()(
        fleet(
            [
                replica("a"),
                replica("b", ReplicaState.DOWN),
                replica("r", engine=EngineKind.ROUTER),
                replica("u", engine=EngineKind.UNKNOWN),
            ]
        )
    )
    assert [tuple(row.knob for row in one.advice) for one in shown.replicas] == [KNOBS, KNOBS, (), ()]
    assert all(row.because for one in shown.replicas for row in one.advice)
    assert {row.action for row in shown.replicas[1].advice} == {"withheld"}


def test_what_did_not_change_stays_the_same_object() -> None:
    advisor = Advisor()
    one: FleetSnapshot = fleet([replica("a"), replica("b")])
    first = advisor(one)
    second = advisor(replace(one, replicas=(one.replicas[0], replica("b"))))
    assert second.replicas[0] is first.replicas[0]
    assert second.replicas[1] is not first.replicas[1]


def test_a_knob_stands_where_its_sheet_says_and_a_canary_is_seen_to_differ() -> None:
    started = {"max_num_batched_tokens": ConfigValue(8192, "/server_info"), "dtype": ConfigValue("bf16", "x")}
    names = ("a", "b", "c")
    sheets = {f"http://{name}.example:8000": sheet(8192) for name in names}
    sheets["http://b.example:8000"] = sheet(768)
    shown = Advisor(lambda: sheets)(fleet([replica(name, config=started) for name in names])).replicas
    told = [one.config["max_num_batched_tokens"] for one in shown]
    assert told == [ConfigValue(value, "knob API") for value in (8192, 768, 8192)]
    assert {one.config["dtype"] for one in shown} == {ConfigValue("bf16", "x")}
    mixed = MixedMemory().mixed(shown)
    assert mixed.settings == {"http://b.example:8000": ("max_num_batched_tokens",)}
    assert mixed.words_of(shown[0]) == "max_num_batched_tokens 8192 ×2, 768 ×1"
    # ranks that do not agree tell nothing
    sheets["http://b.example:8000"] = replace(sheet(768), total=2)
    shown = Advisor(lambda: sheets)(fleet([replica("b", config=started)])).replicas
    assert shown[0].config == started


def test_a_row_without_a_value_still_tells_the_path_by_which_its_knob_could_be_changed() -> None:
    judge = Judge()
    judge.look()
    live = replace(sheet(8192), writer="sglang_cap")
    restart = replace(
        live, writer="systemd", knobs=tuple(replace(row, apply="restart") for row in live.knobs)
    )
    for told, apply, via in ((live, "live", "sglang_cap"), (restart, "restart", "systemd")):
        judge.sheets = {"http://b1.example:8000": told}
        rows = judge.advisor(fleet([replace(slow(), scraped_at=AT)])).replicas[0].advice
        ways = {row.knob: (row.action, row.apply, row.via) for row in rows}
        assert ways["max_num_seqs"][1:] == (apply, via)
        assert ways["num_speculative_tokens"][1:] == ("none", "")  # no path to that one
        assert ways["max_num_batched_tokens"] == ("withheld", apply, via)


class Asking:
    """An advisor over one calm replica, looked at every 2 s; counts how often each rule is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.advisor = Advisor()
        self.asked: list[float] = []
        self.at = AT
        self.spacing = 2.0

        def counted(knob: str) -> Rule:
            def advise(case: Case) -> Advice:
                self.asked.append(case.replica.scraped_at or 0.0)
                return Advice(knob, "hold", ("nothing is wrong",))

            return Rule(knob, lambda case: "lower" if case.replica.bad_lines else None, advise)

        monkeypatch.setattr("tuners.advice.RULES", {knob: counted(knob) for knob in KNOBS})

    def look(self, seconds: float, **changes: object) -> list[float]:
        """Look for so long; how many seconds after the first look rules were asked, once for each."""
        self.asked.clear()
        end = self.at + seconds
        while self.at < end:
            one = replace(replica("a", scraped_at=self.at), **changes)  # type: ignore[arg-type]
            self.advisor(replace(fleet([one]), at=self.at + 0.5))
            self.at += self.spacing
        return [at - AT for at in sorted(set(self.asked))]


def test_rules_that_called_for_nothing_for_a_minute_are_asked_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asking = Asking(monkeypatch)
    assert asking.look(60) == [2.0 * look for look in range(30)]
    rare = asking.look(60)
    assert [later - earlier for earlier, later in pairwise(rare)] == [10.0] * 5
    # a call is seen at the next of them, and holds or falls with every page from there on
    called = asking.look(20, bad_lines=1)
    assert called[0] == rare[-1] + 10.0
    assert called == [called[0] + 2.0 * look for look in range(len(called))]
    assert called[-1] == 138.0
    assert asking.look(10) == [140.0, 142.0, 144.0, 146.0, 148.0]


def test_a_fleet_is_not_asked_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asking = Asking(monkeypatch)
    many = [replica(f"r{number}") for number in range(50)]
    counts = []
    for second in range(0, 100, 2):
        asking.asked.clear()
        at = AT + second
        asking.advisor(replace(fleet([replace(one, scraped_at=at) for one in many]), at=at))
        counts.append(len(asking.asked) // len(KNOBS))
    assert counts[:30] == [50] * 30
    assert all(sum(counts[look : look + 5]) == 50 for look in range(30, 46))  # each once in 10 s
    assert max(counts[30:]) < 25


def test_pages_that_come_closer_than_two_seconds_are_one_to_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    asking = Asking(monkeypatch)
    asking.spacing = 0.5
    assert asking.look(6) == [0.0, 2.0, 4.0]


@pytest.mark.parametrize(
    "changes",
    [
        {"config": {"block_size": ConfigValue(16, "cache_config_info")}},
        {"state": ReplicaState.IDLE},
        {"config": {"max_num_seqs": ConfigValue(8, "startup")}},
        {"model": "other"},
    ],
)
def test_what_changes_the_question_is_asked_at_once(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, object]
) -> None:
    asking = Asking(monkeypatch)
    asking.look(80)
    assert asking.look(2, **changes) == [80.0]


def test_a_picture_between_two_questions_keeps_the_rows_and_tells_of_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asking = Asking(monkeypatch)
    shown = [
        asking.advisor(replace(fleet([replica("a", scraped_at=at)]), at=at)).replicas[0]
        for at in (AT, AT + 1.0)
    ]
    assert shown[0].advice is shown[1].advice
    assert [one.scraped_at for one in shown] == [AT, AT + 1.0]
    assert shown[1].what_if is not None
    assert shown[1].what_if("max_num_seqs", 64).knob == "max_num_seqs"
