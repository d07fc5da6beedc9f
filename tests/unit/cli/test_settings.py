"""Settings: the config file overlaid by the command line, and how bad input is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from collectors.fetch import Credentials
from enginetop.cli.main import main
from enginetop.cli.parser import parse
from enginetop.cli.resolve import resolve
from enginetop.cli.settings import KnobPath, Settings, state_folder
from enginetop.cli.slo_flag import parse_slo, slo_flag
from enginetop.fleet.efficiency import Price
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.model import Target
from enginetop.fleet.snapshot import Slo
from tuners.control.settings import ControlSettings

FULL = """
interval_seconds = 1.0
[[targets]]
url = "https://10.0.0.1:8000"
name = "a1"
api_key_env = "VLLM_API_KEY"
[[targets]]
url = "http://10.0.0.2:8000"
[[slo]]
model = "llama*"
ttft_seconds = 0.6
tpot_seconds = 0.05
target = 0.99
[[slo]]
ttft_seconds = 2.0
"""


def _settings(tmp_path: Path, text: str | None, *argv: str) -> tuple[Settings, list[str]]:
    config = []
    if text is not None:
        (tmp_path / "fleet.toml").write_text(text)
        config = ["--config", str(tmp_path / "fleet.toml")]
    warnings: list[str] = []
    _, args = parse(["snapshot", *argv, *config])
    return resolve(args, warnings.append), warnings


@pytest.fixture(autouse=True)
def _no_own_config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "empty"))


def test_defaults_without_a_config_file(tmp_path: Path) -> None:
    settings, warnings = _settings(tmp_path, None, "r1:8000")
    assert (settings.interval_seconds, settings.window_seconds) == (2.0, 60.0)
    assert settings.timeout_seconds < settings.interval_seconds
    assert settings.slo_for("any") == Slo(1.0, 0.1, 0.95, "default")
    assert warnings == []


def test_the_config_file_gives_targets_access_and_objectives(tmp_path: Path) -> None:
    settings, _ = _settings(tmp_path, FULL)
    assert [(t.name, t.url) for t in settings.targets] == [
        ("a1", "https://10.0.0.1:8000"),
        ("10.0.0.2:8000", "http://10.0.0.2:8000"),
    ]
    assert settings.credentials == {"https://10.0.0.1:8000": Credentials(api_key_env="VLLM_API_KEY")}
    assert settings.interval_seconds == 1.0
    assert settings.slo_for("llama-70b") == Slo(0.6, 0.05, 0.99, "config")
    assert settings.slo_for("qwen") == Slo(2.0, 0.1, 0.95, "config")
    assert settings.slo_for(None) == Slo(2.0, 0.1, 0.95, "config")


def test_the_command_line_wins(tmp_path: Path) -> None:
    settings, _ = _settings(tmp_path, FULL, "r9:1", "--interval", "5", "--slo", "ttft=0.3,target=0.9")
    assert [t.url for t in settings.targets] == ["http://r9:1"]
    assert settings.credentials == {}
    assert settings.interval_seconds == 5.0
    assert settings.slo_for("llama-70b") == Slo(0.3, 0.1, 0.9, "flag")


@pytest.mark.parametrize(
    ("told", "slo"),
    [
        ("ttft=300ms,tpot=40ms,target=0.99", Slo(0.3, 0.04, 0.99, "flag")),
        ("ttft=0.3s, itl=0.04", Slo(0.3, 0.04, 0.95, "flag")),
        ("ttft=5m", Slo(300.0, 0.1, 0.95, "flag")),
    ],
)
def test_objectives_with_units(tmp_path: Path, told: str, slo: Slo) -> None:
    settings, warnings = _settings(tmp_path, None, "r1:8000", "--slo", told)
    assert settings.slo_for(None) == slo
    assert (warnings, settings.banner) == ([], "")
    assert parse_slo(slo_flag(slo)) == (slo, "")  # what is printed to be typed again is not doubted either


def test_objectives_of_the_file_with_units(tmp_path: Path) -> None:
    text = '[[slo]]\nttft_seconds = "300ms"\ntpot_seconds = "0.04"\ntarget = 0.99\n'
    settings, warnings = _settings(tmp_path, text)
    assert settings.slo_for(None) == Slo(0.3, 0.04, 0.99, "config")
    assert (warnings, settings.banner) == ([], "")


def test_milliseconds_taken_for_seconds_are_doubted_once_and_counted_as_contracted(tmp_path: Path) -> None:
    text = "[[slo]]\nttft_seconds = 0.3\n[[slo]]\nmodel = 'b'\nttft_seconds = 300\ntpot_seconds = 40\n"
    settings, warnings = _settings(tmp_path, text)
    assert [line.partition("fleet.toml: ")[2] for line in warnings] == [
        'slo.1.ttft_seconds: 300 means 300 seconds; write "300ms" for milliseconds, or "300s" if meant',
        'slo.1.tpot_seconds: 40 means 40 seconds; write "40ms" for milliseconds, or "40s" if meant',
    ]
    assert settings.banner == "SLO IN SECONDS, NOT MS?"
    settings, warnings = _settings(tmp_path, text, "--slo", "ttft=300")
    assert settings.slo_for("b") == Slo(300.0, 0.1, 0.95, "flag")
    assert warnings == ["--slo ttft=300 means 300 seconds; write 300ms for milliseconds, or 300s if meant"]
    assert settings.banner == "SLO IN SECONDS, NOT MS?"
    settings, warnings = _settings(tmp_path, text, "--slo", "ttft=0.3")  # which takes the place of the file's
    assert (warnings, settings.banner) == ([], "")


def test_a_target_named_on_the_command_line_keeps_its_configured_key(tmp_path: Path) -> None:
    settings, _ = _settings(tmp_path, FULL, "https://10.0.0.1:8000/metrics")
    assert settings.credentials["https://10.0.0.1:8000"].api_key_env == "VLLM_API_KEY"


def test_the_control_table_and_where_the_knobs_are(tmp_path: Path) -> None:
    text = """
