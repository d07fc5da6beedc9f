"""Checks of the error budget and of changes under control."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from enginetop.alerts.rule import Check, Finding
from enginetop.fleet.burn import PAGE_THRESHOLD, WINDOWS, is_reachable
from enginetop.fleet.change import FINAL_STATES, AuditRow, ChangeState, value_text
from enginetop.fleet.snapshot import FleetSnapshot, Slo

FLEET = "fleet"
"""The target of an alert about all replicas together."""

FAILED_SECONDS = 3600.0
"""How long an undone change is news. A failed rollback is news until the change ends otherwise."""

Changes = Callable[[], Sequence[AuditRow]]
"""The lines of the audit, oldest first. Called with every snapshot; must return at once."""


def NO_CHANGES() -> Sequence[AuditRow]:  # noqa: N802 - a constant that is called
    """Nobody changes anything."""
    return ()


def budget_burn(page: bool) -> Check:
    """The error budget of the fleet burns faster than a threshold over a long and a short window."""

    def check(snapshot: FleetSnapshot) -> Iterator[Finding]:
        for row in snapshot.fleet.goodput.burn:
            if (row.threshold >= PAGE_THRESHOLD) is not page:
                continue
            window = span_text(row.long_seconds)
            known = row.long is not None and row.short is not None
            said = ""
            if row.long is not None and row.short is not None:
                said = (
                    f"error budget burns {row.long:.1f}x over {window} and {row.short:.1f}x over "
                    f"{span_text(row.short_seconds)}, allowed are {row.threshold:g}x"
                )
            yield Finding(
                FLEET,
                row.firing if known else None,
                row.long,
                row.threshold,
                said,
                subject={"window": window},
            )

    return check


def burn_warnings(slo: Slo) -> Iterator[str]:
    """A line for each burn threshold that can never be reached: all requests bad burn 1 / (1 - target)."""
    for _, _, threshold in WINDOWS:
        if not is_reachable(threshold, slo.target):
            yield (
                f"SLO target {slo.target:g}: its error budget burns at most {1 / (1 - slo.target):.3g}x, so "
                f"that the alert at {threshold:g}x can never fire; it needs a target above "
                f"{1 - 1 / threshold:.4f}"
            )


def canary_failed(changes: Changes) -> Check:
    """A verdict or a guard undid a change within the last hour; what somebody asked for is no failure."""

    def check(snapshot: FleetSnapshot) -> Iterator[Finding]:
        for row in _last_words(changes(), snapshot.at):
            if row.state is ChangeState.ROLLED_BACK and not row.asked:
                yield _change_finding(row, snapshot.at - row.at < FAILED_SECONDS)

    return check


def rollback_failed(changes: Changes) -> Check:
    """A change could not be undone: a value of it may still be in force."""

    def check(snapshot: FleetSnapshot) -> Iterator[Finding]:
        for row in _last_words(changes(), snapshot.at):
            if row.state is ChangeState.ROLLBACK_FAILED:
                yield _change_finding(row, True)

    return check


def span_text(seconds: float) -> str:
    """A window in its largest whole unit: `5m`, `6h`, `3d`."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length and seconds % length == 0 and not (unit == "d" and seconds == length):
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:g}s"


def _last_words(rows: Sequence[AuditRow], at: float) -> Iterator[AuditRow]:
    """The newest final row of each change that is not younger than `at`.

    That a plan was refused says nothing of what it did when it was carried out before.
    """
    newest: dict[str, AuditRow] = {}
    for row in rows:
        if row.state in FINAL_STATES and row.state is not ChangeState.REFUSED and row.at <= at:
            newest[row.change] = row
    yield from newest.values()


def _change_finding(row: AuditRow, breached: bool) -> Finding:
    moved = f"{value_text(row.before)} -> {value_text(row.after)}"
    said = f"{row.knob} {moved}: {row.detail or row.state.value}"
    return Finding(row.target, breached, summary=said, since=row.at, subject={"change": row.change})
