"""The pages about the whole fleet: speculation, reasoning, GPUs, events, latency. Numbers by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enginetop.fleet.model import Quality
from enginetop.fleet.reading import ConfigValue
from enginetop.fleet.snapshot import (
    Advice,
    BurnRow,
    Distribution,
    FleetSnapshot,
    Goodput,
    ModelSummary,
    Outlier,
    Quantile,
    ReplicaSnapshot,
    Slo,
)
from enginetop.fleet.snapshot import Span as Bounds
from tests.tui.snapshots import (
    censored,
    distribution,
    down_replica,
    event,
    exact,
    fleet,
    gpu,
    no_distribution,
    replica,
    scalar,
    signals,
)
from tui.view.cells import line_text
from tui.view.event_list import event_rows, events_verdict, kinds_of, next_kind
from tui.view.gpus import devices_of, gpu_rows
from tui.view.latency import latency_page
from tui.view.page import names_text, wrapped
from tui.view.picture import Picture
from tui.view.reasoning import reasoning_rows, ruler
from tui.view.rows import Rows
from tui.view.speculation import conditionals, saved_ratio, speculation_rows
from tui.view.totals import totals_line


def texts(rows: Rows[str]) -> list[str]:
    return [line_text(rows.line(index)).rstrip() for index in range(len(rows))]


def with_models(snapshot: FleetSnapshot, *models: ModelSummary) -> FleetSnapshot:
    return replace(snapshot, fleet=replace(snapshot.fleet, models=models))


SPECULATING = replica(
    "a1",
    changes={
        "spec_accepted_length": 2.5,
        "spec_acceptance_ratio": 0.5,
        "spec_acceptance_per_position": scalar((0.8, 0.4, 0.3)),
        "generation_tokens_per_second": 1000,
    },
    config={"num_speculative_tokens": ConfigValue(3, "/server_info")},
    advice=(
        Advice("num_speculative_tokens", "lower", ("the third draft is seldom taken",), 3, 2),
        Advice("max_num_seqs", "hold", ("not this one",)),
    ),
)


# -- speculation


def test_a_speculating_replica_by_hand() -> None:
    """0.8, 0.4 / 0.8, 0.3 / 0.4; of 2.5 tokens 1.5 cost no step: 60 %, 600 of 1000 tokens a second."""
    text = texts(speculation_rows(Picture(fleet([SPECULATING])), 80))
    assert text[0].startswith(" Llama-3.3-70B · 1 of 1 speculate ──")
    assert text[1] == " replica       k  length  taken %  saved %  free/s  taken at position 1, 2, ..."
    # eighths: 0.8 x 8 = 6.4, 3.2, 2.4
    assert text[2] == " a1            3    2.50       50       60     600  ▆▃▂ .80 .40 .30"
    assert text[3].endswith("each, once the one before is taken  .80 .50 .75")
    assert text[4].strip() == "lower 3 → 2: the third draft is seldom taken"
    assert len(text) == 5


def test_the_chance_of_each_draft_once_the_one_before_is_taken() -> None:
    assert conditionals((0.5, 0.25, 0.0, 0.0)) == (0.5, 0.5, 0.0, None)
    assert conditionals(()) == ()
    assert conditionals((0.5, 0.6)) == (0.5, 1.0)  # counted at different moments: no chance is above 1


def test_what_speculation_saves() -> None:
    assert saved_ratio(1.0) == 0.0
    assert saved_ratio(4.0) == 0.75
    assert saved_ratio(None) is None
    assert saved_ratio(0.5) is None


def test_who_does_not_speculate_is_named_with_the_reason() -> None:
    off = [
        replica(name, changes={"spec_accepted_length": scalar(None, note="no drafts are configured")})
        for name in ("b1", "b2", "b3", "b4", "b5")
    ]
    text = texts(speculation_rows(Picture(fleet([SPECULATING, *off])), 80))
    assert text[-1] == " b1 b2 b3 b4 +1 more: no drafts are configured"
    assert text[-2].startswith(" does not speculate ──")


def test_nobody_speculates() -> None:
    none = [replica(name, changes={"spec_accepted_length": scalar(None)}) for name in ("b1", "b2")]
    rows = speculation_rows(Picture(fleet(none)), 200)
    assert texts(rows)[0].startswith(
        " no replica speculates: of 2 replicas none has a draft length configured"
    )
    assert not any(rows.is_row(index) for index in range(len(rows)))


def test_several_replicas_have_a_row_of_what_is_merged_of_them() -> None:
    snapshot = fleet([SPECULATING, replace(SPECULATING, target=replica("a2").target)])
    merged = ModelSummary("Llama-3.3-70B", 2, signals(spec_accepted_length=2.0), Slo())
    rows = speculation_rows(Picture(with_models(snapshot, merged)), 80)
    every = next(line for line in texts(rows) if line.startswith(" all "))
    assert every.split()[1:5] == ["–", "2.00", "–", "50"]
    assert [rows.key(index) for index in range(len(rows)) if rows.is_row(index)] == [
        "http://a1.example:8000",
        "http://a2.example:8000",
    ]


# -- reasoning


def thinking(name: str, budget: int | None = 4096, **changes: object) -> ReplicaSnapshot:
    quantiles = {"p50": exact(400), "p95": exact(3870), "p99": censored(6000)}
    note = "exact counts of single requests"
    tokens = Distribution(100, None, exact(700), quantiles, "tokens", Quality.OK, note)
    known = {"reasoning_tokens": tokens, "reasoning_share_ratio": 0.71, "reasoning_budget_hit_ratio": 0.041}
    config = {} if budget is None else {"thinking_token_budget": ConfigValue(budget, "/server_info")}
    return replica(name, changes={**known, "reasoning_kv_tokens": 8100, **changes}, config=config)  # type: ignore[dict-item]


def test_a_thinking_replica_by_hand() -> None:
    text = texts(reasoning_rows(Picture(fleet([thinking("a1")])), 80))
    assert text[0].startswith(" Llama-3.3-70B · 1 replica ──")
    assert text[1] == " tokens         p50    p95    p99 share % budget hit %  count  KV tok"
    assert text[2] == " a1             400   3870  ≥6000      71   4096   4.1    100    8100"
    assert text[3].strip() == "exact counts of single requests"


def test_on_a_narrow_terminal_budget_and_hits_stay() -> None:
    text = texts(reasoning_rows(Picture(fleet([thinking("a1")])), 50))
    assert text[1] == " tokens     p50   p95   p99 share % budget hit %"
    assert text[2] == " a1         400  3870 ≥6000      71   4096   4.1"


def test_what_all_have_in_common_is_said_once() -> None:
    same = texts(reasoning_rows(Picture(fleet([thinking("a1"), thinking("a2")])), 80))
    assert sum("exact counts" in line for line in same) == 1
    assert any(line.startswith(" all of them: exact counts") for line in same)
    odd = thinking("a2", reasoning_share_ratio=scalar(None, note="nobody counts it"))
    differ = texts(reasoning_rows(Picture(fleet([thinking("a1"), odd])), 80))
    assert differ[-1].strip() == "share: nobody counts it"


def test_quantiles_and_budget_on_one_scale() -> None:
    """Of 20 cells up to 100: 25 in cell 5, 50 in cell 10, 80 in cell 16, the budget of 40 in cell 8."""
    line = ruler([(80.0, "◆"), (50.0, "○"), (25.0, "●")], 40.0, 100.0, 20)
    assert line_text(line) == "─────●──┊─○─────◆   "
    assert [span.ink for span in line if span.text == "┊"] == ["warn"]
    assert ruler([], 40.0, 100.0, 20) == ()


def test_a_zero_with_reasoning_text_is_unknown_not_zero() -> None:
    note = "the engine counts 0 although there was reasoning text"
    zero = thinking(
        "a1",
        reasoning_tokens=Distribution(0, 0, Quantile(), {}, "tokens", Quality.UNKNOWN, note),
        reasoning_share_ratio=scalar(None),
        reasoning_budget_hit_ratio=scalar(None),
        reasoning_kv_tokens=scalar(None),
    )
    text = texts(reasoning_rows(Picture(fleet([zero])), 80))
    assert text[2].split() == ["a1", "–", "–", "–", "–", "4096", "–", "0", "–"]
    assert text[3].strip() == note


def test_nobody_tells_of_reasoning() -> None:
    silent = no_distribution(Quality.UNSUPPORTED)
    text = texts(reasoning_rows(Picture(fleet([replica("a1", changes={"reasoning_tokens": silent})])), 200))
    assert text[0].startswith(" no replica tells of reasoning: of 1 replica none counts")
    assert text[-1] == " a1: not exported by vLLM"


# -- GPUs


def test_devices_by_hand() -> None:
    one = replica("a1", gpus=(gpu(0), gpu(1)), changes={"energy_joules_per_token": 0.33})
    text = texts(gpu_rows(Picture(fleet([one], totals=signals(energy_joules_per_token=0.4))), 80))
    assert text[0] == " 2 GPUs · 94 % busy on average · 1224 W · 0.40 J/token"
    assert text[1].startswith(" a1.example · 2 GPUs ──")
    assert text[2] == " GPU   util %       mem GiB     W   of   °C  J/tok  replicas, state"
    assert text[3] == " 0         94     70.0/80.0   612  700   72   0.33  a1"


def test_on_a_narrow_terminal_who_runs_on_it_and_its_trouble_stay() -> None:
    one = replica("a1", gpus=(gpu(0, throttle_reasons=("hw_thermal",)),))
    text = texts(gpu_rows(Picture(fleet([one])), 50))
    assert text[2] == " GPU   util %     W   °C  replicas, state"
    assert text[3] == " 0         94   612   72  a1  hw thermal"


def test_a_device_that_two_replicas_share_is_one_row_and_its_energy_nobodys() -> None:
    first = replica("a1", gpus=(gpu(0),), changes={"energy_joules_per_token": 0.33})
    second = replace(first, target=replace(replica("a2").target, url="http://a1.example:8001"))
    rows = gpu_rows(Picture(fleet([first, second])), 200)
    assert [rows.about(rows.key(i) or "") for i in range(len(rows)) if rows.is_row(i)] == [first.target.url]
    assert texts(rows)[-1].split()[-3:] == ["–", "a1", "a2"]


def test_trouble_comes_first_and_is_said() -> None:
    calm = replica("a1", gpus=(gpu(0), gpu(1, throttle_reasons=("sw_power_cap",))))
    hot = replica("b1", gpus=(gpu(4), gpu(5, temperature_celsius=91.0), gpu(6, last_xid=79, state="lost")))
    placed = devices_of([calm, hot])
    assert [(one.host, one.gpu.index) for one in placed] == [
        ("b1.example", 5),
        ("b1.example", 6),
        ("b1.example", 4),
        ("a1.example", 0),
        ("a1.example", 1),
    ]
    text = texts(gpu_rows(Picture(fleet([calm, hot])), 200))
    assert text[0].endswith(" · 1 not ok")
    assert any(line.endswith("b1  Xid 79  lost") for line in text)


def test_two_instances_of_one_device_are_two_rows() -> None:
    """MIG: one UUID prefix, two instances; and devices without a UUID on two hosts are not one."""
    sliced = replica("a1", gpus=(gpu(0, mig="1g.10gb"), gpu(0, mig="2g.20gb")))
    other = replica("b1", gpus=(gpu(0),))
    assert len(devices_of([sliced, other])) == 3


def test_no_gpu_is_known_and_why() -> None:
    picture = Picture(fleet([replica("a1")], gpu_problem="NVML is not installed"))
    assert texts(gpu_rows(picture, 120))[0] == " no GPU is known: NVML is not installed"


# -- events


def _happened() -> Picture:
    a1 = replica("a1", events=(event("appeared", 900), event("preemptions_began", 20)))
    c0 = down_replica("c0", events=(event("state_changed", 72, "ok -> down: connection refused"),))
    return Picture(fleet([a1, c0]))


def test_events_of_all_replicas_newest_first() -> None:
    rows = event_rows(_happened(), 80)
    assert texts(rows) == [
        " 19:59:40  20s  a1             preempting",
        " 19:58:48  72s  c0             state             ok → down: connection refused",
        " 19:45:00  15m  a1             appeared",
    ]
    assert rows.about(rows.key(1) or "") == "http://c0.example:8000"


def test_one_kind_of_events_after_the_other_then_all_again() -> None:
    picture = _happened()
    assert kinds_of(picture) == ["appeared", "state_changed", "preemptions_began"]
    seen, kind = [], ""
    for _ in range(4):
        kind = next_kind(picture, kind)
        seen.append(kind)
    assert seen == ["appeared", "state_changed", "preemptions_began", ""]
    assert next_kind(picture, "gone") == ""
    assert len(event_rows(picture, 80, "state_changed")) == 1
    assert line_text(events_verdict(picture, 80)) == " all 3 · appeared 1 · state 1 · preempting 1"


def test_turns_between_ok_and_idle_are_a_kind_of_their_own() -> None:
    """Under little load there is one every few seconds: among all the others nobody would see those."""
    turns = tuple(
        event("state_changed", second, ("ok -> idle", "idle -> ok")[second % 2]) for second in (9, 8, 7, 6)
    )
    fell = event("state_changed", 60, "ok -> down: connection refused")
    picture = Picture(fleet([replica("a1", events=(fell, *turns))]))
    assert line_text(events_verdict(picture, 80)) == " all but idle 1 · state 1 · idle 4"
    assert texts(event_rows(picture, 80)) == [
        " 19:59:00  60s  a1             state             ok → down: connection refused",
    ]
    assert next_kind(picture, "state_changed") == "lull"
    assert [line.split()[-3:] for line in texts(event_rows(picture, 80, "lull"))] == [
        ["ok", "→", "idle"], ["idle", "→", "ok"], ["ok", "→", "idle"], ["idle", "→", "ok"],
    ]  # fmt: skip


@pytest.mark.parametrize(("kind", "said"), [("", "nothing happened yet"), ("gone", "of the kind 'gone'")])
def test_nothing_happened(kind: str, said: str) -> None:
    assert said in texts(event_rows(Picture(fleet([replica("a1")])), 200, kind))[0]


# -- latency and goodput


def _latency(goodput: Goodput, *, width: int = 80, slo: Slo = Slo(0.6, 0.05, 0.95, "config")) -> list[str]:  # noqa: B008
    merged = ModelSummary(
        "Llama-3.3-70B",
        2,
        signals(ttft_seconds=distribution(0.12, 0.84, count=97), tpot_seconds=distribution(0.03, 0.038)),
        slo,
        goodput,
    )
    slow = replica("a2", outliers=(Outlier("tpot_seconds.p95", 0.09, 0.03, 4),))
    lines = latency_page(Picture(with_models(fleet([replica("a1"), slow]), merged)), width)
    return [line_text(line).rstrip() for line in lines]


def test_latency_of_a_model_by_hand() -> None:
    text = _latency(Goodput())
    assert text[0].startswith(" Llama-3.3-70B · ×2 ──")
    assert text[2] == " TTFT              120      120      840      840      120       97"
    assert " SLO         TTFT 600 ms · TPOT 50 ms · for 95 % of requests (config)" in text
    assert not any(line.startswith((" within SLO", " goodput", " burn")) for line in text)
    assert any("TPOT p95 90 ms, median of 4: 30 ms (3.00×)" in line for line in text)


def test_models_with_objectives_of_their_own_leave_the_fleet_none() -> None:
    """1.4 s is above the 1 s that nobody set for both of them; a model that is down has no load curve."""
    totals = signals(ttft_seconds=distribution(0.2, 1.4))
    models = [
        ModelSummary(name, 1, totals, Slo(ttft, 0.05, 0.95, "config"))
        for name, ttft in (("A", 0.6), ("B", 2.0))
    ]
    replicas = [replace(replica(name), model=name) for name in "ABC"]
    replicas[2] = replace(down_replica("C"), model="C")
    shown = Picture(with_models(fleet(replicas, totals=totals), *models))
    lines = latency_page(shown, 120)
    text = [line_text(line).rstrip() for line in lines]
    own = text.index(next(line for line in text if line.startswith(" A · ")))
    assert " SLO         that of each model, below" in text[:own]
    assert not [span for line in lines[:own] for span in line if span.ink == "warn"]
    assert " SLO         TTFT 600 ms · TPOT 50 ms · for 95 % of requests (config)" in text[own:]
    assert [span.text.strip() for line in lines[own:] for span in line if span.ink == "warn"] == ["1400"]
    last = text[text.index(next(line for line in text if line.startswith(" C · "))) :]
    assert [line for line in last if line][1:] == [" no replica of it is up"]
    head = totals_line(shown, 160)
    assert line_text(head).endswith(" · SLO of each model")
    assert not [span for span in head if span.ink == "warn"]


def test_bounds_and_counts_of_goodput() -> None:
    estimated = Goodput(
        offered_per_second=47.1,
        quality=Quality.ESTIMATED,
        ttft=Quantile(0.925, 0.91, 0.94),
        tpot=Quantile(0.89, 0.88, 0.90),
        joint=Bounds(0.79, 0.90, 0.823),
        within_per_second=Bounds(37.2, 42.4, 38.8),
    )
    text = _latency(estimated, width=120)
    assert (
        " within SLO  TTFT 91.0–94.0 % · TPOT 88.0–90.0 % · both 79.0–90.0 %, 82.3? if independent"
    ) in text
    assert " goodput     37.2–42.4 of 47.1 req/s  the objective is missed for certain" in text
    counted = replace(estimated, exact=0.929, good_per_second=43.8)
    assert " goodput     92.9 % of completed requests within it · 43.8 of 47.1 req/s" in _latency(
        counted, width=120
    )


def test_the_burn_table() -> None:
    rows = (
        BurnRow(3600, 300, 15.2, 16.0, 14.4, firing=True),
        BurnRow(21600, 1800, 0.0, 0.4, 6.0),
        BurnRow(86400, 7200, None, 0.4, 3.0),
        BurnRow(259200, 21600, None, None, 1.0),
    )
    text = _latency(Goodput(burn=rows))
    first = next(number for number, line in enumerate(text) if line.startswith(" burn"))
    assert text[first].endswith("5.0 % may miss")
    assert text[first + 1].split() == ["1h", "15.2×", "5m", "16.0×", ">", "14.4×", "fires"]
    assert text[first + 2].split() == ["6h", "0×", "30m", "0.40×", ">", "6.00×"]
    assert text[first + 3].split() == ["24h", "–", "2h", "0.40×", ">", "3.00×"]
    assert text[first + 4].strip() == "not known of 24h, 3d: the history does not reach so far back"


def test_a_model_whose_replicas_are_all_away() -> None:
    lines = latency_page(Picture(fleet([down_replica("c0")])), 80)
    assert line_text(lines[1]) == " no replica of it is up"


def test_the_curve_of_a_pool_with_its_replicas_beside_it() -> None:
    """Two bins, at 10 and at 40 running; of the second replica only the higher one is known."""

    def loaded(name: str, running: tuple[float, ...], good: tuple[float, ...]) -> ReplicaSnapshot:
        count = len(running)
        load = {
            "running": running,
            "good_per_second": good,
            "attainment": (1.0,) * count,
            "ttft_p99_seconds": (0.2,) * count,
            "estimated": (0.0,) * count,
        }
        return replica(name, load=load)

    members = [
        loaded("a1", (10.0,) * 3 + (40.0,) * 3, (2.0,) * 3 + (4.0,) * 3),
        loaded("a2", (40.0,) * 3, (4.0,) * 3),
    ]
    lines = [line_text(line).rstrip() for line in latency_page(Picture(fleet(members)), 120)]
    assert " load curve · decode ×2, load of one of them" in lines
    assert any(line.endswith("a1                       ▄█") for line in lines)
    assert any(line.endswith("a2                        █") for line in lines)


# -- helpers of all pages


def test_text_that_is_cut_says_so() -> None:
    assert wrapped("one two three four", 9, 2) == ["one two", "three fo…"]
    assert wrapped("one two", 9, 2) == ["one two"]


def test_names_are_counted_when_there_are_many() -> None:
    assert names_text(["a", "b"]) == "a b"
    assert names_text(list("abcdef")) == "a b c d +2 more"
    assert names_text([]) == "–"


def test_the_cursor_takes_the_first_cell_of_its_row_alone() -> None:
    rows = event_rows(_happened(), 80)
    assert line_text(rows.line(0, selected=True)).startswith("▸19:59:40")
    assert line_text(rows.line(0)).startswith(" 19:59:40")
    assert rows.position("nowhere") is None
    assert rows.about("nowhere") is None
