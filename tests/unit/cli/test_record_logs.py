"""Logs of requests on the command line and in the config file, and what commands make of them."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from collectors.loop import LiveEngine
from collectors.records.reader import RecordReader
from collectors.records.source import RecordLog, RecordSource
from enginetop.cli.live_targets import live_targets
from enginetop.cli.main import main
from enginetop.cli.parser import parse
from enginetop.cli.record_logs import LogSetting, flag_setting, record_reader
from enginetop.cli.resolve import resolve
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.snapshot import FleetSnapshot
from tests.support.faulty_server import FaultyServer, page
from tests.support.small_fleet import (
    FakeFetcher,
    new_feeds,
    target,
    tracker_of,
    vllm_page,
    wait_until,
)
from tests.support.watch_process import WAIT_SECONDS

R1, R2 = target("http://r1:8000"), target("http://r2:8000")
USAGE = {
    "usage": {
        "prompt_tokens": 9,
        "completion_tokens": 100,
        "completion_tokens_details": {"reasoning_tokens": 60},
    }
}


def lines(*documents: object) -> str:
    return "".join(json.dumps(one) + "\n" for one in documents)


@pytest.fixture(autouse=True)
def _no_own_config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "empty"))


@pytest.fixture
def url() -> Iterator[str]:
    """A server of one page of vLLM."""
    with FaultyServer() as server:
        yield server.replica(
            lambda request: page(
                vllm_page() if request.path == "/metrics" else b"", 200 if request.path == "/metrics" else 404
            )
        ).url


def of_config(tmp_path: Path, text: str, *argv: str) -> tuple[LogSetting, ...]:
    file = tmp_path / "fleet.toml"
    file.write_text(text, encoding="utf-8")
    _, args = parse(["watch", "r1:8000", "--config", str(file), *argv])
    return resolve(args, lambda _: None).records


class TestSettings:
    @pytest.mark.parametrize(
        ("text", "path", "named"),
        [
            ("requests.jsonl", "requests.jsonl", None),
            ("requests.jsonl=r1:8000", "requests.jsonl", "r1:8000"),
            ("a=b.jsonl=http://r1:8000", "a=b.jsonl", "http://r1:8000"),
            ("-", "-", None),
            ("-=r1", "-", "r1"),
            ("requests.jsonl=", "requests.jsonl", None),
            ("n" * 256 + "=r1", "n" * 256, "r1"),
        ],
    )
    def test_the_flag(self, text: str, path: str, named: str | None) -> None:
        assert flag_setting(text) == LogSetting("--records", path, target=named)

    def test_a_budget_for_what_the_flags_name(self) -> None:
        _, args = parse(["snapshot", "r1:8000", "--records", "x", "--thinking-budget", "512"])
        assert resolve(args, lambda _: None).records == (
            LogSetting("--records", "x", thinking_token_budget=512),
        )

    def test_a_file_with_an_equals_sign_in_its_name(self, tmp_path: Path) -> None:
        (tmp_path / "day=1.jsonl").touch()
        assert flag_setting(f"{tmp_path}/day=1.jsonl").target is None

    @pytest.mark.parametrize("text", ["", "=r1:8000"])
    def test_no_file_is_named(self, text: str) -> None:
        with pytest.raises(ConfigError, match="no file named; write FILE or FILE=TARGET"):
            flag_setting(text)

    def test_the_config_file_and_the_flag_add_up(self, tmp_path: Path) -> None:
        text = (
            '[[targets]]\nurl = "http://r1:8000"\nname = "a1"\n'
            '[[records]]\npath = "/var/log/sglang"\nformat = "sglang"\ntarget = "a1"\nfrom = "start"\n'
            'thinking_token_budget = 4096\n[[records]]\npath = "~/usage.jsonl"\n'
        )
        origin = f"{tmp_path}/fleet.toml"
        assert of_config(tmp_path, text, "--records", "x.jsonl", "--records", "y.jsonl=r1:8000") == (
            LogSetting("--records", "x.jsonl"),
            LogSetting("--records", "y.jsonl", target="r1:8000"),
            LogSetting(f"{origin}: records.0", "/var/log/sglang", "sglang", R1.url, True, 4096),
            LogSetting(f"{origin}: records.1", str(Path("~/usage.jsonl").expanduser())),
        )

    def test_entries_of_targets_that_a_run_leaves_out_are_left_out(self, tmp_path: Path) -> None:
        text = "".join(
            f'[[targets]]\nurl = "http://r{n}:8000"\nname = "a{n}"\n'
            f'[[records]]\npath = "{n}.jsonl"\ntarget = "{named}"\n'
            for n, named in ((1, "a1"), (2, "http://r2:8000"))
        )
        assert [one.path for one in of_config(tmp_path, text)] == ["1.jsonl"]  # r1:8000 is named
        _, args = parse(["watch", "--config", str(tmp_path / "fleet.toml")])
        assert [one.path for one in resolve(args, lambda _: None).records] == ["1.jsonl", "2.jsonl"]

    def test_an_entry_of_no_target_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"records\.0: 'r1:800' is no target; did you mean 'r1:8000'\?"):
            of_config(tmp_path, '[[records]]\npath = "x"\ntarget = "r1:800"\n')

    @pytest.mark.parametrize("command", [["demo"], ["record", "r1:8000", "-o", "x"], ["probe", "r1:8000"]])
    def test_commands_that_read_no_fleet_follow_no_log(self, tmp_path: Path, command: list[str]) -> None:
        (tmp_path / "fleet.toml").write_text('[[records]]\npath = "x"\ntarget = "a7"\n', encoding="utf-8")
        _, args = parse([*command, "--config", str(tmp_path / "fleet.toml")])
        assert resolve(args, lambda _: None).records == ()

    @pytest.mark.parametrize(
        ("entry", "said"),
        [
            ('path = "x"\nfrm = "end"', "records.0.frm is an unknown key; did you mean 'from'?"),
            (
                'path = "x"\ntarget_url = "r1"',
                "records.0.target_url is an unknown key; did you mean 'target'?",
            ),
            (
                'path = "x"\nbegin = "end"',
                "records.0.begin is an unknown key; known keys: path, format, target, from",
            ),
            ('path = "x"\nformat = "csv"', "records.0.format: input should be 'auto', 'enginetop', 'sglang'"),
            ('path = "x"\nfrom = "middle"', "records.0.from: input should be 'start' or 'end'"),
            ('path = ""', "records.0.path: string should have at least 1 character"),
            ("format = 'auto'", "records.0.path: field required"),
            ('path = "x"\nthinking_token_budget = -1', "records.0.thinking_token_budget: input should be"),
        ],
    )
    def test_what_is_wrong_is_named(self, tmp_path: Path, entry: str, said: str) -> None:
        with pytest.raises(ConfigError) as error:
            of_config(tmp_path, f"[[records]]\n{entry}\n")
        assert f"{tmp_path}/fleet.toml: {said}" in str(error.value)

    def test_a_recording_has_records_of_its_own(self, tmp_path: Path) -> None:
        _, args = parse(["snapshot", "--replay", "x.jsonl", "--records", "y.jsonl"])
        with pytest.raises(ConfigError, match="--replay takes its records from the recording"):
            resolve(args, lambda _: None)
        (tmp_path / "fleet.toml").write_text('[[records]]\npath = "x"\n', encoding="utf-8")
        _, args = parse(["snapshot", "--replay", "x.jsonl", "--config", str(tmp_path / "fleet.toml")])
        assert resolve(args, lambda _: None).records == ()

    @pytest.mark.parametrize("command", ["", "snapshot", "watch", "check", "tune"])
    def test_every_reading_command_takes_the_flag(self, command: str) -> None:
        _, args = parse([*filter(None, [command]), "r1:8000", "--records", "x.jsonl"])
        assert args.records == ["x.jsonl"]


class TestTargets:
    def test_a_wrong_one_is_told_before_anything_is_opened(self) -> None:
        _, args = parse(["watch", "r1:8000", "--records", "x.jsonl=r7:1"])
        with pytest.raises(ConfigError, match="'r7:1' is no target"):
            live_targets(resolve(args, lambda _: None))

    @pytest.mark.parametrize(
        "named", ["http://r1:8000", "r1:8000", "http://r1:8000/metrics", "http://r1:8000/"]
    )
    def test_a_target_is_known_by_url_and_name(self, named: str) -> None:
        assert record_reader([LogSetting("--records", "x", target=named)], [R1, R2], from_start=False)

    def test_one_that_is_none_is_named_with_its_neighbour(self) -> None:
        for named, near in (("r1:8008", "did you mean 'r1:8000'?"), ("nothing", "name a target by its URL")):
            with pytest.raises(ConfigError) as error:
                record_reader(
                    [LogSetting("f.toml: records.0", "x", target=named)], [R1, R2], from_start=False
                )
            assert str(error.value).startswith(f"f.toml: records.0: '{named}' is no target; {near}")

    def test_none_asked_for_is_none(self) -> None:
        assert record_reader((), [R1], from_start=True) is None

    def test_standard_input_is_read_once_and_never_from_a_keyboard(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        twice = [LogSetting("--records", "-"), LogSetting("--records", "-")]
        with pytest.raises(ConfigError, match="can be read once only"):
            record_reader(twice, [R1], from_start=True)
        keyboard = io.StringIO()
        monkeypatch.setattr(keyboard, "isatty", lambda: True)
        for stdin in (keyboard, None):
            monkeypatch.setattr(sys, "stdin", stdin)
            with pytest.raises(ConfigError, match="that is a keyboard; pipe the records in"):
                record_reader(twice[:1], [R1], from_start=True)


class TestCommands:
    def snapshot(self, capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[dict[str, Any], str]:
        assert main(["snapshot", *argv, "--samples", "1", "--interval", "0.5"]) == 0
        printed = capsys.readouterr()
        document: dict[str, Any] = json.loads(printed.out)
        return document, printed.err

    def test_a_snapshot_reads_what_is_there(
        self, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        log = tmp_path / "usage.jsonl"
        log.write_text(lines(USAGE, USAGE) + "{\n" + lines(USAGE)[:-1] + "\n\x00\xff\n", encoding="latin-1")
        document, err = self.snapshot(capsys, url, "--records", str(log))
        signals = document["replicas"][0]["signals"]
        assert signals["reasoning_tokens"]["count"] == 3
        assert signals["reasoning_share_ratio"]["value"] == 0.6
        assert signals["reasoning_tokens"]["note"].startswith("request records of usage.jsonl: 3 counted")
        assert document["collector"]["bad_records"] == 2
        assert err == f"enginetop: {log}: line 3 read: not JSON; such lines are passed over\n"

    def test_what_was_written_before_the_window_does_not_count(
        self, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        log = tmp_path / "usage.jsonl"
        log.write_text(lines(USAGE), encoding="utf-8")
        os.utime(log, (1000, 1000))
        document, _ = self.snapshot(capsys, url, "--records", str(log))
        assert document["replicas"][0]["signals"]["reasoning_tokens"]["count"] is None

    @pytest.mark.parametrize("kind", ["missing", "empty directory"])
    def test_a_log_that_is_not_there_is_one_line_and_the_rest_goes_on(
        self, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
    ) -> None:
        log = tmp_path / "log"
        if kind == "empty directory":
            log.mkdir()
        document, err = self.snapshot(capsys, url, "--records", str(log))
        assert document["replicas"][0]["state"] != "down"
        assert err.startswith(f"enginetop: {log}: no ")
        assert err.count("\n") == 1

    def test_records_through_a_pipe(self, url: str) -> None:
        command = [sys.executable, "-m", "enginetop", "snapshot", url, "--samples", "1", "--records", "-"]
        ran = subprocess.run(
            command,
            input=lines(USAGE, USAGE),
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            check=True,
        )
        signals = json.loads(ran.stdout)["replicas"][0]["signals"]
        assert signals["reasoning_tokens"]["count"] == 2
        assert ran.stderr == ""

    def test_a_wrong_target_is_a_usage_error(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["snapshot", url, "--records", "x.jsonl=r9:1"]) == 2
        assert "'r9:1' is no target" in capsys.readouterr().err


class TestEngine:
    @contextmanager
    def running(self, log: RecordLog, sink: Callable[..., None] | None = None) -> Iterator[LiveEngine]:
        tracker = tracker_of([R1], 0.1)
        engine = LiveEngine(
            [R1],
            tracker=tracker,
            new_feed=new_feeds(),
            new_fetcher=lambda: FakeFetcher({R1.url: vllm_page()}),
            interval_seconds=0.1,
            records=(RecordReader([RecordSource(log)]), sink or tracker.observe_claimed),
        )
        engine.start()
        try:
            yield engine
        finally:
            engine.stop()
        assert "enginetop-records" not in {thread.name for thread in threading.enumerate()}

    def test_what_is_written_while_it_runs_is_seen(self, tmp_path: Path) -> None:
        log = tmp_path / "usage.jsonl"
        with self.running(RecordLog(str(log))) as engine:
            wait_until(engine, lambda seen: "no such file yet" in seen.collector.record_problem)
            log.write_text(lines(USAGE), encoding="utf-8")

            def counted(seen: FleetSnapshot) -> bool:
                return seen.replicas[0].distribution("reasoning_tokens").count == 1

            assert wait_until(engine, counted).collector.record_problem == ""
            with log.open("a", encoding="utf-8") as file:
                file.write("garbage\nmore\n")
            snapshot = wait_until(engine, lambda seen: seen.collector.bad_records == 2)
            assert (
                snapshot.collector.record_problem
                == f"{log}: line 2 read: not JSON; such lines are passed over"
            )
            assert counted(snapshot)

    def test_a_sink_that_breaks_is_a_line_and_the_engine_goes_on(self, tmp_path: Path) -> None:
        log = tmp_path / "usage.jsonl"
        log.write_text(lines(USAGE), encoding="utf-8")

        def broken(_: object) -> None:
            raise ZeroDivisionError("sink")

        with self.running(RecordLog(str(log), from_start=True), broken) as engine:
            seen = wait_until(engine, lambda seen: "ZeroDivisionError: sink" in seen.collector.problem)
            wait_until(engine, lambda later: later.sequence > seen.sequence + 2)
