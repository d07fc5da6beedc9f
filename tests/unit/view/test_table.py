"""The grid line by line, at 80 and at 200 columns, written out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from enginetop.fleet.model import EngineKind, Quality, ReplicaState, Role
from enginetop.fleet.observation import Failure, FailureKind
from enginetop.fleet.snapshot import Goodput, ModelSummary, ReplicaSnapshot, Slo, Span
from tests.tui.snapshots import (
    AT,
    censored,
    distribution,
    down_replica,
    fleet,
    gpu,
    no_distribution,
    replica,
    scalar,
    signals,
)
from tui.view.arrange import Sort
from tui.view.cells import line_text, line_width
from tui.view.columns import BY_KEY, COLUMNS
from tui.view.condition import conditions_of
from tui.view.query import Query, parse_query
from tui.view.table import FleetTable

TROUBLE_FIRST, EVERYTHING = Sort(), Query()


def table(
    replicas: Sequence[ReplicaSnapshot],
    width: int = 80,
    sort: Sort = TROUBLE_FIRST,
    query: Query = EVERYTHING,
) -> FleetTable:
    snapshot = fleet(replicas)
    return FleetTable(snapshot, conditions_of(snapshot), width=width, sort=sort, query=query)


def lines(*args: object, **options: object) -> list[str]:
    shown = table(*args, **options)  # type: ignore[arg-type]
    return [line_text(shown.line(index)).rstrip() for index in range(len(shown))]


def names(shown: FleetTable) -> str:
    return " ".join(
        (shown.key(index) or "").removeprefix("http://").removesuffix(".example:8000")
        for index in range(len(shown))
        if shown.is_row(index)
    )


def test_80_columns_by_hand() -> None:
    replicas = [
        replica("a1"),
        replica(
            "a3",
            changes={
                "requests_running": 61, "requests_waiting": 18, "kv_usage_ratio": 0.97,
                "preemptions_per_second": 2.1, "generation_tokens_per_second": 1812,
                "ttft_seconds": distribution(0.4, 1.4), "tpot_seconds": distribution(0.05, 0.061),
                "spec_accepted_length": 3.1,
            },
        ),
        down_replica("c0", model="Qwen3-32B", role=Role.AGGREGATED),
    ]  # fmt: skip
    shown = table(replicas)
    assert line_text(shown.header()) == (
        " replica  state        run wait     KV % pre/s tok/s TTFT95ms TPOT95ms  acc  age"
    )
    assert lines(replicas) == [
        " Qwen3-32B · aggregated ×1 · 1 needs you ───────────────────────────────────────",
        " c0       ✖ down         –    –        –     –     –        –        –    –  72s",
        "    connection refused for 72 s, next try in 4 s",
        " Llama-3.3-70B · decode ×2 · 1 needs you ───────────────────────────────────────",
        " a3       ▲ pressure    61   18 ███▉  97  2.10  1812     1400       61  3.1",
        " a1       ● ok          44    0 ██▌   64     0  2310      310       38  3.2",
    ]
    assert {line_width(shown.line(index)) for index in (0, 1, 3, 4, 5)} == {80}


def test_200_columns_by_hand() -> None:
    times = tuple(AT - 119 + 2 * step for step in range(60))
    trends = {"kv_usage_ratio": (0.5,) * 60, "generation_tokens_per_second": (1000.0,) * 60}
    one = replica(
        "a1", gpus=(gpu(0), gpu(1, throttle_reasons=("hw_slowdown",))), trends=trends, trend_times=times
    )
    shown = table([one], width=200)
    assert line_text(shown.header()).rstrip() == (
        " replica  state        run wait     KV % KV trend     pre/s tok/s tok/s trend  in tok/s req/s"
        " TTFT50ms TTFT95ms TPOT95ms ITL95ms queue95ms hit%  acc GPU%     W  °C throttle     engine"
        "          age"
    )
    # Twelve cells of ten seconds; the newest began at AT and has no sample yet.
    assert line_text(shown.line(1)).rstrip() == (
        " a1       ▲ throttled   44    0 ██▌   64 ▄▄▄▄▄▄▄▄▄▄▄      0  2310 ███████████      5120  4.20"
        "      120      310       38      41        20   38  3.2   94  1224  72 hw_slowdown  vLLM 0.33.0"
    )


def test_columns_without_a_source_take_no_room() -> None:
    plain = line_text(table([replica("a1", changes={"spec_accepted_length": None})], width=200).header())
    assert "GPU" not in plain
    assert "acc" not in plain
    assert "trend" not in plain


def test_reasoning_tokens_have_columns_where_somebody_counts_them() -> None:
    thinks = replica("a1", changes={"reasoning_tokens": distribution(412, censored(8192))})
    quiet = replica("a2")
    assert "rsn" not in line_text(table([quiet], 200).header())
    assert "rsn" not in line_text(table([thinks, quiet], 80).header())
    shown = table([thinks, quiet], 200)
    header, first, second = (line_text(shown.header()), line_text(shown.line(1)), line_text(shown.line(2)))
    assert " rsn50  rsn95" in header
    end50, end95 = header.index("rsn50") + 5, header.index("rsn95") + 5
    assert first[:end50].endswith("  412")
    assert first[:end95].endswith(" ≥8192")
    assert (second[end50 - 1], second[end95 - 1]) == ("–", "–")


def test_unknown_is_a_dash_and_marks_stand_at_the_value() -> None:
    odd = replica(
        "a1",
        changes={
            "requests_running": scalar(3, Quality.ESTIMATED),
            "requests_waiting": None,
            "ttft_seconds": distribution(censored(2.5), censored(2.5), count=3),
            "tpot_seconds": no_distribution(Quality.UNSUPPORTED),
        },
    )
    assert lines([odd])[1] == " a1       ● ok          3?    – ██▌   64     0  2310    ≥2500        –  3.2"


def test_old_values_are_dimmed_and_their_age_is_shown() -> None:
    shown = table([replica("a1", scraped_at=AT - 9)])
    spans = shown.line(1)
    assert line_text(spans).rstrip().endswith("3.2   9s")
    assert [span.ink for span in spans if "2310" in span.text] == ["dim"]
    assert [span.ink for span in spans if "9s" in span.text] == ["warn"]


def test_values_of_before_a_failed_look_are_old() -> None:
    spans = table([replica("a1", failed_looks=1), replica("a2")]).line(1)
    assert line_text(spans).rstrip().endswith("3.2   1s")
    assert [span.ink for span in spans if "2310" in span.text] == ["dim"]


def test_a_target_with_a_wide_spacing_of_its_own_is_not_old() -> None:
    assert line_text(table([replica("a1", scraped_at=AT - 9, spacing_seconds=10)]).line(1)).endswith("     ")


def test_the_cursor_marks_its_row() -> None:
    shown = table([replica("a1")])
    assert line_text(shown.line(1, selected=True)).startswith("▸a1")
    assert line_text(shown.line(1)).startswith(" a1")


def test_trouble_comes_first_and_quiet_rows_keep_the_order_of_the_configuration() -> None:
    replicas = [
        replica("a1"),
        replica("a2", ReplicaState.IDLE),
        replica("a3", changes={"preemptions_per_second": 1}),
        replica("b1", model="Qwen"),
        down_replica("b2", model="Qwen"),
    ]
    assert names(table(replicas)) == "b2 b1 a3 a1 a2"
    assert names(table(replicas, sort=Sort(None, reverse=True))) == "a1 a2 a3 b1 b2"


def test_sorting_by_a_column_is_flat_and_puts_the_unknown_last() -> None:
    replicas = [
        replica("a1", changes={"kv_usage_ratio": 0.2}),
        replica("a2", model="Qwen", changes={"kv_usage_ratio": None}),
        replica("a3", model="Qwen", changes={"kv_usage_ratio": 0.9}),
    ]
    shown = table(replicas, sort=Sort("kv"))
    assert names(shown) == "a3 a1 a2"
    assert len(shown) == 3
    assert "KV %↓" in line_text(shown.header())
    assert "model" in line_text(shown.header())
    turned = table(replicas, sort=Sort("kv", reverse=True))
    assert names(turned) == "a1 a3 a2"
    assert "KV %↑" in line_text(turned.header())


@pytest.mark.parametrize("column", [column.key for column in COLUMNS if column.sortable])
def test_every_column_sorts_a_mixed_fleet(column: str) -> None:
    replicas = [
        replica("a1"),
        down_replica("c0", engine=EngineKind.UNKNOWN, model=None, scraped_at=None),
        replica("g1", gpus=(gpu(),)),
        replica("n1", signals={}),
    ]
    for reverse in (False, True):
        assert sorted(names(table(replicas, 200, Sort(column, reverse))).split()) == ["a1", "c0", "g1", "n1"]


def test_a_sorted_column_stays_on_a_narrow_terminal() -> None:
    assert "acc" in line_text(table([replica("a1")], 50, Sort("acc")).header())


def test_a_filter_leaves_matching_rows_and_their_groups() -> None:
    replicas = [replica("a1"), replica("b1", model="Qwen"), down_replica("b2", model="Qwen")]
    shown = table(replicas, query=parse_query("model:qwen state:ok"))
    assert names(shown) == "b1"
    assert len(shown) == 2
    assert shown.shown == 1


def test_who_was_looked_at_and_never_read_says_why_at_once() -> None:
    """A table of one scrape is all that a script or a person without a terminal gets to see."""
    why = "ssh to b: no such host name once, just now"
    failure = Failure(FailureKind.DNS, AT, why)
    unseen = replica("a", ReplicaState.UNKNOWN, scraped_at=None, last_failure=failure, reasons=(why,))
    shown = table([unseen, replica("b", ReplicaState.UNKNOWN, scraped_at=None)])
    assert line_text(shown.line(2)) == f"    {why}"
    assert not shown.is_row(2)
    assert len(shown) == 4  # who was not looked at yet has nothing to say


def test_the_position_of_a_target_is_its_row_not_its_reason() -> None:
    shown = table([down_replica("c0")])
    url = "http://c0.example:8000"
    assert shown.position(url) == 1
    assert shown.key(2) == url
    assert not shown.is_row(2)
    assert shown.position("http://gone") is None


def test_a_hostile_name_stays_text() -> None:
    shown = table([replica("[red]x[/red]", model="org/model[/base]", signals=signals())])
    assert "org/model[/base]" in line_text(shown.line(0))
    assert "[red]" in line_text(table([replica("[red]x[/red]")], 200).line(1))


@pytest.mark.parametrize(
    ("goodput", "said"),
    [
        (Goodput(2.0, 1.4, 0.7, quality=Quality.OK), " 70 "),
        (Goodput(2.0, 1.4, 0.7, quality=Quality.ESTIMATED), " 70? "),
        (Goodput(2.0, joint=Span(0.5, 0.8, 0.65), quality=Quality.ESTIMATED), " 65? "),
    ],
)
def test_a_share_of_good_requests_that_is_an_estimate_is_marked(goodput: Goodput, said: str) -> None:
    """Counted over an outage it stood beside marked figures as if it were one of now."""
    assert said in line_text(table([replica("a1", goodput=goodput)], 200).line(1))


@pytest.mark.parametrize(
    ("goodput", "said"),
    [
        (Goodput(2.0, 1.4, 0.7, quality=Quality.OK), " · 1.40 of 2.00 req/s good "),
        (Goodput(2.0, 1.4, 0.7, quality=Quality.ESTIMATED), " · 1.40? of 2.00 req/s good "),
        (Goodput(2.0, within_per_second=Span(1.0, 1.6, 1.3)), " · 1.30? of 2.00 req/s good "),
        (Goodput(2.0), ""),
        (Goodput(None, 1.4), ""),
    ],
)
def test_a_group_tells_the_goodput_of_its_model(goodput: Goodput, said: str) -> None:
    one = replica("a1")
    picture = fleet([one])
    model = ModelSummary(one.model, 1, {}, Slo(), goodput)
    picture = replace(picture, fleet=replace(picture.fleet, models=(model,)))
    wide, narrow = (
        line_text(FleetTable(picture, conditions_of(picture), width=w, sort=Sort(), query=Query()).line(0))
        for w in (120, 80)
    )
    assert f"{said}─" in wide or not said
    assert ("good" in wide) is bool(said)
    assert "good" not in narrow


def test_a_narrow_terminal_does_not_turn_an_unknown_model_into_a_known_one() -> None:
    line = line_text(table([down_replica("c0", model=None)], 40).line(0))
    assert line.startswith(" model n")
    assert "known" not in line or "not known" in line


def test_errors_have_a_column_where_there_are_any() -> None:
    column = BY_KEY["err"]
    told = {"requests_errored_per_second": scalar(0.5)}
    none = {"requests_errored_per_second": scalar(0.0)}
    assert column.relevant is not None
    shown = [column.relevant(replace(replica("a"), beyond=beyond)) for beyond in (told, none, {})]
    assert shown == [True, False, False]
    assert column.read(replace(replica("a"), beyond=told)) == 0.5
