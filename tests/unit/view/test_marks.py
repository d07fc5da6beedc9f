"""Engines and gateways side by side: what a group is called, and the marks of the replica view."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from enginetop.fleet.model import EngineKind, Quality, ReplicaState, Role
from enginetop.fleet.snapshot import Advice, ReplicaSnapshot
from tests.tui.snapshots import down_replica, fleet, no_distribution, replica
from tui.view.arrange import Sort
from tui.view.cells import line_text, line_width
from tui.view.condition import conditions_of
from tui.view.detail import detail_lines
from tui.view.detail_marks import mark_lines, mark_words
from tui.view.engines import engine_text
from tui.view.picture import Picture
from tui.view.query import parse_query
from tui.view.table import FleetTable

SMG = replica(
    "gw",
    engine=EngineKind.ROUTER,
    engine_version="1.13",
    product="SMG",
    role=Role.ROUTER,
    sources={"engine_version": "/version"},
)


TOTAL = sum(not name.startswith(("power_", "energy_", "cost_")) for name in SMG.signals)
"""Signals that an engine could tell; those of GPUs and of cost come from elsewhere."""


def headings(replicas: Sequence[ReplicaSnapshot]) -> list[str]:
    snapshot = fleet(replicas)
    shown = FleetTable(snapshot, conditions_of(snapshot), width=80, sort=Sort(), query=parse_query(""))
    lines = [line_text(shown.line(index)) for index in range(len(shown)) if shown.key(index) is None]
    assert all(len(line) == 80 for line in lines)
    return [line.strip(" ─").partition(" · req/s")[0] for line in lines]


def marks(one: ReplicaSnapshot, width: int = 80) -> list[str]:
    lines = list(mark_lines(one, width))
    assert all(line_width(line) <= width for line in lines)
    return [line_text(line).rstrip() for line in lines]


def test_groups_of_a_mixed_fleet_name_their_engine() -> None:
    sglang = replica("s1", engine=EngineKind.SGLANG, engine_version=None)
    unseen = replica("x", ReplicaState.UNKNOWN, engine=EngineKind.UNKNOWN, model=None, scraped_at=None)
    assert headings([replica("a1"), replica("a2"), sglang, SMG, unseen]) == [
        f"Llama-3.3-70B · vLLM · decode ×2 · {TOTAL}/{TOTAL} signals, knobs by restart",
        f"Llama-3.3-70B · SGLang · decode ×1 · {TOTAL}/{TOTAL} signals, knobs by restart",
        f"Llama-3.3-70B · SMG · router ×1 · {TOTAL}/{TOTAL} signals, no knobs",
        "model not known · decode ×1",
    ]


def test_marks_of_a_group_give_way_to_its_name() -> None:
    long = replica("a", model="m" * 50)
    assert headings([long, SMG])[0] == "m" * 50 + " · vLLM · decode ×1"


def test_marks_in_few_words() -> None:
    live = replica(
        "a",
        changes={"queue_seconds": no_distribution(Quality.UNSUPPORTED)},
        advice=(Advice("max_num_batched_tokens", "lower", (), apply="live"),),
    )
    assert mark_words(live) == f"{TOTAL - 1}/{TOTAL} signals, live knobs"
    assert mark_words(replica("a", engine=EngineKind.DYNAMO)) == f"{TOTAL}/{TOTAL} signals, no knobs"
    assert mark_words(replica("a", scraped_at=None)) == ""


def test_in_a_fleet_of_one_engine_its_name_would_say_nothing() -> None:
    unseen = down_replica("b")
    assert not any("vLLM" in heading for heading in headings([replica("a1"), unseen]))


def test_a_gateway_is_called_by_its_name() -> None:
    assert engine_text(SMG) == "SMG 1.13"
    assert engine_text(replica("r", engine=EngineKind.ROUTER, engine_version=None)) == "router"


def test_the_marks_of_an_engine() -> None:
    one = replica(
        "a1",
        changes={
            "queue_seconds": no_distribution(Quality.UNSUPPORTED),
            "ttft_seconds": no_distribution(Quality.UNKNOWN),
        },
        sources={"engine_version": "/version", "model": "label model_name"},
        advice=(Advice("max_num_seqs", "hold", (), apply="live"),),
    )
    assert marks(one) == [
        " engine      vLLM · 0.33.0 (/version) · Llama-3.3-70B (label model_name)",
        f" can be read {TOTAL - 1} of {TOTAL} signals; not queue_seconds",
        " can change  max_num_batched_tokens restart · num_speculative_tokens restart ·",
        "             thinking_token_budget per request · max_num_seqs live",
    ]


def test_the_path_of_enginetop_is_named_where_it_is_not_the_companion() -> None:
    ways = (
        Advice("max_num_seqs", "lower", (), apply="live", via="sglang_cap"),
        Advice("max_num_batched_tokens", "lower", (), apply="restart", via="systemd"),
        Advice("num_speculative_tokens", "hold", (), apply="live", via="knob_api"),
        Advice("thinking_token_budget", "hold", (), apply="per_request", via="a field of the request"),
    )
    told = " ".join(" ".join(marks(replica("a1", advice=ways))).split())
    assert told.endswith(
        "can change max_num_batched_tokens restart (systemd) · num_speculative_tokens live · "
        "thinking_token_budget per request · max_num_seqs live (sglang_cap)"
    )


def test_the_marks_of_a_gateway() -> None:
    told = marks(SMG)
    assert told[0] == " engine      SMG · 1.13 (/version)"
    assert told[-1] == " can change  nothing by enginetop: its own configuration"


def test_nothing_is_marked_before_the_first_page() -> None:
    assert marks(replica("a", ReplicaState.UNKNOWN, scraped_at=None)) == []


@pytest.mark.parametrize("engine", list(EngineKind))
def test_every_engine_has_its_marks_in_the_replica_view(engine: EngineKind) -> None:
    one = replica("a", engine=engine)
    lines = [line_text(line) for line in detail_lines(Picture(fleet([one])), one.target.url, 80)]
    assert sum(line.startswith(" can be read ") for line in lines) == 1
    assert sum(line.startswith(" can change ") for line in lines) == 1
