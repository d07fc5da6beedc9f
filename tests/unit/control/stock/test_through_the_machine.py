"""A change by an engine's own API through the one machine: canary, verdict, the others, or all of it back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from enginetop.fleet.change import ChangeState
from enginetop.fleet.model import Quality
from enginetop.fleet.plan import Plan
from enginetop.fleet.snapshot import FleetSnapshot, Scalar
from enginetop.simulator.knob_api import KnobApi
from tests.support.control_runs import run
from tests.support.virtual_fleet import Engine, VirtualFleet, plan_for
from tests.unit.control.stock.test_contract import WRITERS, Rig, Writer
from tuners.control.knob_api import HttpKnobClient

NEW = 2
TUNING = tuple(writer for writer in WRITERS if writer.new == NEW)


class StockFleet(VirtualFleet):
    """Replicas whose one knob is behind their engine's own API; `attainment` follows what the engine does."""

    def __init__(self, writer: Writer, folder: Path, attainment: Callable[[int], float]) -> None:
        self.knob = writer.knob
        self.rigs: dict[str, Rig] = {}
        engines = []
        for number in range(3):
            engine = Engine(
                f"http://r{number}:8000", seed=number + 1, attainment=attainment, value=8, start=8
            )
            home = folder / str(number)
            home.mkdir()
            self.rigs[engine.url] = Rig(writer, home)
            engines.append(engine)
        super().__init__(engines)
        self._apis = {url: KnobApi(rig.board, self.now) for url, rig in self.rigs.items()}

    def advance(self) -> None:
        """See `World`."""
        for url, rig in self.rigs.items():
            self.engines[url].value = rig.engine.value
        super().advance()

    def client(self, target: str) -> HttpKnobClient | None:
        """See `World`."""
        return HttpKnobClient(self._apis[target])

    def snapshot(self) -> FleetSnapshot:
        """See `World`. Seats are always taken."""
        found = super().snapshot()
        replicas = tuple(
            replace(one, signals={**one.signals, "requests_running": Scalar(float(value), "", Quality.OK)})
            for one, value in zip(found.replicas, self.values, strict=True)
        )
        return replace(found, replicas=replicas)

    def plan(self) -> Plan:
        """The plan of the new value, as it is read from the boards."""
        plan = plan_for(self, to=NEW)
        changes = []
        for change in plan.changes:
            sheet = self.rigs[change.target].board.sheet(self.time)
            changes.append(
                replace(
                    change,
                    knob=self.knob,
                    before=8,
                    after=NEW,
                    via=sheet.writer,
                    instance=sheet.instance,
                )
            )
        return replace(plan, changes=tuple(changes))

    @property
    def values(self) -> list[int]:
        """What the engines do."""
        return [rig.engine.value for rig in self.rigs.values()]


@pytest.mark.parametrize("writer", TUNING, ids=str)
def test_a_gain_is_promoted_and_stays(writer: Writer, tmp_path: Path) -> None:
    fleet = StockFleet(writer, tmp_path, lambda value: 0.98 if value == NEW else 0.85)
    end, _ = run(fleet, fleet.plan())
    assert end.state is ChangeState.DONE, end.detail
    assert fleet.values == [NEW] * 3
    assert all(rig.board.sheet(fleet.time).knobs[0].expires_in_seconds is None for rig in fleet.rigs.values())


@pytest.mark.parametrize("writer", TUNING, ids=str)
def test_a_loss_goes_back_before_another_replica_is_touched(writer: Writer, tmp_path: Path) -> None:
    fleet = StockFleet(writer, tmp_path, lambda value: 0.80 if value == NEW else 0.97)
    end, _ = run(fleet, fleet.plan())
    assert end.state is ChangeState.ROLLED_BACK, end.detail
    assert fleet.values == [8] * 3
    assert [bool(rig.engine.writes) for rig in fleet.rigs.values()] == [True, False, False]


@pytest.mark.parametrize("writer", [one for one in TUNING if not one.waits], ids=str)
@pytest.mark.parametrize("fault", ["error_body", "ignored", "denied", "absent", "broken"])
def test_a_value_that_the_engine_does_not_take_refuses_the_change(
    writer: Writer, fault: str, tmp_path: Path
) -> None:
    fleet = StockFleet(writer, tmp_path, lambda _: 0.95)
    plan = fleet.plan()
    fleet.rigs[plan.canary.target].engine.fault = fault
    end, _ = run(fleet, plan)
    assert end.state is ChangeState.REFUSED, end.detail
    assert "not changed" in end.detail
    assert fleet.values == [8] * 3


@pytest.mark.parametrize("writer", [one for one in TUNING if one.waits], ids=str)
def test_an_engine_that_does_not_come_back_ends_with_the_command_to_run_by_hand(
    writer: Writer, tmp_path: Path
) -> None:
    fleet = StockFleet(writer, tmp_path, lambda _: 0.95)
    plan = fleet.plan()
    fleet.rigs[plan.canary.target].engine.fault = "ruined"
    end, rows = run(fleet, plan)
    assert end.state is ChangeState.ROLLBACK_FAILED, end.detail
    assert "by hand: " in rows[-1].detail
    assert "curl -fsS" in rows[-1].detail
