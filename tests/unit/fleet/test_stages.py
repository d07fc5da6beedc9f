"""Prefill and decode on separate workers: what both count of a request is counted once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enginetop.fleet.derive import signals
from enginetop.fleet.facts import Facts, Gain, Gap, Ratio, WindowFacts, merge_parts
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.histogram import HistogramIncrease
from enginetop.fleet.model import EngineKind, Quality, Role, Target
from enginetop.fleet.reading import Identity
from enginetop.fleet.signals import MEASURES
from enginetop.fleet.snapshot import Distribution, FleetSnapshot, Scalar, Slo
from enginetop.fleet.stages import COUNTED_BY, Flow, StagePart, StageRule
from tests.support.looks import page

HISTOGRAM = HistogramIncrease((1.0,), (4.0,), 4.0, 2.0, False, False)


def facts(*measures: str, ratios: tuple[str, ...] = (), gaps: tuple[str, ...] = ()) -> WindowFacts:
    """A window of 10 s in which every counter named grew by 20."""
    histograms = {name: HISTOGRAM for name in measures if name.endswith("_seconds")}
    gains = {name: Gain(20.0, 2.0) for name in measures if name not in histograms}
    total = Facts(
        1,
        {},
        gains,
        {name: Ratio({0: 1.0}, 2.0) for name in ratios},
        histograms,
        {name: Gap(Quality.UNKNOWN) for name in gaps},
    )
    return WindowFacts(0.0, 10.0, total, ())


def told(window: WindowFacts) -> set[str]:
    total = window.total
    return {*total.gains, *total.histograms, *total.ratios, *total.gaps}


BOTH = (
    "requests_finished",
    "generation_tokens",
    "prompt_tokens_processed",
    "e2e_seconds",
    "ttft_seconds",
    "preemptions",
)


def counted(*parts: StagePart) -> list[set[str]]:
    return [told(window) for window in StageRule().counted(parts)]


@pytest.mark.parametrize(
    ("stack", "seen_by_prefill", "seen_by_decode"),
    [
        ("vllm", {"ttft_seconds"}, set()),
        ("dynamo", {"ttft_seconds"}, set()),
        ("sglang", set(), {"ttft_seconds"}),
    ],
)
def test_each_measure_is_taken_from_one_stage(
    stack: str, seen_by_prefill: set[str], seen_by_decode: set[str]
) -> None:
    prefill, decode = counted(
        StagePart(facts(*BOTH), Role.PREFILL, Flow(stack)), StagePart(facts(*BOTH), Role.DECODE, Flow(stack))
    )
    assert prefill == {"prompt_tokens_processed", "preemptions"} | seen_by_prefill
    assert decode == {"requests_finished", "generation_tokens", "e2e_seconds", "preemptions"} | seen_by_decode


def test_what_only_one_stage_tells_is_kept() -> None:
    """A prefill mocker tells neither prompt tokens nor TTFT: then decode's are all there is."""
    prefill, decode = counted(
        StagePart(facts("requests_finished", "e2e_seconds"), Role.PREFILL, Flow("dynamo")),
        StagePart(facts(*BOTH), Role.DECODE, Flow("dynamo")),
    )
    assert prefill == set()
    assert decode == set(BOTH)


@pytest.mark.parametrize(("quality", "stands_in"), [(Quality.SUSPECT, False), (Quality.UNSUPPORTED, True)])
def test_no_stage_stands_in_while_the_other_does_not_know(quality: Quality, stands_in: bool) -> None:
    decode = facts("e2e_seconds")
    decode = replace(
        decode, total=replace(decode.total, gaps={"requests_finished": Gap(quality, "jumps back and forth")})
    )
    prefill, _ = counted(
        StagePart(facts("requests_finished"), Role.PREFILL, Flow("sglang")),
        StagePart(decode, Role.DECODE, Flow("sglang")),
    )
    assert ("requests_finished" in prefill) is stands_in


def test_ratios_and_gaps_of_what_is_left_out_go_with_it() -> None:
    window = facts(
        "prefix_queries", "prefix_hits", ratios=("prefix_hit_ratio", "spec_acceptance_ratio"), gaps=()
    )
    prompts = facts("prefix_queries", "prefix_hits", ratios=("prefix_hit_ratio",), gaps=("requests_errored",))
    whole = facts("requests_errored", ratios=("prefix_hit_ratio",))
    prefill, decode = counted(
        StagePart(prompts, Role.PREFILL, Flow("vllm")),
        StagePart(
            replace(window, total=replace(window.total, gains={**window.total.gains, **whole.total.gains})),
            Role.DECODE,
            Flow("vllm"),
        ),
    )
    assert prefill == {"prefix_queries", "prefix_hits", "prefix_hit_ratio"}
    assert decode == {"requests_errored", "spec_acceptance_ratio"}


