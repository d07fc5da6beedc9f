"""The commands on a Prometheus: now, as it was, and what cannot be."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.prometheus.targets import PrometheusTargets
from enginetop.cli import exit_codes
from enginetop.cli.main import main
from enginetop.cli.past import stretch_text, time_of
from enginetop.cli.prometheus import prometheus_url
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.model import Role, Target
from tests.support.fake_prometheus import FakePrometheus
from tests.support.small_fleet import vllm_page

KEY = "sk-0123456789abcdef"
T0 = 1796000000.0


@pytest.fixture
def fake() -> FakePrometheus:
    """An hour of two engines; the second one was dead for a while half an hour ago."""
    made = FakePrometheus(time=T0)
    for step in range(241):
        at = T0 - 3600 + 15 * step
        for pod in (1, 2):
            labels = {"job": "vllm", "instance": f"10.0.0.{pod}:8000", "pod": f"p{pod}"}
            dead = pod == 2 and 100 <= step < 110
            page = None if dead else vllm_page(running=pod, tokens=100 * step).decode()
            made.scraped(labels, at, page)
    return made


@pytest.fixture
def url(fake: FakePrometheus) -> Iterator[str]:
    with fake.serving() as served:
        yield served


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    document = json.loads(capsys.readouterr().out)
    return {replica["name"]: replica for replica in document["replicas"]}


def test_a_snapshot_of_now(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["snapshot", "--prometheus", url]) == exit_codes.OK
    replicas = printed(capsys)
    assert {name: replica["state"] for name, replica in replicas.items()} == {"p1": "ok", "p2": "ok"}
    # 100 tokens every 15 s
    assert replicas["p1"]["signals"]["generation_tokens_per_second"]["value"] == pytest.approx(100 / 15)  # type: ignore[index]


def test_a_snapshot_of_the_past(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    # step 105 of 240 is 2025 s ago
    assert main(["snapshot", "--prometheus", url, "--at", f"{T0 - 2020}"]) == exit_codes.OK
    then = printed(capsys)
    assert {name: replica["state"] for name, replica in then.items()} == {"p1": "ok", "p2": "down"}


def test_a_review_of_an_incident(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    range_of = ["--from", f"{T0 - 2400}", "--to", f"{T0 - 1500}"]
    assert main(["watch", "--prometheus", url, *range_of]) == exit_codes.OK
    out, err = capfd.readouterr()
    events = [json.loads(line) for line in out.splitlines()]
    down = [event for event in events if event["rule"] == "TargetDown"]
    assert [event["state"] for event in down] == ["pending", "firing", "resolved"]
    # the first failed scrape is step 100; two in a row are down
    assert down[0]["since"] == pytest.approx(T0 - 3600 + 1500)
    assert f"scrapes of {stretch_text(T0 - 2400, T0 - 1500)} read from {url}" in err


@pytest.mark.parametrize("name", ["incident.jsonl", "incident.jsonl.gz"])
def test_an_incident_is_kept_as_a_recording(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path = tmp_path / name
    range_of = ["--from", f"{T0 - 2400}", "--to", f"{T0 - 1500}"]
    assert main(["record", "--prometheus", url, *range_of, "-o", str(path)]) == exit_codes.OK
    assert f"kept in {path}" in capsys.readouterr().err
    assert main(["snapshot", "--replay", str(path)]) == exit_codes.OK
    # 1500 s ago is step 140 of 240: the second one is back
    assert {one["state"] for one in printed(capsys).values()} == {"ok"}
    assert main(["record", "--prometheus", url, *range_of, "-o", str(tmp_path)]) == exit_codes.USAGE
    assert "name a file that can be written with -o" in capsys.readouterr().err


def test_the_screen_says_which_past_it_plays(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--prometheus", url, "--from", f"{T0 - 2400}", "--to", f"{T0 - 1500}"]) == exit_codes.OK
    assert f"{url}, {stretch_text(T0 - 2400, T0 - 1500)}" in capsys.readouterr().out


def test_a_stretch_of_time_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    # 1796000000 is 2026-11-30 00:53:20 UTC
    assert stretch_text(T0, T0 + 61) == "2026-11-30 00:53:20 to 00:54:21"
    assert stretch_text(T0 - 3600, T0) == "2026-11-29 23:53:20 to 2026-11-30 00:53:20"
    assert stretch_text(-1e18, 1e18) == "-1e+18 to 1e+18"
    monkeypatch.undo()
    time.tzset()


def test_a_check(url: str, fake: FakePrometheus, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--prometheus", url]) == exit_codes.OK
    assert capsys.readouterr().out.startswith("OK 2 of 2")


def test_the_config_file_says_how_it_is_reached(
    url: str,
    fake: FakePrometheus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = tmp_path / "c.toml"
    config.write_text(f'[prometheus]\nurl = "{url}/"\napi_key_env = "PROM_KEY"\ntenant = "team"\n')
    monkeypatch.setenv("PROM_KEY", KEY)
    assert main(["snapshot", "--config", str(config)]) == exit_codes.OK
    assert set(printed(capsys)) == {"p1", "p2"}
    assert {headers["authorization"] for headers in fake.headers} == {f"Bearer {KEY}"}
    assert {headers["x-scope-orgid"] for headers in fake.headers} == {"team"}
    fake.fault = lambda path: (401, f'{{"error": "bad key {KEY}"}}'.encode())
    assert main(["snapshot", "--config", str(config)]) == exit_codes.USAGE
    out, err = capsys.readouterr()
    assert "HTTP 401" in err
    assert KEY not in out + err


def test_options_of_thanos_go_with_every_request(
    url: str, fake: FakePrometheus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "c.toml"
    for written, sent in (
        ("dedup = true\npartial_response = false\n", {"dedup": ["true"], "partial_response": ["false"]}),
        ("dedup = false\n", {"dedup": ["false"]}),
        ("", {}),
    ):
        fake.queries.clear()
        config.write_text(f'[prometheus]\nurl = "{url}"\n{written}')
        assert main(["snapshot", "--config", str(config)]) == exit_codes.OK
        assert set(printed(capsys)) == {"p1", "p2"}
        assert len(fake.queries) > 4
        for query in fake.queries:
            assert {name: query[name] for name in ("dedup", "partial_response") if name in query} == sent


def test_a_part_that_is_missing_is_told(
    url: str, fake: FakePrometheus, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.warnings = ["store 10.0.0.9:10901: deadline exceeded", *(f"store {n} too" for n in range(300))]
    assert main(["snapshot", "--prometheus", url]) == exit_codes.OK
    assert "store 10.0.0.9:10901: deadline exceeded" in capsys.readouterr().err


def test_exporters_of_the_config_file_are_said_to_be_left_out(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "c.toml"
    config.write_text('[[gpu_exporters]]\nurl = "http://127.0.0.1:1"\n')
    assert main(["check", "--prometheus", url, "--config", str(config)]) == exit_codes.OK
    assert "[[gpu_exporters]] are not asked" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--prometheus", "URL", "h:1"], "leave TARGETs"),
        (["--prometheus", "http://user:sk-secret@h:1"], "no credentials"),
        (["--prometheus", "ftp://h"], "no address"),
        (["--prometheus", "http://h:99999"], "no address"),
        (["--at", "5m"], "name it with --prometheus"),
        (["--prometheus", "URL", "--to", "5m"], "--from TIME"),
        (["--prometheus", "URL", "--at", "1m", "--from", "5m"], "either --at TIME"),
        (["--prometheus", "URL", "--at", "yesterday"], "is no time"),
        (["--prometheus", "URL", "--from", "5m", "--to", "10m"], "ends before it begins"),
        (["--prometheus", "URL", "--from", "2030-01-01"], "is not there yet"),
        (["--prometheus", "URL", "--from", "30d"], "up to 7 days"),
        (["--prometheus", "URL", "--from", "3d", "--to", "2d"], "no engine was scraped in 2026-11-2"),
        (["--prometheus", "http://127.0.0.1:1"], "connection refused"),
        (["--prometheus", "http://127.0.0.1:1", "--at", "1m"], "connection refused"),
    ],
)
def test_what_cannot_be_is_one_line(
    flags: list[str], why: str, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["snapshot", *(flag.replace("URL", url) for flag in flags)]) == exit_codes.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert why in err
    assert err.count("\n") == 1
    assert "sk-secret" not in err


def test_addresses_of_servers() -> None:
    assert prometheus_url("p:9090") == "http://p:9090"
    assert prometheus_url("https://mimir/prometheus/api/v1/") == "https://mimir/prometheus"
    assert prometheus_url("http://[::1]:9090/") == "http://[::1]:9090"


def test_times() -> None:
    assert time_of("15m", 10_000.0) == 9_100.0
    assert time_of("1796000000", 0.0) == 1796000000.0
    assert time_of("2026-11-29T20:26:40Z", 0.0) == 1795984000.0
    for none in ("", "nan", "inf", "1e400", "2026-99-99", "0001-01-01", "0m"):
        with pytest.raises(ConfigError, match="no time"):
            time_of(none, 0.0)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--at", ""], "'' is no time; "),
        (["--at", "nan"], "'nan' is no time; "),
        (["--at", "1e18"], "the server's clock is not there yet"),
        (["--from=-1e18"], "-1e+18 to "),
        (["--at", "15m", "--window", "1e14"], "a stretch of the past lasts up to 7 days"),
    ],
)
def test_times_that_no_server_has(
    words: list[str], told: str, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["snapshot", "--prometheus", url, *words]) == exit_codes.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert told in err
    assert "fault" not in err


def test_its_targets_as_a_source(url: str, fake: FakePrometheus) -> None:
    fake.active = [
        {
            "labels": {"job": "vllm", "instance": "x", "pod": "p1", "namespace": "ns", "role": "decode"},
            "scrapeUrl": "https://10.0.0.1:8000/r/metrics",
        },
        {"labels": {"job": "node"}, "scrapeUrl": "http://10.0.0.1:9100/metrics"},
        {"labels": {"job": "vllm"}, "scrapeUrl": "gibberish"},
        {"labels": {"job": "vllm"}},
        None,
    ]
    (found,) = PrometheusTargets(url).look()
    assert found.identity == "ns/p1"
    assert found.target == Target("https://10.0.0.1:8000/r", "p1", "/metrics", role=Role.DECODE, pod="ns/p1")


def test_what_is_scraped_from_now_on_is_recorded(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r.jsonl"
    assert main(["record", "--prometheus", url, "-o", str(path), "--for", "0.3"]) == exit_codes.OK
    assert main(["snapshot", "--replay", str(path)]) == exit_codes.OK
    assert set(printed(capsys)) == {"p1", "p2"}
