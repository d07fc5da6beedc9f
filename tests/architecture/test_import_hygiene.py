"""What a command must not import, seen from a fresh interpreter (the static rules are import-linter's)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

_PROBE = """
import json, sys
from enginetop.cli.main import main
found, before = {{}}, set()
for name, argv in {commands!r}.items():
    try:
        main(argv)
    except SystemExit:
        pass
    found[name] = sorted(set(sys.modules) - before)
    before = set(sys.modules)
print("\\nLOADED", json.dumps(found))
"""


def _loaded_by(commands: Mapping[str, list[str]], cwd: Path) -> dict[str, list[str]]:
    """What each command imports that none before it did: all run in one fresh interpreter."""
    ran = subprocess.run(
        [sys.executable, "-c", _PROBE.format(commands=dict(commands))],
        capture_output=True,
        text=True,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        check=True,
    )
    line = next(line for line in ran.stdout.splitlines() if line.startswith("LOADED"))
    loaded: dict[str, list[str]] = json.loads(line.removeprefix("LOADED"))
    return loaded


HEADLESS: dict[str, list[str]] = {
    "help": ["--help"],
    "version": ["--version"],
    "usage error": ["--no-such-flag"],
    "snapshot --help": ["snapshot", "--help"],
    "snapshot of a recording": ["snapshot", "--replay", "two.jsonl"],
    "snapshot of a recording as a table": ["snapshot", "--replay", "two.jsonl", "--format", "table"],
    "snapshot of a refused port": ["snapshot", "127.0.0.1:1", "--samples", "1", "--interval", "0.1"],
    "snapshot of a recording for Prometheus": ["snapshot", "--replay", "two.jsonl", "--format", "prometheus"],
    "snapshot with request records": ["snapshot", "127.0.0.1:1", "--samples", "1", "--records", "two.jsonl"],
    "probe of a refused port": ["probe", "127.0.0.1:1", "--yes"],
    "watch a recording": ["watch", "--replay", "two.jsonl", "--heartbeat", "1"],
    "watch a recording in sentences": ["watch", "--replay", "two.jsonl", "--format", "table"],
    "check a recording": ["check", "--replay", "two.jsonl"],
    "check a refused port": ["check", "127.0.0.1:1", "--interval", "0.1"],
    "ui without a terminal": ["--replay", "two.jsonl"],
    "replay without a terminal": ["replay", "two.jsonl"],
    "record": ["record", "127.0.0.1:1", "-o", "out.jsonl", "--for", "0.2", "--interval", "0.1"],
    "demo list": ["demo", "--list"],
    "demo without a terminal": ["demo", "--interval", "0.2"],
}


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    page = {"target": "http://r1:8000", "path": "/metrics"}
    records = [
        {**page, "t": 100.0, "body": "vllm:num_requests_running 1\n"},
        {**page, "t": 105.0, "body": "vllm:num_requests_running 2\n"},
    ]
    (tmp_path / "two.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return tmp_path


def test_headless_commands_never_import_the_ui(recording: Path) -> None:
    loaded = _loaded_by(HEADLESS, recording)
    assert "enginetop.cli.main" in loaded["help"]
    assert "enginetop.cli.record" in loaded["record"]
    assert list(loaded) == list(HEADLESS)
    of_the_ui = {
        name: [one for one in new if one.partition(".")[0] == "textual"] for name, new in loaded.items()
    }
    assert {name: new for name, new in of_the_ui.items() if new} == {}


def test_help_and_usage_errors_import_nothing_heavy(tmp_path: Path) -> None:
    heavy = {"textual", "rich", "httpx", "pydantic_core", "pynvml", "requests", "asyncio"}
    heavy |= {"prometheus_api_client", "enginetop.fleet.snapshot", "enginetop.alerts.rule"}
    light = (["--help"], ["--version"], ["snapshot", "--help"], ["--no-such-flag"])
    loaded = _loaded_by({" ".join(argv): argv for argv in light}, tmp_path)
    assert "enginetop.cli.main" in loaded["--help"]
    assert {name: heavy.intersection(new) for name, new in loaded.items()} == {name: set() for name in loaded}


def test_the_screen_over_a_plain_fleet_has_no_second_client_in_memory(tmp_path: Path) -> None:
    clients = {"httpx", "requests", "urllib.request", "http.client", "email.parser", "html.entities"}
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            "import enginetop.cli.ui, enginetop.cli.wiring, tui.app, sys; print(*sys.modules)",
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    loaded = set(ran.stdout.split())
    assert "collectors.fast_http" in loaded
    assert not clients & loaded


_WITHOUT_A_SCREEN = """
import sys
import tui.app
from enginetop.cli import output, ui
from enginetop.cli.main import main
ui.has_terminal = lambda: True
def run_app(source, **options):
    print("LOADED", *sys.modules)
    return 0
import tui.run
tui.run.run_app = run_app
main(["192.0.2.1:1"])
"""


def test_what_looks_at_engines_is_loaded_after_the_first_picture(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _WITHOUT_A_SCREEN],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    loaded = set(ran.stdout.split())
    assert "tui.app" in loaded
    looking = (
        "collectors.engines.",
        "collectors.gpu.",
        "collectors.discovery.",
        "collectors.loop",
        "tuners.advice",
    )
    assert not {name for name in loaded if name.startswith((*looking, "enginetop.fleet.fleet_tracker"))}


def test_a_wrongly_heavy_import_would_be_seen(tmp_path: Path) -> None:
    """The probe itself can fail: a command that does import textual is caught, and named."""
    spoilt = _PROBE.replace("main(argv)", "main(argv) if argv else __import__('textual')")
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            spoilt.format(commands={"help": ["--help"], "heavy": [], "version": ["--version"]}),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    loaded = json.loads(ran.stdout.partition("LOADED")[2])
    assert [name for name, new in loaded.items() if "textual" in new] == ["heavy"]
