"""What each model of a fleet does: its replicas as one, held against its own objective."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from enginetop.fleet.derive import signals
from enginetop.fleet.facts import Facts, WindowFacts, merge_parts
from enginetop.fleet.frozen import frozen
from enginetop.fleet.goodput import Part, fleet_goodput, fleet_objective
from enginetop.fleet.merge_tree import MergeTree
from enginetop.fleet.request_records import RequestFigures, judged_by_records, with_records
from enginetop.fleet.snapshot import ModelSummary, Signals, Slo


@frozen
class Member:
    """A replica that is up: its name, what counts of its window, and what was made of it."""

    name: str
    model: str | None
    facts: WindowFacts
    part: Part
    records: Sequence[RequestFigures] = ()


class ModelBoard:
    """The fleet merged model by model, with a memory: a change of one replica costs a few merges."""

    def __init__(self) -> None:
        self._trees: dict[str | None, MergeTree] = {}
        self._facts: dict[str | None, Facts] = {}
        self._signals: dict[str | None, tuple[Facts, Signals]] = {}

    def merged(self, members: Sequence[Member]) -> Facts | None:
        """All members as one; None without any."""
        self._facts = {
            model: self._trees.setdefault(model, MergeTree()).merged(
                [member.facts for member in group], [member.name for member in group]
            )
            for model, group in _by_model(members).items()
        }
        for gone in [model for model in self._trees if model not in self._facts]:
            del self._trees[gone]
        return merge_parts(list(self._facts.values())) if self._facts else None

    def summaries(self, members: Sequence[Member]) -> tuple[ModelSummary, ...]:
        """A row for each model of the members of the last merge, in the order of their first replicas."""
        derived = {model: self._derived(model, facts) for model, facts in self._facts.items()}
        self._signals = {model: (self._facts[model], shown) for model, shown in derived.items()}
        return tuple(
            _summary(model, group, self._facts[model], derived[model])
            for model, group in _by_model(members).items()
        )

    def _derived(self, model: str | None, facts: Facts) -> Signals:
        before = self._signals.get(model)
        return before[1] if before is not None and before[0] is facts else signals(facts)


def _summary(model: str | None, group: Sequence[Member], facts: Facts, shown: Signals) -> ModelSummary:
    slo = fleet_objective([member.part.slo for member in group], group[0].part.slo)
    good = fleet_goodput(shown, facts, slo, [member.part for member in group])
    served: list[tuple[RequestFigures, Slo]] = [
        (record, member.part.slo) for member in group for record in member.records
    ]
    if served:
        shown = with_records(shown, [record for record, _ in served])
        good = judged_by_records(good, served)
    return ModelSummary(model, len(group), shown, slo, good)


def _by_model(members: Sequence[Member]) -> Mapping[str | None, list[Member]]:
    groups: dict[str | None, list[Member]] = {}
    for member in members:
        groups.setdefault(member.model, []).append(member)
    return groups
