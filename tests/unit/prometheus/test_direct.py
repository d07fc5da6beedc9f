"""Settings that a Prometheus does not keep: asked of the engines where that is wanted, else named."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest

from collectors.http import HttpFetcher
from collectors.prometheus.direct import DirectSides
from enginetop.cli.main import main
from enginetop.cli.prometheus_advice import ASKED, KEPT
from tests.support.engine_pages import fixture
from tests.support.fake_prometheus import FakePrometheus
from tests.unit.prometheus.test_looks import looking, number

FOLDER = "vllm/0.32.0/vllm-0.32.0-"
SIDES = {"/version": "version.json", "/server_info": "server_info.json"}


class Engine:
    """The side pages of a vLLM on loopback, and no metrics page; `asked` are the paths that came."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path = urlsplit(self.path).path
                engine.asked.append(path)
                body = fixture(FOLDER + SIDES[path]) if path in SIDES else b""
                self.send_response(200 if path in SIDES else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        self.address = f"127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine()
    yield made
    made.close()


def scraped(fake: FakePrometheus, instance: str, *times: float) -> None:
    for at, page in zip(times, ("loaded", "after"), strict=False):
        fake.scraped({"job": "vllm", "instance": instance}, at, fixture(f"{FOLDER}{page}.prom").decode())


def test_start_flags_come_from_the_engine_itself_once(engine: Engine) -> None:
    fake = FakePrometheus()
    scraped(fake, engine.address, 985.0)
    with looking(fake, direct=DirectSides(HttpFetcher)) as looks:
        (replica,) = looks.look().replicas
        told = json.loads(fixture(FOLDER + "server_info.json"))["vllm_config"]["scheduler_config"]
        assert replica.config["max_num_batched_tokens"].value == told["max_num_batched_tokens"]
        assert replica.engine_version == json.loads(fixture(FOLDER + "version.json"))["version"]
        asked = len(engine.asked)
        fake.time = 1015.0
        scraped(fake, engine.address, 1014.0)
        looks.look()
    assert "/metrics" not in engine.asked
    assert engine.asked.count("/version") == 1
    assert len(engine.asked) - asked <= 1


def test_a_label_of_a_scrape_sends_us_to_no_metadata_service() -> None:
    fake = FakePrometheus()
    scraped(fake, "169.254.169.254:80", 985.0)

    def no_fetcher() -> HttpFetcher:
        raise AssertionError("nothing is to be asked")

    with looking(fake, direct=DirectSides(no_fetcher)) as looks:
        (replica,) = looks.look().replicas
    assert number(replica, "requests_running") is not None  # what the Prometheus has is read


def test_an_engine_out_of_reach_is_left_alone(engine: Engine) -> None:
    fake, clock = FakePrometheus(), [0.0]
    scraped(fake, "127.0.0.1:1", 985.0)
    scraped(fake, engine.address, 985.0)
    urls: list[str] = []

    class Noting(HttpFetcher):
        async def fetch(self, url: str, path: str, *, timeout_seconds: float) -> Any:
            urls.append(url)
            return await super().fetch(url, path, timeout_seconds=timeout_seconds)

    direct = DirectSides(Noting, monotonic=lambda: clock[0])
    with looking(fake, direct=direct) as looks:
        first = {replica.target.url: replica for replica in looks.look().replicas}
        assert {str(replica.state) for replica in first.values()} <= {"ok", "idle"}
        assert urls.count("http://127.0.0.1:1") == 1
        for at, seconds, tries in ((1015.0, 60.0, 1), (1030.0, 130.0, 2)):
            fake.time, clock[0] = at, seconds
            scraped(fake, "127.0.0.1:1", at - 1)
            looks.look()
            assert urls.count("http://127.0.0.1:1") == tries


def advice(capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[dict[str, Any], str]:
    main(["tune", "--format", "json", *flags])
    out, err = capsys.readouterr()
    (replica,) = json.loads(out)["replicas"]
    return {row["knob"]: row for row in replica["advice"]}, err


@pytest.mark.parametrize(("flag", "why"), [((), KEPT), (("--direct-knobs",), ASKED)])
def test_tune_names_what_is_missing_and_how_it_can_be_had(
    flag: tuple[str, ...], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = FakePrometheus(time=time.time())
    scraped(fake, "127.0.0.1:1", fake.time - 20, fake.time - 5)
    with fake.serving() as url:
        plan = ("--plan", str(tmp_path / "plan.json"), "--observe", "1.5")
        rows, err = advice(capsys, "--prometheus", url, *flag, *plan)
    row = rows["max_num_batched_tokens"]
    assert (row["action"], row["from"]) == ("withheld", None)
    assert row["because"][-1] == why
    assert f"watching what {url} scrapes" in err
    assert "no plan was written" in err


def test_tune_names_values_where_the_engine_was_asked(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = FakePrometheus(time=time.time())
    scraped(fake, engine.address, fake.time - 20, fake.time - 5)
    with fake.serving() as url:
        rows, _ = advice(capsys, "--prometheus", url, "--direct-knobs", "--observe", "1.5")
    told = json.loads(fixture(FOLDER + "server_info.json"))["vllm_config"]["scheduler_config"]
    assert rows["max_num_batched_tokens"]["from"] == told["max_num_batched_tokens"]
    assert rows["max_num_seqs"]["from"] == told["max_num_seqs"]


def test_the_config_file_can_ask_for_it(
    engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = FakePrometheus(time=time.time())
    scraped(fake, engine.address, fake.time - 20, fake.time - 5)
    config = tmp_path / "c.toml"
    with fake.serving() as url:
        config.write_text(f'[prometheus]\nurl = "{url}"\ndirect_knobs = true\n')
        assert main(["snapshot", "--config", str(config)]) == 0
    (replica,) = json.loads(capsys.readouterr().out)["replicas"]
    assert "max_num_seqs" in replica["config"]
    assert main(["snapshot", "h:1", "--direct-knobs"]) == 2
    assert "goes with --prometheus" in capsys.readouterr().err
