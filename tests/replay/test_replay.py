"""Recordings by hand, replayed to figures worked out by hand, and a live run that replays as it was."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from collectors.engines.detect import SIDE_FIELDS
from collectors.http import HttpFetcher
from collectors.loop import LiveEngine
from collectors.record import Recorder
from collectors.replay import ReplaySource, run_replay
from enginetop.fleet.document import snapshot_document
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.model import ReplicaState
from enginetop.fleet.snapshot import CollectorHealth, FleetSnapshot
from tests.support.faulty_server import FaultyServer, Reply, Request, page
from tests.support.small_fleet import new_feeds, replica, target, tracker_of, vllm_page, wait_until

R1, R2 = "http://r1:8000", "http://r2:8000"


def line(
    t: float, body: bytes | str | None = None, url: str = R1, path: str = "/metrics", **more: Any
) -> str:
    record: dict[str, Any] = {"t": t, "target": url, "path": path, **more}
    if body is not None:
        record["body"] = body.decode() if isinstance(body, bytes) else body
    return json.dumps(record) + "\n"


def replay(tmp_path: Path, *lines: str) -> FleetSnapshot:
    path = tmp_path / "hand.jsonl"
    path.write_text("".join(lines))
    return run_replay(path, new_tracker=tracker_of, new_feed=new_feeds())


def rate(snapshot: FleetSnapshot, url: str = R1) -> float | None:
    return replica(snapshot, url).scalar("generation_tokens_per_second").number


def test_two_lines_without_a_header_give_rates(tmp_path: Path) -> None:
    snapshot = replay(tmp_path, line(100.0, vllm_page(3, 1000)), line(105.0, vllm_page(4, 1600)))
    document = snapshot_document(snapshot)
    assert document["schema"] == "enginetop.snapshot/1"
    assert document["at"] == 105.0
    (shown,) = document["replicas"]
    assert (shown["target"], shown["name"], shown["engine"]) == (R1, "r1:8000", "vllm")
    assert (shown["state"], shown["scraped_at"]) == ("ok", 105.0)
    assert shown["signals"]["requests_running"]["value"] == 4
    assert shown["signals"]["generation_tokens_per_second"]["value"] == 120.0  # 600 tokens in 5 s
    assert document["fleet"]["signals"]["generation_tokens_per_second"]["value"] == 120.0


def test_a_reset_between_two_pages_counts_from_zero(tmp_path: Path) -> None:
    lines = [line(t, vllm_page(1, n)) for t, n in ((0.0, 500), (10.0, 900), (20.0, 100))]
    # 400 in the first step, 100 after the restart, over 20 s
    assert rate(replay(tmp_path, *lines)) == 25.0


@pytest.mark.parametrize("first", [line(10.0, vllm_page(1, 500)), line(10.0, error="refused")])
def test_of_a_path_told_twice_at_one_instant_the_last_word_counts(tmp_path: Path, first: str) -> None:
    twice = replay(tmp_path, line(0.0, vllm_page(1, 0)), first, line(10.0, vllm_page(2, 600)))
    assert rate(twice) == 60.0
    assert replica(twice, R1).scalar("requests_running").number == 2


def test_the_recordings_clock_rules(tmp_path: Path) -> None:
    """Spacing of a day: nothing is stale, since age is judged by the target's own spacing."""
    snapshot = replay(tmp_path, line(0.0, vllm_page(1, 0)), line(86400.0, vllm_page(1, 86400)))
    assert replica(snapshot, R1).state is ReplicaState.OK
    assert rate(snapshot) == 1.0
    assert replica(replay(tmp_path, line(5.0, vllm_page())), R1).state is ReplicaState.OK


def test_a_404_on_one_path_beside_a_good_page(tmp_path: Path) -> None:
    lines = []
    for t, tokens in ((0.0, 0), (2.0, 100)):
        lines.append(line(t, "", path="/prometheus/metrics", status=404))
        lines.append(line(t, vllm_page(1, tokens)))
    snapshot = replay(tmp_path, *lines)
    assert (replica(snapshot, R1).state, rate(snapshot)) == (ReplicaState.OK, 50.0)


@pytest.mark.parametrize("word", ["refused", "dns", "tls", "timeout"])
def test_two_failures_of_the_connection_are_down_and_one_is_not(tmp_path: Path, word: str) -> None:
    good = [line(t, vllm_page(1, int(t) * 10)) for t in (0.0, 2.0, 4.0)]
    once = replay(tmp_path, *good, line(6.0, error=word))
    assert replica(once, R1).state is ReplicaState.OK
    twice = replay(tmp_path, *good, line(6.0, error=word), line(8.0, error=word))
    assert replica(twice, R1).state is ReplicaState.DOWN


