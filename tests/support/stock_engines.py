"""Engines' own control APIs as they were recorded, or read in their sources, with the ways in which they lie.

Each is a `KnobTransport` with one knob in `value`. `fault` says how the next writes go wrong:

    error_body  200 with an error in the body, nothing changed       ignored   200 as ever, nothing changed
    denied      401                                                  absent    404
    broken      500                                                  garbled   200, not JSON, nothing changed
    silent      no answer, nothing changed                           slow      no answer, but done
    deaf        no answer to anything
    spoilt      (of reloads) the new value cannot be loaded          ruined    nothing can be loaded any more
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from enginetop.fleet.knobs import KnobAnswer

NO_ANSWER = KnobAnswer(None, detail="no answer within 5 s")


def told(document: object, status: int = 200) -> KnobAnswer:
    """An answer of JSON; None: an empty body."""
    return KnobAnswer(status, b"" if document is None else json.dumps(document).encode())


def openapi(**routes: tuple[str, ...]) -> dict[str, Any]:
    """A FastAPI description: routes (without their slash) and the query parameters of each."""
    return {
        "paths": {
            f"/{route}": {"post": {"parameters": [{"name": name} for name in names]}}
            for route, names in routes.items()
        }
    }


@dataclass
class StockEngine:
    """What they have in common. `writes` are the requests that change something, as they came."""

    value: int = 8
    fault: str = ""
    requests: int = 0
    """Running and waiting, for the look from beside it."""
    writes: list[str] = field(default_factory=list)

    def request(self, method: str, path: str, body: bytes | None = None) -> KnobAnswer:
        """See `KnobTransport`."""
        if self.fault == "deaf":
            return NO_ANSWER
        document = json.loads(body) if body else {}
        if not self.writing(method, path):
            return self.read(method, path)
        self.writes.append(f"{method} {path}")
        match self.fault:
            case "error_body":
                return told(self.error_body())
            case "ignored":
                return self.yes(document)
            case "denied":
                return told({"detail": "Unauthorized"}, 401)
            case "absent":
                return told({"detail": "Not Found"}, 404)
            case "broken":
                return told({"error": {"message": "internal \x1b[31merror\x1b[0m"}}, 500)
            case "garbled":
                return KnobAnswer(200, b"<html>")
            case "silent":
                return NO_ANSWER
        answer = self.write(path, document)
        return NO_ANSWER if self.fault == "slow" else answer

    def writing(self, method: str, path: str) -> bool:
        """Whether a request changes something."""
        return method != "GET"

    def error_body(self) -> object:
        """What it answers with 200 when it refuses."""
        return {"status": "error", "message": "not now"}

    def yes(self, document: dict[str, Any]) -> KnobAnswer:
        """What it answers when all went well."""
        return told({"success": True})

    def read(self, method: str, path: str) -> KnobAnswer:
        """A request that changes nothing."""
        raise NotImplementedError

    def write(self, path: str, document: dict[str, Any]) -> KnobAnswer:
        """A request that changes something."""
        raise NotImplementedError


@dataclass
class RuntimeConfigVllm(StockEngine):
    """vLLM with the proposed `/v1/runtime_config`."""

    def read(self, method: str, path: str) -> KnobAnswer:
        """See `StockEngine`."""
        if path == "/version":
            return told({"version": "0.34.0"})
        return told({"max_num_running_seqs": self.value, "max_num_seqs_capacity": 8})

    def yes(self, document: dict[str, Any]) -> KnobAnswer:
        """See `StockEngine`."""
        return told({"max_num_running_seqs": document["max_num_running_seqs"], "max_num_seqs_capacity": 8})

    def write(self, path: str, document: dict[str, Any]) -> KnobAnswer:
        """See `StockEngine`."""
        self.value = document["max_num_running_seqs"]
        return self.yes(document)


@dataclass
class Sglang(StockEngine):
    """SGLang 0.5.23, of `ranks` data-parallel ranks, the last `stubborn` of which never take a value."""

    ranks: int = 1
    stubborn: int = 0
    name: str = "pp_max_micro_batch_size"
    info: str = "/server_info"
    key: str | None = None
    stages: int = 1
    values: list[int] = field(default_factory=list)

    def read(self, method: str, path: str) -> KnobAnswer:
        """See `StockEngine`."""
        if path != self.info:
            return told({"detail": "Not Found"}, 404)
        states = [
            {self.name: value, "effective_max_running_requests_per_dp": 8, "admin_api_key": self.key}
            for value in self._all()
        ]
        own = {"max_running_requests": 8, "pp_size": self.stages, "random_seed": 5, "version": "0.5.23"}
        return told({**own, "api_key": None, "admin_api_key": self.key, "internal_states": states})

    def yes(self, document: dict[str, Any]) -> KnobAnswer:
        """See `StockEngine`. To 0.5.14 that is all that ever comes."""
        return told([True] * self.ranks)

    def error_body(self) -> object:
        """See `StockEngine`. From 0.5.15 on."""
        return [False] * self.ranks

    def write(self, path: str, document: dict[str, Any]) -> KnobAnswer:
        """See `StockEngine`."""
        kept = self._all()[self.ranks - self.stubborn :]
        self.value = document["server_args"][self.name]
        self.values = [self.value] * (self.ranks - self.stubborn) + kept
        return self.yes(document)

    def _all(self) -> list[int]:
        return self.values or [self.value] * self.ranks


@dataclass
class Sleeper(StockEngine):
    """LMDeploy, or vLLM in dev mode: `value` 1 is asleep. `vllm` also pauses."""

    value: int = 0
    vllm: bool = False
    pauses_by_mode: bool = True
    paused: bool = False

    def read(self, method: str, path: str) -> KnobAnswer:
        """See `StockEngine`."""
        if path == "/openapi.json":
            if not self.vllm:
                return told(openapi(sleep=(), wakeup=(), is_sleeping=()))
            pause = ("mode", "clear_cache") if self.pauses_by_mode else ("wait_for_inflight_requests",)
            return told(openapi(sleep=(), wake_up=(), is_sleeping=(), pause=pause, resume=(), is_paused=()))
        found = self.paused if path == "/is_paused" else bool(self.value)
        return told({path.removeprefix("/"): found})

    def yes(self, document: dict[str, Any]) -> KnobAnswer:
        """See `StockEngine`."""
        return told(None)

    def write(self, path: str, document: dict[str, Any]) -> KnobAnswer:
        """See `StockEngine`."""
        match path.partition("?")[0]:
            case "/sleep":
                self.value = 1
            case "/wake_up" | "/wakeup":
                self.value = 0
            case "/pause":
                self.paused = True
            case "/resume":
                self.paused = False
        return self.yes(document)


@dataclass
class LlamaRouter(StockEngine):
    """A llama.cpp router b10434 with a model `a`, whose `--parallel` is the value. `preset` is its file."""

    preset: Any = None
    state: str = "loaded"
    failed: bool = False
    argued: int = 8
    """What it would start the model with."""
    deferred: int = 0
    rereads: bool = True
    own_flag: int | None = None
    """`--parallel` on the router's own command line: it rules."""

    def read(self, method: str, path: str) -> KnobAnswer:
        """See `StockEngine`."""
        if path.startswith("/metrics?model=a&autoload=false"):
            page = (
                f"llamacpp:requests_processing {self.requests}\nllamacpp:requests_deferred {self.deferred}\n"
            )
            return KnobAnswer(200, page.encode())
        if path == "/models?reload=1" and self.rereads:
            text = self.preset.read_text()
            if "[[[" in text:
                return told({"error": {"code": 500, "message": "failed to parse server config file"}}, 500)
            lines = [line for line in text.splitlines() if line.startswith(("parallel =", "np ="))]
            self.argued = int(lines[0].partition("=")[2]) if lines else 1
            self.failed = False
        argued = self.argued if self.own_flag is None else self.own_flag
        status: dict[str, Any] = {
            "value": self.state,
            "args": ["llama-server", "--port", "0", "--alias", "a", "--parallel", str(argued)],
        }
        if self.failed:
            status |= {"exit_code": 1, "failed": True}
        return told(
            {
                "data": [
                    {"id": "b", "status": {"value": "unloaded", "args": []}},
                    {"id": "a", "status": status},
                ]
            }
        )

    def write(self, path: str, document: dict[str, Any]) -> KnobAnswer:
        """See `StockEngine`."""
        assert document == {"model": "a"}
        if path == "/models/unload":
            if self.state != "loaded":
                return told({"error": {"code": 400, "message": "model is not running"}}, 400)
            self.state = "unloaded"
            return self.yes(document)
        assert path == "/models/load"
        if self.fault == "ruined" or (self.fault == "spoilt" and self.argued != 8):
            self.failed = True  # it answers yes, and the model ends by itself
        else:
            self.state, self.value = "loaded", self.argued
        return self.yes(document)


