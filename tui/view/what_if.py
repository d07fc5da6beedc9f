"""What a knob would do at values near the present one, as lines: the effect, its ends, and what bounds it."""

from __future__ import annotations

from collections.abc import Iterator

from enginetop.fleet.snapshot import Advice, Outlook, ReplicaSnapshot
from themes.loader import Ink
from tui.view.advice import expectation_items, setting_text
from tui.view.cells import Line, Span, wrap_text
from tui.view.figures import LABEL_WIDTH, row

_CAPS = (2048, 4096, 8192, 16384)
"""Thinking budgets that are asked for: there is no half of no limit."""
_VALUE_WIDTH = 7


def values_near(advice: Advice) -> tuple[int, ...]:
    """The values that are asked for, rising: what is proposed, half and twice what it is, one draft less and
    more and none. None where the present value is not known.
    """
    now, knob = advice.current, advice.knob
    near: set[int] = set() if advice.proposed is None else {int(advice.proposed)}
    if knob == "thinking_token_budget":
        near |= {cap for cap in _CAPS if now is None or now < 0 or cap < now}
    elif now is not None:
        value = int(now)
        near |= {0, value - 1, value + 1} if knob == "num_speculative_tokens" else {value // 2, 2 * value}
    least = 0 if knob == "num_speculative_tokens" else 1
    return tuple(sorted(value for value in near if value >= least and value != now))


def what_if_lines(replica: ReplicaSnapshot, advice: Advice, width: int) -> Iterator[Line]:
    """A row a value, then what bounds the predictions; no line where nobody can tell."""
    if replica.what_if is None:
        return
    label = "what if"
    limits: dict[str, None] = {}
    for value in values_near(advice):
        outlook = replica.what_if(advice.knob, value)
        limits |= dict.fromkeys(outlook.limits)
        ink: Ink = "text" if outlook.action == "predicted" else "dim"
        shown = f"{setting_text(advice.knob, value):>{_VALUE_WIDTH}}  "
        for piece in wrap_text(_text(outlook), max(width - LABEL_WIDTH - len(shown) - 3, 16)):
            yield row(label, Span(shown, "title" if ink == "text" else "dim"), Span(piece, ink))
            label, shown = "", " " * len(shown)
    for piece in wrap_text("; ".join(limits), max(width - LABEL_WIDTH - 3, 16)) if limits else ():
        yield row("", Span(piece, "dim"))


def _text(outlook: Outlook) -> str:
    if outlook.action != "predicted":
        return f"{outlook.action}: {outlook.because[-1]}"
    return " · ".join(expectation_items(outlook.expected)) or outlook.because[-1]
