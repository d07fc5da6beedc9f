"""Results on stdout: one snapshot as JSON or as a table that a pipe and a screen reader can take."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable

from enginetop.cli.stdout import open_stdout, print_document, print_utf8, takes_unicode
from enginetop.fleet.document import snapshot_document
from enginetop.fleet.prometheus_text import prometheus_text
from enginetop.fleet.snapshot import FleetSnapshot
from tui.view.arrange import Sort
from tui.view.cells import Line, line_text, printable, to_ascii
from tui.view.events import events_line
from tui.view.picture import Picture
from tui.view.query import parse_query
from tui.view.table import FleetTable
from tui.view.title import title_line
from tui.view.totals import totals_line
from tui.view.verdict import verdict_line

_PIPED_WIDTH = 160
_NARROWEST = 60


def has_terminal() -> bool:
    """Whether the UI can be shown: a terminal to type on and one to draw on (Textual draws on stderr)."""
    ends = (sys.stdin, sys.stdout, sys.stderr)
    return all(end is not None and end.isatty() for end in ends) and os.environ.get("TERM") != "dumb"


def print_snapshot(snapshot: FleetSnapshot, form: str, title: str = "", *, read_only: bool = True) -> None:
    """Print the snapshot as `json`, `table` or `prometheus` page. ConfigError when there is no stdout.

    `read_only`: nothing could be changed from here; a table says so.
    """
    if form == "prometheus":
        print_utf8(prometheus_text(snapshot), "the snapshot")
        return
    if form == "json":
        print_document(snapshot_document(snapshot), "the snapshot")
        return
    print_lines(table_lines(snapshot, _width(), title, read_only=read_only))


def print_lines(lines: Iterable[Line]) -> None:
    """Print lines without their inks, in ASCII where stdout takes nothing else. ConfigError: it is closed."""
    wide = takes_unicode(open_stdout("the result"))
    for line in lines:
        print(printable(line_text(line if wide else to_ascii(line))).rstrip())


def table_lines(
    snapshot: FleetSnapshot, width: int, title: str = "", *, read_only: bool = True
) -> list[Line]:
    """The fleet screen as lines: the same rows, words and columns, without a screen."""
    picture = Picture(snapshot=snapshot, title=title, read_only=read_only)
    grid = FleetTable(snapshot, picture.conditions, width=width, sort=Sort(), query=parse_query(""))
    return [
        title_line(picture, width),
        verdict_line(picture, width),
        totals_line(picture, width),
        grid.header(),
        *(grid.line(index) for index in range(len(grid))),
        events_line(picture, width),
    ]


def _width() -> int:
    columns = shutil.get_terminal_size((_PIPED_WIDTH, 24)).columns
    return max(columns, _NARROWEST)
