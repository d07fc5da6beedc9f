"""Changes and advice made by hand, and a controller that a test drives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from enginetop.fleet.change import (
    Arm,
    AuditRow,
    ChangeState,
    ChangeView,
    Guard,
    Proposal,
    Verdict,
)
from enginetop.fleet.errors import EnginetopError
from enginetop.fleet.snapshot import Advice, ReplicaSnapshot
from tests.tui.snapshots import AT, distribution, replica

KNOB = "max_num_batched_tokens"


def url(name: str) -> str:
    """The URL of a replica of `snapshots.replica`."""
    return f"http://{name}.example:8000"


LOWER = Advice(
    KNOB,
    "lower",
    (
        "TPOT p95 61 ms breaks the 50 ms SLO; TTFT p95 250 ms has 58 % slack",
        "steps carry 7900 of 8192 tokens at p99",
        "step time 11.8 ms + 6.1 µs/token (R² .94, 34 windows): 49.3 at 6144",
        "wrong if prompts pass 3k tokens on average (now 1.2k)",
    ),
    current=8192,
    proposed=6144,
    bound_by="token_budget",
    expected=MappingProxyType(
        {
            "tpot_p95_seconds_from": 0.061,
            "tpot_p95_seconds_low": 0.046,
            "tpot_p95_seconds_high": 0.050,
            "ttft_p95_change_low_ratio": 0.04,
            "ttft_p95_change_high_ratio": 0.09,
        }
    ),
    confidence="high",
    apply="live",
    via="knob_api",
)


def hold(reason: str) -> Advice:
    """A budget that stays."""
    return Advice(KNOB, "hold", (reason,), current=8192)


def withheld(knob: str, reason: str = "not built yet") -> Advice:
    """A knob that nothing is said of."""
    return Advice(knob, "withheld", (reason,))


REST = (withheld("num_speculative_tokens"), withheld("thinking_token_budget"), withheld("max_num_seqs"))


def pool() -> list[ReplicaSnapshot]:
    """Four replicas of one model: for b1 a suggestion, for the others none."""
    slow = replica(
        "b1",
        model="Qwen3-32B",
        advice=(LOWER, *REST),
        changes={"tpot_seconds": distribution(0.044, 0.061), "ttft_seconds": distribution(0.12, 0.25)},
    )
    others = [
        replica(
            name,
            model="Qwen3-32B",
            advice=(hold(f"TPOT p95 {ms} ms is within the 50 ms SLO"), *REST),
            changes={"ttft_seconds": distribution(0.12, 0.24 + ms / 1000)},
        )
        for name, ms in (("b2", 38), ("b3", 41), ("b4", 44))
    ]
    return [slow, *others]


PROPOSAL = Proposal(
    id="7f3a",
    knob=KNOB,
    before=8192,
    after=6144,
    canary_target=url("b1"),
    promote_targets=(url("b2"), url("b3"), url("b4")),
    baseline_targets=(url("b2"), url("b3")),
    observation_seconds=1920.0,
    ttl_seconds=180.0,
    notes=("observation takes 32 min at 1.5 req/s and shows differences from 2.1 points",),
)


def row(ago: float, state: ChangeState, detail: str, **fields: Any) -> AuditRow:
    """An audit row of the change 7f3a, `ago` seconds before `AT`."""
    known: dict[str, Any] = {
        "change": "7f3a",
        "target": url("b1"),
        "knob": KNOB,
        "before": 8192,
        "after": 6144,
        **fields,
    }
    return AuditRow(at=AT - ago, state=state, detail=detail, **known)


HISTORY = (
    row(731, ChangeState.PLANNED, "plan 7f3a, evidence 0a1b2c3d4e5f"),
    row(718, ChangeState.APPROVED, 'approved by typed "b1"'),
    row(717, ChangeState.CANARY, "write, ttl 180 s"),
    row(716, ChangeState.WARMUP, "6144 read back; warming up"),
    row(596, ChangeState.OBSERVE, "observing; effect seen: 1200 steps of 4100 tokens in the mean"),
)

OBSERVED = ChangeView(
    id="7f3a",
    state=ChangeState.OBSERVE,
    since=AT - 596,
    knob=KNOB,
    before=8192,
    after=6144,
    canary_target=url("b1"),
    promote_targets=(url("b2"), url("b3"), url("b4")),
    block=11,
    blocks=30,
    eta_seconds=1130.0,
    expires_in_seconds=160.0,
    canary=Arm((url("b1"),), 2642, 2486),
    baseline=Arm((url("b2"), url("b3")), 5455, 4800),
    verdict=None,
    guards=(
        Guard("changed replicas", True, "1 fresh"),
        Guard("errors", True, "0.00 % against 0.00 %"),
        Guard("preemptions", True, "0.00/s against 0.02/s"),
    ),
    detail="observing; effect seen: 1200 steps of 4100 tokens in the mean",
    history=HISTORY,
)


def changed(**fields: Any) -> ChangeView:
    """The observed change, with differences."""
    return replace(OBSERVED, **fields)


PAST = (
    row(90_000, ChangeState.PLANNED, "plan 11aa", change="11aa", target=url("b3")),
    row(
        88_000,
        ChangeState.ROLLED_BACK,
        "worse: -5.1 points",
        change="11aa",
        target=url("b3"),
        verdict=Verdict.WORSE,
    ),
    *HISTORY,
)


class FakeControl:
    """A controller whose answers and changes a test sets. `trouble`: what the next call fails with."""

    def __init__(self, proposal: Proposal = PROPOSAL, changes: Sequence[ChangeView] = ()) -> None:
        self.proposal = proposal
        self.changes = tuple(changes)
        self.rows: tuple[AuditRow, ...] = PAST
        self.busy = "change 7f3a (process 1)"
        self.trouble: Exception | None = None
        self.calls: list[tuple[str, ...]] = []
        self.listeners: list[Callable[[], None]] = []

    def propose(self, target_url: str, knob: str) -> Proposal:
        """The proposal, whatever is asked."""
        self._call("propose", target_url, knob)
        return self.proposal

    def start(self, proposal_id: str, approved_by: str) -> None:
        """Remember; the change is there at once."""
        self._call("start", proposal_id, approved_by)
        self.tell(changed(state=ChangeState.CANARY, block=0, canary=None, baseline=None, guards=()))

    def roll_back(self, change_id: str) -> None:
        """Remember."""
        self._call("roll_back", change_id)

    def latest(self) -> tuple[ChangeView, ...]:
        """What was told last."""
        return self.changes

    def subscribe(self, on_change: Callable[[], None]) -> Callable[[], None]:
        """Remember a listener."""
        self.listeners.append(on_change)
        return lambda: self.listeners.remove(on_change)

    @property
    def acts(self) -> list[Any]:
        """The calls, without the readings of the audit, which screens repeat."""
        return [call for call in self.calls if call != ("audit",)]

    def stop(self) -> None:
        """Count."""
        self._call("stop")

    def audit(self) -> Sequence[AuditRow]:
        """The rows."""
        self._call("audit")
        return self.rows

    def at_work(self) -> str:
        """Who is, as a test says."""
        return self.busy

    def tell(self, *changes: ChangeView) -> None:
        """Publish changes."""
        self.changes = changes
        for listener in list(self.listeners):
            listener()

    def _call(self, *what: str) -> None:
        self.calls.append(what)
        if self.trouble is not None:
            trouble, self.trouble = self.trouble, None
            raise trouble


def refusal(text: str) -> EnginetopError:
    """A refusal of the controller."""
    return EnginetopError(text)
