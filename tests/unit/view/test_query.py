"""The filter: words, fields and comparisons."""

from __future__ import annotations

import pytest

from enginetop.fleet.model import EngineKind, ReplicaState, Role
from enginetop.fleet.snapshot import Goodput
from tests.tui.snapshots import AT, censored, distribution, down_replica, replica
from tui.view.condition import condition_of
from tui.view.query import QueryError, parse_query

FLEET = (
    replica("a1"),
    replica("a2", changes={"kv_usage_ratio": 0.97, "ttft_seconds": distribution(0.2, 0.7)}),
    replica(
        "q1", model="Qwen3-32B", engine=EngineKind.SGLANG, role=Role.PREFILL, changes={"kv_usage_ratio": None}
    ),
    replica(
        "q2", ReplicaState.IDLE, model="Qwen3-32B", changes={"ttft_seconds": distribution(1, censored(10))}
    ),
    down_replica("c0"),
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", "a1 a2 q1 q2 c0"),
        ("a", "a1 a2 q1 q2 c0"),
        ("a2", "a2"),
        ("QWEN", "q1 q2"),
        ("model:qwen", "q1 q2"),
        ("engine:sglang", "q1"),
        ("role:prefill", "q1"),
        ("name:c0", "c0"),
        ("state:down", "c0"),
        ("state:idle qwen", "q2"),
        ("kv>0.9", "a2"),
        ("kv>90%", "a2"),
        ("kv<=0.64", "a1 q2"),
        ("!kv>0.9", "a1 q1 q2 c0"),
        ("ttft>500ms", "a2 q2"),
        ("ttft>0.5s", "a2 q2"),
        ("ttft>=10", "q2"),
        ("tok>2k", "a1 a2 q1 q2"),
        ("run=44 !model:qwen", "a1 a2"),
        ("nothing-has-this", ""),
    ],
)
def test_filter(text: str, names: str) -> None:
    query = parse_query(text)
    assert " ".join(one.target.name for one in FLEET if query.matches(one, condition_of(one, AT))) == names


@pytest.mark.parametrize("text", ["kx>1", "kv>", "kv>abc", "kv>1e400", "kv>1_0", "model>3"])
def test_what_cannot_be_read_says_so(text: str) -> None:
    with pytest.raises(QueryError):
        parse_query(text)


def test_the_message_names_the_fields_there_are() -> None:
    with pytest.raises(QueryError, match=r"no number called kx; .* kv "):
        parse_query("kx>1")


@pytest.mark.parametrize("field", ["age", "since", "why", "kv_trend"])
def test_columns_without_a_number_cannot_be_compared(field: str) -> None:
    with pytest.raises(QueryError, match=f"no number called {field}"):
        parse_query(f"{field}>3")


def test_the_share_within_the_objective_can_be_asked_for() -> None:
    half = replica("a1", goodput=Goodput(exact=0.5))
    unknown = replica("a2")
    query = parse_query("good<95%")
    assert [query.matches(one, condition_of(one, AT)) for one in (half, unknown)] == [True, False]
