"""A fleet of Dynamo's mocker: a frontend with its router, workers, and their iteration stream."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from collectors.engines.dynamo_card import WorkerCard, card_of
from tests.dynamo.tiny_model import write_model
from tests.support.installing import Environment

START_SECONDS = 120.0
STOP_SECONDS = 20.0
MODEL = "tiny"

LIMITS = ("--block-size", "2", "--max-num-seqs", "16", "--max-num-batched-tokens", "2048")
"""A block of two tokens: blocks in use tell tokens to half a token a request."""


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker as it is registered: its id, its card and the base URL of its system port."""

    id: int
    component: str
    card: WorkerCard
    url: str


class Fleet:
    """A running fleet, as a context; everything started is stopped at its end."""

    def __init__(
        self,
        here: Environment,
        folder: Path,
        *,
        decode: int,
        prefill: int = 0,
        blocks: int,
        engine: str = "vllm",
    ) -> None:
        """`prefill` 0: `decode` workers that do both. `blocks` is the KV cache of each worker."""
        self._engine = engine
        self._here = here
        self._folder = folder
        self._wanted = {"backend": decode, "prefill": prefill}
        self._blocks = blocks
        self._processes: list[subprocess.Popen[bytes]] = []
        self.stream_file = folder / "steps.jsonl"
        self.store = folder / "store"
        port = free_port()
        self.frontend = f"http://127.0.0.1:{port}"
        self._environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("DYN_")},
            "DYN_DISCOVERY_BACKEND": "file",
            "DYN_FILE_KV": str(self.store),
            "DYN_REQUEST_PLANE": "tcp",
            "DYN_EVENT_PLANE": "zmq",
            "DYN_LOG": "warn",
            "DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS": '["generate"]',
            "HF_HUB_OFFLINE": "1",
        }
        self._port = port

    def __enter__(self) -> Self:
        self.store.mkdir(parents=True)
        write_model(self._folder / "model")
        try:
            self._begin()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _begin(self) -> None:
        self._start("-m", "dynamo.frontend", "--http-port", str(self._port), "--router-mode", "kv")
        for component, mode in (("prefill", "prefill"), ("backend", "decode")):
            if self._wanted[component]:
                # Port 0: every worker of the process has a system port of its own.
                split = ("--disaggregation-mode", mode) if self._wanted["prefill"] else ()
                flags = (*self._worker_flags(component), *split)
                self._start("-m", "dynamo.mocker", *flags, DYN_SYSTEM_PORT="0")
        self._wait(self._complete)
        self._start(
            *("-m", "dynamo.common.recv_forward_pass_metrics"),
            *("--namespace", "dynamo", "--component", "backend", "--endpoint", "generate"),
            *("--flush-interval", "0.5", "--output", str(self.stream_file)),
        )
        self._wait(self._streaming)

    def workers(self) -> list[Worker]:
        """The workers that are registered, from their discovery cards."""
        found = []
        for path in self.store.rglob("*"):
            if "mdc" in path.parts and path.is_file():
                entry = json.loads(path.read_text())
                card = card_of(entry, entry["instance_id"])
                assert card is not None
                files = entry["card_json"]["model_info"]["hf_config_json"]["path"]
                url = f"http://127.0.0.1:{httpx.URL(files).port}"
                found.append(Worker(entry["instance_id"], entry["component"], card, url))
        return sorted(found, key=lambda worker: worker.id)

    def steps(self) -> list[dict[str, Any]]:
        """The iteration stream so far: a record for each step of each worker, in order of arrival."""
        lines = self.stream_file.read_text().splitlines() if self.stream_file.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def end_workers(self) -> None:
        """Tell the worker processes to end, and wait until they have."""
        for process in self._processes[1:-1]:
            process.send_signal(signal.SIGTERM)
        for process in self._processes[1:-1]:
            process.wait(STOP_SECONDS)

    def stop(self) -> None:
        """End every process of this fleet, the last one first."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGINT if process is self._processes[-1] else signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(STOP_SECONDS)

    def log(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-1500:] for path in self._folder.glob("*.log"))

    def _worker_flags(self, component: str) -> tuple[str, ...]:
        return (
            *("--num-workers", str(self._wanted[component]), "--stagger-delay", "-1"),
            *("--model-path", str(self._folder / "model"), "--model-name", MODEL),
            *("--num-gpu-blocks-override", str(self._blocks), "--no-enable-prefix-caching"),
            *("--speedup-ratio", "0.3", "--engine-type", self._engine, *LIMITS),
        )

    def _start(self, *words: str, **environment: str) -> None:
        with (self._folder / f"{len(self._processes)}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [str(self._here.python), *words],
                    env={**self._environment, **environment},
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self._folder,
                    start_new_session=True,
                )
            )

    def _wait(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + START_SECONDS
        while not condition():
            assert all(process.poll() is None for process in self._processes), self.log()
            assert time.monotonic() < end, f"not within {START_SECONDS:g} s\n{self.log()}"
            time.sleep(0.2)

    def _complete(self) -> bool:
        """Whether every worker is registered and the frontend would route to it."""
        if len(self.workers()) < sum(self._wanted.values()):
            return False
        try:
            page = httpx.get(f"{self.frontend}/metrics", timeout=5.0).text
        except httpx.TransportError:
            return False
        return page.count("\ndynamo_component_router_worker_registered{") >= sum(self._wanted.values())

    def _streaming(self) -> bool:
        """Whether every decoding worker has been heard: idle ones send a record each second."""
        heard = {record["metrics"]["worker_id"] for record in self.steps()}
        return len(heard) >= self._wanted["backend"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
