"""What only some engines export: there where it is exported, absent (not null, not zero) elsewhere."""

from __future__ import annotations

from enginetop.fleet.beyond import beyond
from enginetop.fleet.beyond_catalogue import BEYOND, BEYOND_MEASURES, MEASURE_KINDS, Form
from enginetop.fleet.document import replica_document, snapshot_document
from enginetop.fleet.facts import Facts, WindowFacts, merge_facts
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.model import EngineKind, Quality, Target
from enginetop.fleet.observation import Observation
from enginetop.fleet.reading import Columns, Identity, Reading
from enginetop.fleet.signals import MEASURES, SIGNALS
from enginetop.fleet.snapshot import Distribution, Scalar, Signals, Slo
from tests.support.history_pages import INF, NAN, Told, columns, histogram, two_ranks, value

ROWS = {row.name: row for row in BEYOND}


def window_of(shape: Columns, *pages: tuple[float, ...]) -> WindowFacts:
    """Pages 10 s apart."""
    told = Told(shape)
    for number, numbers in enumerate(pages):
        told.page(10 * number, *numbers)
    window = told.history.window(600)
    assert window is not None
    return window


def facts_of(shape: Columns, *pages: tuple[float, ...]) -> Facts:
    return window_of(shape, *pages).total


def scalar(found: Signals, name: str) -> Scalar:
    one = found[name]
    assert isinstance(one, Scalar)
    return one


def test_the_catalogue_shares_no_name_with_the_core() -> None:
    assert not {row.name for row in BEYOND} & set(SIGNALS)
    assert not set(BEYOND_MEASURES) & set(MEASURES)
    assert set(MEASURE_KINDS) == {*BEYOND_MEASURES, *MEASURES}
    assert len(ROWS) == len(BEYOND)
    for row in BEYOND:
        assert len(row.measures) == (2 if row.form in (Form.SHARE, Form.SHARE_NOW) else 1), row.name


def test_a_page_without_such_series_says_nothing() -> None:
    assert beyond(facts_of(columns(value("requests_running")), (1,), (2,))) == {}


def test_each_form_over_two_ranks() -> None:
    shape = columns(
        *(value("lora_running_adapters", rank=rank) for rank in ("0", "1")),
        *(value("kv_host_usage_ratio", rank=rank) for rank in ("0", "1")),
        *(value("expert_balance_ratio", rank=rank) for rank in ("0", "1")),
        *(value("kv_host_used_tokens", rank=rank) for rank in ("0", "1")),
        *(value("kv_host_total_tokens", rank=rank) for rank in ("0", "1")),
        *(value("requests_rejected", rank=rank) for rank in ("0", "1")),
        ranks=two_ranks(),
    )
    first = (1, 2, 0.2, 0.6, 0.5, 1.0, 10, 20, 100, 100, 5, 5)
    last = (3, 4, 0.3, 0.7, 0.6, 0.8, 30, 60, 100, 200, 9, 31)
    found = beyond(facts_of(shape, first, last))
    assert scalar(found, "lora_running_adapters").value == 7  # 3 + 4
    assert scalar(found, "kv_host_usage_ratio").value == 0.7  # the fuller rank
    assert scalar(found, "expert_balance_ratio").value == 0.7  # (.6 + .8) / 2
    assert scalar(found, "kv_host_tokens_ratio").value == 0.3  # 90 of 300, not the mean of .3 and .3
    assert scalar(found, "requests_rejected_per_second").value == 3.0  # 4 + 26 in 10 s
    assert list(found) == [row.name for row in BEYOND if row.name in found]


def test_a_rate_needs_two_pages_and_nan_is_no_number() -> None:
    shape = columns(value("requests_rejected"), value("lora_slots_used"))
    once = beyond(facts_of(shape, (5, NAN)))
    assert (scalar(once, "requests_rejected_per_second").value, scalar(once, "lora_slots_used").value) == (
        None,
        None,
    )
    assert scalar(once, "requests_rejected_per_second").note == "needs two samples"
    assert scalar(once, "lora_slots_used").quality is Quality.UNKNOWN


def test_a_share_of_nothing_is_not_zero() -> None:
    shape = columns(value("kv_host_used_tokens"), value("kv_host_total_tokens"))
    found = scalar(beyond(facts_of(shape, (0, 0))), "kv_host_tokens_ratio")
    assert (found.value, found.quality) == (None, Quality.UNKNOWN)
    alone = beyond(facts_of(columns(value("kv_host_used_tokens")), (1,)))
    assert "kv_host_tokens_ratio" not in alone


def test_a_histogram_becomes_a_distribution() -> None:
    shape = columns(*histogram("kv_transfer_seconds", (0.1, INF)))
    found = beyond(facts_of(shape, (0, 0, 0.0, 0), (8, 10, 1.2, 10)))["kv_transfer_seconds"]
    assert isinstance(found, Distribution)
    assert (found.count, found.unit) == (10, "seconds")
    assert found.quantiles["p50"].value == 0.1 * 5 / 8  # rank 5 of 8 in the first bucket
    assert found.quantiles["p95"].censored


def test_a_fleet_adds_those_that_export_it() -> None:
    with_it = window_of(columns(value("backends_healthy")), (3,))
    without = window_of(columns(value("requests_running")), (3,))
    other = window_of(columns(value("backends_healthy")), (4,))
    assert scalar(beyond(merge_facts([with_it, without, other])), "backends_healthy").value == 7


def test_it_reaches_the_snapshot_and_grows_old_with_it() -> None:
    target = Target("http://a:1", "a")
    tracker = FleetTracker(
        (target,),
        interval_seconds=2.0,
        window_seconds=60.0,
        slo_for=lambda model: Slo(),
        fixed_spacing_seconds=2.0,
    )
    shape = columns(value("lora_waiting_adapters"))
    reading = Reading(at=100.0, columns=shape, values=[2.0], identity=Identity(EngineKind.VLLM))
    tracker.observe(target.url, Observation(at=100.0, seconds=0.01, reading=reading))
    fresh = tracker.snapshot(101.0)
    told = {"value": 2.0, "unit": "adapters", "quality": "ok"}
    assert replica_document(fresh.replicas[0])["beyond"] == {"lora_waiting_adapters": told}
    assert snapshot_document(fresh)["fleet"]["beyond"] == {"lora_waiting_adapters": told}
    old = scalar(tracker.snapshot(120.0).replicas[0].beyond, "lora_waiting_adapters")
    assert (old.value, old.quality) == (2.0, Quality.STALE)


def test_requests_that_end_in_errors_are_a_rate_and_a_share() -> None:
    shape = columns(value("requests_errored"), value("requests_finished"))
    found = beyond(facts_of(shape, (2, 100), (7, 150)))
    assert scalar(found, "requests_errored_per_second").value == 0.5  # 5 in 10 s
    assert scalar(found, "requests_errored_ratio").value == 0.1  # 5 of the 50 that ended


def test_an_engine_that_counts_no_errors_has_no_figure_of_them() -> None:
    found = beyond(facts_of(columns(value("requests_finished")), (100,), (150,)))
    assert not [name for name in found if name.startswith("requests_errored")]
