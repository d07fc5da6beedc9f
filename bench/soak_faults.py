"""What a soak does to a replica, and which alert is to come of it."""

from __future__ import annotations

from dataclasses import dataclass

from bench.soak_fleet import Mode


@dataclass(frozen=True, slots=True)
class ReplicaFault:
    """One replica answers so; `rule` is the alert that it must raise."""

    mode: Mode
    rule: str


REPLICA_FAULTS = (
    ReplicaFault(Mode.KILLED, "TargetDown"),
    ReplicaFault(Mode.HUNG, "TargetDown"),
    ReplicaFault(Mode.SLOW, "ScrapeLate"),
    ReplicaFault(Mode.RESET, "TargetDown"),
    ReplicaFault(Mode.GARBAGE, "NoEngineMetrics"),
    ReplicaFault(Mode.HUGE, "ScrapeLate"),
    ReplicaFault(Mode.UNAUTHORIZED, "Unauthorized"),
    ReplicaFault(Mode.UNAVAILABLE, "ScrapeLate"),
)
RULES = tuple(dict.fromkeys(fault.rule for fault in REPLICA_FAULTS))