@dataclass
class Triton(StockEngine):
    """Triton in explicit mode with a model `m`, whose `max_batch_size` is the value."""

    state: str = "READY"
    reason: str = ""
    queue: str | None = "64"
    mode: str = "explicit"

    def writing(self, method: str, path: str) -> bool:
        """See `StockEngine`."""
        return method != "GET" and path != "/v2/repository/index"

    def error_body(self) -> object:
        """See `StockEngine`."""
        return {"error": "failed to poll from model repository"}

    def yes(self, document: dict[str, Any]) -> KnobAnswer:
        """See `StockEngine`."""
        return told(None)

    def read(self, method: str, path: str) -> KnobAnswer:
        """See `StockEngine`."""
        if method == "POST":
            return told([{"name": "m", "version": "1", "state": self.state, "reason": self.reason}])
        if path == "/v2/models/m/config":
            if self.state != "READY":
                return told({"error": "Request for unknown model: 'm' is not found"}, 400)
            config: dict[str, Any] = {"name": "m", "backend": "tensorrtllm", "max_batch_size": self.value}
            if self.queue is not None:
                config["parameters"] = {"max_queue_size": {"string_value": self.queue}}
            return told(config)
        return told({"error": "not found"}, 404)

    def write(self, path: str, document: dict[str, Any]) -> KnobAnswer:
        """See `StockEngine`."""
        if self.mode != "explicit":
            return told({"error": "explicit model load / unload is not allowed"}, 503)
        if path == "/v2/repository/models/m/unload":
            self.state, self.reason = "UNAVAILABLE", "unloaded"
            return self.yes(document)
        assert path == "/v2/repository/models/m/load"
        config = json.loads(document["parameters"]["config"])
        wanted = config["max_batch_size"]
        if self.fault == "ruined" or (self.fault == "spoilt" and wanted != 8):
            self.reason = "failed to load 'm' version 1: Internal: engine has a smaller batch"
            return told({"error": self.reason}, 400)
        self.value, self.state, self.reason = wanted, "READY", ""
        if self.queue is not None:
            self.queue = config["parameters"]["max_queue_size"]["string_value"]
        return self.yes(document)


