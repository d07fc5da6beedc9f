"""One real vLLM server with the companion: started, watched, asked, stopped."""

from __future__ import annotations

import os
import re
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.support.installing import Environment

READY_SECONDS = 900.0
PATIENCE_SECONDS = 180.0
"""For what comes by itself: how soon it does tells of the machine, not of the engine or of us."""
_STEP = re.compile(
    r"Iteration\(\d+\): (\d+) context requests, (\d+) context tokens,"
    r" (\d+) generation requests, (\d+) generation"
)

FLAGS = (
    *("--served-model-name", "tiny", "--dtype", "bfloat16", "--enforce-eager", "--block-size", "32"),
    *("--max-model-len", "512", "--max-num-seqs", "16", "--max-num-batched-tokens", "512"),
    *("--num-gpu-blocks-override", "400", "--no-enable-prefix-caching", "--enable-logging-iteration-details"),
)


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


DRAFTS = "vllm:spec_decode_num_drafts_total"
DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"


class Page:
    """The server's /metrics at one moment."""

    def __init__(self, text: str) -> None:
        self._samples = [one for family in text_string_to_metric_families(text) for one in family.samples]

    def value(self, name: str, **labels: str) -> float:
        """Sum over the samples of that name which carry these labels; 0 where there is none."""
        return sum(
            one.value
            for one in self._samples
            if one.name == name and all(one.labels.get(key) == value for key, value in labels.items())
        )

    def above(self, name: str, edge: float) -> float:
        """Observations of a histogram above one of its edges."""
        buckets = [one for one in self._samples if one.name == f"{name}_bucket"]
        below = [one.value for one in buckets if float(one.labels["le"]) == edge]
        assert below, f"{name} has no edge {edge}"
        return self.value(f"{name}_count") - sum(below)


