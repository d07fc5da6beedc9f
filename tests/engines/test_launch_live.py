"""A real llama.cpp behind `enginetop launch`: restarted with other flags, drained, no request failed."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support import llama_command
from tests.support.launching import Launched, free_port, launching, until
from tests.support.tiny_gguf import UNPRINTABLE_TOKENS, write_tiny_model

BUDGET, SEATS = "max_num_batched_tokens", "max_num_seqs"
BARRED = [[token, False] for token in range(UNPRINTABLE_TOKENS)]
OUTPUT_TOKENS = 1200
IN_FLIGHT = 3


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[Launched]:
    write_tiny_model(tmp_path / "tiny.gguf")
    port = free_port()
    command = [sys.executable, llama_command.__file__, "-m", str(tmp_path / "tiny.gguf")]
    command += ["--port", str(port), "-np", "2", "--ubatch-size=256"]
    with launching(
        tmp_path, port, command, "--engine", "llamacpp", "--drain", "120", "--ready", "60"
    ) as found:
        until(lambda: _slots(found), "ready")
        yield found


def _get(launched: Launched, path: str) -> httpx.Response | None:
    try:
        response = httpx.get(launched.url + path, timeout=5.0, trust_env=False)
    except httpx.HTTPError:
        return None
    return response if response.status_code == httpx.codes.OK else None


def _slots(launched: Launched) -> int | None:
    """How many requests it serves at a time, by its own word."""
    response = _get(launched, "/slots")
    return None if response is None else len(response.json())


def _complete(launched: Launched, number: int, ended: list[int]) -> None:
    body = {
        "prompt": f"request {number} " + "monitor " * 20,
        "n_predict": OUTPUT_TOKENS,
        "ignore_eos": True,
        "logit_bias": BARRED,
    }
    response = httpx.post(launched.url + "/completion", json=body, timeout=120.0, trust_env=False)
    ended.append(response.json()["tokens_predicted"] if response.status_code == httpx.codes.OK else -1)


def _in_force(launched: Launched) -> str:
    """The physical batch that the running process was started with, by its own command line."""
    server = _get(launched, "/props")
    assert server is not None
    words = Path(f"/proc/{_pid(launched)}/cmdline").read_text().split("\0")
    return next(word.partition("=")[2] for word in words if word.startswith("--ubatch-size="))


def _pid(launched: Launched) -> int:
    children = Path(f"/proc/{launched.process.pid}/task/{launched.process.pid}/children").read_text()
    return int(children.split()[-1])


def test_restarted_with_another_ubatch_drained_and_back(launched: Launched) -> None:
    row = launched.row(BUDGET)
    assert row is not None
    assert (row.value, row.start, row.apply) == (256, 256, "restart")
    ended: list[int] = []
    clients = [
        threading.Thread(target=_complete, args=(launched, number, ended)) for number in range(IN_FLIGHT)
    ]
    for client in clients:
        client.start()
    until(lambda: _busy(launched), "busy")
    first = _pid(launched)
    assert launched.put(BUDGET, 128) == "ok"
    moving = launched.row(BUDGET)
    assert moving is not None
    assert (moving.value, moving.phase) == (128, "draining")
    assert (_pid(launched), _in_force(launched)) == (first, "256")  # nothing is cut
    settled = launched.wait_for(BUDGET, lambda row: not row.moves, "restarted")
    for client in clients:
        client.join()
    assert ended == [OUTPUT_TOKENS] * IN_FLIGHT
    assert (settled.value, settled.note) == (128, "")
    assert (settled.expires_in_seconds or 0) > 500
    assert (_pid(launched) != first, _in_force(launched)) == (True, "128")
    # a second knob on top, for good, then the first one back
    assert launched.put(SEATS, 3, None) == "ok"
    launched.wait_for(SEATS, lambda row: not row.moves, "restarted again")
    assert (_slots(launched), _in_force(launched)) == (3, "128")
    assert launched.client.reset(BUDGET).kind.value == "ok"
    launched.wait_for(BUDGET, lambda row: not row.moves and row.value == 256, "back")
    assert (_slots(launched), _in_force(launched)) == (3, "256")
    after: list[int] = []
    _complete(launched, 99, after)
    assert after == [OUTPUT_TOKENS]
    seats = launched.row(SEATS)
    assert seats is not None
    assert (seats.value, seats.expires_in_seconds) == (3, None)
    record = json.loads(
        (launched.folder / "state" / "enginetop" / "launch" / f"{launched.port}.json").read_text()
    )
    assert "--ubatch-size=256" in record["command"]
    assert all(isinstance(name, str) and "=" not in name for name in record["environment"])


def _busy(launched: Launched) -> bool | None:
    response = _get(launched, "/slots")
    return True if response is not None and any(slot["is_processing"] for slot in response.json()) else None
