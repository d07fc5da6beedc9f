"""`enginetop config`: a file to start from, everything that is wrong with one, and what one comes to."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import tomllib
from contextlib import nullcontext
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.cli.config_starter import STARTER
from enginetop.cli.config_text import toml_text
from enginetop.cli.main import main
from enginetop.cli.parser import parse
from enginetop.cli.resolve import resolve
from enginetop.cli.settings import Settings
from enginetop.fleet.config import Config, parse_config
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.strict_tables import filled_in, table_problems

USED = re.sub(r"^#(?=\S)", "", STARTER, flags=re.M)
"""The starter file with all its examples in use."""
WIDE = """
timeout_seconds = 1
[[targets]]
url = "ssh://ops@gpu/127.0.0.1:8000"
[[targets]]
url = "b:8000"
name = "Zürich \\"b\\""
username = "u"
password_env = "PASSWORD"
restart = { file = "/etc/engine.yaml", hook = "again", engine = "vllm" }
[[slo]]
ttft_seconds = "300s"
[[slo]]
ttft_seconds = 300
[[silences]]
until = 2027-01-02T03:04:05+01:00
[[records]]
path = "-"
from = "start"
[[alerts]]
rule = "TargetDown"
for_seconds = 5
[control]
[screen]
columns = ["run", "kv"]
[keys]
quit = "Q"
[hooks.again]
command = ["/bin/true", "-x"]
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the config file; nothing is there."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "conf"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "conf" / "enginetop"


def _run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, list[str]]:
    code = main(["config", *argv])
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert all(line.startswith("enginetop: ") for line in lines)
    return code, out, [line.removeprefix("enginetop: ") for line in lines]


def _settings(path: Path) -> Settings:
    return resolve(parse(["watch", "--config", str(path)])[1], lambda _: None)


# init