class Server:
    """A running server. `knobs` speaks to the companion, with its token unless told otherwise."""

    def __init__(self, here: Environment, folder: Path, *flags: str, tcp: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.token_file = folder / "token"
        self.token_file.write_text(secrets.token_hex(16) + "\n")
        self.log_file = folder / "server.log"
        self.runtime_folder = folder
        self.knob_address = f"127.0.0.1:{free_port()}" if tcp else None
        environment = {
            **{
                key: value for key, value in os.environ.items() if not key.startswith(("VLLM_", "ENGINETOP_"))
            },
            "PATH": f"{here.folder / 'bin'}:{os.environ['PATH']}",
            "XDG_RUNTIME_DIR": str(folder),
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_PLUGINS": "enginetop,enginetop_switch",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
            "ENGINETOP_COMPANION": "1",
            "ENGINETOP_COMPANION_TOKEN_FILE": str(self.token_file),
            "ENGINETOP_SLO": "ttft=5,tpot=0.5",
        }
        if self.knob_address:
            environment["ENGINETOP_COMPANION_LISTEN"] = self.knob_address
        words = [str(here.folder / "bin" / "vllm"), "serve", str(here.model), "--host", "127.0.0.1"]
        self._log = self.log_file.open("wb")
        self._process = subprocess.Popen(
            [*words, "--port", str(self.port), *FLAGS, *flags],
            env=environment,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.started = time.monotonic()
        self.ready_seconds = 0.0
        self.web = httpx.Client(base_url=self.url, timeout=60.0)
        self._knobs: httpx.Client | None = None

    def wait_until_ready(self) -> None:
        def ready() -> bool:
            assert self._process.poll() is None, self.log()[-4000:]
            try:
                return self.web.get("/health").status_code == 200
            except httpx.TransportError:
                return False

        wait_for(ready, READY_SECONDS)
        self.ready_seconds = time.monotonic() - self.started

    def stop(self) -> None:
        """End the server and all processes of its group."""
        self.web.close()
        if self._knobs is not None:
            self._knobs.close()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(30)
        self._log.close()

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def steps(self, start: int = 0, requests: int = 1) -> list[int]:
        """Tokens scheduled in each step of at least so many requests, from the engine's own log after byte
        `start`.
        """
        with self.log_file.open("rb") as source:
            source.seek(start)
            text = source.read().decode(errors="replace")
        rows = [tuple(map(int, row)) for row in _STEP.findall(text)]
        return [row[1] + row[3] for row in rows if row[0] + row[2] >= requests]

    def log_size(self) -> int:
        return self.log_file.stat().st_size

    def page(self) -> Page:
        answer = self.web.get("/metrics")
        assert answer.status_code == 200
        return Page(answer.text)

    def api_server_cpu_seconds(self) -> float:
        """CPU time so far of the API server, of threads that ended too (clock_getcpuclockid(3) on Linux). Its
        engine and worker spin while they wait for one another.
        """
        return time.clock_gettime(~self._process.pid << 3 | 2)

    # The companion

    @property
    def socket_path(self) -> Path:
        """Where the companion listens when nobody told it otherwise."""
        return self.runtime_folder / "enginetop" / f"vllm-{self.port}.sock"

    def knobs(
        self, method: str, path: str, body: object = None, *, token: str | None = None
    ) -> httpx.Response:
        if self._knobs is None:
            transport = None if self.knob_address else httpx.HTTPTransport(uds=str(self.socket_path))
            base = f"http://{self.knob_address or 'companion'}"
            self._knobs = httpx.Client(base_url=base, transport=transport, timeout=30.0)
        word = self.token_file.read_text().strip() if token is None else token
        headers = {"Authorization": f"Bearer {word}"} if word else {}
        return self._knobs.request(method, f"/enginetop/v1/{path}", json=body, headers=headers)

    def row(self, knob: str) -> dict[str, Any]:
        rows = self.knobs("GET", "knobs").json()["knobs"]
        found: dict[str, Any] = next(one for one in rows if one["name"] == knob)
        return found

    def change(
        self,
        knob: str,
        value: int,
        *,
        ttl: float | None = 120.0,
        change: str = "suite",
        version: int | None = None,
    ) -> httpx.Response:
        """PATCH, at the version that the knob has now unless told otherwise; waits where it is too soon."""
        body = {
            "knob": knob,
            "value": value,
            "if_version": self.row(knob)["version"] if version is None else version,
            "ttl_seconds": ttl,
            "change": change,
            "reason": "suite",
        }
        answer = self.knobs("PATCH", "knobs", body)
        if answer.status_code == 429:
            time.sleep(answer.json()["retry_after_seconds"] + 0.05)
            answer = self.knobs("PATCH", "knobs", body)
        return answer

    def reset(self, knob: str) -> httpx.Response:
        return self.knobs("DELETE", f"knobs/{knob}")

    def reset_all(self) -> None:
        """What another test left changed, or still leased, goes back to what the server was started with."""
        for row in self.knobs("GET", "knobs").json()["knobs"]:
            assert self.reset(row["name"]).status_code == 200


def wait_for(condition: Callable[[], object], seconds: float = PATIENCE_SECONDS, pause: float = 0.1) -> None:
    """Until the condition holds. AssertionError after `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds:g} s"
        time.sleep(pause)


def settle(server: Server) -> None:
    """Until the log and the counters are past all steps before now, but for the last one.

    An API server that is behind has yet to tell of some. By the time when it has answered one more request it
    has told of them.
    """
    body = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
    assert server.web.post("/v1/chat/completions", json=body).status_code == 200


def run_for(server: Server, steps: int, requests: int = 1) -> list[int]:
    """Tokens scheduled in each of at least `steps` further steps of at least so many requests."""
    start = server.log_size()
    wait_for(lambda: len(server.steps(start, requests)) >= steps)
    return server.steps(start, requests)


def drafts_per_step(server: Server, at_least: int = 400) -> float:
    """Draft tokens a draft over a window that begins when the change has been in force for some steps."""
    settle(server)
    run_for(server, 5)
    start = server.page()
    wait_for(lambda: server.page().value(DRAFTS) - start.value(DRAFTS) >= at_least)
    end = server.page()
    drafts = end.value(DRAFTS) - start.value(DRAFTS)
    return (end.value(DRAFT_TOKENS) - start.value(DRAFT_TOKENS)) / drafts
