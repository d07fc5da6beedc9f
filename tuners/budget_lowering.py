"""Lowering the token budget: to the largest one whose full step meets the TPOT objective.

Heuristic, and constants here: the shares and the multiples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from enginetop.fleet.frozen import frozen
from enginetop.fleet.snapshot import Advice
from tuners import prefill
from tuners.knob_values import BUDGET, Knobs
from tuners.limits import MULTIPLE_TOKENS
from tuners.load import Load
from tuners.step_time import REACH, StepFit
from tuners.words import count, ms, percent, row, time_text

DEMAND_SHARE = 0.8
"""Prefill may claim this share of what full steps can take in."""
EXPLAINED_RATIO = 1.1
"""How far TPOT may exceed a full step before something else must be slowing it."""

_HIGH_R_SQUARED = 0.9


def symptom(load: Load) -> str:
    """TPOT over its objective, and how TTFT stands."""
    tpot = f"TPOT p95 {time_text(load.tpot)} breaks the {ms(load.tpot_slo)} SLO"
    share = load.ttft_seconds / load.ttft_slo
    if share > 1:
        return f"{tpot}; so does TTFT p95 {time_text(load.ttft)} the {ms(load.ttft_slo)} SLO"
    return f"{tpot}; TTFT p95 {time_text(load.ttft)} has {percent(1 - share)} slack"


def fit_text(fit: StepFit) -> str:
    """The fit in words."""
    return (
        f"step time {1e3 * fit.base_seconds:.1f} ms + {1e6 * fit.per_token_seconds:.1f} µs/token "
        f"(R² {fit.r_squared:.2f}, {fit.windows} windows)".replace("R² 0.", "R² .")
    )


@frozen
class Lowering:
    """A load that calls for less, with a fit that may say how much less."""

    load: Load
    knobs: Knobs
    budget: int
    fit: StepFit

    def advice(self) -> Advice:
        """A lower budget, or why none is suggested."""
        load, fit, budget = self.load, self.fit, self.budget
        full = fit.seconds(budget) + fit.margin_seconds(budget)
        if load.tpot_seconds * load.accepted > EXPLAINED_RATIO * full:
            return self._stop(
                "hold",
                f"a full step explains {ms(full / load.accepted)} of it: something else slows decoding",
            )
        proposed = math.floor(fit.most_tokens_within(load.step_limit) / MULTIPLE_TOKENS) * MULTIPLE_TOKENS
        if proposed <= 0:
            why = f"even an empty step takes {ms(fit.base_seconds)}: capacity, not the budget"
            return self._stop("hold", why, bound_by="capacity")
        if proposed >= budget:
            return self._stop("hold", f"by the fit a full step meets the SLO: {ms(fit.seconds(budget))}")
        floor = self.knobs.floor
        if floor is None:
            return self._stop("withheld", "max_num_seqs is not known, so neither is the least budget")
        if floor >= budget:
            return self._stop("hold", f"the budget is at its floor: max_num_seqs x (1 + k) = {floor}")
        proposed = max(proposed, floor)
        if fit.seconds(proposed) >= load.tpot_seconds * load.accepted:
            return self._stop("hold", f"at the floor of {floor} a full step takes {ms(fit.seconds(floor))}")
        if not fit.reaches(proposed):
            return self._stop("withheld", f"{self._range()}, the fit asks for {proposed}")
        if (short := self.prefill_short(proposed)) is not None:
            return self._stop("hold", short, bound_by="prefill")
        expected = self.expected(proposed)
        ttft = load.ttft_seconds * (1.0 + expected["ttft_p95_change_high_ratio"])
        if ttft > load.ttft_slo:
            why = f"steps of {proposed} would take TTFT p95 to {ms(ttft)}, past its {ms(load.ttft_slo)} SLO"
            return self._stop("hold", why, bound_by="capacity")
        return self._lower(proposed, expected)

    def _stop(self, action: str, why: str, bound_by: str = "unknown") -> Advice:
        said = (symptom(self.load), fit_text(self.fit))
        return row(BUDGET, action, why, self.knobs.budget, *said, bound_by=bound_by)

    def _lower(self, proposed: int, expected: Mapping[str, float]) -> Advice:
        load, fit, knobs = self.load, self.fit, self.knobs
        because = [
            symptom(load),
            f"steps carry {min(load.step_tokens, self.budget):.0f} of {self.budget} tokens at p99",
            f"{fit_text(self.fit)}: {1e3 * fit.seconds(proposed):.1f} at {proposed}",
        ]
        if proposed == knobs.floor:
            because.append(f"no lower than {proposed}: every sequence must fit into a step")
        if load.preemptions:
            because.append(f"TPOT includes time preempted: {load.preemptions:.0f} preemptions in the window")
        because += [*self._more_chunks(proposed), *self._wrong_if(proposed)]
        apply, via = knobs.way(BUDGET, proposed)
        return Advice(
            BUDGET,
            "lower",
            tuple(because),
            current=self.budget,
            proposed=proposed,
            bound_by="token_budget",
            expected=expected,
            confidence=self._confidence(),
            apply=apply,
            via=via,
        )

    def expected(self, proposed: int) -> Mapping[str, float]:
        """What the change would do.

        TPOT: what is too slow now has more prefill beside it than `proposed` allows. Its steps are full at
        most then: above it is bounded by the full step's interval; how far it stays below is as uncertain as
        one window. TTFT: time per prefilled token, with the slope at both ends of its interval, and above
        with the wait that a busier prefill adds (M/M/1).
        """
        load, fit = self.load, self.fit
        full = fit.seconds(proposed)
        ratios = sorted(
            self._prefill_ratio(fit.tilted(fit.per_token_seconds + tilt), proposed)
            for tilt in (-fit.per_token_margin_seconds, fit.per_token_margin_seconds)
        )
        return {
            "tpot_p95_seconds_from": load.tpot_seconds,
            "tpot_p95_seconds_low": max(0.0, full - fit.scatter_seconds(proposed)) / load.accepted,
            "tpot_p95_seconds_high": min(
                load.tpot_seconds, (full + fit.margin_seconds(proposed)) / load.accepted
            ),
            "ttft_p95_change_low_ratio": ratios[0] - 1.0,
            "ttft_p95_change_high_ratio": ratios[-1] * self._more_wait(proposed) - 1.0,
        }

    def _prefill_ratio(self, fit: StepFit, proposed: int) -> float:
        """Time per prefilled token at `proposed` over that now."""
        return self._capacity(fit, self.budget) / self._capacity(fit, proposed)

    def _more_wait(self, proposed: int) -> float:
        used_now, used_then = self._used(self.budget), self._used(proposed)
        return max(1.0, (1.0 - used_now) / (1.0 - used_then))

    def _used(self, budget: int) -> float:
        return self.load.demand / self._capacity(self.fit, budget)

    def _capacity(self, fit: StepFit, budget: int) -> float:
        room = prefill.room(budget, self.load.decoding, self.knobs.drafts)
        return prefill.tokens_per_second(room, fit.seconds(budget))

    def prefill_short(self, proposed: int) -> str | None:
        """Why prefill would not keep up with a budget of `proposed`."""
        load = self.load
        if prefill.room(proposed, load.decoding, self.knobs.drafts) <= 0:
            return f"{load.decoding:.0f} decoding requests leave no room for prefill in {proposed} tokens"
        used = self._used(proposed)
        if used <= DEMAND_SHARE:
            return None
        return (
            f"prompts need {load.demand:.0f} tokens/s, {percent(used)} of what steps of {proposed} take in "
            f"(at most {percent(DEMAND_SHARE)}): TTFT would break"
        )

    def _more_chunks(self, proposed: int) -> list[str]:
        """What a long prompt pays, in steps."""
        prompt = self.load.long_prompt
        if prompt is None:
            return []
        now, then = (
            prefill.chunks(prompt, prefill.room(budget, self.load.decoding, self.knobs.drafts))
            for budget in (self.budget, proposed)
        )
        return (
            [f"a prompt of {count(prompt)} (p95) takes {then} steps instead of {now}"] if then > now else []
        )

    def _wrong_if(self, proposed: int) -> list[str]:
        """At what traffic prefill would no longer keep up."""
        load = self.load
        if not load.demand or not load.prompt:
            return []
        most = DEMAND_SHARE * self._capacity(self.fit, proposed)
        prompt = load.prompt * most / load.demand
        text = f"wrong if prompts pass {count(prompt)} tokens on average (now {count(load.prompt)})"
        hits = 1.0 - most * (1.0 - load.hit_ratio) / load.demand
        return [text if hits <= 0 else f"{text} or prefix hits fall below {percent(hits)}"]

    def _confidence(self) -> str:
        load = self.load
        certain = load.tpot.low is not None and load.tpot.low >= load.tpot_slo
        if load.preemptions:
            return "low"
        return "high" if certain and self.fit.r_squared >= _HIGH_R_SQUARED else "medium"

    def _range(self) -> str:
        fit = self.fit
        return (
            f"the fit reaches {fit.fewest_tokens / REACH:.0f} to {fit.most_tokens * REACH:.0f} tokens a step"
        )