@pytest.mark.parametrize(
    ("word", "state"),
    [("truncated", "stale"), ("too_large", "no_engine_metrics"), ("protocol", "no_engine_metrics")],
)
def test_the_other_error_words_without_a_good_page(tmp_path: Path, word: str, state: str) -> None:
    assert replica(replay(tmp_path, line(0.0, error=word)), R1).state == state


def test_one_down_beside_one_up(tmp_path: Path) -> None:
    lines = []
    for t in (0.0, 2.0, 4.0):
        lines += [line(t, vllm_page(2, int(t) * 100)), line(t, error="refused", url=R2)]
    snapshot = replay(tmp_path, *lines)
    assert [one.target.url for one in snapshot.replicas] == [R1, R2]
    assert dict(snapshot.fleet.states) == {ReplicaState.OK: 1, ReplicaState.DOWN: 1}
    fleet = snapshot_document(snapshot)["fleet"]
    assert fleet["signals"]["generation_tokens_per_second"]["value"] == 100.0
    assert fleet["signals"]["requests_running"]["value"] == 2


def test_gpu_records_belong_to_their_host(tmp_path: Path) -> None:
    gpu = {"index": 0, "uuid": "GPU-1", "name": "H200", "power_watts": 410.5, "throttle_reasons": ["power"]}
    snapshot = replay(
        tmp_path,
        line(0.0, vllm_page()),
        line(0.0, vllm_page(), url=R2),
        json.dumps({"t": 0.0, "target": "gpu://r1", "kind": "gpu", "gpus": [gpu, 7]}) + "\n",
    )
    (device,) = replica(snapshot, R1).gpus
    assert (device.power_watts, device.throttle_reasons, device.utilization_ratio) == (
        410.5,
        ("power",),
        None,
    )
    assert replica(snapshot, R2).gpus == ()


def test_a_header_gives_names_and_order(tmp_path: Path) -> None:
    header = {
        "enginetop_recording": 1,
        "created": 0.0,
        "later": True,
        "targets": [{"url": R2, "name": "second"}, {"url": R1, "name": "a1"}],
    }
    snapshot = replay(tmp_path, json.dumps(header) + "\n", line(0.0, vllm_page()))
    assert [(one.target.url, one.target.name) for one in snapshot.replicas] == [(R2, "second"), (R1, "a1")]
    assert replica(snapshot, R2).state is ReplicaState.UNKNOWN


def test_unknown_keys_kinds_and_broken_lines_are_passed_over(tmp_path: Path) -> None:
    snapshot = replay(
        tmp_path,
        "\n",
        line(0.0, vllm_page(1, 0), more=1, headers={"X": "y"}),
        line(1.0, None, kind="request", prompt_tokens=900),
        line(2.0, None, kind="from-the-future"),
        "{broken\n",
        '{"t": "soon", "target": "http://r1:8000", "path": "/metrics"}\n',
        '{"t": 3.0, "path": "/metrics"}\n',
        '{"t": 3.0, "target": "http://r1:8000"}\n',
        line(3.0, None, error="bored"),
        line(3.0, None, error=["timeout"]),
        "[]\n",
        line(4.0, vllm_page(1, 400)),
        line(6.0, vllm_page(1, 9999)).rstrip("\n")[:-5],
    )
    assert (snapshot.at, rate(snapshot)) == (4.0, 100.0)
    assert "7 lines skipped (line 5: not JSON)" in snapshot.collector.problem
    assert "last line is cut off" in snapshot.collector.problem


def test_a_request_record_moves_the_clock_and_an_unknown_kind_does_not(tmp_path: Path) -> None:
    pages = [line(t, vllm_page(1, int(t))) for t in (0.0, 2.0, 4.0)]
    snapshot = replay(
        tmp_path, *pages, line(20.0, None, kind="request", output_tokens=7), line(30.0, None, kind="other")
    )
    assert snapshot.at == 20.0
    assert [one.state for one in snapshot.replicas] == [ReplicaState.STALE]


@pytest.mark.parametrize(
    ("word", "said"),
    [("tls", "TLS failed for 2 s"), ("truncated", "the metrics page is cut short, for 2 s")],
)
def test_an_error_without_a_detail_is_told_in_plain_words(tmp_path: Path, word: str, said: str) -> None:
    snapshot = replay(tmp_path, line(0.0, error=word), line(2.0, error=word))
    assert replica(snapshot, R1).reasons == (said,)


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    snapshot = replay(tmp_path, "\N{BOM}" + line(0.0, vllm_page(1, 0)), line(2.0, vllm_page(1, 10)))
    assert (rate(snapshot), snapshot.collector.problem) == (5.0, "")


