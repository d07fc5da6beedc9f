"""What the screen is given: a controller only where changes are allowed, and the demo's of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from enginetop.cli import ui
from enginetop.cli.control import recovery
from enginetop.cli.main import main
from enginetop.fleet.snapshot import Slo
from tuners.control.controller import Controller
from tuners.control.driver import ControlError


@pytest.fixture(name="given")
def _given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """What `run_app` was called with; nothing is shown and nothing is scraped."""
    options: dict[str, Any] = {}

    def run_app(source: object, **given: object) -> int:
        options.update(given, source=source)
        return 0

    monkeypatch.setattr("tui.app.run_app", run_app)
    monkeypatch.setattr(ui, "has_terminal", lambda: True)
    monkeypatch.setattr("enginetop.cli.demo.has_terminal", lambda: True)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("USER", "ana")
    monkeypatch.setenv("LOGNAME", "ana")
    return options


def test_without_a_control_table_the_screen_only_reads(given: dict[str, Any]) -> None:
    assert main(["127.0.0.1:9"]) == 0
    assert given["read_only"] is True
    assert given["control"] is None


def test_with_a_control_table_the_screen_gets_a_controller(given: dict[str, Any], tmp_path: Path) -> None:
    config = tmp_path / "fleet.toml"
    config.write_text('[[targets]]\nurl = "http://127.0.0.1:9"\n[control]\nblocks = 12\n', encoding="utf-8")
    assert main(["--config", str(config)]) == 0
    assert given["read_only"] is False
    assert isinstance(given["control"], Controller)
    assert given["approver"] == "ana"


def test_the_demo_can_be_tuned_and_leaves_nothing_in_the_users_state(
    given: dict[str, Any], tmp_path: Path
) -> None:
    assert main(["demo", "--scenario", "steady", "--replicas", "1"]) == 0
    assert given["read_only"] is False
    assert isinstance(given["control"], Controller)
    assert given["control"].audit() == ()
    assert not (tmp_path / "state").exists()


def test_the_demo_is_held_against_the_objective_of_its_scenario(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Slo] = []

    def watch(_args: object, settings: Any, *_: object, **__: object) -> int:
        seen.append(settings.slo_for("any"))
        return 0

    monkeypatch.setattr(ui, "watch", watch)
    assert main(["demo", "--scenario", "budget-too-large", "--replicas", "1"]) == 0
    assert main(["demo", "--scenario", "steady", "--replicas", "1", "--slo", "ttft=9,tpot=8,target=0.5"]) == 0
    assert seen[0] != Slo()  # the scenario sets one of its own
    assert (seen[1].ttft_seconds, seen[1].tpot_seconds, seen[1].target) == (9.0, 8.0, 0.5)


def test_a_recovery_that_fails_is_told_when_the_screen_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    class Stuck(Controller):
        def __init__(self) -> None:
            """Nothing to control."""

        def recover(self, why: str = "") -> Any:
            raise ControlError("another controller is at work: pid 4711")

    with recovery(Stuck()) as thread:
        thread.join(10)
        assert capsys.readouterr().err == ""
    assert capsys.readouterr().err == "enginetop: another controller is at work: pid 4711\n"
