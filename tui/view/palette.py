"""The rows of the command list: word, argument, key, meaning."""

from __future__ import annotations

from collections.abc import Sequence

from tui.commands import Command
from tui.view.cells import Line, Span, clip, fit, merge, pad

_WORD_WIDTH, _KEY_WIDTH = 15, 12


class PaletteTable:
    """Commands for one width, a line each; keys are their words."""

    def __init__(self, commands: Sequence[Command], width: int) -> None:
        self._commands = commands
        self._width = width
        self._positions = {command.word: place for place, command in enumerate(commands)}

    def __len__(self) -> int:
        return len(self._commands)

    def line(self, index: int, *, selected: bool = False) -> Line:
        """One command."""
        command = self._commands[index]
        usage = f"{command.usage}: " if command.usage else ""
        return clip(
            merge(
                (
                    Span("▸" if selected else " ", "title" if selected else "text"),
                    Span(f"{pad(command.word, _WORD_WIDTH)} ", "title"),
                    Span(f"{fit(command.key, _KEY_WIDTH)} ", "key"),
                    Span(usage, "dim"),
                    Span(command.meaning),
                )
            ),
            self._width,
        )

    def key(self, index: int) -> str | None:
        """The command's word."""
        return self._commands[index].word

    def position(self, key: str) -> int | None:
        """The line of a command."""
        return self._positions.get(key)

    def is_row(self, index: int) -> bool:  # noqa: ARG002 - every line is one
        """Whether the cursor may stand on the line."""
        return True