def test_lines_out_of_order_are_sorted(tmp_path: Path) -> None:
    mixed = [line(t, vllm_page(1, int(t) * 10), url=url) for url in (R1, R2) for t in (4.0, 0.0, 2.0)]
    snapshot = replay(tmp_path, *mixed)
    assert (snapshot.at, rate(snapshot, R1), rate(snapshot, R2)) == (4.0, 10.0, 10.0)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no record in it"),
        (b"\x00\xff" * 9, "no record in it"),
        (b"# TYPE vllm:x gauge\nvllm:x 1\n", "not JSON"),
        (b'{"enginetop_recording": 1}\n', "no record in it"),
        (b"\x1f\x8b garbage", "no record in it"),
    ],
)
def test_a_file_that_is_no_recording_is_a_clear_error(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=said) as caught:
        run_replay(path, new_tracker=tracker_of, new_feed=new_feeds())
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_file_and_a_folder_are_clear_errors(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(ConfigError, match="name a recording"):
            run_replay(path, new_tracker=tracker_of, new_feed=new_feeds())


@pytest.mark.parametrize("cut", [0, 9])
def test_gzip_is_known_by_its_first_bytes_and_may_be_cut(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "misnamed.jsonl"
    packed = gzip.compress((line(0.0, vllm_page(1, 0)) + line(2.0, vllm_page(1, 50))).encode(), mtime=0)
    path.write_bytes(packed[: len(packed) - cut])
    snapshot = run_replay(path, new_tracker=tracker_of, new_feed=new_feeds())
    if cut:
        assert "cut off" in snapshot.collector.problem
    else:
        assert (rate(snapshot), snapshot.collector.problem) == (25.0, "")


def test_a_paced_replay_steps_through_and_stays_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "hand.jsonl"
    path.write_text("".join(line(t, vllm_page(1, int(t) * 10)) for t in (0.0, 2.0, 4.0, 1000.0)))
    seen: list[float] = []
    source = ReplaySource(path, new_tracker=tracker_of, new_feed=new_feeds(), speed=1e6)

    def note() -> None:
        snapshot = source.latest()
        assert snapshot is not None
        seen.append(snapshot.at)

    source.subscribe(note)
    source.start()
    assert source.ended.wait(20)
    source.stop()
    assert seen == [0.0, 2.0, 4.0, 1000.0]
    final = source.latest()
    assert final is not None
    assert final.at == 1000.0


def test_a_paced_replay_can_be_stopped_and_pushed_on(tmp_path: Path) -> None:
    path = tmp_path / "hand.jsonl"
    path.write_text("".join(line(t, vllm_page()) for t in (0.0, 3600.0, 7200.0)))
    source = ReplaySource(path, new_tracker=tracker_of, new_feed=new_feeds())
    source.start()
    first = source.latest()
    assert first is not None
    assert first.at == 0.0
    source.request_refresh()
    wait_until(source, lambda snapshot: snapshot.at == 3600.0)
    source.stop()
    assert source.ended.is_set()


def test_a_live_run_replays_to_the_same_picture(tmp_path: Path) -> None:
    """Several pages a scrape, a restart, a fault, a name, recorded through sockets, then replayed."""

    def first(request: Request) -> Reply:
        if request.path != "/metrics":
            return page(b'{"detail":"Not Found"}', 404, "application/json")
        tokens = 100 * request.number if request.number < 7 else 10 * request.number
        return page(vllm_page(request.number % 3, tokens))

    def second(request: Request) -> Reply:
        if request.path == "/metrics" and request.number in (5, 6):
            return Reply(close=True)
        return page(vllm_page(1, 50 * request.number)) if request.path == "/metrics" else page(b"", 404)

    path = tmp_path / "run.jsonl.gz"
    with FaultyServer() as server:
        replicas = [server.replica(first), server.replica(second), server.replica(page(b"no", 503))]
        targets = [target(one.url) for one in replicas]
        tracker = tracker_of(targets)
        with Recorder(path, created=0.0, targets=targets, interval_seconds=0.1, keep=SIDE_FIELDS) as recorder:
            engine = LiveEngine(
                targets,
                tracker=tracker,
                new_feed=new_feeds(),
                new_fetcher=HttpFetcher,
                interval_seconds=0.1,
                recorder=recorder,
            )
            engine.start()
            wait_until(engine, lambda _: all(one.count("/metrics") > 12 for one in replicas[:2]))
            engine.stop()
    assert recorder.problem == ""
    replayed = run_replay(path, new_tracker=tracker_of, new_feed=new_feeds())
    live = tracker.snapshot(replayed.at, CollectorHealth())
    assert replayed.collector.problem == ""
    for was, again in zip(
        snapshot_document(live)["replicas"], snapshot_document(replayed)["replicas"], strict=True
    ):
        for key in (
            "target",
            "name",
            "engine",
            "model",
            "state",
            "scraped_at",
            "scrape_seconds",
            "signals",
            "ranks",
            "config",
        ):
            assert was[key] == again[key], key
