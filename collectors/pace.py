"""How well the collector keeps up with what it was asked to do."""

from __future__ import annotations

from collections import deque

from enginetop.fleet.snapshot import CollectorHealth


class Pace:
    """Turns asked for and achieved over the last window. A turn that a dead target is spared is neither."""

    def __init__(self, window_seconds: float) -> None:
        self._window = window_seconds
        self._asked = 0
        self._achieved = 0
        self._marks: deque[tuple[float, int, int]] = deque()
        self.late_ticks = 0

    def count_turn(self, dropped: int) -> None:
        """One turn is over, and `dropped` turns were skipped because it took too long."""
        self._achieved += 1
        self._asked += 1 + dropped
        self.late_ticks += dropped

    def health(self, now: float, problem: str) -> CollectorHealth:
        """The figures at `now` (steady clock)."""
        marks = self._marks
        marks.append((now, self._asked, self._achieved))
        while len(marks) > 2 and marks[1][0] <= now - self._window:
            marks.popleft()
        then, asked, achieved = marks[0]
        if now <= then:
            return CollectorHealth(None, None, self.late_ticks, problem, self._asked, self._achieved)
        return CollectorHealth(
            asked_per_second=(self._asked - asked) / (now - then),
            achieved_per_second=(self._achieved - achieved) / (now - then),
            late_ticks=self.late_ticks,
            problem=problem,
            asked=self._asked,
            achieved=self._achieved,
        )
