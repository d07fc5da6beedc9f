"""The plan file: what it holds, and everything that is refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from enginetop.fleet.plan import PlanError, parse_plan, parse_plan_text, plan_document, plan_text
from enginetop.fleet.snapshot import Advice
from tests.support.virtual_fleet import KNOB, VERSION, plan_for, three
from tuners.control.planning import NoPlanError, plan_from_advice
from tuners.control.store import read_plan

TOP = {"schema", "id", "created", "expires", "tool_version", "evidence_hash", "scope", "changes"}


def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(plan_text(plan_for(three())))
    return found


def test_the_keys_of_the_contract_and_the_rollback_beside_each_change() -> None:
    found = document()
    assert set(found) == TOP
    assert found["schema"] == "enginetop.plan/1"
    assert [row["target"] for row in found["changes"]] == [
        "http://r1:8000",
        "http://r2:8000",
        "http://r3:8000",
    ]
    assert found["changes"][0] == {
        "target": "http://r1:8000",
        "instance": "i-1:8000",
        "knob": "max_num_batched_tokens",
        "from": 2048,
        "to": 512,
        "via": "knob_api",
        "rollback": {"from": 512, "to": 2048},
    }


def test_a_plan_survives_its_file(tmp_path: Path) -> None:
    plan = plan_for(three())
    file = tmp_path / "plan.json"
    file.write_text(plan_text(plan), encoding="utf-8")
    assert read_plan(file) == plan


def _without(key: str) -> Callable[[dict[str, Any]], object]:
    return lambda plan: plan.pop(key)


def _set(path: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(plan: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        place: Any = plan
        for part in parents:
            place = place[int(part)] if part.isdigit() else place[part]
        place[int(last) if last.isdigit() else last] = value

    return change


BAD: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    **{f"no {key}": (_without(key), key) for key in sorted(TOP)},
    "other schema": (_set("schema", "enginetop.plan/2"), "schema"),
    "a command": (_set("command", "rm -rf /"), "unknown key 'command'"),
    "a command in a change": (_set("changes.0.exec", "x"), "unknown key 'exec'"),
    "a url in the scope": (_set("scope.hook", "http://x"), "unknown key 'hook'"),
    "unknown via": (_set("changes.0.via", "ssh"), "changes.0.via"),
    "text value": (_set("changes.0.to", "512"), "changes.0.to"),
    "fraction": (_set("changes.0.to", 512.5), "changes.0.to"),
    "boolean": (_set("changes.0.to", True), "changes.0.to"),
    "null value": (_set("changes.0.to", None), "changes.0.to"),
    "huge value": (_set("changes.0.to", 10**30), "changes.0.to"),
    "no change": (_set("changes", []), "changes"),
    "changes no list": (_set("changes", {}), "changes"),
    "a change no object": (_set("changes.1", 5), "changes.1"),
    "same value": (_set("changes.0.from", 512), "changes.0.to"),
    "wrong rollback": (_set("changes.1.rollback", {"from": 512, "to": 1}), "changes.1.rollback"),
    "other canary": (_set("scope.canary", "http://r2:8000"), "scope.canary"),
    "twice": (_set("changes.1.target", "http://r1:8000"), "twice"),
    "other knob": (_set("changes.1.knob", "max_num_seqs"), "one knob"),
    "knob no word": (_set("changes.0.knob", "a b"), "changes.0.knob"),
    "id a path": (_set("id", "../../etc/passwd"), "id"),
    "id a number": (_set("id", 7), "id"),
    "escape in a target": (_set("changes.0.target", "http://\x1b[2J"), "changes.0.target"),
    "long target": (_set("changes.0.target", "x" * 600), "changes.0.target"),
    "endless": (_set("expires", float("inf")), "not JSON"),
    "huge time": (_set("created", 10**400), ""),
    "expires first": (_set("expires", 1.0), "expires"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_plan_is_refused_in_one_line_that_names_the_key(name: str) -> None:
    change, words = BAD[name]
    found = document()
    change(found)
    with pytest.raises(PlanError) as caught:
        parse_plan_text(json.dumps(found), "p.json")
    message = str(caught.value)
    assert message.startswith("p.json: ")
    assert words in message
    assert message.isprintable()
    assert len(message) < 400


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "5", "[" * 100_000, '{"a": NaN}', "{}"])
def test_what_is_no_plan_at_all(text: str) -> None:
    with pytest.raises(PlanError, match=r"^p\.json: "):
        parse_plan_text(text, "p.json")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "big").write_bytes(b" " * (1024 * 1024 + 2))
    for name in ("none", "binary", "big", "."):
        with pytest.raises(PlanError):
            read_plan(tmp_path / name)


def test_advice_becomes_a_plan_for_the_replica_and_its_pool() -> None:
    fleet = three()
    engines = list(fleet.engines.values())
    engines[2].value = 1024  # stands elsewhere, so it is not of this change
    snapshot = fleet.snapshot()
    replica = snapshot.replicas[1]
    sheets = {engine.url: engine.sheet(fleet.time) for engine in engines}
    advice = Advice(KNOB, "lower", ("TPOT breaks its SLO",), current=2048, proposed=512)
    plan = plan_from_advice(snapshot, replica, advice, sheets, now=fleet.time, tool_version=VERSION)
    assert plan.targets == ("http://r2:8000", "http://r1:8000")
    assert plan.scope.canary == "http://r2:8000"
    assert plan.expires > plan.created
    assert parse_plan(plan_document(plan)) == plan
    again = plan_from_advice(snapshot, replica, advice, sheets, now=fleet.time, tool_version=VERSION)
    assert again == plan
    other = Advice(KNOB, "lower", ("something else",), current=2048, proposed=512)
    changed = plan_from_advice(snapshot, replica, other, sheets, now=fleet.time, tool_version=VERSION)
    assert changed.evidence_hash != plan.evidence_hash
    assert changed.id != plan.id


@pytest.mark.parametrize(
    ("advice", "with_sheet", "words"),
    [
        (Advice(KNOB, "hold", ("fine",), proposed=None), True, "hold"),
        (Advice(KNOB, "withheld", ("why",), proposed=512), True, "withheld"),
        (Advice(KNOB, "lower", ("x",), proposed=8), True, "out of bounds"),
        (Advice(KNOB, "lower", ("x",), proposed=2048), True, "already"),
        (Advice("max_num_seqs", "lower", ("x",), proposed=8), True, "no knob"),
        (Advice(KNOB, "lower", ("x",), proposed=512), False, "no path"),
    ],
)
def test_advice_that_cannot_be_carried_out_live(advice: Advice, with_sheet: bool, words: str) -> None:
    fleet = three()
    snapshot = fleet.snapshot()
    engine = next(iter(fleet.engines.values()))
    sheets = {engine.url: engine.sheet(fleet.time)} if with_sheet else {}
    with pytest.raises(NoPlanError, match=words):
        plan_from_advice(snapshot, snapshot.replicas[0], advice, sheets, now=fleet.time, tool_version=VERSION)
