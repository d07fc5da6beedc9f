"""What the process says and returns when the screen is gone."""

from __future__ import annotations

import pytest

from tests.tui.snapshots import FakeSource
from tui.app import FleetApp
from tui.run import run_app


def pretend(monkeypatch: pytest.MonkeyPatch, *failures: str, raises: Exception | None = None) -> list[bool]:
    """Let `FleetApp.run` return at once, with these failures noted; the mouse settings it was run with."""
    mice: list[bool] = []

    def run(app: FleetApp, *, mouse: bool) -> None:
        mice.append(mouse)
        app.failures.extend(failures)
        if raises is not None:
            raise raises

    monkeypatch.setattr(FleetApp, "run", run)
    return mice


def test_a_quiet_end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    mice = pretend(monkeypatch)
    source = FakeSource()
    assert run_app(source, mouse=False) == 0
    assert mice == [False]
    assert source.stopped == 1
    assert capsys.readouterr().err == ""


def test_each_failure_is_one_line_and_the_exit_code_is_not_zero(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, "totals: ValueError: half a bucket", "the screen stopped: KeyError: 'x'")
    source = FakeSource()
    assert run_app(source) == 1
    assert source.stopped == 1
    assert capsys.readouterr().err == (
        "enginetop: totals: ValueError: half a bucket\nenginetop: the screen stopped: KeyError: 'x'\n"
    )


def test_the_source_is_stopped_even_if_the_app_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, raises=OSError("no terminal"))
    source = FakeSource()
    with pytest.raises(OSError, match="no terminal"):
        run_app(source)
    assert source.stopped == 1
