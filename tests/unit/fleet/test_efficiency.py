"""Energy and cost of tokens; the published example and figures worked out by hand."""

from __future__ import annotations

import pytest

from enginetop.fleet.config import parse_config, price_of
from enginetop.fleet.derive import no_signals
from enginetop.fleet.efficiency import MeanPower, Price, efficiency
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.model import Quality, Target
from enginetop.fleet.snapshot import FleetSnapshot, Goodput, GpuDevice, GpuReport, Scalar, Signals, Slo, Span
from tests.support.looks import page

NODE = Price(11 / 8, "EUR")
"""Eight GPUs, 11 EUR an hour."""


def tokens(rate: float | None, quality: Quality = Quality.OK) -> Signals:
    return {**no_signals(), "generation_tokens_per_second": Scalar(rate, "tokens/s", quality)}


def of(
    rate: float | None,
    goodput: Goodput,
    watts: float | None = 5600.0,
    gpus: int | None = 8,
    price: Price | None = NODE,
) -> dict[str, Scalar]:
    found = efficiency(
        tokens(rate), goodput, mean_watts=watts, gpus=gpus, why_not="2 replicas share the GPUs", price=price
    )
    return {name: value for name, value in found.items() if isinstance(value, Scalar)}


COUNTED = Goodput(10.0, good_per_second=8.5, exact=0.85, quality=Quality.OK)


def test_a_node_of_eight_gpus() -> None:
    # 3330 good of 4000 tok/s: 11 / (3330 x 3600) x 10^6 = 0.918 a million good tokens; of all: 0.764
    found = of(4000.0, Goodput(100.0, good_per_second=83.25, exact=0.8325, quality=Quality.OK))
    assert found["cost_per_million_good_tokens"].value == pytest.approx(0.918, abs=0.0005)
    assert found["cost_per_million_tokens"].value == pytest.approx(11 / (4000 * 3600) * 1e6)
    assert found["energy_joules_per_token"].value == pytest.approx(1.4)  # 5600 W / 4000
    assert {one.quality for one in found.values()} == {Quality.OK}
    assert [found[name].unit for name in found] == ["J/token", "EUR", "EUR"]


def test_good_tokens_by_an_estimate_are_an_estimate() -> None:
    told = Goodput(10.0, within_per_second=Span(4.0, 6.0, 5.0), quality=Quality.ESTIMATED)
    good = of(4000.0, told)["cost_per_million_good_tokens"]
    assert good.value == pytest.approx(2 * 11 / (4000 * 3600) * 1e6)
    assert good.quality is Quality.ESTIMATED


def test_what_is_made_of_an_estimated_rate_says_why_it_is_an_estimate() -> None:
    rate = Scalar(4000.0, "tokens/s", Quality.ESTIMATED, "why")
    averaged = {**no_signals(), "generation_tokens_per_second": rate}
    found = efficiency(averaged, COUNTED, mean_watts=5600.0, gpus=8, why_not="", price=NODE)
    assert {one.quality for one in found.values()} == {Quality.ESTIMATED}
    assert {name: one.note for name, one in found.items()} == {
        "energy_joules_per_token": "why",
        "cost_per_million_tokens": "8 GPUs; why",
        "cost_per_million_good_tokens": "good tokens by the share of requests; why",
    }


@pytest.mark.parametrize("rate", [0.0, None])
def test_without_tokens_nothing_is_said(rate: float | None) -> None:
    assert {one.value for one in of(rate, COUNTED).values()} == {None}


def test_what_is_not_known_leaves_the_rest() -> None:
    shared = of(4000.0, COUNTED, watts=None, gpus=None)
    assert {(one.value, one.note) for one in shared.values()} == {(None, "2 replicas share the GPUs")}
    free = of(4000.0, COUNTED, price=None)
    assert free["energy_joules_per_token"].value == pytest.approx(1.4)
    assert free["cost_per_million_tokens"].note == "no price: set per_gpu_hour in [cost]"
    assert of(4000.0, Goodput(10.0))["cost_per_million_good_tokens"].note == "goodput is not known"
    none_good = of(4000.0, Goodput(10.0, good_per_second=0.0, quality=Quality.OK))
    assert none_good["cost_per_million_good_tokens"].value is None


