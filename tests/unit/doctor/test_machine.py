"""Findings about this side, from facts written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enginetop.doctor.finding import Finding, Level, worst
from enginetop.doctor.machine import (
    ConfigFacts,
    FolderFacts,
    GpuFacts,
    SecretFacts,
    SecretState,
    SinkFacts,
    TerminalFacts,
    config_findings,
    folder_findings,
    gpu_findings,
    secret_findings,
    sink_findings,
    terminal_findings,
)

GOOD = TerminalFacts(120, 40, "xterm-256color", "", "utf-8")


def shown(findings: object) -> list[tuple[str, str]]:
    return [(one.level.value, one.what) for one in findings]  # type: ignore[attr-defined]


def test_the_gravest_level() -> None:
    levels = [Level.INFO, Level.ERROR, Level.OK, Level.WARNING]
    assert worst(Finding("a", level, "") for level in levels) is Level.ERROR
    assert worst([Finding("a", Level.INFO, "")]) is Level.INFO
    assert worst([]) is Level.OK


def test_a_good_terminal_takes_one_line() -> None:
    assert shown(terminal_findings(GOOD)) == [("ok", "120x40, 256 colours, utf-8, TERM xterm-256color")]


@pytest.mark.parametrize(
    ("change", "level", "words"),
    [
        ({"columns": 79}, Level.WARNING, "79x40 is small"),
        ({"lines": 23}, Level.WARNING, "120x23 is small"),
        ({"term": "dumb"}, Level.WARNING, "TERM is dumb"),
        ({"term": ""}, Level.WARNING, "TERM is not set"),
        ({"encoding": "ascii"}, Level.WARNING, "the encoding is ascii"),
        ({"encoding": ""}, Level.WARNING, "the encoding is not known"),
        ({"no_color": True}, Level.INFO, "NO_COLOR is set"),
        ({"closed": ("stdin", "stdout")}, Level.INFO, "no terminal at stdin and stdout"),
        # without a terminal its size and kind do not matter
        ({"closed": ("stdin",), "columns": 10, "term": "dumb"}, Level.INFO, "no terminal at stdin"),
    ],
)
def test_what_is_wrong_with_a_terminal(change: dict[str, object], level: Level, words: str) -> None:
    found = list(terminal_findings(replace(GOOD, **change)))  # type: ignore[arg-type]
    assert worst(found) is level
    trouble = next(one for one in found if one.level is level)
    assert trouble.what.startswith(words)
    assert bool(trouble.fix) == (level is Level.WARNING)


@pytest.mark.parametrize(
    ("term", "colour_term", "words"),
    [
        ("xterm", "truecolor", "16 million colours"),
        ("xterm", "24bit", "16 million colours"),
        ("tmux-256color", "", "256 colours"),
        ("linux", "", "16 colours"),
        ("dumb", "", "no colours"),
    ],
)
def test_colours(term: str, colour_term: str, words: str) -> None:
    assert replace(GOOD, term=term, colour_term=colour_term).colours == words


def test_the_config_file() -> None:
    none = ConfigFacts("/c/config.toml", found=False)
    assert shown(config_findings(none)) == [("info", "none at /c/config.toml: defaults, read-only")]
    good = ConfigFacts("/c/config.toml", found=True, targets=2, writes=True)
    assert shown(config_findings(good)) == [("ok", "/c/config.toml: 2 targets, changes allowed")]
    one = ConfigFacts("/c/config.toml", found=True, targets=1)
    assert shown(config_findings(one)) == [("ok", "/c/config.toml: 1 target, read-only: no [control] table")]


def test_a_config_file_that_cannot_be_used_and_what_cannot_do_what_it_is_for() -> None:
    problem = "/c/x.toml: intervall_seconds is an unknown key; did you mean 'interval_seconds'?"
    found = list(config_findings(ConfigFacts("/c/x.toml", found=True, problem=problem, warnings=("a; b",))))
    assert found == [
        Finding(
            "config",
            Level.ERROR,
            "/c/x.toml: intervall_seconds is an unknown key",
            "did you mean 'interval_seconds'?",
        ),
        Finding("config", Level.WARNING, "a", "b"),
    ]


@pytest.mark.parametrize(
    ("secret", "level", "words", "fix"),
    [
        (SecretFacts("a1", "API key", False, "KEY", SecretState.PRESENT), Level.OK, "is there", ""),
        (
            SecretFacts("a1", "API key", False, "KEY", SecretState.MISSING),
            Level.ERROR,
            "is not set",
            "export KEY",
        ),
        (
            SecretFacts("a1", "API key", False, "KEY", SecretState.EMPTY),
            Level.ERROR,
            "is empty",
            "export KEY",
        ),
        (
            SecretFacts("a1", "API key", True, "/k", SecretState.MISSING),
            Level.ERROR,
            "is not there",
            "write it to /k, mode 0600",
        ),
        (SecretFacts("a1", "API key", True, "/k", SecretState.PRESENT, 0o600), Level.OK, "is there", ""),
        (SecretFacts("a1", "API key", True, "/k", SecretState.PRESENT, 0o400), Level.OK, "is there", ""),
        (
            SecretFacts("a1", "API key", True, "/k", SecretState.PRESENT, 0o640),
            Level.WARNING,
            "is open to other users (mode 0640)",
            "chmod 600 /k",
        ),
        (
            SecretFacts("a1", "API key", True, "/k", SecretState.PRESENT, 0o604),
            Level.WARNING,
            "is open to other users (mode 0604)",
            "chmod 600 /k",
        ),
        (
            SecretFacts("a1", "API key", True, "/k", SecretState.UNREADABLE, 0o600),
            Level.ERROR,
            "cannot be read",
            "chown or chmod /k so that this user can read it",
        ),
        (
            SecretFacts("a1", "API key", True, "/k", SecretState.MALFORMED, 0o600),
            Level.ERROR,
            "holds more than one plain word",
            "leave only the key in it",
        ),
    ],
)
def test_secrets_are_named_and_never_shown(secret: SecretFacts, level: Level, words: str, fix: str) -> None:
    (found,) = secret_findings([secret])
    assert (found.level, found.fix) == (level, fix)
    assert found.what == f"a1: API key in {secret.where} {words}"


def test_the_state_folder() -> None:
    assert shown(folder_findings(FolderFacts("/s", exists=True))) == [("ok", "/s: writable")]
    assert shown(folder_findings(FolderFacts("/s", exists=False))) == [
        ("ok", "/s: will be made when something is kept")
    ]
    (closed,) = folder_findings(FolderFacts("/s", exists=True, problem="/s is not writable for this user"))
    assert (closed.level, closed.fix) == (Level.ERROR, "make /s writable, or set XDG_STATE_HOME")
    assert [level for level, _ in shown(folder_findings(FolderFacts("/s", True, kill_switch=True)))] == [
        "ok",
        "warning",
    ]


def test_sinks() -> None:
    (none,) = sink_findings([])
    assert none.level is Level.INFO
    found = list(sink_findings([SinkFacts("f", "file", "/x/y: /x is not writable"), SinkFacts("s", "slack")]))
    assert [(one.level, one.what) for one in found] == [
        (Level.ERROR, "f: /x/y: /x is not writable"),
        (Level.OK, "s (slack); not tried, nothing is sent by looking"),
    ]


def test_gpus() -> None:
    assert shown(gpu_findings(GpuFacts(("H200", "H200", "L4")))) == [("ok", "2 x H200, 1 x L4")]
    problem = "the NVIDIA driver is not loaded; run: modprobe nvidia"
    for present, level in ((True, Level.WARNING), (False, Level.INFO)):
        (found,) = gpu_findings(GpuFacts(problem=problem, present=present))
        assert found == Finding("GPU", level, "the NVIDIA driver is not loaded", "run: modprobe nvidia")
