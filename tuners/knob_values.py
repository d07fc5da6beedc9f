"""The knobs as they stand: from the knob sheet where there is one, else as the pages tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from enginetop.fleet.changeable import CHANGEABLE
from enginetop.fleet.frozen import frozen
from enginetop.fleet.knobs import KNOB_API, KnobSheet
from enginetop.fleet.model import EngineKind
from enginetop.fleet.signals import KNOBS
from enginetop.fleet.snapshot import ReplicaSnapshot
from tuners import prefill

BUDGET = "max_num_batched_tokens"
DRAFTS = "num_speculative_tokens"
THINKING = "thinking_token_budget"
SEQUENCES = "max_num_seqs"
KNOB_SHEET = "knob API"
"""Where a value was read that the engine's knob sheet tells."""

_NO_BOUNDS: Mapping[str, tuple[int, int]] = MappingProxyType({})


@frozen
class Knobs:
    """The knobs that rules need, as they stand now; None: not known.

    `budget` is `max_num_batched_tokens` and `sequences` `max_num_seqs`, each of one engine; `drafts` the
    draft tokens of a decoding request; `thinking` the default thinking budget, -1 where thinking has no
    limit. `bounds` holds the least and the greatest value that an engine accepts live, by knob, and `live_by`
    names the path to them, `elsewhere` that of single knobs which have another; `restarted_by` names the path
    by which enginetop itself can restart it with another value. `problem` says why the values cannot be
    relied on.
    """

    budget: int | None = None
    sequences: int | None = None
    drafts: int = 0
    thinking: int | None = None
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=lambda: _NO_BOUNDS)
    live_by: str = KNOB_API
    elsewhere: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    restarted_by: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    source: str = ""
    problem: str = ""
    engine: EngineKind = EngineKind.UNKNOWN

    @property
    def floor(self) -> int | None:
        """The least budget: every sequence must get its token and drafts into one step (R5)."""
        by_rule = None if self.sequences is None else prefill.least_budget(self.sequences, self.drafts)
        accepted = self.bounds[BUDGET][0] if BUDGET in self.bounds else None
        known = [floor for floor in (by_rule, accepted) if floor is not None]
        return max(known) if known else None

    def path(self, knob: str) -> tuple[str, str] | None:
        """How enginetop itself can change `knob` here, in the words of `way`; None: it has no path."""
        if knob in self.bounds:
            return "live", self.elsewhere.get(knob, self.live_by)
        return ("restart", self.restarted_by[knob]) if knob in self.restarted_by else None

    def way(self, knob: str, value: int) -> tuple[str, str]:
        """How `knob` can be set to `value` here: the words of `apply` and `via` of an advice.

        Live where the knob API takes the value, by a restart of ours where there is a path, else by the
        engine's own flag or field.
        """
        least, greatest = self.bounds.get(knob, (1, 0))
        if least <= value <= greatest:
            return "live", self.elsewhere.get(knob, self.live_by)
        if knob in self.restarted_by:
            return "restart", self.restarted_by[knob]
        own = CHANGEABLE.get(self.engine, {}).get(knob)
        return ("restart", "") if own is None else (own.apply, own.how)


def knobs_of(replica: ReplicaSnapshot, sheet: KnobSheet | None = None) -> Knobs:
    """The knobs of a replica; a sheet tells more, and newer, than the configuration on its pages."""
    values = {knob: _configured(replica, knob) for knob in KNOBS}
    setting = replica.config.get(BUDGET)
    source, problem = setting.source if setting else "", ""
    bounds: dict[str, tuple[int, int]] = {}
    restarted_by: dict[str, str] = {}
    elsewhere: dict[str, str] = {}
    if sheet is not None:
        for row in sheet.knobs:
            if row.name in values:
                if row.via:
                    elsewhere[row.name] = row.via
                if row.apply == "live":
                    bounds[row.name] = (row.min, row.max)
                else:
                    restarted_by[row.name] = sheet.writer
                values[row.name] = values[row.name] if row.value is None else row.value
        if bounds or restarted_by:
            source = KNOB_SHEET
        if (bounds or restarted_by) and sheet.applied != sheet.total:
            problem = f"mixed configuration: {sheet.applied} of {sheet.total} ranks confirm their knobs"
    return Knobs(
        budget=values[BUDGET],
        sequences=values[SEQUENCES],
        drafts=values[DRAFTS] or 0,
        thinking=values[THINKING],
        bounds=MappingProxyType(bounds),
        live_by=KNOB_API if sheet is None else sheet.writer,
        elsewhere=MappingProxyType(elsewhere),
        restarted_by=MappingProxyType(restarted_by),
        source=source,
        problem=problem,
        engine=replica.engine,
    )


def _configured(replica: ReplicaSnapshot, name: str) -> int | None:
    setting = replica.config.get(name)
    value = setting.value if setting is not None else None
    least = -1 if name == THINKING else 0
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= least else None
