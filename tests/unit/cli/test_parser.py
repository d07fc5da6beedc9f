"""The grammar of the command line: what it says of what is missing."""

from __future__ import annotations

import pytest

from enginetop.cli.parser import parse


@pytest.mark.parametrize(
    ("command", "missing"),
    [("apply", "PLAN"), ("rollback", "ID"), ("record", "-o/--output"), ("replay", "FILE")],
)
def test_what_is_missing_is_named_and_nothing_else(
    command: str, missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse([command])
    assert f"required: {missing} (see enginetop {command} --help)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "targets"),
    [([], []), (["a:1"], ["a:1"]), (["--yes", "a:1", "--interval", "1", "b:2"], ["a:1", "b:2"])],
)
def test_targets_are_optional_and_may_stand_anywhere(argv: list[str], targets: list[str]) -> None:
    _, arguments = parse(["apply", "plan.json", *argv])
    assert (arguments.plan, arguments.targets) == ("plan.json", targets)