def test_power_is_the_mean_of_the_window() -> None:
    power = MeanPower(60.0)
    for at, watts in ((0.0, 900.0), (10.0, 500.0), (40.0, 600.0), (60.0, 700.0)):
        power.add(at, Scalar(watts, "W", Quality.OK))
    power.add(61.0, Scalar(900.0, "W", Quality.STALE))
    assert power.mean(60.0) == 600.0  # the first is 60 s old
    assert power.mean(200.0) is None


def fleet(*reports: GpuReport) -> FleetSnapshot:
    """Two replicas on two hosts; each makes 100 tokens in 10 s."""
    targets = (Target("http://a:8000", "a"), Target("http://b:8000", "b"))
    tracker = FleetTracker(
        targets,
        interval_seconds=2.0,
        window_seconds=60.0,
        slo_for=lambda _: Slo(),
        fixed_spacing_seconds=2.0,
        price=Price(1.8),
    )
    for at in (0.0, 10.0):
        for report in reports:
            tracker.observe_gpus(GpuReport(report.host, at, report.gpus))
        for one in targets:
            tracker.observe(one.url, page(at, tokens=10 * at))
        tracker.snapshot(at)
    return tracker.snapshot(10.0)


def number(signals: Signals, name: str) -> tuple[object, str]:
    value = signals[name]
    assert isinstance(value, Scalar)
    return value.value, value.note


def test_in_a_fleet_of_two() -> None:
    made = fleet(
        GpuReport("a", 0.0, (GpuDevice(0, "G0", "H100", power_watts=300.0),)),
        GpuReport("b", 0.0, tuple(GpuDevice(i, f"G{i}", "H100", power_watts=250.0) for i in (1, 2))),
    )
    a, b = made.replicas
    assert number(a.signals, "energy_joules_per_token") == (30.0, "")  # 300 W / 10 tok/s
    assert number(b.signals, "energy_joules_per_token") == (50.0, "")
    assert number(made.fleet.signals, "energy_joules_per_token") == (40.0, "")  # 800 W / 20 tok/s
    # 3 GPUs x 1.8 an hour / (20 x 3600) = 75 a million
    assert number(made.fleet.signals, "cost_per_million_tokens") == (pytest.approx(75.0), "3 GPUs")
    assert number(a.signals, "cost_per_million_tokens") == (pytest.approx(50.0), "1 GPU")


def test_a_replica_without_gpu_figures_takes_the_fleets_away() -> None:
    made = fleet(GpuReport("a", 0.0, (GpuDevice(0, "G0", "H100", power_watts=300.0),)))
    assert number(made.fleet.signals, "energy_joules_per_token") == (
        None,
        "1 of 2 replicas without GPU figures",
    )
    assert number(made.replicas[1].signals, "energy_joules_per_token") == (None, "no GPU figures")


def test_parts_of_a_gpu_have_no_price() -> None:
    made = fleet(GpuReport("a", 0.0, (GpuDevice(0, "G0", "H100", mig="1g.10gb"),)))
    assert number(made.replicas[0].signals, "cost_per_million_tokens")[0] is None


def test_the_config_table() -> None:
    table = parse_config({"cost": {"per_gpu_hour": 1.375, "currency": "EUR"}}, "f").cost
    assert table is not None
    assert price_of(table) == NODE
    for wrong in ({}, {"per_gpu_hour": 0}, {"per_gpu_hour": 1, "currency": "\x1b[31m"}):
        with pytest.raises(ConfigError, match="cost"):
            parse_config({"cost": wrong}, "f")


@pytest.mark.parametrize("currency", ["\x1b[31m", "E\x07R", "x" * 17])
def test_a_currency_that_is_none_is_told_in_words(currency: str) -> None:
    with pytest.raises(ConfigError, match="a currency is at most 16 printable characters, like EUR or"):
        parse_config({"cost": {"per_gpu_hour": 1, "currency": currency}}, "f")
