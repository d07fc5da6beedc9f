"""One real SGLang server: started, asked, stopped."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import httpx

from collectors.control_http import UNIX_SCHEME, HttpKnobTransport
from collectors.fetch import Credentials
from enginetop.fleet.knobs import KnobRow
from tests.support.installing import Environment
from tests.vllm.server import free_port, wait_for
from tuners.control.knob_api import HttpKnobClient

READY_SECONDS = 900.0
MAX_RUNNING = 8
CAPACITY_TOKENS = 1536
"""Room for the whole batch with short answers, not with long ones."""
CHUNK_TOKENS = 256

FLAGS = (
    *("--served-model-name", "tiny", "--device", "cpu", "--attention-backend", "torch_native"),
    *("--sampling-backend", "pytorch", "--disable-cuda-graph", "--disable-custom-all-reduce"),
    *("--skip-server-warmup", "--enable-metrics", "--mem-fraction-static", "0.1"),
    *("--max-total-tokens", str(CAPACITY_TOKENS), "--max-running-requests", str(MAX_RUNNING)),
    *("--chunked-prefill-size", str(CHUNK_TOKENS), "--context-length", "512", "--decode-log-interval", "5"),
    # Requests are let in although their answers may not fit.
    *("--schedule-conservativeness", "0.05"),
)
_RETRACTED = re.compile(r"#retracted_reqs: (\d+)")


class Server:
    """A running server. With `companion` its knobs are at the companion's own choice of a socket.

    `ranks` data-parallel ranks share the cores.
    """

    def __init__(
        self, here: Environment, folder: Path, *flags: str, companion: bool = False, ranks: int = 1
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.runtime_folder = folder.parent / "run"  # of all servers that were started beside this one
        self.token_file = folder.parent / "token"
        self.token_file.write_text("the-token-of-a-test\n")
        self.token_file.chmod(0o600)
        self.url = f"http://127.0.0.1:{free_port()}"
        self._log_file = folder / "server.log"
        self._log = self._log_file.open("wb")
        others = ("SGLANG_", "ENGINETOP_", "PROMETHEUS_")
        environment = {key: value for key, value in os.environ.items() if not key.startswith(others)} | {
            "SGLANG_USE_CPU_ENGINE": "1",
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "OMP_NUM_THREADS": "1",
        }
        if companion:
            environment |= {
                "XDG_RUNTIME_DIR": str(self.runtime_folder),
                "ENGINETOP_COMPANION": "1",
                "ENGINETOP_COMPANION_TOKEN_FILE": str(self.token_file),
            }
        if ranks > 1:  # on a CPU each is told its cores
            cores = [str(rank % (os.cpu_count() or 1)) for rank in range(ranks)]
            environment["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join(cores)
            flags = (*flags, "--dp-size", str(ranks))
        port = self.url.rpartition(":")[2]
        words = [str(here.python), "-m", "sglang.launch_server", "--model-path", str(here.model)]
        self._process = subprocess.Popen(
            [*words, "--host", "127.0.0.1", "--port", port, *FLAGS, *flags],
            env=environment,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.started = time.monotonic()
        self.ready_seconds = 0.0

    def wait_until_ready(self) -> None:
        def ready() -> bool:
            assert self._process.poll() is None, self.log()[-4000:]
            try:
                return httpx.get(f"{self.url}/ready", timeout=5.0).status_code == 200
            except httpx.TransportError:
                return False

        wait_for(ready, READY_SECONDS)
        self.ready_seconds = time.monotonic() - self.started

    def log(self) -> str:
        """What the server has written so far."""
        return self._log_file.read_text(errors="replace")

    def retracted(self) -> int:
        """Requests that were retracted so far, by the server's own log."""
        return sum(map(int, _RETRACTED.findall(self.log())))

    @property
    def knob_address(self) -> str:
        """Where the companion listens when nobody told it otherwise."""
        port = self.url.rpartition(":")[2]
        return f"{UNIX_SCHEME}{self.runtime_folder / 'enginetop' / f'sglang-{port}.sock'}"

    @property
    def knobs(self) -> HttpKnobClient:
        """The knobs, with the token of this server."""
        token = Credentials(api_key_file=str(self.token_file))
        return HttpKnobClient(HttpKnobTransport(self.knob_address, token, timeout_seconds=30.0))

    def processes(self, title: str) -> list[int]:
        """Processes of this server whose title begins so."""
        listed = subprocess.run(["ps", "-eo", "pid=,pgid=,args="], capture_output=True, text=True, check=True)
        rows = (line.split(maxsplit=2) for line in listed.stdout.splitlines())
        return [int(row[0]) for row in rows if int(row[1]) == self._process.pid and row[2].startswith(title)]

    def row(self, knob: str) -> KnobRow:
        """A knob as it stands."""
        reply = self.knobs.read()
        assert reply.sheet is not None, reply.detail
        row = reply.sheet.knob(knob)
        assert row is not None
        return row

    def stop(self) -> None:
        """End the server and all processes of its group."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(30)
        self._log.close()
