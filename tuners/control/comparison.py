"""What an observation says of its canary: the judge's verdict, held against how much each side had to do.

A router that sends the canary less than it sends anybody else makes it look better, and more, worse. Such a
difference is not the change's: it is neither credited to it nor blamed on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from enginetop.fleet.change import Verdict
from tuners.control.judge import Judgement, judge
from tuners.control.observe import JUDGED, Mark, blocks_between, increase

LOAD_RATIO = 0.10
"""How far beyond all baselines the requests of a canary may lie."""
_LOAD_Z = 3.0


def compare(
    marks: Sequence[Mark], canaries: Sequence[str], baselines: Sequence[str], *, alpha: float, margin: float
) -> Judgement:
    """The verdict on a finished observation; `marks` are those of block ends."""
    without = {
        one: blocks_between(marks, canaries, [other for other in baselines if other != one])
        for one in (baselines if len(baselines) > 1 else ())
    }
    blocks = blocks_between(marks, canaries, baselines)
    judgement = judge(blocks, alpha=alpha, margin=margin, without=without)
    own = _judged(marks, canaries) / len(canaries)
    served = [_judged(marks, (one,)) for one in baselines]
    verdict, least, most = judgement.verdict, min(served), max(served)
    if verdict in (Verdict.IMPROVED, Verdict.NOT_WORSE) and _more(least, own):
        words = (
            f"{100 * (1 - own / least):.0f} % fewer requests than any baseline: not credited to the change"
        )
    elif verdict is Verdict.WORSE and _more(own, most):
        words = f"{100 * (own / most - 1):.0f} % more requests than any baseline: not blamed on the change"
    else:
        return judgement
    why = f"{judgement.why}; {verdict}, but the canary served {words}"
    return replace(judgement, verdict=Verdict.INCONCLUSIVE, why=why)


def _judged(marks: Sequence[Mark], targets: Sequence[str]) -> float:
    """The requests of all blocks, as the judge has them: between the first mark and the last alone some are
    lost where a target was listed anew, and counts from zero.
    """
    return sum(increase(earlier, later, targets, JUDGED) for earlier, later in pairwise(marks))


def _more(requests: float, other: float) -> bool:
    """Whether the first are plainly more: beyond `LOAD_RATIO`, and beyond what arrivals vary by."""
    if min(requests, other) <= 0:
        return requests > other
    chance = _LOAD_Z * math.sqrt(1 / requests + 1 / other)
    return math.log(requests / other) > max(math.log1p(LOAD_RATIO), chance)
