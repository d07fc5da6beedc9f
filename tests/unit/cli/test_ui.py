"""What the screen is given: a controller only where changes are allowed, and the demo's of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from enginetop.cli import ui
from enginetop.cli.control import recovery
from enginetop.cli.main import main
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.snapshot import Slo
from tests.tui.snapshots import FakeSource, fleet, replica
from tui.app import FleetApp
from tuners.control.controller import Controller
from tuners.control.driver import ControlError


@pytest.fixture(name="given")
def _given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """What `run_app` was called with; nothing is shown and nothing is scraped."""
    options: dict[str, Any] = {}

    def run_app(source: object, **given: object) -> int:
        options.update(given, source=source)
        return 0

    monkeypatch.setattr("tui.run.run_app", run_app)
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


@pytest.mark.parametrize("words", [["snapshot", "--format", "table", "--samples", "1"], []])
@pytest.mark.parametrize("control", ["[control]\n", ""])
def test_a_table_says_read_only_where_the_screen_would(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    control: str,
) -> None:
    monkeypatch.setattr("enginetop.cli.wiring.sample", lambda *_: fleet([replica("a")]))
    monkeypatch.setattr(ui, "has_terminal", lambda: False)
    config = tmp_path / "fleet.toml"
    config.write_text(f'[[targets]]\nurl = "http://127.0.0.1:9"\n{control}', encoding="utf-8")
    assert main([*words, "--config", str(config)]) == 0
    assert ("READ-ONLY" in capsys.readouterr().out) is not bool(control)


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

        def recover(self, why: str = "", begins: Any = None) -> Any:
            raise ControlError("another controller is at work: pid 4711")

    with recovery(Stuck()) as thread:
        thread.join(10)
        assert capsys.readouterr().err == ""
    assert capsys.readouterr().err == "enginetop: another controller is at work: pid 4711\n"


def screen_config(tmp_path: Path, text: str) -> list[str]:
    config = tmp_path / "fleet.toml"
    config.write_text(f'[[targets]]\nurl = "http://127.0.0.1:9"\n[screen]\n{text}\n', encoding="utf-8")
    return ["--config", str(config)]


def test_the_screen_looks_as_the_config_file_says(given: dict[str, Any], tmp_path: Path) -> None:
    argv = screen_config(tmp_path, 'theme = "light"\nascii = true\ncolumns = ["kv", "tok"]')
    assert main(argv) == 0
    assert (given["theme"], given["ascii_only"]) == ("light", True)
    assert given["columns"].load() == ("name", "state", "kv", "tok")
    assert given["theme_folder"] == tmp_path / "config" / "enginetop" / "themes"
    assert "TargetDown" in {rule.name for rule in given["rules"]}


def test_the_command_line_and_saved_columns_outrank_the_config_file(
    given: dict[str, Any], tmp_path: Path
) -> None:
    argv = screen_config(tmp_path, 'theme = "light"\ncolumns = ["kv"]')
    saved = tmp_path / "state" / "enginetop" / "columns.toml"
    saved.parent.mkdir(parents=True)
    saved.write_text('columns = ["run"]\n')
    assert main([*argv, "--theme", "dark"]) == 0
    assert given["theme"] == "dark"
    assert given["columns"].load() == ("name", "state", "run")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('columns = ["kw"]', "screen.columns: no column is called 'kw'; there are: name state model"),
        ('columns = ["kv", "kv"]', "screen.columns: column 'kv' is named twice"),
        ("colums = []", "screen.colums"),
    ],
)
def test_a_screen_table_that_cannot_be_used_is_one_line(
    given: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    assert main(screen_config(tmp_path, text)) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert said in told[0]
    assert str(tmp_path / "fleet.toml") in told[0]


def test_a_theme_that_is_not_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "themes"
    folder.mkdir()
    (folder / "mine.toml").write_text('base = "dark"\n[inks]\ncrit = { color = "red" }\n')
    for name, said in (("nope", "'nope' is not known"), ("mine", "mine.toml: crit: color must be a colour")):
        monkeypatch.delenv("NO_COLOR", raising=False)
        with pytest.raises(ConfigError, match=said):
            FleetApp(FakeSource(), theme=name, theme_folder=folder)
