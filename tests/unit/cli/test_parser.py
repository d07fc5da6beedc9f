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


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["probe", "u", "--requests", "101"], "'101': at most 100"),
        (["probe", "u", "--concurrency", "5"], "'5': at most 4"),
        (["sim", "--replicas", "0"], "'0' is not a whole number above 0"),
        (["sim", "--replicas", "1.5"], "'1.5' is not a whole number above 0"),
        (["curve", "--for", "inf"], "'inf' is not a number of seconds above 0"),
        (["curve", "--for", "soon"], "'soon' is not a number of seconds above 0"),
        (["watch", "--interval", "0.09"], "'0.09': an interval lies between 0.1 and 3600 seconds"),
        (["--refesh", "3"], "unrecognized arguments: --refesh"),
        (["demo", ""], "unrecognized arguments:  (see enginetop demo --help)"),
        (["sim", " ", "--port", "1"], "unrecognized arguments:   (see enginetop sim --help)"),
        (["--intervall=3", "a:1"], "unrecognized arguments: --intervall=3; did you mean --interval? (see"),
        (["snapshot", "--fromat", "json"], "unrecognized arguments: --fromat; did you mean --format? (see"),
        (["chek", "a:1"], "'chek' is no command and no target; did you mean enginetop check? (see"),
        (["--config", "fleet.toml", "check"], "the command comes first: enginetop check ... (see"),
        (["silence", "add", "--for", "2 weeks"], "'2 weeks' is no duration; write 45s, 30m, 2h or 3d"),
    ],
)
def test_a_value_that_does_not_fit_is_told_with_what_would(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse(argv)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "name", "value"),
    [
        (["probe", "u", "--requests", "100"], "requests", 100),
        (["check", "--for", "0.5"], "duration", 0.5),
        (["watch", "--interval", "0.1"], "interval", 0.1),
        (["silence", "add", "--for", "2h"], "duration", 7200.0),
    ],
)
def test_values_at_their_bounds_are_taken(argv: list[str], name: str, value: float) -> None:
    assert getattr(parse(argv)[1], name) == value
