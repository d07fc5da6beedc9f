"""One metric family on the page of a simulated engine, and where its numbers are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from enginetop.fleet.frozen import frozen
from enginetop.simulator.metrics import Histogram
from enginetop.simulator.model import EngineModel

Labels = tuple[tuple[str, str], ...]
VLLM_LABELS = frozenset({"engine", "model_name"})
"""Labels of the engine that most series of vLLM carry."""


@frozen
class Family:
    """One metric family.

    `read` gives a number for each entry of `children` (the labels beside the common ones), or the one
    histogram.
    `common` tells which of the engine's labels its series carry. A family without a label that names the rank
    stands once for all ranks: it is the first one's, or the sum over them if `summed`.
    """

    name: str
    kind: str
    help: str
    read: Callable[[EngineModel, float], Sequence[float] | Histogram]
    children: tuple[Labels, ...] = ((),)
    common: frozenset[str] = VLLM_LABELS
    summed: bool = False

    @property
    def has_created(self) -> bool:
        """Whether its series come with the time of their creation (all of vLLM's counts do)."""
        return self.kind != "gauge" and not self.name.startswith(("process_", "python_"))


def each(label: str, *values: str) -> tuple[Labels, ...]:
    """The children of a family that differ in one label."""
    return tuple(((label, value),) for value in values)