def test_init_writes_a_private_valid_file_and_says_where(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(capsys, "init") == (0, f"{home / 'config.toml'}\n", [])
    assert stat.S_IMODE((home / "config.toml").stat().st_mode) == 0o600
    assert [one.name for one in home.iterdir()] == ["config.toml"]
    assert tomllib.loads((home / "config.toml").read_text()) == {
        "interval_seconds": 2.0,
        "window_seconds": 60.0,
    }
    words = "ok, 0 targets, read-only: no [control] table\n"
    assert _run(capsys, "validate") == (0, f"{home / 'config.toml'}: {words}", [])


def test_its_examples_are_valid_and_show_every_key_of_the_top(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = tomllib.loads(USED)
    assert {*tables} == {one.name for one in fields(Config)}
    Path("used.toml").write_text(USED)
    code, out, said = _run(capsys, "validate", "--config", "used.toml")
    assert (code, out) == (0, "used.toml: ok, 1 target, changes allowed\n")
    assert len(said) == 1  # a Prometheus and exporters together are a doubt
    assert said[0].startswith("warning: used.toml: [[gpu_exporters]] are not asked")
    assert parse_config(tomllib.loads(STARTER), "x") == Config()  # as it is, it changes nothing


def test_what_is_there_stays_unless_it_is_forced(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for there in (Path("mine.toml"), Path("link.toml"), Path("folder")):
        if there.name == "mine.toml":
            there.write_text("interval_seconds = 7\n")
        elif there.name == "link.toml":
            there.symlink_to("mine.toml")
        else:
            there.mkdir()
        code, out, said = _run(capsys, "init", "--config", str(there))
        assert (code, out, said) == (2, "", [f"{there}: it is there already; --force overwrites it"])
    assert Path("mine.toml").read_text() == "interval_seconds = 7\n"
    assert _run(capsys, "init", "--force", "--config", "link.toml") == (0, "link.toml\n", [])
    assert Path("link.toml").is_symlink()
    assert Path("mine.toml").read_text() == STARTER
    assert stat.S_IMODE(Path("mine.toml").stat().st_mode) == 0o600


def test_a_link_that_leads_nowhere_is_something_too(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("link.toml").symlink_to("nowhere.toml")
    assert _run(capsys, "init", "--config", "link.toml")[0] == 2
    assert not Path("nowhere.toml").exists()
    assert _run(capsys, "init", "--force", "--config", "link.toml")[0] == 0
    assert Path("nowhere.toml").read_text() == STARTER


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("/proc/none/config.toml", "no such file or directory"),
        ("/dev/null/config.toml", "/dev/null is no folder"),
        ("n" * 256, "file name too long"),
        ("/", "is a directory"),
    ],
)
def test_a_place_that_takes_no_file(
    place: str, why: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, (said,) = _run(capsys, "init", "--force", "--config", place)
    assert (code, out) == (2, "")
    assert said.endswith(f"{why}; name another file with --config")
    assert [*Path().iterdir()] == []


def test_a_folder_that_may_not_be_written(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever runs the tests may write everywhere: the refusal is the system's own, made here."""

    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "open", refuse)
    code, out, said = _run(capsys, "init", "--config", "x/c.toml")
    assert (code, out) == (2, "")
    assert said == ["x/c.toml: permission denied; name another file with --config"]
    Path("x/c.toml").write_text("")
    assert _run(capsys, "init", "--config", "x/c.toml")[2] == [
        "x/c.toml: it is there already; --force overwrites it"
    ]


def test_a_disk_that_is_full_leaves_nothing(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    Path("mine.toml").write_text("interval_seconds = 7\n")
    monkeypatch.setattr(os, "fsync", full)
    for name in ("mine.toml", "new.toml"):
        code, _, (said,) = _run(capsys, "init", "--force", "--config", name)
        assert (code, said) == (2, f"{name}: no space left on device; name another file with --config")
    assert [one.name for one in Path().iterdir()] == ["mine.toml"]
    assert Path("mine.toml").read_text() == "interval_seconds = 7\n"


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_file_system_without_links(
    code: int, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "hardlink_to", no_links)
    assert _run(capsys, "init", "--config", "c.toml") == (0, "c.toml\n", [])
    assert [one.name for one in Path().iterdir()] == ["c.toml"]
    assert _run(capsys, "init", "--config", "c.toml")[0] == 2


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_came_in_between_stays(
    links: bool, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    if not links:
        monkeypatch.setattr(Path, "hardlink_to", no_links)
    monkeypatch.setattr(os, "fsync", lambda _: Path("c.toml").write_text("# another's\n"))
    assert _run(capsys, "init", "--config", "c.toml")[0] == 2
    assert [one.name for one in Path().iterdir()] == ["c.toml"]
    assert Path("c.toml").read_text() == "# another's\n"


def test_a_user_without_a_home_names_a_file(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    code, _, (said,) = _run(capsys, "init")
    assert (code, said) == (2, "no home folder is known; name a file with --config, or set XDG_CONFIG_HOME")
    assert [*Path().iterdir()] == []
    assert _run(capsys, "init", "--config", "-") == (0, STARTER, [])


# validate


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "interval_second = 1\nwindow_seconds = 0\n[control]\nblocks = 0.5\n[[targets]]\nname = 'a'",
            ["interval_second is an", "window_seconds: ", "targets.0.url: ", "control.blocks: write a whole"],
        ),
        ("[keys]\nquit = 5\nhelp = 'x'", ['keys.quit: write text, in quotes ("...")']),
        (
            (
                "[[targets]]\nurl = 'ftp://a'\n[[targets]]\nurl = 'b:1'\n[[targets]]\nurl = 'c'\n"
                "[[alerts]]\nrule = 'X'"
            ),
            ["targets.0.url: target 'ftp://a'", "targets.2.url: target 'c'", "alerts.0.rule: 'X' is no"],
        ),
        (
            (
                "[[targets]]\nurl = 'a:1'\nname = 'x'\n[[targets]]\nurl = 'b:1'\nname = 'x'\n"
                "[watch]\nlisten = '0.0.0.0:1'"
            ),
            ["targets: two targets are named 'x'", "watch.listen: other machines reach"],
        ),
        (
            (
                "[[alerts]]\nrule = 'X'\n[[alerts]]\nrule = 'TargetDown'\n"
                "[[alerts]]\nrule = 'Y'\nwhen = 'no > 1'\n"
                "[[alerts]]\nrule = 'NoProgress'\nsummary = 'z'"
            ),
            ["alerts.0.rule: ", "alerts.2.when: ", "alerts.3.summary: "],
        ),
        (
            (
                "[[sinks]]\nkind = 'alertmanager'\nurl = 'x'\n"
                "[[sinks]]\nkind = 'file'\npath = 'a'\nname = 'f'\n"
                "[[sinks]]\nkind = 'file'\npath = 'b'\nname = 'f'"
            ),
            ["sinks.0.url: not an address", "sinks.2.name: another sink is named 'f'"],
        ),
        (
            "[[gpu_exporters]]\nurl = 'x'\n[[gpu_exporters]]\nurl = 'y'",
            ["gpu_exporters.0.url: ", "gpu_exporters.1.url: "],
        ),
        (
            (
                "[[targets]]\nurl = 'a:1'\n[[records]]\npath = 'a'\ntarget = 'b'\n[[records]]\npath = 'a'\n"
                "[[records]]\npath = 'a'\ntarget = 'c'"
            ),
            ["records.0: 'b' is no target", "records.2: 'c' is no target"],
        ),
        (
            "[[discovery]]\nkind = 'dns'\nname = 'x'\n[[discovery]]\nkind = 'dns'\nname = 'y'",
            ["dns 'x': ", "dns 'y': "],
        ),
        (
            "[prometheus]\nurl = 'ftp://x'\n[[alerts]]\nrule = 'X'\n[screen]\ncolumns = ['no']",
            ["prometheus.url: no address; write http(s)://", "alerts.0.rule: ", "screen.columns: "],
        ),
        (
            "[screen]\ncolumns = ['no']\ntheme = 'none-such'\n[keys]\nnone-such = 'x'",
            ["keys.none-such: no such action", "screen.columns: no column is called 'no'", "none-such"],
        ),
        ("[[targets]]\nurl = 'a:1'\n[targets.restart]\nfile = 'x'", ["targets.0.restart: a file needs hook"]),
        ("[[gateways]]\nname = 'g'\nhook = 'h'\ntargets = ['a']", ["the hook 'h' is not there; write"]),
        ("interval_seconds = ", ["not valid TOML: "]),
        ('"\\u001b[31m" = 1', ["'\\x1b[31m' is an unknown key"]),
    ],
)
def test_every_finding_is_a_line_with_file_and_key(
    text: str, said: list[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("c.toml").write_text(text)
    code, out, found = _run(capsys, "validate", "--config", "c.toml")
    assert (code, out) == (2, "")
    assert len(found) == len(said), found
    for words in said:
        assert any(words in line for line in found), (words, found)
    if "theme" not in text:
        assert all(line.startswith("c.toml: ") for line in found)
    assert _run(capsys, "print", "--config", "c.toml") == (2, "", found)


def test_files_that_cannot_be_read(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("folder").mkdir()
    Path("bytes.toml").write_bytes(b"\xff\xfe")
    for name, why in (("none", "No such file"), ("folder", "Is a directory"), ("bytes.toml", "not UTF-8")):
        for act in ("validate", "print"):
            code, out, (said,) = _run(capsys, act, "--config", name)
            assert (code, out) == (2, "")
            assert said.startswith(f"{name}: {why}")
    code, out, said_of_none = _run(capsys, "validate")
    assert (code, out) == (2, "")
    assert said_of_none == [f"{home / 'config.toml'}: no such file; enginetop config init writes one"]


def test_doubts_are_told_and_are_no_fault(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("c.toml").write_text("[control]\n[[slo]]\nttft_seconds = 300\n")
    doubt = 'slo.0.ttft_seconds: 300 means 300 seconds; write "300ms" for milliseconds, or "300s" if meant'
    code, out, said = _run(capsys, "validate", "--config", "c.toml")
    assert (code, out) == (0, "c.toml: ok, 0 targets, changes allowed\n")
    assert said == [f"warning: c.toml: {doubt}"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["validate", "--force"], "config validate: --force goes with init"),
        (["init", "--format", "json"], "config init: --format goes with print"),
    ],
)
def test_options_of_another_act(
    words: list[str], said: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(capsys, *words) == (2, "", [said])


# print


def test_defaults_are_printed_where_there_is_no_file(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, said = _run(capsys, "print")
    assert (code, said) == (0, [])
    assert out.startswith(f"# no file at {home / 'config.toml'}: defaults\n")
    assert tomllib.loads(out) == {
        "interval_seconds": 2.0,
        "timeout_seconds": 1.8,
        "window_seconds": 60.0,
        "watch": {"listen_any_address": False},
        "screen": {"ascii": False},
    }


@pytest.mark.parametrize(
    "text", ["", "interval_seconds = 60", USED, WIDE], ids=["none", "slow", "all", "wide"]
)
def test_what_is_printed_reads_back_as_the_same_settings(
    text: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path("c.toml")
    path.write_text(text)
    before = _settings(path)
    code, out, _ = _run(capsys, "print", "--config", "c.toml")
    _, document, _ = _run(capsys, "print", "--config", "c.toml", "--format", "json")
    path.write_text(out)
    assert code == 0
    assert _settings(path) == before
    assert _run(capsys, "print", "--config", "c.toml")[1] == out
    assert json.loads(document) == json.loads(json.dumps(tomllib.loads(out), default=datetime.isoformat))


@pytest.mark.parametrize("act", ["validate", "print"])
def test_a_pipe_is_read_once(act: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As of `--config <(...)`."""
    reading, writing = os.pipe()
    os.write(writing, b"interval_seconds = 7\n[control]\nblocks = 31\n")
    os.close(writing)
    code, out, said = _run(capsys, act, "--config", f"/dev/fd/{reading}")
    os.close(reading)
    assert (code, said) == (0, [])
    assert ("changes allowed" if act == "validate" else "blocks = 31\n") in out


def test_nothing_of_a_secret_is_printed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("c.toml").write_text(
        "[[targets]]\nurl = 'https://a:1'\napi_key_file = '/run/secrets/token'\n"
        "control_url = 'http://u:hunter2@h:1/x?key=hunter2'\n"
        "[[silences]]\nuntil = 2027-01-01T00:00:00Z\nreason = 'token=hunter2hunter2'\n"
        "[hooks.up]\ncommand = ['/bin/x', '--api-key', 'hunter2', '--token=hunter2']\n"
        "[[discovery]]\nkind = 'file_sd'\npath = 'http://u:hunter2@h/x'\n"
    )
    for form in ("toml", "json"):
        code, out, _ = _run(capsys, "print", "--config", "c.toml", "--format", form)
        assert code == 0
        assert "hunter2" not in out
        told = tomllib.loads(out) if form == "toml" else json.loads(out)
        (target,) = told["targets"]
        assert (target["api_key_file"], target["url"]) == ("/run/secrets/token", "https://a:1")
        assert told["hooks"]["up"]["command"] == ["/bin/x", "--api-key", "…", "--token=…"]


def test_a_reader_that_went_away_is_no_fault(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (["print"], ["init", "--config", "-"]):
        reading, writing = os.pipe()
        os.close(reading)
        with os.fdopen(writing, "w") as gone:
            monkeypatch.setattr("sys.stdout", gone)
            assert main(["config", *words]) == 0


_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_plain = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | _texts
    | st.datetimes(datetime(1970, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - a bound has no zone
)
_documents = st.recursive(
    st.dictionaries(_texts, _plain | st.lists(_plain, max_size=3), max_size=3),
    lambda inner: st.dictionaries(_texts, _plain | inner | st.lists(inner, max_size=3), max_size=3),
    max_leaves=6,
)


@given(_documents, st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_document_is_written_as_an_independent_reader_reads_it(
    document: dict[str, Any], ascii_only: bool
) -> None:
    text = toml_text(document, ascii_only=ascii_only)
    assert tomllib.loads(text) == document
    assert all(sign.isprintable() or sign == "\n" for sign in text)
    assert text.isascii() or not ascii_only


_below = ("url", "name", "rule", "kind", "target", "hook", "restart", "file", "no-such")
_keys = st.sampled_from([*filled_in(Config, tomllib.loads(USED)), *_below])
_odd = st.recursive(
    _plain,
    lambda inner: st.dictionaries(_keys, inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=8,
)


@given(st.dictionaries(_keys, _odd, max_size=4))
@settings(max_examples=60, deadline=None)
def test_whatever_a_file_says_the_first_problem_is_among_all(data: dict[str, Any]) -> None:
    problems = table_problems(Config, data, "c.toml")
    with pytest.raises(ConfigError) if problems else nullcontext() as caught:
        parse_config(data, "c.toml")
    if caught is not None:
        assert str(caught.value) == problems[0]
    assert len({*problems}) == len(problems)
    assert all(line.startswith("c.toml: ") and line.isprintable() for line in problems)


_names = _texts.filter(lambda name: name.isprintable())
_configs = st.fixed_dictionaries(
    {},
    optional={
        "interval_seconds": st.floats(0.1, 3600),
        "targets": st.lists(
            st.fixed_dictionaries(
                {"url": st.just("a:1")}, optional={"name": _names, "insecure_skip_verify": st.booleans()}
            ),
            max_size=2,
        ),
        "slo": st.lists(
            st.fixed_dictionaries(
                {}, optional={"model": _names, "ttft_seconds": st.just("300ms") | st.just(4)}
            ),
            max_size=2,
        ),
        "control": st.fixed_dictionaries(
            {}, optional={"blocks": st.integers(2, 9), "accept_open_admin": st.booleans() | st.lists(_names)}
        ),
        "keys": st.dictionaries(_names, _names | st.lists(_names, max_size=2), max_size=2),
        "hooks": st.dictionaries(_names, st.just({"command": ["x"]}), max_size=2),
        "records": st.lists(
            st.fixed_dictionaries({"path": st.just("-")}, optional={"from": st.just("end")}), max_size=2
        ),
    },
)


@given(_configs)
@settings(max_examples=40, deadline=None)
def test_a_file_with_its_defaults_is_the_same_config(data: dict[str, Any]) -> None:
    told = filled_in(Config, data)
    assert parse_config(tomllib.loads(toml_text(told)), "x") == parse_config(data, "x")
    assert told["window_seconds"] == 60.0
