"""Conditions from one picture to the next: only what changed is judged again."""

from __future__ import annotations

from enginetop.fleet.snapshot import FleetSnapshot, ReplicaSnapshot
from tui.view.alert_condition import NOTHING_FIRES, firing_by_target
from tui.view.condition import Conditions, condition_of, stands_still
from tui.view.severity import Condition


class ConditionMemory:
    """Judges anew only replicas that changed, and those of whose condition an age is a part."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[ReplicaSnapshot, Condition]] = {}
        self._judged: tuple[FleetSnapshot, Conditions] | None = None

    def conditions_of(self, snapshot: FleetSnapshot) -> Conditions:
        """As `condition.conditions_of`."""
        if self._judged is not None and self._judged[0] is snapshot:
            return self._judged[1]
        firing, at = firing_by_target(snapshot.alerts), snapshot.at
        before, self._known = self._known, {}
        found: dict[str, Condition] = {}
        for replica in snapshot.replicas:
            url = replica.target.url
            own = firing.get(url, NOTHING_FIRES)
            known = before.get(url)
            if own is not NOTHING_FIRES:
                found[url] = condition_of(replica, at, own.loud, own.handled)
                continue
            if known is None or known[0] is not replica:
                known = (replica, condition_of(replica, at))
                if not stands_still(replica):
                    found[url] = known[1]
                    continue
            self._known[url] = known
            found[url] = known[1]
        self._judged = (snapshot, found)
        return found
