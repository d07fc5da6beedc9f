"""Everything that can go wrong between us and a Prometheus: one clean line, and never a key in it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from collectors.fetch import NO_CREDENTIALS, Credentials
from collectors.prometheus.ahead import asked_ahead
from collectors.prometheus.client import PrometheusClient, PrometheusError
from collectors.prometheus.names import PREFIXES, one_of, selectors, wanted_names
from enginetop.fleet.observation import FailureKind
from tests.support.fake_prometheus import FakePrometheus, Reply
from tests.support.watch_process import free_port

KEY = "sk-0123456789abcdef"


def error(status: int, text: str) -> Reply:
    return status, json.dumps({"status": "error", "errorType": "execution", "error": text}).encode()


def failed(
    reply: Reply, ask: Callable[[PrometheusClient], object], how: Credentials = NO_CREDENTIALS
) -> PrometheusError:
    fake = FakePrometheus(fault=lambda path: reply)
    with fake.serving() as url:
        client = PrometheusClient(url, how, timeout_seconds=5.0)
        try:
            with pytest.raises(PrometheusError) as caught:
                ask(client)
        finally:
            client.close()
    text = str(caught.value)
    assert text.startswith("prometheus http://127.0.0.1:")
    assert text.isprintable()
    assert len(text) <= 200
    return caught.value


ASKS: dict[str, Callable[[PrometheusClient], object]] = {
    "time": lambda client: client.now(),
    "samples": lambda client: client.matrix("up[5m]", 1.0),
    "labels": lambda client: client.label_values("job", 0.0, 1.0),
}


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS.keys())
@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (error(401, "no"), FailureKind.UNAUTHORIZED, "HTTP 401: no; it needs a key"),
        ((403, b""), FailureKind.UNAUTHORIZED, "HTTP 403; it needs a key"),
        (error(422, "too many samples"), FailureKind.SERVER_ERROR, "HTTP 422: too many samples"),
        (error(503, "query timed out"), FailureKind.SERVER_ERROR, "HTTP 503: query timed out"),
        (error(504, "late"), FailureKind.TIMEOUT, "HTTP 504: late"),
        (error(400, "parse \x1b[31merror\n"), FailureKind.PROTOCOL, "HTTP 400: parse"),
        ((429, b"slow down"), FailureKind.SERVER_ERROR, "HTTP 429"),
        ((404, b"404 page not found"), FailureKind.NO_ENGINE_METRICS, "no Prometheus API at that path"),
        ((200, b"<html>Sign in</html>"), FailureKind.PROTOCOL, "no answer of a Prometheus API"),
        ((200, b"[1]"), FailureKind.PROTOCOL, "no answer of a Prometheus API"),
        ((200, b'{"data": null}'), FailureKind.PROTOCOL, "Prometheus"),
        (
            (302, b"http://elsewhere.example/api"),
            FailureKind.PROTOCOL,
            "redirected to http://elsewhere.example",
        ),
        ((302, b"http://["), FailureKind.PROTOCOL, "redirected to a malformed address"),
    ],
)
def test_every_fault_is_one_line(
    ask: Callable[[PrometheusClient], object], reply: Reply, kind: FailureKind, words: str
) -> None:
    found = failed(reply, ask)
    assert found.kind is kind
    assert words in str(found)


@pytest.mark.parametrize("result", [{"a": 1}, [1], [{"metric": 1}], None, "x"])
def test_an_answer_of_another_form_is_a_fault(result: object) -> None:
    reply = (200, json.dumps({"status": "success", "data": {"result": result}}).encode())
    assert failed(reply, ASKS["samples"]).kind is FailureKind.PROTOCOL
    assert failed(reply, ASKS["time"]).kind is FailureKind.PROTOCOL


@pytest.mark.parametrize(
    "series",
    [
        {"metric": {"job": 5}, "values": []},
        {"metric": {}, "values": None},
        {"metric": {}, "values": [[1.0]]},
        {"metric": {}, "values": [[1.0, "1", "2"]]},
        {"metric": {}, "values": [["1", "1"]]},
        {"metric": {}, "values": [[1e999, "1"]]},
        {"metric": {}, "values": [[1.0, 1]]},
        {"metric": {}, "values": [[1.0, "many"]]},
        {"metric": {}, "values": ["12"]},
    ],
    ids=lambda series: json.dumps(series),
)
def test_samples_of_another_form_are_a_fault_of_the_server(series: object) -> None:
    body = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [series]}})
    asks = (ASKS["samples"], lambda client: client.over("up", 0.0, 60.0, 60.0))
    for ask in asks:
        said = failed((200, body.encode()), ask)
        assert said.kind is FailureKind.PROTOCOL
        assert str(said).endswith("an answer of another form than expected; is this a Prometheus?")


def test_a_range_that_is_answered_with_single_samples_has_none() -> None:
    result = [{"metric": {"job": "a"}, "value": [1.0, "1"]}]
    reply = (
        200,
        json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode(),
    )
    with FakePrometheus(fault=lambda path: reply).serving() as url:
        client = PrometheusClient(url, NO_CREDENTIALS, timeout_seconds=5.0)
        (series,) = client.matrix("up[5m]", 1.0)
        client.close()
    assert (series["metric"], series["values"]) == ({"job": "a"}, [])


def test_nobody_there() -> None:
    client = PrometheusClient(f"http://127.0.0.1:{free_port()}", timeout_seconds=2.0)
    with pytest.raises(PrometheusError, match="connection refused") as caught:
        client.now()
    client.close()
    assert caught.value.kind is FailureKind.REFUSED


def test_no_such_host() -> None:
    client = PrometheusClient("http://prometheus.invalid:9090", timeout_seconds=2.0)
    with pytest.raises(PrometheusError, match="name lookup failed") as caught:
        client.now()
    client.close()
    assert caught.value.kind is FailureKind.DNS


def test_a_key_is_sent_read_anew_and_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(KEY)
    fake = FakePrometheus()
    with fake.serving() as url:
        client = PrometheusClient(url, Credentials(api_key_file=str(file)), tenant="team-a")
        client.now()
        file.write_text("another-key-altogether")
        client.now()
        fake.fault = lambda path: error(401, f"the key {KEY} and another-key-altogether are bad")
        with pytest.raises(PrometheusError) as caught:
            client.now()
        client.close()
    sent = [headers["authorization"] for headers in fake.headers]
    assert sent == [f"Bearer {KEY}", "Bearer another-key-altogether", "Bearer another-key-altogether"]
    assert fake.headers[0]["x-scope-orgid"] == "team-a"
    assert "another-key-altogether" not in str(caught.value)


def test_a_key_that_is_not_there_is_told_by_its_name() -> None:
    client = PrometheusClient("http://127.0.0.1:1", Credentials(api_key_env="ENGINETOP_NO_SUCH_KEY"))
    with pytest.raises(PrometheusError, match="the variable ENGINETOP_NO_SUCH_KEY is not set") as caught:
        client.now()
    client.close()
    assert caught.value.kind is FailureKind.UNAUTHORIZED


def test_a_netrc_does_not_put_its_key_in_the_place_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login user password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    fake = FakePrometheus()
    with fake.serving() as url:
        client = PrometheusClient(url)
        client.now()
        client.close()
    assert "authorization" not in fake.headers[0]


def test_a_redirect_within_the_server_is_followed() -> None:
    fake = FakePrometheus(time=77.0)
    with fake.serving() as url:
        moved = iter([(307, f"{url}/api/v1/query?query=time()".encode())])
        fake.fault = lambda path: next(moved, None)
        client = PrometheusClient(url)
        assert client.now() == 77.0
        client.close()


def test_the_time_of_victoriametrics_is_a_vector() -> None:
    result = [{"metric": {}, "value": [1796008068, "1796008038.999"]}]  # the value is held back by 30 s
    body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()
    fake = FakePrometheus(fault=lambda path: (200, body))
    with fake.serving() as url:
        client = PrometheusClient(url)
        assert client.now() == 1796008068.0
        client.close()


def test_partial_data_of_victoriametrics_is_heard() -> None:
    fake = FakePrometheus(
        fault=lambda path: (200, b'{"status":"success","isPartial":true,"data":{"result":[]}}')
    )
    with fake.serving() as url:
        client = PrometheusClient(url)
        assert client.matrix("up[1m]", 1.0) == []
        assert client.warning == "a part of the data is missing"
        client.close()


def test_a_server_without_targets_of_its_own_tells_none() -> None:
    fake = FakePrometheus(fault=lambda path: (404, b""))
    with fake.serving() as url:
        client = PrometheusClient(url)
        assert client.active_targets() == ()
        client.close()


def test_only_what_is_read_is_asked_for() -> None:
    known = [
        "up",
        "node_load1",
        "vllm:num_requests_running",
        "vllm_num_requests_running",
        "vllm:time_to_first_token_seconds_bucket",
        "vllm:request_prefill_time_seconds_bucket",
        "vllm:request_prefill_time_seconds_count",
        "my_vllm:x",
        "enginetop_simulated",
    ]
    assert wanted_names(known) == (
        "enginetop_simulated",
        "vllm:num_requests_running",
        "vllm:request_prefill_time_seconds_count",
        "vllm:time_to_first_token_seconds_bucket",
        "vllm_num_requests_running",
    )
    assert "" not in PREFIXES


def test_selectors_stay_short_and_name_everything_once() -> None:
    names = [f"vllm:a_rather_long_name_of_a_series_number_{i}" for i in range(200)]
    made = list(selectors(names, ['team "a"/vllm', "b.c"]))
    assert len(made) > 1
    assert all(len(selector) < 4000 for selector in made)
    assert all('server=""' in selector for selector in made)
    asked = [name for selector in made for name in selector.partition('"')[2].partition('"')[0].split("|")]
    assert asked == [*names, "process_start_time_seconds"]
    assert one_of(['team "a"', "b.c", "x\\y"]) == 'team \\"a\\"|b\\\\.c|x\\\\\\\\y'


def test_answers_asked_ahead_come_in_order_and_so_do_faults() -> None:
    turns = [threading.Event() for _ in range(3)]
    begun: list[int] = []

    def ask(number: int) -> int:
        begun.append(number)
        assert turns[number].wait(30)
        if number == 2:
            raise OSError("the third")
        return number

    asked = asked_ahead([partial(ask, number) for number in range(3)])
    turns[1].set()  # the second one is there first
    threading.Timer(0.0, turns[0].set).start()
    assert next(asked) == 0
    turns[2].set()
    assert next(asked) == 1
    with pytest.raises(OSError, match="the third"):
        next(asked)
    assert sorted(begun) == [0, 1, 2]


def test_a_large_fleet_is_asked_in_parts_that_name_everything_once() -> None:
    names = [f"vllm:x{number}" for number in range(10)]
    made = list(selectors(names, ["j"], 4))
    asked = [name for selector in made for name in selector.partition('"')[2].partition('"')[0].split("|")]
    assert [len(selector.split("|")) for selector in made] == [3, 3, 3, 2]
    assert sorted(asked) == sorted([*names, "process_start_time_seconds"])
    assert len(list(selectors([], ["j"], 4))) == 1


def test_each_answer_asked_ahead_has_its_own_warning() -> None:
    fake = FakePrometheus(warnings=["a store is away"])
    with fake.serving() as url:
        client = PrometheusClient(url)
        found = list(client.matrices(["up[9s]", "up[9s]"], 1000.0))
        client.close()
    assert [warning for _, warning in found] == ["a store is away"] * 2
