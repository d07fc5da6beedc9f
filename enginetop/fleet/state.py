"""The state of a replica as a pure function of what is known about it.

Nothing here remembers anything but `Standstill`, which counts the pages on which an engine with work to do
did not move.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from enginetop.fleet.durations import duration_text
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import ReplicaState
from enginetop.fleet.observation import Failure, FailureKind
from enginetop.fleet.reading import EngineFlags
from enginetop.fleet.work import NO_WORK, Work

FAILURES_UNTIL_DOWN = 2
"""Connection failures in a row that make a replica `down`."""

STANDSTILL_PAGES = 3
"""Consecutive pages with work, between which nothing moved, that make `no_progress`."""

NO_FLAGS = EngineFlags()

_HELPS = "; "
"""In the detail of a failure: after it stands what helps."""

_EXACT_BELOW_SECONDS = 10.0
"""A wait is told to a tenth of a second below this."""


@frozen
class _Meaning:
    """What one kind of failure means: the state without and with an earlier good page, and plain words."""

    before_good_page: ReplicaState
    after_good_page: ReplicaState
    words: str


def _always(state: ReplicaState, words: str) -> _Meaning:
    return _Meaning(state, state, words)


_MEANINGS: dict[FailureKind, _Meaning] = {
    FailureKind.REFUSED: _always(ReplicaState.DOWN, "connection refused"),
    FailureKind.DNS: _always(ReplicaState.DOWN, "host name not found"),
    FailureKind.TLS: _always(ReplicaState.DOWN, "TLS failed"),
    FailureKind.UNAUTHORIZED: _always(ReplicaState.UNAUTHORIZED, "needs an API key"),
    FailureKind.LOADING: _always(ReplicaState.LOADING, "the engine is loading"),
    FailureKind.NO_ENGINE_METRICS: _always(
        ReplicaState.NO_ENGINE_METRICS, "reachable, but no engine's series on the page"
    ),
    FailureKind.SERVER_ERROR: _always(ReplicaState.STALE, "the metrics page fails, the server answers"),
    FailureKind.TRUNCATED: _always(ReplicaState.STALE, "the metrics page is cut short"),
    FailureKind.TOO_LARGE: _Meaning(
        ReplicaState.NO_ENGINE_METRICS, ReplicaState.STALE, "the metrics page is too large"
    ),
    FailureKind.PROTOCOL: _Meaning(
        ReplicaState.NO_ENGINE_METRICS, ReplicaState.STALE, "the answer is not valid HTTP"
    ),
    FailureKind.DISABLED: _Meaning(
        ReplicaState.NO_ENGINE_METRICS, ReplicaState.STALE, "the metrics page is switched off"
    ),
    FailureKind.COLLECTOR: _Meaning(ReplicaState.UNKNOWN, ReplicaState.STALE, "the collector itself failed"),
}

# A timeout is two things: silence, or one page that hangs while the server answers elsewhere.
_SILENCE = _always(ReplicaState.DOWN, "no answer in time")
_HANGING_PAGE = _always(ReplicaState.STALE, "the metrics page does not come, the server answers")


def _meaning(failure: Failure) -> _Meaning:
    if failure.kind is FailureKind.TIMEOUT:
        return _HANGING_PAGE if failure.answered else _SILENCE
    return _MEANINGS[failure.kind]


def is_connection_failure(failure: Failure) -> bool:
    """Whether the failure says that the target cannot be reached at all; the second in a row means `down`."""
    return _meaning(failure).after_good_page is ReplicaState.DOWN


@frozen
class FailureRun:
    """Failures in a row: the newest, when the first came and how many there were."""

    newest: Failure
    since: float
    count: int = 1

    @classmethod
    def extended(cls, run: FailureRun | None, failure: Failure) -> FailureRun:
        """The run with one more failure at its end; None: a new run."""
        if run is None:
            return cls(failure, failure.at)
        return cls(failure, run.since, run.count + 1)


@dataclass(slots=True)
class Standstill:
    """Counts consecutive metrics pages with requests at hand and without movement.

    `pages` includes the page of the last movement; `since` is its time, or that of the first page with work
    if the engine had none before: a request that arrives after an idle hour does not inherit the hour.
    """

    pages: int = 0
    since: float | None = None

    def observe(self, at: float, busy: bool | None, moved: bool, metrics_page: bool) -> None:
        """Take one good reading at Unix time `at`.

        `busy` None means that the page does not tell whether there is work: it proves nothing. A reading from
        side pages alone can show movement but is no page.
        """
        if moved:
            self.pages, self.since = 0, None
        if busy is False:
            self.pages, self.since = 0, None
        elif busy:
            if self.since is None and (moved or metrics_page):
                self.since = at
            self.pages += metrics_page


@frozen
class Evidence:
    """All that the state of a replica depends on. Times are Unix seconds.

    `page_at` is the time of the newest good page, None if there never was one; after `fresh_until` that page
    is too old. `unreachable` is the run of connection failures that the newest look belongs to, and
    `answer_failure` the run of answers without a good page since the last one. `work` is what the
    newest page shows at hand.
    `hold_seconds` is how long a standstill must last before it counts, 0 where the engine has a series that
    moves during a request. `gone_at` is when discovery ceased to list the target: it is asked no more.
    `unanswered_seconds` is how long a look that is under way has waited, where that is longer than it should.
    """

    now: float
    page_at: float | None = None
    fresh_until: float = math.inf
    unreachable: FailureRun | None = None
    answer_failure: FailureRun | None = None
    flags: EngineFlags = NO_FLAGS
    work: Work = NO_WORK
    standstill_pages: int = 0
    standstill_since: float | None = None
    hold_seconds: float = 0.0
    gone_at: float | None = None
    unanswered_seconds: float | None = None


@frozen
class Judgement:
    """The state and why. `began` is when its cause began, None if it is not older than the judgement."""

    state: ReplicaState
    reasons: tuple[str, ...] = ()
    began: float | None = None


def judge(evidence: Evidence) -> Judgement:
    """The first state that applies, in the order of `STATE_ORDER`.

    One connection failure is no evidence, and neither is an answer that takes its time: everything else is
    judged as if they had not happened, and they are told among the reasons.
    """
    if evidence.gone_at is not None:
        gone_for = duration_text(evidence.now - evidence.gone_at)
        return Judgement(ReplicaState.UNKNOWN, (f"gone: not listed for {gone_for}",), evidence.gone_at)
    unreachable = evidence.unreachable
    if unreachable is not None and _is_down(unreachable):
        return Judgement(ReplicaState.DOWN, (_failure_reason(unreachable, evidence.now),), unreachable.since)
    judgement, doubts = _judge_reachable(evidence), _doubts(evidence)
    return replace(judgement, reasons=(*judgement.reasons, *doubts)) if doubts else judgement


def _judge_reachable(evidence: Evidence) -> Judgement:
    if evidence.answer_failure is not None:
        return _judge_answer(evidence, evidence.answer_failure)
    if evidence.page_at is None:
        return Judgement(ReplicaState.UNKNOWN, ("no good page yet",))
    if evidence.now > evidence.fresh_until:
        reason = f"no good page for {duration_text(evidence.now - evidence.page_at)}"
        return Judgement(ReplicaState.STALE, (reason,), evidence.page_at)
    return _judge_page(evidence, evidence.page_at)


def rests_on_page(evidence: Evidence) -> bool:
    """Whether the judgement follows from a good page alone, so that it holds until `fresh_until`."""
    return (
        evidence.page_at is not None
        and evidence.gone_at is None
        and evidence.unreachable is None
        and evidence.answer_failure is None
        and evidence.unanswered_seconds is None
    )


def _is_down(run: FailureRun) -> bool:
    return run.count >= FAILURES_UNTIL_DOWN


def _judge_answer(evidence: Evidence, run: FailureRun) -> Judgement:
    meaning = _meaning(run.newest)
    state = meaning.before_good_page if evidence.page_at is None else meaning.after_good_page
    reasons = [_failure_reason(run, evidence.now)]
    if state is ReplicaState.STALE and evidence.page_at is not None:
        reasons.append(f"last good page {duration_text(evidence.now - evidence.page_at)} ago")
    return Judgement(state, tuple(reasons), run.since)


def _doubts(evidence: Evidence) -> tuple[str, ...]:
    """What is wrong with the newest look, or with the one under way, and tells no state yet."""
    if evidence.unreachable is not None:
        failure = evidence.unreachable.newest
        ago = evidence.now - failure.at
        when = "just now" if ago < 1 else f"{duration_text(ago)} ago"
        return (_connection_reason(failure, f"once, {when}"),)
    seconds = evidence.unanswered_seconds
    if seconds is None:
        return ()
    return (
        f"no answer for {duration_text(seconds) if seconds >= _EXACT_BELOW_SECONDS else f'{seconds:.1f} s'}",
    )


def _judge_page(evidence: Evidence, page_at: float) -> Judgement:
    flags = evidence.flags
    if flags.draining:
        return Judgement(ReplicaState.DRAINING, ("the engine drains: it takes no new requests",))
    if flags.paused:
        return Judgement(ReplicaState.PAUSED, ("the engine is paused",))
    if flags.sleeping:
        return Judgement(ReplicaState.SLEEPING, ("the engine sleeps",))
    if (
        evidence.work.busy
        and evidence.standstill_since is not None
        and evidence.standstill_pages >= STANDSTILL_PAGES
        and page_at - evidence.standstill_since >= evidence.hold_seconds
    ):
        reason = (
            f"no progress for {duration_text(page_at - evidence.standstill_since)} on "
            f"{evidence.standstill_pages} pages{_work_text(evidence)}"
        )
        return Judgement(ReplicaState.NO_PROGRESS, (reason,), evidence.standstill_since)
    if evidence.work.busy is False:
        return Judgement(ReplicaState.IDLE)
    return Judgement(ReplicaState.OK)


def _work_text(evidence: Evidence) -> str:
    counts = ((evidence.work.running, "running"), (evidence.work.waiting, "waiting"))
    return "".join(f", {count:.0f} {word}" for count, word in counts if count is not None)


def _failure_reason(run: FailureRun, now: float) -> str:
    """One line: what fails, for how long, what helps. The detail leads where it says more than the kind."""
    failure, held = run.newest, f"for {duration_text(now - run.since)}"
    if is_connection_failure(failure):
        return _connection_reason(failure, held)
    text = failure.detail or _meaning(failure).words
    return f"{text}, {held}" if now > run.since else text


def _connection_reason(failure: Failure, when: str) -> str:
    what, mark, helps = _connection_words(failure).partition(_HELPS)
    unsaid = failure.kind is FailureKind.TLS and failure.detail and not mark
    cause = f" ({failure.detail})" if unsaid else ""
    return f"{what} {when}{cause}{mark}{helps}"


def _connection_words(failure: Failure) -> str:
    """What the connection lacks: the failure's own words where they say what helps, else those of its kind.

    `refused` covers more than its name: no route, no answer, no proxy.
    """
    telling = failure.kind is FailureKind.REFUSED or _HELPS in failure.detail
    return (telling and failure.detail) or _meaning(failure).words
