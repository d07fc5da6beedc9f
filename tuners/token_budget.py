"""The rule for `max_num_batched_tokens`: lower it when full steps break the TPOT objective.

A step serves all decoding requests and fills the rest of its budget with prefill; its time grows with its
tokens, so that a large budget buys throughput and TTFT with TPOT. The rule names the largest budget whose
full step meets the objective, if the fit of the step time says so. It never raises a budget. Heuristic, and
constants here: the shares, the sample size and the hold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from enginetop.fleet.snapshot import Advice, Quantile
from tuners import prefill
from tuners.case import SUSTAINED_SECONDS, Case, Rule
from tuners.knob_values import BUDGET, Knobs
from tuners.load import Load, at_least, load_of
from tuners.step_time import REACH, StepFit, Unfit

TTFT_SHARE = 0.7
"""TTFT must need at most this share of its objective: a smaller budget costs TTFT."""
FULL_SHARE = 0.9
"""A budget binds when steps carry this share of it at p99."""
DEMAND_SHARE = 0.8
"""Prefill may claim this share of what full steps can take in."""
EXPLAINED_RATIO = 1.1
"""How far TPOT may exceed a full step before something else must be slowing it."""
MULTIPLE_TOKENS = 256

_HIGH_R_SQUARED = 0.9


def calls(case: Case) -> str | None:
    """`lower` when full steps break TPOT while TTFT has slack."""
    load = load_of(case)
    if isinstance(load, str) or case.knobs.budget is None:
        return None
    return "lower" if _calls_for_less(load, case.knobs.budget) else None


def _calls_for_less(load: Load, budget: int) -> bool:
    return (
        load.tpot_seconds > load.tpot_slo
        and load.ttft_seconds <= TTFT_SHARE * load.ttft_slo
        and load.step_tokens >= FULL_SHARE * budget
    )


def advise(case: Case) -> Advice:
    """The advice row."""
    load, knobs = load_of(case), case.knobs
    if isinstance(load, str):
        return _nothing("withheld", load, knobs)
    if knobs.budget is None:
        return _nothing("withheld", f"{BUDGET} is not known: neither the pages nor a knob API tell it", knobs)
    if knobs.problem:
        return _nothing("withheld", knobs.problem, knobs)
    if not _calls_for_less(load, knobs.budget):
        return _no_call(load, knobs)
    if case.held_seconds < SUSTAINED_SECONDS:
        why = f"seen for {case.held_seconds:.0f} s, a suggestion needs {SUSTAINED_SECONDS:.0f} s"
        return _nothing("withheld", why, knobs, _symptom(load))
    fit = case.fit()
    if isinstance(fit, Unfit):
        return _nothing("withheld", fit.reason, knobs, _symptom(load))
    return _Lowering(load, knobs, knobs.budget, fit).advice()


RULE = Rule(BUDGET, calls, advise)


def _no_call(load: Load, knobs: Knobs) -> Advice:
    """Why the load does not call for a smaller budget."""
    budget = knobs.budget or 0
    tpot_breaks, ttft_breaks = load.tpot_seconds > load.tpot_slo, load.ttft_seconds > load.ttft_slo
    if tpot_breaks and ttft_breaks:
        why = f"{_symptom(load)}: capacity, not the budget"
        return _nothing("hold", why, knobs, bound_by="capacity")
    if ttft_breaks:
        why = f"TTFT p95 {_time(load.ttft)} breaks the {_ms(load.ttft_slo)} SLO: raising is not built yet"
        return _nothing("withheld", why, knobs)
    if not tpot_breaks:
        return _nothing("hold", f"TPOT p95 {_time(load.tpot)} is within the {_ms(load.tpot_slo)} SLO", knobs)
    if load.step_tokens < FULL_SHARE * budget:
        why = f"steps carry {load.step_tokens:.0f} of {budget} tokens at p99: the budget does not bind"
        return _nothing("hold", why, knobs, _symptom(load))
    share = _percent(load.ttft_seconds / load.ttft_slo)
    why = f"TTFT needs {share} of its SLO, at most {_percent(TTFT_SHARE)} leaves room"
    return _nothing("hold", why, knobs, _symptom(load), bound_by="capacity")


@dataclass(frozen=True, slots=True)
class _Lowering:
    """A load that calls for less, with a fit that may say how much less."""

    load: Load
    knobs: Knobs
    budget: int
    fit: StepFit

    def advice(self) -> Advice:
        load, fit, budget = self.load, self.fit, self.budget
        full = fit.seconds(budget) + fit.margin_seconds(budget)
        if load.tpot_seconds * load.accepted > EXPLAINED_RATIO * full:
            return self._stop(
                "hold",
                f"a full step explains {_ms(full / load.accepted)} of it: something else slows decoding",
            )
        proposed = math.floor(fit.most_tokens_within(load.step_limit) / MULTIPLE_TOKENS) * MULTIPLE_TOKENS
        if proposed <= 0:
            why = f"even an empty step takes {_ms(fit.base_seconds)}: capacity, not the budget"
            return self._stop("hold", why, bound_by="capacity")
        if proposed >= budget:
            return self._stop("hold", f"by the fit a full step meets the SLO: {_ms(fit.seconds(budget))}")
        floor = self.knobs.floor
        if floor is None:
            return self._stop("withheld", "max_num_seqs is not known, so neither is the least budget")
        if floor >= budget:
            return self._stop("hold", f"the budget is at its floor: max_num_seqs x (1 + k) = {floor}")
        proposed = max(proposed, floor)
        if fit.seconds(proposed) >= load.tpot_seconds * load.accepted:
            return self._stop("hold", f"at the floor of {floor} a full step takes {_ms(fit.seconds(floor))}")
        if not fit.reaches(proposed):
            return self._stop("withheld", f"{self._range()}, the fit asks for {proposed}")
        if (short := self._prefill_short(proposed)) is not None:
            return self._stop("hold", short, bound_by="prefill")
        expected = self._expected(proposed)
        ttft = load.ttft_seconds * (1.0 + expected["ttft_p95_change_high_ratio"])
        if ttft > load.ttft_slo:
            why = f"steps of {proposed} would take TTFT p95 to {_ms(ttft)}, past its {_ms(load.ttft_slo)} SLO"
            return self._stop("hold", why, bound_by="capacity")
        return self._lower(proposed, expected)

    def _stop(self, action: str, why: str, bound_by: str = "unknown") -> Advice:
        return _nothing(action, why, self.knobs, _symptom(self.load), self._fit_text(), bound_by=bound_by)

    def _lower(self, proposed: int, expected: Mapping[str, float]) -> Advice:
        load, fit, knobs = self.load, self.fit, self.knobs
        because = [
            _symptom(load),
            f"steps carry {min(load.step_tokens, self.budget):.0f} of {self.budget} tokens at p99",
            f"{self._fit_text()}: {1e3 * fit.seconds(proposed):.1f} at {proposed}",
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

    def _expected(self, proposed: int) -> Mapping[str, float]:
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
        return (self.load.demand or 0.0) / self._capacity(self.fit, budget)

    def _capacity(self, fit: StepFit, budget: int) -> float:
        room = prefill.room(budget, self.load.decoding, self.knobs.drafts)
        return prefill.tokens_per_second(room, fit.seconds(budget))

    def _prefill_short(self, proposed: int) -> str | None:
        """Why prefill would not keep up with a budget of `proposed`."""
        load = self.load
        if prefill.room(proposed, load.decoding, self.knobs.drafts) <= 0:
            return f"{load.decoding:.0f} decoding requests leave no room for prefill in {proposed} tokens"
        used = self._used(proposed)
        if used <= DEMAND_SHARE:
            return None
        return (
            f"prompts need {load.demand:.0f} tokens/s, {_percent(used)} of what steps of {proposed} take in "
            f"(at most {_percent(DEMAND_SHARE)}): TTFT would break"
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
            [f"a prompt of {_count(prompt)} (p95) takes {then} steps instead of {now}"] if then > now else []
        )

    def _wrong_if(self, proposed: int) -> list[str]:
        """At what traffic prefill would no longer keep up."""
        load = self.load
        if not load.demand or not load.prompt:
            return []
        most = DEMAND_SHARE * self._capacity(self.fit, proposed)
        prompt = load.prompt * most / load.demand
        text = f"wrong if prompts pass {_count(prompt)} tokens on average (now {_count(load.prompt)})"
        hits = 1.0 - most * (1.0 - load.hit_ratio) / load.demand
        return [text if hits <= 0 else f"{text} or prefix hits fall below {_percent(hits)}"]

    def _confidence(self) -> str:
        load = self.load
        certain = load.tpot.low is not None and load.tpot.low >= load.tpot_slo
        if load.preemptions or load.demand is None:
            return "low"
        return "high" if certain and self.fit.r_squared >= _HIGH_R_SQUARED else "medium"

    def _fit_text(self) -> str:
        fit = self.fit
        return (
            f"step time {1e3 * fit.base_seconds:.1f} ms + {1e6 * fit.per_token_seconds:.1f} µs/token "
            f"(R² {fit.r_squared:.2f}, {fit.windows} windows)".replace("R² 0.", "R² .")
        )

    def _range(self) -> str:
        fit = self.fit
        return (
            f"the fit reaches {fit.fewest_tokens / REACH:.0f} to {fit.most_tokens * REACH:.0f} tokens a step"
        )


def _nothing(action: str, why: str, knobs: Knobs, *before: str, bound_by: str = "unknown") -> Advice:
    """A row that changes nothing, with the reason last."""
    return Advice(BUDGET, action, (*before, why), current=knobs.budget, bound_by=bound_by)


def _symptom(load: Load) -> str:
    tpot = f"TPOT p95 {_time(load.tpot)} breaks the {_ms(load.tpot_slo)} SLO"
    share = load.ttft_seconds / load.ttft_slo
    if share > 1:
        return f"{tpot}; so does TTFT p95 {_time(load.ttft)} the {_ms(load.ttft_slo)} SLO"
    return f"{tpot}; TTFT p95 {_time(load.ttft)} has {_percent(1 - share)} slack"


def _time(quantile: Quantile) -> str:
    return f"{'over ' if quantile.censored else ''}{_ms(at_least(quantile))}"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.0f} %"


def _count(tokens: float) -> str:
    return f"{tokens / 1e3:.1f}k" if tokens >= 1000 else f"{tokens:.0f}"
