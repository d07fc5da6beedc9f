"""The runbook: a section for every built-in rule, three looks that exist, told with every alert."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from enginetop.alerts.book import AlertEvent
from enginetop.alerts.builtin import BUILTIN_NAMES
from enginetop.alerts.runbook import runbook_command
from enginetop.alerts.sinks.notice import Notice
from enginetop.alerts.sinks.wire import alertmanager_alert, plain_body
from enginetop.cli.main import main
from enginetop.cli.runbook import sections, text
from enginetop.cli.watch_lines import NdjsonLines
from enginetop.fleet.snapshot import Alert
from tui.actions import ACTIONS
from tui.key_names import written

ROOT = Path(__file__).parents[2]
KEYS = {written(key) for action in ACTIONS for key in action.keys}


def looks(section: str) -> list[str]:
    return re.findall(r"^\d\. ((?:.|\n(?!\d\. |\n))*)", section, re.M)


def test_every_built_in_rule_has_a_section_in_order() -> None:
    assert list(sections()) == list(BUILTIN_NAMES)


def test_the_document_is_what_the_program_prints() -> None:
    assert (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8") == text(), "run: make docs"


@pytest.mark.parametrize("rule", BUILTIN_NAMES)
def test_a_section_says_what_it_means_where_to_look_and_what_to_do(rule: str) -> None:
    section = sections()[rule]
    assert re.findall(r"^\*\*(\w+)\.\*\*", section, re.M) == ["Means", "Do"]
    assert len(looks(section)) == 3
    assert section.index("**Means.**") < section.index("1. ") < section.index("**Do.**")


@pytest.mark.parametrize("rule", BUILTIN_NAMES)
def test_a_look_is_a_key_a_command_or_a_log(rule: str) -> None:
    for look in looks(sections()[rule]):
        codes = re.findall(r"`([^`]+)`", look)
        short = {code for code in codes if len(code) == 1}
        assert short <= KEYS, (rule, short - KEYS)
        assert codes or "log" in look or "BMC" in look or "router" in look, look


def test_rules_that_a_section_names_exist() -> None:
    named = set(re.findall(r"`((?:[A-Z][a-z]+){2,})`", text())) | set(
        re.findall(r"(?:see|as|as for) ([A-Z][a-z]+[A-Z]\w+)", text())
    )
    assert len(named) > 5
    assert named <= set(BUILTIN_NAMES)


@pytest.mark.parametrize("rule", BUILTIN_NAMES)
def test_the_command_prints_the_section(rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = runbook_command(rule)
    assert command is not None
    assert main(command.split()[1:]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert " ".join(sections()[rule].replace("**", "").split()) in printed
    assert printed.startswith(f"{rule}, ")


def test_a_listing_and_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runbook"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(BUILTIN_NAMES)
    assert main(["runbook", "kvpresure"]) == 2
    assert "did you mean KvPressure?" in capsys.readouterr().err


def test_every_alert_that_is_told_names_its_section() -> None:
    alert = Alert("KvPressure", "warning", "firing", "http://r1:8000", 100.0, 0.97, 0.95, "KV at 97 %", {})
    own = Alert("MyKv", "warning", "firing", "http://r1:8000", 100.0, None, None, "mine", {})
    told = json.loads(NdjsonLines().alert(AlertEvent(160.0, alert), {}))
    assert told["runbook"] == "enginetop runbook KvPressure"
    assert plain_body(Notice(1, 160.0, alert))["runbook"] == "enginetop runbook KvPressure"
    annotations = alertmanager_alert(Notice(1, 160.0, alert), 160.0)["annotations"]
    assert annotations["runbook"] == "enginetop runbook KvPressure"
    assert plain_body(Notice(1, 160.0, own))["runbook"] is None
    assert "runbook" not in alertmanager_alert(Notice(1, 160.0, own), 160.0)["annotations"]