@pytest.mark.parametrize(
    "parts",
    [
        [(Role.PREFILL, "sglang"), (Role.PREFILL, "sglang")],
        [(Role.DECODE, "sglang"), (Role.DECODE, "sglang")],
        [(Role.PREFILL, "sglang"), (Role.AGGREGATED, "vllm")],
        [(Role.PREFILL, "sglang"), (Role.AGGREGATED, "sglang")],  # another pool of the same engine
        [(Role.PREFILL, "sglang"), (Role.DECODE, "dynamo")],
        [(Role.AGGREGATED, "vllm"), (Role.AGGREGATED, "dynamo")],
        [],
    ],
)
def test_a_stage_that_nobody_completes_counts_in_full(parts: list[tuple[Role, str]]) -> None:
    found = counted(*(StagePart(facts(*BOTH), role, Flow(stack)) for role, stack in parts))
    assert found == [set(BOTH)] * len(parts)


def test_a_dynamo_worker_of_no_stage_is_one_of_decode_beside_prefill_workers() -> None:
    prefill, backend = counted(
        StagePart(facts(*BOTH), Role.PREFILL, Flow("dynamo")),
        StagePart(facts(*BOTH), Role.AGGREGATED, Flow("dynamo")),
    )
    assert "requests_finished" not in prefill
    assert "prompt_tokens_processed" not in prefill  # the backend's page has the whole of every prompt
    assert backend == set(BOTH)  # it may have computed its prompts itself


def test_the_prompts_of_a_prefill_pool_count_where_its_decode_workers_are_known() -> None:
    prefill, _, decode = counted(
        StagePart(facts(*BOTH), Role.PREFILL, Flow("dynamo")),
        StagePart(facts(*BOTH), Role.AGGREGATED, Flow("dynamo")),
        StagePart(facts(*BOTH), Role.DECODE, Flow("dynamo")),
    )
    assert "prompt_tokens_processed" in prefill
    assert "prompt_tokens_processed" not in decode


def test_a_lone_prefill_pool_is_not_cut_for_the_decode_workers_of_another_model() -> None:
    lone, prefill, decode = counted(
        StagePart(facts(*BOTH), Role.PREFILL, Flow("sglang", "a")),
        StagePart(facts(*BOTH), Role.PREFILL, Flow("sglang", "b")),
        StagePart(facts(*BOTH), Role.DECODE, Flow("sglang", "b")),
    )
    assert lone == set(BOTH)
    assert "requests_finished" not in prefill
    assert "prompt_tokens_processed" not in decode


@pytest.mark.parametrize(("prefills", "decodes"), [("a", None), (None, "a"), (None, None)])
def test_a_worker_whose_model_is_not_known_may_have_requests_of_any(
    prefills: str | None, decodes: str | None
) -> None:
    prefill, _ = counted(
        StagePart(facts(*BOTH), Role.PREFILL, Flow("sglang", prefills)),
        StagePart(facts(*BOTH), Role.DECODE, Flow("sglang", decodes)),
    )
    assert "requests_finished" not in prefill


def test_decode_workers_of_one_model_say_nothing_of_those_of_another() -> None:
    """Dynamo: model a has workers of no stage, b has decode workers that call themselves so."""
    of_a, _, of_b, _ = counted(
        StagePart(facts(*BOTH), Role.PREFILL, Flow("dynamo", "a")),
        StagePart(facts(*BOTH), Role.AGGREGATED, Flow("dynamo", "a")),
        StagePart(facts(*BOTH), Role.PREFILL, Flow("dynamo", "b")),
        StagePart(facts(*BOTH), Role.DECODE, Flow("dynamo", "b")),
    )
    assert "prompt_tokens_processed" not in of_a
    assert "prompt_tokens_processed" in of_b


