"""The error budget from pages of a recording: who pages at the minute worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pytest

from collectors.recording_reader import Recording
from collectors.replay import Player
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.model import Target
from enginetop.fleet.snapshot import BurnRow, FleetSnapshot, Slo
from tests.support.small_fleet import new_feeds

SPACING = 15.0
HOUR = 3600.0
SLO = Slo(0.5, 0.05, 0.99, "config")


def tracker(targets: Sequence[Target]) -> FleetTracker:
    return FleetTracker(
        targets,
        interval_seconds=2.0,
        window_seconds=60.0,
        slo_for=lambda _: SLO,
        fixed_spacing_seconds=None,
    )


def body(ended: int, late: int) -> str:
    """`ended` requests, of which `late` had their first token after the objective's half second."""
    labels = 'engine="0",model_name="m"'
    lines = [
        "# TYPE vllm:num_requests_running gauge",
        f"vllm:num_requests_running{{{labels}}} 1",
        "# TYPE vllm:request_success counter",
        f'vllm:request_success_total{{{labels},finished_reason="stop"}} {ended}',
    ]
    for name, bound, within in (
        ("time_to_first_token_seconds", 0.5, ended - late),
        ("request_time_per_output_token_seconds", 0.05, ended),
    ):
        lines += [
            f"# TYPE vllm:{name} histogram",
            f'vllm:{name}_bucket{{{labels},le="{bound}"}} {within}',
            f'vllm:{name}_bucket{{{labels},le="+Inf"}} {ended}',
            f"vllm:{name}_sum{{{labels}}} {ended}",
            f"vllm:{name}_count{{{labels}}} {ended}",
        ]
    return "\n".join(lines) + "\n"


def pages(until: float, bad_from: float) -> Iterator[str]:
    """Two replicas, ten requests a page each; from `bad_from` on all of the first one's are late."""
    late = 0
    for step in range(int(until / SPACING) + 1):
        at = step * SPACING
        late += 10 if at > bad_from else 0
        for url, bad in (("http://r1:8000", late), ("http://r2:8000", 0)):
            record = {"t": at, "target": url, "path": "/metrics", "body": body(10 * step, bad)}
            yield json.dumps(record) + "\n"


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> list[FleetSnapshot]:
    file = tmp_path_factory.mktemp("burn") / "hours.jsonl"
    file.write_text("".join(pages(2 * HOUR, HOUR)), encoding="utf-8")
    player = Player(Recording(file), new_tracker=tracker, new_feed=new_feeds())
    return [player.step(step) for step in player.recording.steps()]


def fast(rows: Sequence[BurnRow]) -> BurnRow:
    return rows[0]


def test_the_fleet_pages_when_both_windows_are_over(snapshots: list[FleetSnapshot]) -> None:
    # half of all requests late: an hour holds more than 14.4 % bad once more than 28.8 % of it passed: at
    # 3600 + 1036.8 s, on the page after that; 5 min of 50 % bad were over the threshold long before
    firing = [one.at for one in snapshots if fast(one.fleet.goodput.burn).firing]
    assert firing[0] == HOUR + 1050.0
    assert fast(snapshots[-1].fleet.goodput.burn).long == pytest.approx(50.0)


def test_its_replica_pages_sooner_and_the_other_one_never(snapshots: list[FleetSnapshot]) -> None:
    # all late: more than 14.4 % of an hour is 518.4 s
    bad = [one.at for one in snapshots if fast(one.replicas[0].goodput.burn).firing]
    assert bad[0] == HOUR + 525.0
    assert fast(snapshots[-1].replicas[0].goodput.burn).short == pytest.approx(100.0)
    assert not any(fast(one.replicas[1].goodput.burn).firing for one in snapshots)


def test_windows_without_a_history_are_unknown(snapshots: list[FleetSnapshot]) -> None:
    first = next(one for one in snapshots if fast(one.fleet.goodput.burn).long is not None)
    assert first.at == HOUR
    assert [row.long for row in snapshots[-1].fleet.goodput.burn[1:]] == [None] * 3
