"""`[keys]` of the config file: from the file to the screen, or one line and exit 2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from enginetop.cli.main import main
from tests.replay.test_replay import line
from tests.support.small_fleet import vllm_page


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the screen was opened with."""
    options: dict[str, Any] = {}

    def run_app(source: object, **given: Any) -> int:
        options.update(given)
        return 0

    monkeypatch.setattr("enginetop.cli.ui.has_terminal", lambda: True)
    monkeypatch.setattr("tui.run.run_app", run_app)
    return options


def replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str) -> int:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path, recording = tmp_path / "config.toml", tmp_path / "r.jsonl"
    path.write_text(config, encoding="utf-8")
    recording.write_text(line(0.0, vllm_page()), encoding="utf-8")
    return main(["replay", str(recording), "--config", str(path)])


def test_own_keys_reach_the_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown: dict[str, Any]
) -> None:
    assert replay(tmp_path, monkeypatch, '[keys]\npause = "p"\nprevious = ["P", "["]\nearlier = "<"\n') == 0
    keys = {action.word: action.keys for action in shown["actions"]}
    assert keys["pause"] == ("p",)
    assert keys["previous"] == ("P", "left_square_bracket")
    assert keys["earlier"] == ("less_than_sign",)
    assert shown["playback"] is not None
    assert shown["fault_log"] == tmp_path / "state" / "enginetop" / "faults.log"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ('[keys]\npausee = "p"\n', "config.toml: keys.pausee: no such action; did you mean 'pause'?"),
        ('[keys]\npause = "q"\n', "config.toml: keys.pause: q already means quit"),
        ('[keys]\napply = "a"\n', "config.toml: keys.apply: a is too easily hit"),
        ("[keys]\npause = 3\n", "config.toml: keys.pause"),
        ('keys = "vi"\n', "config.toml: keys: "),
    ],
)
def test_a_mistake_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shown: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    config: str,
    said: str,
) -> None:
    assert replay(tmp_path, monkeypatch, config) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not shown
