"""Stand-ins with the attributes and the loop that vLLM 0.32 and 0.33 have (checked by the real suite)."""

from __future__ import annotations

import enum
import queue
import sys
import threading
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class RequestType(enum.Enum):
    """vLLM's EngineCoreRequestType, as far as it is used."""

    ADD = b"\x00"
    UTILITY = b"\x03"
    WAKEUP = b"\x05"


class FakeScheduler:
    """The attributes of vLLM's scheduler that the companion reads and writes."""

    def __init__(self, *, budget: int = 512, seqs: int = 16, drafts: int = 4, model_len: int = 512) -> None:
        self.scheduler_config = SimpleNamespace(
            long_prefill_token_threshold=0,
            enable_chunked_prefill=True,
            disable_chunked_mm_input=False,
            max_num_queued_reqs=None,
            max_num_queued_tokens=None,
        )
        self.kv_cache_manager = SimpleNamespace(
            watermark_blocks=0, block_pool=SimpleNamespace(num_gpu_blocks=101)
        )
        self.max_num_scheduled_tokens = budget
        self.max_num_running_reqs = seqs
        self.max_num_active_reqs = seqs
        self.num_spec_tokens = drafts
        self.dynamic_sd_lookup: list[int] | None = None
        self.max_model_len = model_len
        self.max_num_encoder_input_tokens = 0
        self.need_mamba_block_aligned_split = False
        self.block_size = 32
        self.num_prefill_lookahead = 0

    def drafts_of(self, batch: int) -> int:
        """As at the end of `Scheduler.schedule`."""
        return self.num_spec_tokens if self.dynamic_sd_lookup is None else self.dynamic_sd_lookup[batch]


def config_of(*, method: str = "ngram", ranks: int = 1, reasoning: bool = False) -> SimpleNamespace:
    """A vLLM config, as far as it is read."""
    return SimpleNamespace(
        parallel_config=SimpleNamespace(data_parallel_size=ranks),
        speculative_config=SimpleNamespace(method=method),
        reasoning_config=SimpleNamespace(enabled=True) if reasoning else None,
    )


class FakeCore:
    """An EngineCore: a scheduler, and in `run` the loop that blocks on its input queue when idle."""

    def __init__(self, scheduler: FakeScheduler | None = None, config: SimpleNamespace | None = None) -> None:
        self.scheduler = scheduler or FakeScheduler()
        self.vllm_config = config or config_of()
        self.input_queue: queue.Queue[tuple[RequestType, Any]] = queue.Queue()
        self.seen: queue.Queue[RequestType] = queue.Queue()
        self.steps = 0
        self.torn_steps = 0
        self.busy = False
        self._stop = False

    def _handle_client_request(self, request_type: RequestType, request: Any) -> None:
        if request_type is RequestType.UTILITY:
            request()
        self.seen.put(request_type)

    def stop(self) -> None:
        self._stop = True
        self.input_queue.put((RequestType.WAKEUP, None))

    def run(self) -> None:
        """As `EngineCoreProc.run_busy_loop`: requests between steps, a wait for one when there is no work."""
        while not self._stop:
            if not self.busy:
                self._handle_client_request(*self.input_queue.get())
            while not self.input_queue.empty():
                self._handle_client_request(*self.input_queue.get_nowait())
            if self.busy:
                self._step()

    def _step(self) -> None:
        before = self.scheduler.max_num_scheduled_tokens
        for _ in range(200):  # long enough for another thread to come between
            pass
        self.torn_steps += before != self.scheduler.max_num_scheduled_tokens
        self.steps += 1

    def in_loop(self, work: Callable[[], Any]) -> Any:
        """Run `work` between two steps, as a utility call does, and return what it returned."""
        done: queue.Queue[Any] = queue.Queue()
        self.input_queue.put((RequestType.UTILITY, lambda: done.put(work())))
        return done.get(timeout=10)


@pytest.fixture
def fake_vllm(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Modules named as vLLM's, with what the companion imports of them."""

    class EngineCore:
        pass

    modules: dict[str, dict[str, Any]] = {
        "vllm": {"__version__": "0.32.0+cpu"},
        "vllm.v1": {},
        "vllm.v1.engine": {"EngineCoreRequestType": RequestType},
        "vllm.v1.engine.core": {"EngineCore": EngineCore},
    }
    for name, contents in modules.items():
        module = ModuleType(name)
        module.__dict__.update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    return SimpleNamespace(EngineCore=EngineCore, vllm=sys.modules["vllm"])


def running(core: FakeCore) -> threading.Thread:
    """The core's loop in a thread."""
    thread = threading.Thread(target=core.run, daemon=True)
    thread.start()
    return thread
