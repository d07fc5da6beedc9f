"""Whatever the snapshot, whatever the size, every view there is: nothing raises, nothing is too wide.

Views are found by looking: every public function or class of `tui.view` that makes lines from a picture for a
width. One that needs what a picture does not give is named in `ELSEWHERE`, with the test that draws it.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import tui.view
from enginetop.fleet.model import Role
from enginetop.fleet.snapshot import Advice, FleetSnapshot, PoolAdvice, ReplicaSnapshot
from tests.property.test_view_properties import fleets
from tests.tui.snapshots import AT, alert, fleet
from themes.loader import load_theme
from tui.actions import Place
from tui.commands import commands_of
from tui.timeline import AlertBegin
from tui.view.alerts import alert_key
from tui.view.below import LoadMemory
from tui.view.cells import Line, line_text, line_width
from tui.view.column_choice import choice_rows
from tui.view.compare import compare_lines
from tui.view.footer import footer_hints, footer_line
from tui.view.help import help_lines
from tui.view.palette import palette_rows
from tui.view.picture import Picture
from tui.widgets.ink import Inks

ELSEWHERE = {
    "change_lines": "tests/unit/view/test_tuners_change.py",
    "change_title": "tests/unit/view/test_tuners_change.py",
    "undo_question": "tests/unit/view/test_tuners_change.py",
    "history_lines": "tests/unit/view/test_tuners_change.py",
    "past_lines": "tests/unit/view/test_tuners_change.py",
    "proposal_lines": "tests/unit/view/test_tuners_change.py",
    "suggestion_lines": "tests/unit/view/test_tuners_change.py",
}

INKS = Inks(load_theme("dark"))
ASCII = Inks(load_theme("ansi"), ascii_only=True)

HOSTILE = (
    "[red]x[/red] [/b] [@click=app.quit]y[/]",
    "\x1b[31mred\x1b]52;c;ZXZpbA==\x07\x9b2J",
    "\u202eevil\u2066\u200f\u0000\r\n\t",
    "👩‍👩‍👧‍👦🇩🇪✈️" * 3,
    "全角文字" * 8,
    "e\u0301\u0301\u0301" * 9,
    "n" * 4096,
    "漢" * 4096,
    "",
)
hostile = st.sampled_from(range(len(HOSTILE)))
sizes = st.tuples(st.integers(20, 300), st.integers(5, 100))


def views() -> Iterator[tuple[str, Callable[..., Any], inspect.Signature]]:
    """Every maker of lines from a picture."""
    for module_info in pkgutil.iter_modules(tui.view.__path__):
        module = importlib.import_module(f"tui.view.{module_info.name}")
        for name, found in vars(module).items():
            if name.startswith("_") or getattr(found, "__module__", None) != module.__name__:
                continue
            if not callable(found) or (inspect.isclass(found) and issubclass(found, Exception)):
                continue
            signature = inspect.signature(found)
            if "picture" in signature.parameters and "width" in signature.parameters:
                yield name, found, signature


VIEWS = list(views())


def picture_of(members: tuple[ReplicaSnapshot, ...], text: str, past: bool) -> Picture:
    """A picture in which every text that others write may be `text`."""
    renamed = tuple(
        replace(
            member,
            target=replace(member.target, name=text or member.target.name),
            model=text,
            reasons=(text, *member.reasons),
            engine_version=text,
        )
        for member in members
    )
    target = renamed[0].target.url if renamed else "fleet"
    alerts = [
        alert(text or "X", target, summary=text),
        alert("KvPressure", "http://elsewhere", "critical", text),
    ]
    snapshot = fleet(renamed, alerts=alerts, gpu_problem=text)
    return Picture(
        snapshot,
        title=text,
        notice=text if past else "",
        paused_seconds=3.0,
        behind_seconds=200.0 if past else None,
    )


def lines_of(drawn: Any) -> Iterator[Line]:
    """The lines of whatever a view made."""
    if hasattr(drawn, "line"):
        yield from (drawn.line(index, selected=index % 2 == 0) for index in range(len(drawn)))
    elif isinstance(drawn, tuple):
        yield drawn
    else:
        yield from drawn


def needs(signature: inspect.Signature) -> set[str]:
    """The arguments that a view cannot do without."""
    return {key for key, one in signature.parameters.items() if one.default is one.empty}


def values_for(picture: Picture, width: int, height: int, text: str) -> dict[str, Any]:
    """What can be given to a view, by the name of the argument."""
    snapshot = picture.snapshot
    assert snapshot is not None
    urls = [replica.target.url for replica in snapshot.replicas] or ["http://gone"]
    advice = Advice("max_num_batched_tokens", "lower", (text,), 8192, 6144)
    return {
        "picture": picture,
        "width": width,
        "height": height,
        "memory": LoadMemory(),
        "said": text,
        "title": text,
        "aside": text,
        "urls": urls,
        "pair": (snapshot, snapshot),
        "url": urls[0],
        "choice": (),
        "changes": (),
        "count": 3,
        "change_id": text,
        "action": "hold",
        "knob": text,
        "scrape": None,
        "other": urls[-1],
        "words": text,
        "alert": snapshot.alerts[0],
        "key": alert_key(snapshot.alerts[0]),
        "pool": PoolAdvice(text, Role.DECODE, tuple(urls), (advice,)),
        "begins": [AlertBegin(AT - 5, one) for one in snapshot.alerts],
    }


def draw_all(picture: Picture, width: int, height: int, text: str) -> Iterator[tuple[str, Line]]:
    """Every view of a picture, with the name of its maker."""
    snapshot = picture.snapshot
    assert snapshot is not None
    urls = [replica.target.url for replica in snapshot.replicas]
    given_values = values_for(picture, width, height, text)
    for name, make, signature in VIEWS:
        if name not in ELSEWHERE and needs(signature) <= given_values.keys():
            drawn = make(**{key: given_values[key] for key in needs(signature)})
            yield from ((name, line) for line in lines_of(drawn))
    for url in (None, *urls, "http://gone"):
        yield from (("compare_lines", line) for line in compare_lines((snapshot, snapshot), url, width))
    for place in Place:
        yield "footer_line", footer_line(footer_hints(place), "1-9 of 99", width)
    yield from (("help_lines", line) for line in help_lines(width, read_only=False))
    yield from (("palette_rows", line) for line in lines_of(palette_rows(commands_of(()), width)))
    yield from (("choice_rows", line) for line in lines_of(choice_rows((), ("kv",), width)))


def check(drawn: Iterable[tuple[str, Line]], width: int) -> None:
    """No line wider than the terminal, nothing in it that a terminal would obey."""
    for name, line in drawn:
        text = line_text(line)
        assert line_width(line) <= width, (name, width, text)
        for inks in (INKS, ASCII):
            strip = inks.strip(line, width)
            assert strip.cell_length == width, (name, text)
            assert strip.text.isprintable(), (name, text)
        assert ASCII.strip(line, width).text.isascii(), (name, text)


def test_there_are_views_and_each_is_drawn_here_or_elsewhere() -> None:
    names = {name for name, _, _ in VIEWS}
    assert {"title_line", "detail_lines", "alert_rows", "latency_page", "compare_title"} <= names
    assert ELSEWHERE.keys() <= names
    values = values_for(picture_of((), "", past=False), 80, 24, "").keys()
    for name, _, signature in VIEWS:
        missing = needs(signature) - values
        assert name in ELSEWHERE or not missing, (
            f"{name}: give {missing} in `values_for`, or name who draws it"
        )


@settings(max_examples=25, deadline=None)
@given(fleets, hostile, sizes, st.booleans())
def test_every_view_of_every_picture_at_every_size(
    members: tuple[ReplicaSnapshot, ...], which: int, size: tuple[int, int], past: bool
) -> None:
    (width, height), text = size, HOSTILE[which]
    check(draw_all(picture_of(members, text, past), width, height, text), width)


def test_nothing_is_known_yet() -> None:
    for width in (20, 80, 300):
        for name, make, signature in VIEWS:
            if needs(signature) <= {"picture", "width"}:
                check(((name, line) for line in lines_of(make(picture=Picture(), width=width))), width)


def test_the_hostile_texts_are_hostile() -> None:
    snapshot: FleetSnapshot | None = picture_of((), HOSTILE[1], past=False).snapshot
    assert snapshot is not None
    assert snapshot.at == AT
    assert not HOSTILE[1].isprintable()
    assert not HOSTILE[2].isprintable()
