"""Plans and audits under arbitrary damage: refused in one line, never a crash, never a false claim."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.change import AuditRow, ChangeState
from enginetop.fleet.knobs import KnobAnswer
from enginetop.fleet.plan import PlanError, parse_plan_text, plan_text
from tests.support.virtual_fleet import plan_for, three
from tuners.control.audit import Audit
from tuners.control.knob_api import HttpKnobClient, ReplyKind
from tuners.control.recovery import StoredChangeError, stored_plan

GOOD: dict[str, Any] = json.loads(plan_text(plan_for(three())))
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=60) | _JSON.map(json.dumps))
def test_any_text_is_a_plan_or_one_line(text: str) -> None:
    with pytest.raises(PlanError) as caught:
        parse_plan_text(text, "p")
    assert str(caught.value).isprintable()


@settings(max_examples=200, deadline=None)
@given(key=st.sampled_from(sorted(GOOD)), value=_JSON)
def test_any_value_of_any_key(key: str, value: object) -> None:
    problem = ""
    try:
        plan = parse_plan_text(json.dumps(GOOD | {key: value}), "p")
        assert parse_plan_text(plan_text(plan), "p") == plan
    except PlanError as error:
        problem = str(error)
    assert problem.isprintable()


@settings(max_examples=100, deadline=None)
@given(document=_JSON)
def test_any_stored_change_is_one_or_is_refused(document: object) -> None:
    with pytest.raises(StoredChangeError):
        stored_plan(document)
    wrapped = {"schema": "enginetop.change/1", "plan": GOOD, "state": document, "since": document}
    with pytest.raises(StoredChangeError):
        stored_plan(wrapped)


@settings(max_examples=150, deadline=None)
@given(
    status=st.sampled_from([200, 200, 409, 422, 500, None]),
    body=st.binary(max_size=40) | _JSON.map(lambda d: json.dumps(d).encode()),
)
def test_any_answer_is_understood_or_is_bad(status: int | None, body: bytes) -> None:
    class Wire:
        def request(self, method: str, path: str, sent: bytes | None = None) -> KnobAnswer:
            return KnobAnswer(status, body)

    client = HttpKnobClient(Wire())
    replies = [client.read(), client.write("k", 1, if_version=1, ttl_seconds=1.0, change="c", reason="r")]
    for reply in replies:
        assert reply.kind is not ReplyKind.OK
        assert reply.detail.isprintable()


_ROWS = st.lists(
    st.builds(
        AuditRow,
        change=st.text(max_size=6),
        at=st.floats(0, 1e10),
        state=st.sampled_from(ChangeState),
        target=st.text(max_size=6),
        knob=st.text(max_size=6),
        before=st.none() | st.integers(0, 9999),
        after=st.none() | st.integers(0, 9999),
        detail=st.text(max_size=12),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=60, deadline=None)
@given(rows=_ROWS, cut=st.integers(0, 10_000), flip=st.integers(0, 7))
def test_one_flipped_bit_or_a_cut_shows_or_changes_nothing(rows: list[AuditRow], cut: int, flip: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        audit = Audit(Path(folder))
        for row in rows:
            audit.append([row])
        assert audit.rows() == tuple(rows)
        file = Path(folder) / "audit.jsonl"
        data = file.read_bytes()
        place = cut % len(data)
        file.write_bytes(data[:place] + bytes([data[place] ^ (1 << flip)]) + data[place + 1 :])
        if audit.verify().intact:  # another spelling of the same JSON (1E5 for 1e5) is the same row
            assert audit.rows() == tuple(rows)
        file.write_bytes(data[:place])
        assert not audit.verify().intact
