"""The way from the screens to what people silence and acknowledge."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from glob import escape

from enginetop.alerts.rule import identity
from enginetop.alerts.silence import Acknowledgement, QuietDesk, Silence
from enginetop.fleet.durations import duration_seconds
from enginetop.fleet.snapshot import Alert
from tui.errands import Begin, Errands
from tui.view.numbers import many, seconds_text
from tui.widgets.line_view import Complain

Told = Callable[[str], None]
"""Gets one line: what was done, or why not."""

WORDS_HELP = "DURATION [rule=PATTERN] [target=PATTERN] [reason ...]"


class AlertDesk(Errands):
    """Silences and acknowledges in the name of `user`. `now` is Unix time, as silences have it."""

    def __init__(
        self,
        quiet: QuietDesk,
        user: str,
        begin: Begin,
        complain: Complain,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__("alerts", begin, complain)
        self._quiet = quiet
        self._user = user or "somebody"
        self._now = now

    def acknowledge(self, alert: Alert, note: str, told: Told) -> None:
        """Say that we look after an alert, until it is over."""
        one = Acknowledgement(identity(alert), self._now(), self._user, note)
        self.ask(
            lambda: self._quiet.acknowledge(one),
            lambda said: told(said or f"{alert.rule} is acknowledged until it is over"),
            told,
        )

    def silence(self, alert: Alert, seconds: float, told: Told) -> None:
        """Silence this rule at this target for a while."""
        self._silence(Silence(self._now() + seconds, escape(alert.rule), escape(alert.target)), told)

    def silence_words(self, alert: Alert, words: str, told: Told) -> str:
        """Silence as typed (`WORDS_HELP`); rule and target that are not named are those of `alert`.

        The answer is a mistake in the words, empty for none.
        """
        first, *rest = words.split() or [""]
        seconds = duration_seconds(first)
        if seconds is None:
            return f"{first!r} is no duration; write 45s, 30m, 2h or 3d"
        given = {"rule": escape(alert.rule), "target": escape(alert.target)}
        while rest and rest[0].partition("=")[0] in given and rest[0].partition("=")[2]:
            name, _, pattern = rest.pop(0).partition("=")
            given[name] = pattern
        if mistake := _not_a_reason(first, rest, given):
            return mistake
        self._silence(Silence(self._now() + seconds, reason=" ".join(rest), **given), told)
        return ""

    def undo(self, alert: Alert, name: str, told: Told) -> None:
        """Take back what keeps an alert quiet: its acknowledgement, else the silences that cover it."""
        self.ask(lambda: self._undo(alert, name), told, told)

    def _silence(self, silence: Silence, told: Told) -> None:
        now = self._now()
        made = Silence(silence.until, silence.rule, silence.target, silence.reason, by=self._user)
        self.ask(lambda: self._quiet.add(made, now), lambda added: told(_silenced(*added, now)), told)

    def _undo(self, alert: Alert, name: str) -> str:
        quiet = self._quiet.read()
        key = identity(alert)
        if any(one.key == key for one in quiet.acknowledgements):
            self._quiet.withdraw(key)
            return f"{alert.rule} is no longer acknowledged"
        covering = [one for one in quiet.silences if one.covers(alert, name, self._now())]
        for silence in covering:
            self._quiet.expire(silence.id)
        if covering:
            return f"taken back: {many(len(covering), 'silence')}"
        if alert.silenced_by:
            return "it is silenced by the config file, which is not changed from here"
        return "nothing to take back"


def _not_a_reason(duration: str, words: list[str], names: Collection[str]) -> str:
    """Why `words` cannot be the reason: what of them was meant as the time or as a pattern, or ""."""
    if words and duration_seconds(words[0]) is not None:
        return f"two durations, {duration} and {words[0]}: keep one"
    for word in words:
        name, is_pattern, pattern = word.partition("=")
        if is_pattern and name in names:
            return f"{word} stands behind the reason: write it before" if pattern else f"{word} names nothing"
    if words and words[0].partition("=")[0].isalpha() and "=" in words[0]:
        return f"{words[0]!r} is unknown; write rule=PATTERN or target=PATTERN"
    return ""


def _silenced(silence: Silence, said: str, now: float) -> str:
    lasts = seconds_text(silence.until - now)
    done = f"silenced for {lasts}: rule {silence.rule}, target {silence.target} (silence {silence.id})"
    return f"{said}; {done}" if said else done
