"""Reading a simulated page with Prometheus's own parser, for the tests of this folder."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

Key = tuple[str, frozenset[tuple[str, str]]]
_COMMON = frozenset({"engine", "model_name"})


@dataclass(frozen=True)
class ReadPage:
    """Every sample of a page by name and by the labels beside `engine` and `model_name`."""

    samples: Mapping[Key, float]

    @classmethod
    def of(cls, page: bytes | None) -> ReadPage:
        assert page is not None
        samples: dict[Key, float] = {}
        for family in text_string_to_metric_families(page.decode()):
            for sample in family.samples:
                labels = frozenset((k, v) for k, v in sample.labels.items() if k not in _COMMON)
                assert (sample.name, labels) not in samples, "a line stands twice"
                samples[sample.name, labels] = sample.value
        return cls(samples)

    def value(self, name: str, **labels: str) -> float:
        return self.samples[name, frozenset(labels.items())]

    def by_label(self, name: str, label: str) -> dict[str, float]:
        return {
            dict(labels)[label]: value
            for (found, labels), value in self.samples.items()
            if found == name and label in dict(labels)
        }

    def assert_histogram(self, name: str, observed: Iterable[float]) -> None:
        """Count, sum and every bucket of histogram `name` are those of exactly these observations."""
        values = list(observed)
        assert self.value(f"{name}_count") == len(values), name
        assert math.isclose(self.value(f"{name}_sum"), sum(values), rel_tol=1e-9, abs_tol=1e-9), name
        buckets = self.by_label(f"{name}_bucket", "le")
        assert len(buckets) > 4
        expected = {bound: sum(value <= float(bound) for value in values) for bound in buckets}
        assert buckets == expected, name
