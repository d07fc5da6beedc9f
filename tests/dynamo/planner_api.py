"""The control API of Dynamo's own planner, with its own configuration and checks, over a deployment that is
not there: a prefill worker of one GPU, a decode worker of two.

Run with Dynamo's Python: MODE PORT. What the planner imports and no public index holds is left empty.
"""

from __future__ import annotations

import asyncio
import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from unittest.mock import MagicMock

_ABSENT = frozenset({"aisimulate_core", "plotly", "prometheus_api_client", "sklearn"})


class Nothing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what is absent, and loads nothing of it."""

    def find_spec(
        self, name: str, path: object, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """See `MetaPathFinder`."""
        absent = name.partition(".")[0] in _ABSENT
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if absent else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """See `Loader`."""
        return MagicMock(__path__=[], __spec__=spec, __name__=spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """See `Loader`."""


sys.meta_path.append(Nothing())

from dynamo.planner.config.planner_config import PlannerConfig  # type: ignore[import-not-found]  # noqa: E402
from dynamo.planner.control_api import _start_control_api  # type: ignore[import-not-found]  # noqa: E402
from dynamo.planner.core.base import NativePlannerBase  # type: ignore[import-not-found]  # noqa: E402
from dynamo.planner.core.types import (  # type: ignore[import-not-found]  # noqa: E402
    EngineCapabilities,
    WorkerCapabilities,
)


class Planner(NativePlannerBase):  # type: ignore[misc]
    """As much of a planner as its control API asks for."""

    def __init__(self, mode: str) -> None:
        self.config = PlannerConfig(mode=mode)
        self._config_lock = asyncio.Lock()
        self._effect_admission_lock = asyncio.Lock()
        self._config_generation = 0

    def _build_worker_capabilities(self) -> object:
        return WorkerCapabilities(EngineCapabilities(num_gpu=1), EngineCapabilities(num_gpu=2))


async def _serve(mode: str, port: int) -> None:
    await _start_control_api(Planner(mode), port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2])))
