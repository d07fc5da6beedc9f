"""What a knob would do at another value, as lines: the effect, its ends, and what bounds it.

The values are those near the present one, or those that somebody types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from enginetop.fleet.snapshot import Advice, Outlook, ReplicaSnapshot
from themes.loader import Ink
from tui.view import numbers
from tui.view.advice import expectation_items, setting_text
from tui.view.cells import Line, Span, clip, cut_middle, plain, printable, wrap_text
from tui.view.figures import LABEL_WIDTH, paragraphs, row
from tui.view.picture import Picture
from tui.view.title import screen_title

_CAPS = (2048, 4096, 8192, 16384)
"""Thinking budgets that are asked for: there is no half of no limit."""
_VALUE_WIDTH = 7
MOST_ASKED = 4
"""Replicas that are asked at once, and values that are typed."""
_MOST_DIGITS = 9


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
    yield from _answers(replica, advice.knob, values_near(advice), "what if", width)


def typed_values(text: str) -> tuple[int, ...] | str:
    """The values that were typed, with spaces or commas between them; words when they are none."""
    words = text.replace(",", " ").split()
    if len(words) > MOST_ASKED:
        return f"{MOST_ASKED} values at once"
    for word in words:
        digits = word.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= _MOST_DIGITS):
            return f"{word} is no value: whole numbers, such as 64"
    return tuple(dict.fromkeys(map(int, words)))


def what_if_title(picture: Picture, urls: Sequence[str], knob: str, width: int) -> Line:
    """Of whom, or of how many, and of which knob it is asked."""
    who = picture.name_of(urls[0]) if len(urls) == 1 else numbers.many(len(urls), "replica")
    return screen_title(picture, "what if", f" · {who} · {knob}", width)


def what_if_prompt(typed: tuple[int, ...] | str, width: int) -> Line:
    """What can be typed, or what is wrong with what is."""
    if isinstance(typed, str):
        return clip(plain(f" {printable(typed)}", "warn"), width)
    rest = Span(", or some: it is told, not set; esc leaves it")
    return clip((Span(" type "), Span("a value", "key"), rest), width)


def typed_lines(
    replicas: Sequence[ReplicaSnapshot], knob: str, values: Sequence[int], width: int
) -> list[Line]:
    """What each of the first replicas would do at these values; without any, at those near its own."""
    lines: list[Line] = []
    for replica in replicas[:MOST_ASKED]:
        advice = next((one for one in replica.advice if one.knob == knob), None)
        if advice is not None:
            asked = values or values_near(advice)
            now = f"  {knob} {setting_text(knob, advice.current)}"
            lines += [(), (Span(f" {cut_middle(replica.target.name, 28)}", "title"), Span(now))]
            lines += _answers(replica, knob, asked, "what if", width, reasons=bool(values))
    if not lines:
        return [plain(" nobody can tell: there is no advice on it now", "dim")]
    if len(replicas) > MOST_ASKED:
        lines += [(), plain(f" and {len(replicas) - MOST_ASKED} more replicas", "dim")]
    return [clip(line, width) for line in lines]


def _answers(
    replica: ReplicaSnapshot,
    knob: str,
    values: Iterable[int],
    label: str,
    width: int,
    *,
    reasons: bool = False,
) -> Iterator[Line]:
    if replica.what_if is None:
        return
    limits: dict[str, None] = {}
    for value in values:
        outlook = replica.what_if(knob, value)
        limits |= dict.fromkeys(outlook.limits)
        ink: Ink = "text" if outlook.action == "predicted" else "dim"
        shown = f"{setting_text(knob, value):>{_VALUE_WIDTH}}  "
        for piece in wrap_text(_text(outlook), max(width - LABEL_WIDTH - len(shown) - 3, 16)):
            yield row(label, Span(shown, "title" if ink == "text" else "dim"), Span(piece, ink))
            label, shown = "", " " * len(shown)
        for reason in outlook.because if reasons and outlook.expected else ():
            for piece in wrap_text(reason, max(width - LABEL_WIDTH - len(shown) - 3, 16)):
                yield row("", Span(shown), Span(piece, "dim"))
    yield from paragraphs("", ("; ".join(limits),), width, "dim")


def _text(outlook: Outlook) -> str:
    if outlook.action != "predicted":
        return f"{outlook.action}: {outlook.because[-1]}"
    return " · ".join(expectation_items(outlook.expected)) or outlook.because[-1]