def test_facts_that_stay_are_the_same_objects_after_the_rule() -> None:
    rule = StageRule()
    parts = [
        StagePart(facts(*BOTH), Role.PREFILL, Flow("vllm")),
        StagePart(facts(*BOTH), Role.DECODE, Flow("vllm")),
    ]
    first, again = rule.counted(parts), rule.counted(parts)
    assert all(one is other for one, other in zip(first, again, strict=True))
    changed = rule.counted([parts[0], replace(parts[1], facts=facts("requests_finished"))])
    assert changed[0] is not first[0]
    assert "ttft_seconds" in told(changed[0])


def test_the_table_names_measures_of_the_catalogue_and_the_two_stages() -> None:
    assert set(COUNTED_BY) <= set(MEASURES)
    assert set(COUNTED_BY.values()) == {Role.PREFILL, Role.DECODE}


# Through the tracker: ten requests a window, each of which passes through a prefill and a decode worker

PREFILL, DECODE, GATEWAY = (Target(f"http://{name}:1", name) for name in ("prefill", "decode", "gateway"))
WORKER = Identity(EngineKind.DYNAMO, role=Role.AGGREGATED, stack="dynamo", worker=7)


def split_fleet(decode: Identity, workers: dict[int, Role] | None = None) -> FleetSnapshot:
    fleet = FleetTracker(
        [PREFILL, DECODE, GATEWAY],
        interval_seconds=2.0,
        window_seconds=60.0,
        slo_for=lambda model: Slo(),
        fixed_spacing_seconds=None,
    )
    identities = {
        PREFILL.url: replace(WORKER, role=Role.PREFILL, worker=8),
        DECODE.url: decode,
        GATEWAY.url: Identity(EngineKind.DYNAMO, role=Role.GATEWAY, stack="dynamo"),
    }
    for at in (0.0, 5.0, 10.0):
        for url, identity in identities.items():
            ended = at  # one a second
            look = page(at, tokens=100 * ended, finished=ended, e2e=(ended,) * 3, identity=identity)
            if url == GATEWAY.url and look.reading is not None and workers is not None:
                look = replace(look, reading=replace(look.reading, workers=workers))
            fleet.observe(url, look)
        fleet.snapshot(at)
    return fleet.snapshot(10.0)


@pytest.mark.parametrize("role", [Role.DECODE, Role.AGGREGATED])
def test_a_request_through_both_stages_and_the_gateway_counts_once(role: Role) -> None:
    snapshot = split_fleet(replace(WORKER, role=role))
    finished = snapshot.fleet.signals["requests_finished_per_second"]
    e2e = snapshot.fleet.signals["e2e_seconds"]
    assert isinstance(finished, Scalar)
    assert isinstance(e2e, Distribution)
    assert finished.number == 1.0
    assert e2e.count == 10
    # every row shows what its own page says
    for replica in snapshot.replicas:
        assert replica.scalar("requests_finished_per_second").number == 1.0


def test_the_error_budget_counts_them_once_too() -> None:
    once = split_fleet(replace(WORKER, role=Role.DECODE)).fleet.goodput.offered_per_second
    assert once == 1.0


@pytest.mark.parametrize(
    ("own", "told_by_gateway", "shown"),
    [
        (Role.AGGREGATED, {7: Role.DECODE, 8: Role.PREFILL}, Role.DECODE),
        (Role.AGGREGATED, {8: Role.PREFILL}, Role.AGGREGATED),
        (Role.AGGREGATED, None, Role.AGGREGATED),
        (Role.PREFILL, {7: Role.DECODE}, Role.PREFILL),  # its own word counts more
    ],
)
def test_a_gateway_tells_the_roles_of_its_workers(
    own: Role, told_by_gateway: dict[int, Role] | None, shown: Role
) -> None:
    snapshot = split_fleet(replace(WORKER, role=own), told_by_gateway)
    assert [one.role for one in snapshot.replicas if one.target is DECODE] == [shown]


def test_an_estimate_of_a_part_of_the_engines_is_one() -> None:
    """One engine that estimates it, one that does not export it."""
    tells = replace(facts("generation_tokens").total, estimated={"generation_tokens": "counted by gaps"})
    lacks = replace(facts().total, gaps={"generation_tokens": Gap(Quality.UNSUPPORTED, "not exported")})
    shown = signals(merge_parts([tells, lacks]))["generation_tokens_per_second"]
    assert isinstance(shown, Scalar)
    assert (shown.number, shown.quality) == (2.0, Quality.ESTIMATED)
    assert shown.note == "from 1 of 2 engines; counted by gaps"
