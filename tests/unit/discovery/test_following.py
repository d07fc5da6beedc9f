"""A live fleet whose targets come, go and move; what the flags and tables of discovery may say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collectors.discovery.file_sd import FileSd
from collectors.discovery.listing import Listed
from collectors.discovery.membership import Membership
from collectors.discovery.watcher import Look, SourceWatcher
from collectors.fetch import Credentials
from collectors.loop import LiveEngine
from enginetop.cli.discovering import LOCAL, DiscoverySetting
from enginetop.cli.live_targets import live_targets
from enginetop.cli.parser import parse
from enginetop.cli.resolve import resolve
from enginetop.cli.settings import Settings
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.model import ReplicaState, Role, Target
from enginetop.fleet.observation import FailureKind
from enginetop.fleet.snapshot import FleetSnapshot, Scalar
from tests.support.looks import failure, page
from tests.support.small_fleet import FakeFetcher, new_feeds, tracker_of, vllm_page, wait_until

A, B, C = "http://a:8000", "http://b:8000", "http://c:8000"


def write(path: Path, *groups: tuple[str, str]) -> None:
    """A file-SD list of (address, instance id), whole at once."""
    new = path.with_suffix(".new")
    new.write_text(
        json.dumps(
            [{"targets": [where], "labels": {"instance_id": who, "name": who}} for where, who in groups]
        )
    )
    new.rename(path)


def states(snapshot: FleetSnapshot) -> dict[str, ReplicaState]:
    return {replica.target.url: replica.state for replica in snapshot.replicas}


def test_a_key_goes_with_its_source_and_not_with_an_address() -> None:
    """A pod's address is another pod's later: the key of the first one must not be sent there."""
    one, other, mine = (Credentials(api_key_env=name) for name in ("ONE", "OTHER", "MINE"))
    members = Membership(SourceWatcher([]), (), {C: mine}, {"one": one, "other": other})

    def lists(source: str, *who: tuple[str, str], at: float) -> None:
        members.take(Look(source, tuple(Listed(Target(url, url), name) for url, name in who)), at)

    lists("one", (A, "x"), (C, "y"), at=0.0)
    assert members.credentials == {A: one, C: mine}
    lists("one", at=1.0)
    assert members.expire(1000.0).dropped == (A, C)
    assert members.credentials == {C: mine}
    lists("other", (A, "z"), (C, "y"), at=1001.0)
    assert members.credentials == {A: other, C: mine}
    lists("other", (B, "z"), at=1002.0)  # it moved
    lists("one", (A, "x"), at=1003.0)
    assert members.credentials == {A: one, B: other, C: mine}


def test_a_fleet_is_followed_while_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    write(path, ("a:8000", "one"), ("b:8000", "two"))
    source = FileSd(str(path))
    source.every_seconds = 0.02
    members = Membership(SourceWatcher([source]), (), {}, {source.title: Credentials(api_key_env="KEY")})
    targets = members.begin(0.0)
    fetcher = FakeFetcher(
        {url: lambda number: vllm_page(running=1, tokens=100 * number) for url in (A, B, C)}
    )
    tracker = tracker_of(targets, 0.05)
    engine = LiveEngine(
        targets,
        tracker=tracker,
        new_feed=new_feeds(),
        new_fetcher=lambda: fetcher,
        interval_seconds=0.05,
        members=(members, tracker),
    )
    engine.start()
    try:
        wait_until(engine, lambda seen: states(seen) == {A: ReplicaState.OK, B: ReplicaState.OK})
        write(path, ("c:8000", "one"))
        seen = wait_until(engine, lambda seen: states(seen) == {C: ReplicaState.OK, B: ReplicaState.UNKNOWN})
        moved, gone = seen.replicas
        assert moved.target == Target(C, "one")
        assert any(event.detail == f"moved from {A}" for event in moved.events)
        assert gone.gone_at is not None
        assert gone.reasons[0].startswith("gone: not listed for")
        assert [event.kind for event in gone.events][-1] == "gone"
        asked = fetcher.counts.get(C, 0)
        wait_until(engine, lambda _: fetcher.counts.get(C, 0) > asked)
        assert A not in fetcher.counts  # forgotten with its connection
        write(path, ("c:8000", "one"), ("b:8000", "two"))
        seen = wait_until(engine, lambda seen: states(seen) == {C: ReplicaState.OK, B: ReplicaState.OK})
        assert len(seen.replicas) == 2
        path.write_text("[{")
        seen = wait_until(engine, lambda seen: bool(seen.collector.discovery_problem))
        assert "last good list" in seen.collector.told
        assert states(seen) == {C: ReplicaState.OK, B: ReplicaState.OK}
        assert members.credentials == {url: Credentials(api_key_env="KEY") for url in (B, C)}
    finally:
        engine.stop()


def fleet(*targets: Target) -> FleetTracker:
    return tracker_of(targets, 2.0)


def running(snapshot: FleetSnapshot) -> float | None:
    value = snapshot.fleet.signals["requests_running"]
    assert isinstance(value, Scalar)
    return value.number


def test_one_that_is_gone_counts_for_nothing_until_it_is_back() -> None:
    a, b = Target(A, "a"), Target(B, "b")
    made = fleet(a, b)
    for url in (A, B):
        made.observe(url, page(10))
    assert running(made.snapshot(10.0)) == 2
    made.lose(A, 12.0)
    seen = made.snapshot(15.0)
    assert running(seen) == 1
    assert seen.replicas[0].state is ReplicaState.UNKNOWN
    assert seen.replicas[0].reasons == ("gone: not listed for 3 s",)
    made.follow(a, 20.0)
    made.observe(A, page(20))
    made.observe(B, page(20))
    seen = made.snapshot(20.0)
    assert running(seen) == 2
    assert [event.kind for event in seen.replicas[0].events] == [
        "appeared",
        "gone",
        "appeared",
        "state_changed",
    ]
    made.drop(A)
    assert [replica.target for replica in made.snapshot(22.0).replicas] == [b]


def test_failures_of_the_former_address_are_not_carried_along() -> None:
    made = fleet(Target(A, "a"))
    for at in (0, 2):
        made.observe(A, failure(at, FailureKind.REFUSED))
    assert made.snapshot(2.0).replicas[0].state is ReplicaState.DOWN
    made.move({A: Target(B, "a")}, 3.0)
    seen = made.snapshot(3.0)
    assert [replica.target.url for replica in seen.replicas] == [B]
    assert seen.replicas[0].state is ReplicaState.UNKNOWN


def test_what_discovery_tells_fills_what_the_page_does_not_say() -> None:
    made = fleet(Target(A, "a", model="told", role=Role.PREFILL))
    made.observe(A, page(0))
    replica = made.snapshot(0.0).replicas[0]
    assert replica.role is Role.PREFILL
    assert replica.sources["role"] == "told by discovery"
    assert replica.model is not None


def settled(tmp_path: Path, text: str, *argv: str) -> Settings:
    (tmp_path / "c.toml").write_text(text)
    _, args = parse(["snapshot", "--config", str(tmp_path / "c.toml"), *argv])
    return resolve(args, lambda _: None)


def test_flags_take_the_place_of_the_config_file(tmp_path: Path) -> None:
    table = '[[targets]]\nurl = "http://x:1"\n[[discovery]]\nkind = "dynamo"\npath = "/d"\nca_file = "ca"\n'
    configured = settled(tmp_path, table)
    assert [target.url for target in configured.targets] == ["http://x:1"]
    assert configured.discovery == (DiscoverySetting("dynamo", "/d", credentials=Credentials(ca_file="ca")),)
    flagged = settled(tmp_path, table, "--discover", "dns:h:1", "--discover", "dns:h:1")
    assert flagged.targets == ()
    assert flagged.discovery == (DiscoverySetting("dns", "h:1"),)
    assert settled(tmp_path, table, "h:2").discovery == ()
    assert settled(tmp_path, "").discovery == LOCAL


@pytest.mark.parametrize(
    "flag", ["", "dns", "dns:", "file_sd:", "ftp:x", "local:x", "dns:h", "dns:h/x:1", "dns:h:99999"]
)
def test_a_flag_that_names_no_source(tmp_path: Path, flag: str) -> None:
    with pytest.raises(ConfigError, match="--discover"):
        settled(tmp_path, "", "--discover", flag)


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ('kind = "dns"\npath = "x"', "discovery of kind dns needs name"),
        ('kind = "local"\nname = "x"', "needs no path, name or url"),
        ('kind = "file_sd"', "needs path"),
        ('kind = "etcd"', "discovery.0.kind"),
        ('kind = "dns"\nname = "h"', "write host:port"),
        ('kind = "dns"\nnamee = "h:1"', "did you mean 'name'"),
        ('kind = "dns"\nname = "h:1"\napi_key_env = "sk-secret-key!"', "no name of a variable"),
    ],
)
def test_a_table_that_names_no_source(tmp_path: Path, table: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        settled(tmp_path, f"[[discovery]]\n{table}\n")
    assert "c.toml" in str(caught.value)
    assert "sk-secret" not in str(caught.value)


def test_a_start_without_any_target_says_why(tmp_path: Path) -> None:
    settings = settled(tmp_path, "", "--discover", f"file_sd:{tmp_path / 'none.json'}")
    with pytest.raises(ConfigError, match=r"none\.json: no such file"):
        live_targets(settings, may_come=True)
    (tmp_path / "none.json").write_text("[]")
    assert live_targets(settings, may_come=True) == ()
    with pytest.raises(ConfigError, match="lists no target"):
        live_targets(settings)
