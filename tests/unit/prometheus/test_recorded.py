"""Days of requests from recording rules say of the burn what the raw counts of those days would have said."""

from __future__ import annotations

import pytest

from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.recorded import recorded_counts
from enginetop.fleet.burn import BurnHistory
from enginetop.fleet.snapshot import FleetSnapshot
from tests.support.fake_prometheus import FakePrometheus
from tests.support.small_fleet import vllm_page
from tests.unit.prometheus.test_looks import looking

NOW = 10_000_000.0
HOUR = 3600.0
LIMITS = (1.0, 0.1)
POOLS = {"vllm": ("0.5", "1.0", "2.0"), "sglang": ("0.8", "1.6")}
"""The bounds of TTFT differ by engine."""


def rates(at: float) -> tuple[float, float, float]:
    """Of one instance, a second: requests that end, that are aborted; the share within 1 s of TTFT.

    For half an hour, three hours ago, everything was slow.
    """
    slow = NOW - 3 * HOUR <= at < NOW - 2.5 * HOUR
    return 0.5, 0.05, 0.2 if slow else 0.96


def record(fake: FakePrometheus, hours: float) -> None:
    """What the rules would have recorded, two instances a pool, at every minute."""
    for minute in range(int(hours * 60) + 1):
        at = NOW - hours * HOUR + 60 * minute
        ended, aborted, share = rates(at)
        for job, bounds in POOLS.items():
            for n in (0, 1):
                labels = {"job": job, "instance": f"{job}-{n}:8000"}
                fake.recorded("enginetop:requests_finished:rate5m", labels, at, ended)
                fake.recorded("enginetop:requests_aborted:rate5m", labels, at, aborted)
                for le in (*bounds, "+Inf"):
                    # uniform from 0 to 1 s within, the others between the last bound and for ever
                    within = share * min(1.0, float(le)) if le != "+Inf" else 1.0
                    fake.recorded(
                        "enginetop:ttft_seconds:buckets_rate5m", {**labels, "le": le}, at, ended * within
                    )
                for le, part in (("0.1", 1.0), ("+Inf", 1.0)):
                    fake.recorded(
                        "enginetop:tpot_seconds:buckets_rate5m", {**labels, "le": le}, at, ended * part
                    )


def raw_burn(hours: float) -> BurnHistory:
    """The same load as a tracker would have counted it from pages every 15 s.

    The buckets of the second pool tell of 1 s no more than 0.8 + 0.2 x 0.2 / 0.8 = 0.85 of those within it.
    """
    history = BurnHistory()
    for step in range(int(hours * 240) + 1):
        at = NOW - hours * HOUR + 15 * step
        a_second, lost, share = rates(at)
        ended, aborted = (rate * 15 * 4 for rate in (a_second, lost))
        within = ended * share * (1.0 + 0.85) / 2
        history.add(at, (ended, ended - aborted, 0.0, 0.0, ended, within, ended, ended))
    return history


def test_the_burn_of_recorded_days_is_that_of_raw_ones() -> None:
    fake = FakePrometheus(time=NOW)
    record(fake, 8.0)
    with fake.serving() as url:
        client = PrometheusClient(url)
        counts = recorded_counts(client, LIMITS, NOW)
        client.close()
    history = BurnHistory()
    for at, one in counts:
        history.add(at, one)
    recorded, raw = history.rows(NOW, 0.95), raw_burn(8.0).rows(NOW, 0.95)
    told = [(row.long_seconds, row.long, row.short) for row in recorded[:2]]
    assert [row[0] for row in told] == [HOUR, 6 * HOUR]
    for row, other in zip(told, raw, strict=False):
        assert row[1] is not None
        assert row[1] == pytest.approx(other.long, rel=0.02)
    # by hand, of one hour: 90 % complete, 0.96 x 0.925 of these in time: bad 1 - 0.7992, of a budget of 0.05
    assert told[0][1] == pytest.approx(4.016)


def test_a_number_that_is_none_burns_no_budget() -> None:
    """Taken for a count it said that nothing completes, or ended the look."""
    labels = {"job": "vllm", "instance": "vllm-2:8000"}

    def counted(odd: dict[str, dict[str, str]]) -> list[tuple[float, ...]]:
        fake = FakePrometheus(time=NOW)
        record(fake, 0.2)
        for name, more in odd.items():
            fake.recorded(name, {**labels, **more}, NOW - 120.0, float("nan"))
        with fake.serving() as url:
            client = PrometheusClient(url)
            counts = recorded_counts(client, LIMITS, NOW)
            client.close()
        return [(at, *one) for at, one in counts if at == NOW - 100.0]  # a multiple of 60 s

    ((_, requests, completed, *_),) = counted({})
    assert (requests, completed) == pytest.approx((120.0, 108.0))  # four engines of half a request a second
    ((_, *lost),) = counted({"enginetop:requests_aborted:rate5m": {}})
    assert lost[:2] == pytest.approx([120.0, 120.0])  # how many were lost then is not known
    assert counted({"enginetop:ttft_seconds:buckets_rate5m": {"le": "soon"}}) == counted({})
    assert counted({"enginetop:requests_finished:rate5m": {}}) == []


def test_where_no_rule_is_recorded_nothing_is_asked_for() -> None:
    fake = FakePrometheus(time=NOW)
    with fake.serving() as url:
        client = PrometheusClient(url)
        assert recorded_counts(client, LIMITS, NOW) == ()
        client.close()
    assert fake.asked == ["/api/v1/label/job/values"]


def test_gateways_do_not_count_their_engines_requests_again() -> None:
    fake = FakePrometheus(time=NOW)
    record(fake, 0.2)
    for at in (NOW - 60.0, NOW):
        labels = {"job": "frontend", "instance": "f:8000"}
        fake.recorded("dynamo_frontend_requests_total", labels, at, 5.0)
        fake.recorded("enginetop:requests_finished:rate5m", labels, at, 1000.0)
    with fake.serving() as url:
        client = PrometheusClient(url)
        counts = recorded_counts(client, LIMITS, NOW)
        client.close()
    # four engines of half a request a second, for a minute
    assert {round(one[0]) for at, one in counts if at > NOW - 600} == {120}


def seen_with(fake: FakePrometheus, limits: tuple[float, float] | None) -> FleetSnapshot:
    with looking(fake, limits=limits) as looks:
        return looks.look()


def test_a_live_view_begins_with_them_and_lives_without() -> None:
    fake = FakePrometheus(time=NOW)
    record(fake, 2.0)
    for step in range(9):
        page = vllm_page(running=1, tokens=10 * step).decode()
        fake.scraped({"job": "vllm", "instance": "vllm-0:8000"}, NOW - 120 + 15 * step, page)
    known = seen_with(fake, LIMITS).fleet.goodput.burn[0]
    assert known.long is not None
    assert seen_with(fake, None).fleet.goodput.burn[0].long is None
    fake.fault = lambda path: (422, b'{"error": "too many samples"}') if path.endswith("range") else None
    without = seen_with(fake, LIMITS)
    assert without.fleet.goodput.burn[0].long is None
    assert without.replicas[0].state == "ok"