@dataclass
class DynamoFrontend(StockEngine):
    """A Dynamo 1.6.1 frontend with a model `tiny`; `value` is its decode-blocks threshold in percent.

    Of the other two thresholds `tokens` and `fraction` are Dynamo's own numbers; None: not set.
    """

    tokens: int | None = None
    fraction: float | None = None
    raw: object = None
    """Told as decode-blocks threshold in place of `value`."""
    models: tuple[str, ...] = ("other", "tiny")

    def read(self, method: str, path: str) -> KnobAnswer:
        """See `StockEngine`."""
        if path == "/openapi.json":
            return told({"info": {"version": "1.6.1"}, "paths": {"/busy_threshold": {"get": {}, "post": {}}}})
        if path != "/busy_threshold":
            return told({"error": "not found"}, 404)
        return told({"thresholds": [self._row(model) for model in self.models]})

    def yes(self, document: dict[str, Any]) -> KnobAnswer:
        """See `StockEngine`."""
        return told({**self._row("tiny"), **document})

    def write(self, path: str, document: dict[str, Any]) -> KnobAnswer:
        """See `StockEngine`. Null changes nothing, and so does a name that it does not know."""
        if document["model"] not in self.models:
            words = (
                f"Model '{document['model']}' not found. Thresholds can only be set for discovered models."
            )
            return told({"error": words}, 404)
        blocks = document.get("active_decode_blocks_threshold")
        if blocks is not None:
            if not 0 <= blocks <= 1:
                words = f"active_decode_blocks_threshold must be between 0.0 and 1.0, got {blocks}"
                return told({"error": words}, 400)
            self.value = round(blocks * 100)
        self.tokens = document.get("active_prefill_tokens_threshold", self.tokens)
        self.fraction = document.get("active_prefill_tokens_threshold_frac", self.fraction)
        return told(self._row("tiny"))

    def _row(self, model: str) -> dict[str, Any]:
        mine = model == "tiny"
        return {
            "model": model,
            "active_decode_blocks_threshold": (self.raw or self.value / 100) if mine else None,
            "active_prefill_tokens_threshold": self.tokens if mine else None,
            "active_prefill_tokens_threshold_frac": self.fraction if mine else None,
        }


