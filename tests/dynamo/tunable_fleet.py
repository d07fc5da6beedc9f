"""A Dynamo frontend and two of the tunable workers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.dynamo.fleet import MODEL, Fleet, free_port
from tests.support.installing import Environment

OBJECTIVE = "ttft=1.0,tpot=0.2"
_WORKER = Path(__file__).with_name("tunable_worker.py").resolve()
_COMPANION = _WORKER.parents[2] / "companions" / "common"


@dataclass(frozen=True, slots=True)
class TunableWorker:
    """One worker: the base URL of its system port, and that of its knob API."""

    url: str
    knobs: str
    token_file: Path

    def row(self) -> dict[str, Any]:
        """The row of its knob, with the `instance` of the sheet."""
        key = {"Authorization": f"Bearer {self.token_file.read_text()}"}
        sheet = httpx.get(f"{self.knobs}/enginetop/v1/knobs", headers=key, timeout=10.0).json()
        row: dict[str, Any] = sheet["knobs"][0]
        return row | {"instance": sheet["instance"]}


class TunableFleet(Fleet):
    """Two workers with `seats` each; every one a process, as engines are."""

    def __init__(self, here: Environment, folder: Path, *, seats: int, router: str = "least-loaded") -> None:
        super().__init__(here, folder, decode=2, blocks=0)
        self._router = router
        self._seats = seats
        self.tunable: list[TunableWorker] = []

    def _begin(self) -> None:
        self._start("-m", "dynamo.frontend", "--http-port", str(self._port), "--router-mode", self._router)
        while len(self.tunable) < self._wanted["backend"]:
            self.tunable.append(self._one_more())
        self._wait(self._serving)

    def _one_more(self) -> TunableWorker:
        """Start a worker, and wait for its card."""
        known = {worker.id for worker in self.workers()}
        knobs = f"127.0.0.1:{free_port()}"
        token_file = self._folder / "token"
        token_file.write_text("t0ken")
        self._start(
            str(_WORKER),
            *("--model-path", str(self._folder / "model"), "--model-name", MODEL),
            *("--max-num-seqs", str(self._seats)),
            DYN_SYSTEM_PORT="0",
            PYTHONPATH=str(_COMPANION),
            ENGINETOP_SLO=OBJECTIVE,
            ENGINETOP_COMPANION_LISTEN=knobs,
            ENGINETOP_COMPANION_TOKEN_FILE=str(token_file),
        )
        self._wait(lambda: len(self.workers()) > len(known))
        (new,) = (worker for worker in self.workers() if worker.id not in known)
        return TunableWorker(new.url, f"http://{knobs}", token_file)

    def _serving(self) -> bool:
        """Whether the frontend counts both workers."""
        try:
            ready = httpx.get(f"{self.frontend}/v1/models/{MODEL}/ready", timeout=5.0)
        except httpx.TransportError:
            return False
        if ready.status_code != 200:
            return False
        kinds = ready.json()["namespaces"]["dynamo"]["worker_types"]
        return bool(kinds["aggregated"]["workers"] == self._wanted["backend"])
