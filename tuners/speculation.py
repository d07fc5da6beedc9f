"""The rule for `num_speculative_tokens`: as many drafts as make tokens come fastest at this traffic.

Acceptance alone cannot decide: what a draft costs depends on how full the steps are. The rule takes the
acceptance of each position from the counters, the step time from its fit, and works out the TPOT of every k
once the batch has settled. What a draft model costs shows only in a comparison of two k; until then a share
of an empty step is assumed, and a range around it has to agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import BELIEVED, EngineKind
from enginetop.fleet.snapshot import Advice, Scalar
from tuners.case import Case, Rule, once
from tuners.draft_comparison import WORTH_RATIO, Compared, compared, direction, measured_change
from tuners.draft_cost import DraftCosts, costs_of
from tuners.draft_maths import (
    StepCost,
    Traffic,
    accepted_length,
    falls_from_position_to_position,
    luck_ratio,
    wilson,
)
from tuners.draft_memory import COMPARED_SPREAD
from tuners.knob_values import DRAFTS
from tuners.load import Load, load_of
from tuners.step_time import Unfit, fit_step_time
from tuners.words import lacking, missing, not_fresh, percent, row, too_short

POSITIONS = "spec_acceptance_per_position"
WIDEST_HALF_INTERVAL = 0.05
"""Of the acceptance of a position (Wilson, 95 %): 400 drafts suffice in the worst case."""
MEASURED_WORTH_RATIO = 0.02
"""A change must be worth so much of TPOT where the cost of a draft was measured."""
ONE_IN_TWENTY = 1.645
"""Standard deviations: objectives are for nearly all requests, and drafts spread TPOT by their luck."""
SLOWEST_SLOPE_MARGIN = 0.5
"""Half the interval of the time per token, over the time per token."""
FULL_KV = 0.85
_SILENT_WITHOUT_DRAFTS = frozenset({EngineKind.VLLM, EngineKind.SGLANG})


def calls(case: Case) -> str | None:
    """What the best number of drafts calls for, if it is clearly better than the present one."""
    if not_fresh(case) is not None:
        return None
    measured = compared(case)
    best = measured.best if measured is not None else None
    if best is None:
        seen = drafts_seen(case)
        best = case.knobs.drafts if isinstance(seen, str) else seen.best(measured)
    if best == case.knobs.drafts:
        return None
    return direction(case.knobs.drafts, best)


def advise(case: Case) -> Advice:
    """The advice row."""
    drafts = case.knobs.drafts
    if (why := not_fresh(case)) is not None:
        return row(DRAFTS, "withheld", why, drafts)
    if case.knobs.problem:
        return row(DRAFTS, "withheld", case.knobs.problem, drafts)
    measured = compared(case)
    if measured is not None and measured.best is not None:
        return measured_change(case, measured, measured.best)
    if drafts == 0:
        if (untold := _untold(case)) is not None:
            return row(DRAFTS, "withheld", untold, None)
        why = "no drafts are made: what they would be accepted at is not known"
        return row(DRAFTS, "hold", why, 0)
    seen = drafts_seen(case)
    if isinstance(seen, str):
        return row(DRAFTS, "withheld", seen, drafts)
    best = seen.best(measured)
    if best == drafts:
        why = f"no other number of drafts is worth {percent(seen.worth_ratio)} of TPOT at this traffic"
        return row(DRAFTS, "hold", why, drafts, seen.acceptance_text(), seen.table_text())
    if (short := too_short(case)) is not None:
        return row(DRAFTS, "withheld", short, drafts, seen.acceptance_text())
    return seen.change(case, best)


RULE = Rule(DRAFTS, calls, advise)


def _untold(case: Case) -> str | None:
    """Why it is not known whether drafts are made; None: it is.

    vLLM and SGLang have series of drafts only where they make some; of others a count of none tells it.
    """
    replica, knobs = case.replica, case.knobs
    if DRAFTS in replica.config or DRAFTS in knobs.bounds or DRAFTS in knobs.restarted_by:
        return None
    counted = replica.totals.get("spec_draft_tokens")
    if counted:
        return f"drafts are made, but {DRAFTS} is not known: neither the pages nor a knob API tell it"
    if counted is not None or replica.engine in _SILENT_WITHOUT_DRAFTS:
        return None
    signal = replica.scalar("spec_acceptance_ratio")
    return f"whether drafts are made is not told; {missing('spec_acceptance_ratio', signal)}"


@frozen
class DraftsSeen:
    """What drafts bring and cost. `output_tokens` is the mean of a request, None where it is not known."""

    drafts: int
    positions: Sequence[float]
    traffic: Traffic
    costs: DraftCosts
    load: Load
    kv_is_short: bool
    output_tokens: float | None = None

    def tpot(self, drafts: int, cost: StepCost) -> float:
        """Mean TPOT with so many drafts, in seconds."""
        return cost.tpot_seconds(self.positions, drafts, self.traffic)

    def spread_ratio(self, drafts: int) -> float:
        """What the luck of drafts adds to the TPOT of one request in twenty; 0 if lengths are not known."""
        if self.output_tokens is None:
            return 0.0
        return ONE_IN_TWENTY * luck_ratio(self.positions, drafts, self.output_tokens)

    def late_tpot(self, drafts: int, cost: StepCost) -> float:
        """TPOT of one request in twenty with so many drafts, in seconds, by the luck of drafts."""
        return self.tpot(drafts, cost) * (1.0 + self.spread_ratio(drafts))

    def best(self, measured: Compared | None) -> int:
        """The number of drafts to go to; the present one unless another is clearly better.

        Fewer must be better by the likely cost and no worse by the cheapest; one more by the dearest. What
        was measured to be slower is never gone to.
        """
        if self.kv_is_short and self.drafts > 0:
            return self.drafts // 2
        costs = self.costs
        tried = [k for k in range(self.drafts) if measured is None or not measured.was_slower(k)]
        fewer = min(tried, key=lambda k: self.late_tpot(k, costs.likely), default=self.drafts)
        if self._is_worth(fewer, costs.likely) and self._is_no_worse(fewer, costs.cheapest):
            return fewer
        more = self.drafts + 1
        if self._is_worth(more, costs.dearest) and not (measured is not None and measured.was_slower(more)):
            return more
        return self.drafts

    def _is_worth(self, drafts: int, cost: StepCost) -> bool:
        return self.late_tpot(drafts, cost) < (1.0 - self.worth_ratio) * self.late_tpot(self.drafts, cost)

    def _is_no_worse(self, drafts: int, cost: StepCost) -> bool:
        return self.late_tpot(drafts, cost) <= self.late_tpot(self.drafts, cost)

    @property
    def worth_ratio(self) -> float:
        """What a change must be worth."""
        return MEASURED_WORTH_RATIO if self.costs.measured else WORTH_RATIO

    def change(self, case: Case, to: int) -> Advice:
        """The row that goes to `to` drafts."""
        action = direction(self.drafts, to)
        because = [self.acceptance_text(), self.table_text()]
        if (spread := self.spread_ratio(self.drafts)) > 0:
            because.append(f"by the luck of drafts one request in twenty is {percent(spread)} slower")
        if self.kv_is_short:
            because.append("KV is short and requests are preempted: drafts take slots of every sequence")
        if to > len(self.positions):
            because.append(f"the acceptance of position {to} is a guess: the last conditional one goes on")
        because.append("wrong if batches grow smaller: drafts cost less then")
        now = self.tpot(self.drafts, self.costs.likely)
        changes = sorted(
            self.tpot(to, cost) / self.tpot(self.drafts, cost) - 1.0
            for cost in self.costs.ends
            if math.isfinite(self.tpot(self.drafts, cost)) and math.isfinite(self.tpot(to, cost))
        )
        expected: Mapping[str, float] = (
            {"tpot_change_low_ratio": changes[0], "tpot_change_high_ratio": changes[-1]} if changes else {}
        )
        sure = bool(changes) and changes[-1] < 0 and math.isfinite(now) and to <= len(self.positions)
        apply, via = case.knobs.way(DRAFTS, to)
        return Advice(
            DRAFTS,
            action,
            tuple(because),
            self.drafts,
            to,
            "decode",
            expected,
            "medium" if sure else "low",
            apply,
            via,
        )

    def acceptance_text(self) -> str:
        """Acceptance by position and the tokens a step."""
        by_position = " ".join(f"{p:.2f}".lstrip("0") for p in self.positions)
        length = accepted_length(self.positions, self.drafts)
        return f"accepted by position {by_position}: {length:.2f} tokens a step"

    def table_text(self) -> str:
        """TPOT of each number of drafts, by the likely cost."""
        likely = self.costs.likely
        rows = (f"{k}: {_tpot_text(self.tpot(k, likely))}" for k in range(self.drafts + 2))
        return "mean TPOT by drafts " + ", ".join(rows)


def _tpot_text(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms" if math.isfinite(seconds) else "too slow"


@once
def drafts_seen(case: Case) -> DraftsSeen | str:
    """What there is to judge by, or what is missing."""
    drafts = case.knobs.drafts
    if drafts == 0:
        return "no drafts are made"
    load = load_of(case)
    if isinstance(load, str):
        return load
    positions = _positions(case)
    if isinstance(positions, str):
        return positions
    if (lack := lacking(case, ("generation_tokens_per_second",))) is not None:
        return lack
    generated = case.replica.scalar("generation_tokens_per_second").number
    if not generated:
        return "generation_tokens_per_second is 0: nothing is generated"
    fit = fit_step_time(case.windows, COMPARED_SPREAD)
    if isinstance(fit, Unfit):
        return fit.reason
    if fit.per_token_margin_seconds > SLOWEST_SLOPE_MARGIN * fit.per_token_seconds:
        return "the time per token is too uncertain yet"
    kv = case.replica.scalar("kv_usage_ratio").number or 0.0
    return DraftsSeen(
        drafts,
        positions,
        Traffic(generated / case.engines, load.demand),
        costs_of(fit, drafts, case.drafted.fits),
        load,
        kv > FULL_KV and load.preemptions > 0,
        case.replica.distribution("output_tokens").mean.value,
    )


def _positions(case: Case) -> Sequence[float] | str:
    signal = case.replica.signals[POSITIONS]
    if not isinstance(signal, Scalar) or not isinstance(signal.value, tuple) or not signal.value:
        return missing(POSITIONS, signal)
    if signal.quality not in BELIEVED:
        return missing(POSITIONS, signal)
    positions = signal.value
    if any(not 0.0 <= p <= 1.0 for p in positions):
        return "acceptance outside of 0 to 1: not to be believed"
    if not falls_from_position_to_position(positions, tolerance=0.01):
        return "acceptance rises with the position: counters of several numbers of drafts are mixed"
    if len(positions) < case.knobs.drafts:
        return f"acceptance is counted for {len(positions)} positions, {case.knobs.drafts} drafts are set"
    drafted = case.drafted_steps
    if drafted is not None:
        low, high = wilson(positions[0] * drafted, drafted)
        if (high - low) / 2 > WIDEST_HALF_INTERVAL:
            return f"{drafted:.0f} drafts are too few to tell their acceptance"
    return positions
