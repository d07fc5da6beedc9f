"""The rows of the command list: word, key, argument, meaning."""

from __future__ import annotations

from collections.abc import Sequence

from tui.commands import Command
from tui.view.cells import Line, Span, fit, pad
from tui.view.rows import Row, Rows

_WORD_WIDTH, _KEY_WIDTH = 15, 12


def palette_rows(commands: Sequence[Command], width: int) -> Rows[Command]:
    """A row for each command."""
    return Rows((Row(_line(command), command.word, command) for command in commands), width)


def _line(command: Command) -> Line:
    return (
        Span(" "),
        Span(f"{pad(command.word, _WORD_WIDTH)} ", "title"),
        Span(f"{fit(command.key, _KEY_WIDTH)} ", "key"),
        Span(f"{command.usage}: " if command.usage else "", "dim"),
        Span(command.meaning),
    )