[[targets]]
url = "http://10.0.0.1:8000/metrics"
control_url = "unix:/run/knobs.sock"
control_token_file = "/etc/token"
[control]
blocks = 12
block_seconds = 30
alpha = 0.1
"""
    settings, warnings = _settings(tmp_path, text)
    assert settings.control == ControlSettings(blocks=12, block_seconds=30.0, alpha=0.1)
    assert settings.knob_paths == {"http://10.0.0.1:8000": KnobPath("unix:/run/knobs.sock", "/etc/token")}
    assert warnings == []


@pytest.mark.parametrize("key", ["sk-hunter2", "hunter2.abc", "hunter 2"])
def test_a_key_in_the_place_of_its_variable_is_refused_and_not_repeated(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _settings(tmp_path, f'[[targets]]\nurl = "r1:8000"\napi_key_env = "{key}"\n')
    assert "targets.0.api_key_env: no name of a variable" in str(caught.value)
    assert key not in str(caught.value)


def test_two_sources_of_one_key_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"targets\.0: api_key_env and api_key_file exclude each other"):
        _settings(tmp_path, '[[targets]]\nurl = "r1:8000"\napi_key_env = "A"\napi_key_file = "b"\n')


def test_a_bad_address_in_the_config_file_is_named_with_file_and_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"fleet\.toml: targets\.1\.url: target 'ftp://r2'"):
        _settings(tmp_path, '[[targets]]\nurl = "r1:8000"\n[[targets]]\nurl = "ftp://r2"\n')


def test_a_user_without_a_home_has_no_config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    assert [target.url for target in _settings(tmp_path, None, "r1:8000")[0].targets] == ["http://r1:8000"]


def test_without_a_home_nothing_is_kept_where_a_command_happens_to_be_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert state_folder() == Path("/nonexistent/.local/state/enginetop")
    monkeypatch.setattr("enginetop.cli.settings.NO_HOME", Path("/dev/null"))  # root may make any folder
    assert main(["silence", "add", "--all", "--for", "1h"]) == 2
    assert "nothing was changed; make it writable, or set XDG_STATE_HOME" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("written", "accepted"),
    [
        ("true", {"a1", "b2", "http://r2:8000"}),
        ("false", set()),
        ("[]", set()),
        ('["a1"]', {"a1"}),
        ('["r2:8000"]', {"http://r2:8000"}),
        ('["http://r2:8000/"]', {"http://r2:8000"}),
        ('["not a target at all", "b2"]', {"b2"}),
    ],
)
def test_who_is_changed_though_it_is_open(tmp_path: Path, written: str, accepted: set[str]) -> None:
    control = _settings(tmp_path, f"[control]\naccept_open_admin = {written}")[0].control
    assert control is not None
    targets = {"a1": Target("http://r1:8000", "a1"), "b2": Target("http://r3:8000", "b2")}
    targets["http://r2:8000"] = Target("http://r2:8000", "r2:8000")
    assert {name for name, target in targets.items() if control.accepts_open(target)} == accepted


def test_without_a_control_table_nothing_may_be_written(tmp_path: Path) -> None:
    assert _settings(tmp_path, FULL)[0].control is None
    assert _settings(tmp_path, None, "r1:8000")[0].control is None
    assert _settings(tmp_path, "[control]")[0].control == ControlSettings()


def test_one_address_twice_is_told_and_read_once(tmp_path: Path) -> None:
    text = (
        '[[targets]]\nurl = "r1:8000"\nname = "x"\n[[targets]]\nurl = "http://r1:8000/metrics"\nname = "y"\n'
    )
    settings, warnings = _settings(tmp_path, text)
    assert [target.name for target in settings.targets] == ["x"]
    said = "targets.1: http://r1:8000 is targets.0 too, and read once; keep one of them"
    assert warnings == [f"{tmp_path / 'fleet.toml'}: {said}"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("interval_second = 2", ["interval_second is an unknown key", "did you mean 'interval_seconds'"]),
        ("[[targets]]\nurl = 'http://a:1'\napi_key = 'x'", ["targets.0.api_key", "api_key_env"]),
        ("[[targets]]\nname = 'a'", ["targets.0.url"]),
        ("interval_seconds = 'soon'", ["interval_seconds:"]),
        ("interval_seconds = 0", ["interval_seconds:"]),
        ("[[slo]]\ntarget = 1.5", ["slo.0.target"]),
        ('[[slo]]\nttft_seconds = "soon"', ["slo.0.ttft_seconds: 'soon' is no time", "0.3", "300ms"]),
        ('[[slo]]\ntpot_seconds = "0s"', ["slo.0.tpot_seconds: '0s' is no time"]),
        ("[[slo]]\nttft_seconds = true", ["slo.0.ttft_seconds"]),
        ("interval_seconds = true", ["interval_seconds: write a number, not true or false"]),
        ("[control]\nblocks = false", ["control.blocks: write a number, not true or false"]),
        ("[control]\nblocks = 30.5", ["control.blocks: write a whole number"]),
        ("[[alerts]]\nrule = 'TargetDown'\nfor_seconds = '30x'", ["alerts.0.for_seconds: write a number"]),
        ('targets = "http://a:1"', ["targets: write it with two brackets, [[targets]], once for each"]),
        (
            "[targets]\nurl = 'http://a:1'",
            ["targets: write it with two brackets, [[targets]], once for each"],
        ),
        ("[[targets]]\nurl = 5", ['targets.0.url: write text, in quotes ("...")']),
        ("control = 1", ["control: write a table, [control]"]),
        ("[screen]\ncolumns = 'run'", ['screen.columns: write a list, ["...", "..."]']),
        ("[[silences]]\nuntil = 'tomorrow'", ["silences.0.until: write a time with its offset, as in 2026-"]),
        ("[[silences]]\nuntil = 2027-01-01T00:00:00", ["silences.0.until: write a time with its offset"]),
        ("[[targets]]\nurl = 'a:1'\ninsecure_skip_verify = 'maybe'", ["write true or false"]),
        (
            "[[targets]]\nurl = 'a:1'\n[targets.restart]\nengine = 'vllm'\nfile = '/x'\nhook = 'nope'",
            ["fleet.toml: the hook 'nope' is not there"],
        ),
        ("interval_seconds = ", ["not valid TOML"]),
        ("[control]\nwarmup = 1", ["control.warmup", "did you mean 'warmup_seconds'"]),
        ("[control]\nalpha = 0.9", ["control.alpha"]),
        ('[control]\naccept_open_admin = "true"', ["control.accept_open_admin", "true, or a list of names"]),
        ("[control]\naccept_open_admin = [1]", ["control.accept_open_admin", "true, or a list of names"]),
        ("[[targets]]\nurl = 'nonsense'", ["nonsense", "host:port"]),
        ("[[targets]]\nurl = 'http://a:1'\nname = 'x'\n[[targets]]\nurl = 'http://b:1'\nname = 'x'", ["'x'"]),
    ],
)
def test_a_bad_config_file_is_named_with_key_and_fix(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        _settings(tmp_path, text)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'fleet.toml'}: ")
    assert "\n" not in message
    assert not re.search(r"tuple|parse string|NoneType|: :", message)  # the words of our own machinery
    assert all(word in message for word in words)


def test_a_missing_config_file_that_was_named_is_an_error(tmp_path: Path) -> None:
    _, args = parse(["snapshot", "--config", str(tmp_path / "none.toml")])
    with pytest.raises(ConfigError, match=r"none\.toml"):
        resolve(args, lambda _: None)


@pytest.mark.parametrize(
    "argv",
    [
        ["snapshot", "--slo", "ttft=fast"],
        ["snapshot", "--slo", "latency=1"],
        ["snapshot", "--slo", "target=1"],
        ["snapshot", "--slo", "ttft=-1"],
        ["snapshot", "--slo", "ttft=nan"],
        ["snapshot", "--slo", "ttft=300 ms"],
        ["snapshot", "--slo", "target=0.9s"],
        ["snapshot", "--slo", "tpot=1,itl=1"],
        ["snapshot", "--slo", ""],
        ["snapshot", "--interval", "0"],
        ["snapshot", "--interval", "inf"],
        ["snapshot", "--samples", "0"],
        ["snapshot", "--format", "yaml"],
        ["--no-such-flag"],
        ["record", "r1:8000"],
    ],
)
def test_usage_errors_are_one_line_and_exit_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(argv)
    assert caught.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1


def test_the_price_of_a_gpu_hour(tmp_path: Path) -> None:
    settings, _ = _settings(tmp_path, '[cost]\nper_gpu_hour = 2.5\ncurrency = "EUR"\n')
    assert settings.price == Price(2.5, "EUR")
    assert _settings(tmp_path, "", "r1:8000")[0].price is None