@dataclass
class DynamoPlanner(StockEngine):
    """The control API of Dynamo's planner 1.6.1; the value is the floor of its decode workers."""

    mode: str = "disagg"
    budget: int = 16
    prefill: int = 1

    def read(self, method: str, path: str) -> KnobAnswer:
        """See `StockEngine`."""
        return told(self._state()) if path == "/v1/min-endpoints" else told(None, 404)

    def error_body(self) -> object:
        """See `StockEngine`."""
        return {"error": "planner decision in progress; retry the request"}

    def yes(self, document: dict[str, Any]) -> KnobAnswer:
        """See `StockEngine`."""
        return told({**self._state(), **document})

    def write(self, path: str, document: dict[str, Any]) -> KnobAnswer:
        """See `StockEngine`."""
        inactive = sorted(set(document) - set(self._state()))
        if inactive:
            words = f"fields are not active in mode='{self.mode}': {', '.join(inactive)}"
            return told({"error": words}, 422)
        floor = document.get("decode_min_endpoint", document.get("min_endpoint", self.value))
        if 0 <= self.budget < floor + self.prefill:
            words = (
                f"minimum endpoint footprint requires {floor + self.prefill} GPUs, exceeding max_gpu_budget"
            )
            return told({"error": words}, 422)
        self.value, self.budget = floor, document.get("max_gpu_budget", self.budget)
        return told(self._state())

    def _state(self) -> dict[str, Any]:
        floors: dict[str, dict[str, int]] = {
            "agg": {"min_endpoint": self.value},
            "prefill": {"prefill_min_endpoint": self.prefill},
            "decode": {"decode_min_endpoint": self.value},
            "disagg": {"prefill_min_endpoint": self.prefill, "decode_min_endpoint": self.value},
        }
        return {"mode": self.mode, **floors[self.mode], "min_gpu_budget": -1, "max_gpu_budget": self.budget}


@dataclass
class DynamoWorker(StockEngine):
    """A Dynamo worker whose card lies at `card`, with another address than the one that is asked; `value` is
    whether it has the taint `t`. `others` it has beside that: one of somebody else, and one that Dynamo makes
    by itself.
    """

    value: int = 0
    card: Any = None
    worker: int = 0xC9228E1EDDC82C4
    others: tuple[str, ...] = ("dynamo.topology/zone=a", "theirs")

    def read(self, method: str, path: str) -> KnobAnswer:
        """See `StockEngine`."""
        assert path == "/metrics"
        labels = f'dynamo_namespace="d",worker_id="{self.worker:x}"'
        return KnobAnswer(200, f"# HELP x y\ndynamo_component_uptime_seconds{{{labels}}} 5.0\n".encode())

    def publish(self) -> None:
        """Write the card anew."""
        taints = [*self.others, *(["t"] if self.value else [])]
        page = {"path": "http://192.0.2.2:9090/v1/metadata/config.json"}
        card = {"display_name": "tiny", "model_info": page, "runtime_config": {"taints": taints}}
        self.card.write_text(json.dumps({"instance_id": self.worker, "component": "b", "card_json": card}))

    def yes(self, document: dict[str, Any]) -> KnobAnswer:
        """See `StockEngine`."""
        return told({"status": "ok", "taints": document["taints"]})

    def write(self, path: str, document: dict[str, Any]) -> KnobAnswer:
        """See `StockEngine`. All taints but those of its own are replaced."""
        assert path == "/engine/update/model_taints"
        taints = document["taints"]
        if any(one.startswith("dynamo.topology/") for one in taints):
            return told({"error": "Handler error", "message": "uses reserved prefix"}, 500)
        self.value = int("t" in taints)
        self.others = ("dynamo.topology/zone=a", *(one for one in taints if one != "t"))
        self.publish()
        return self.yes(document)
