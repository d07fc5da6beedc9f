"""The preset file of a llama.cpp router: one section a model, `flag = value` a line, names as on its command
line without dashes. Only lines of one section are changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tuners.control.files import read_short, replace_kept
from tuners.control.restartable import RestartError

_MOST_BYTES = 1 << 20
_SECTION = re.compile(r"\s*\[(?P<name>.*)\]\s*")


class PresetFile:
    """The section `model` of the file `path`."""

    def __init__(self, path: Path, model: str) -> None:
        self.path, self._model = path, model
        self._first: str | None = None
        self._former: str | None = None
        self._ours: str | None = None

    def read(self) -> str:
        """The text. RestartError when it cannot be read, or has no such section."""
        try:
            text = read_short(self.path, _MOST_BYTES)
        except OSError as error:
            raise RestartError(f"{self.path}: {error.strerror or error}") from None
        if _lines_of(text.splitlines(keepends=True), self._model) is None:
            raise RestartError(f"{self.path}: no section [{self._model}], or several")
        if self._first is None:
            self._first = text
        return text

    def with_values(
        self,
        values: Mapping[tuple[str, ...], int | None],
        former: Mapping[tuple[str, ...], int | None],
    ) -> str:
        """The text with `values`, by all spellings of their names; None takes a line out.

        Everything else is as the file was first read; where somebody else wrote into it since, as it is now,
        with the `former` values of what we changed.
        """
        text = self.read()
        if text == self._ours and self._first is not None:
            text = self._first
        else:
            values = {**former, **values}
        for names, value in values.items():
            text = _with(text, self._model, names, value)
        return text

    def write(self, text: str) -> None:
        """Replace the file at once, its owner and mode kept. OSError; RestartError as in `read`."""
        self._former = self.read()
        replace_kept(self.path, text.encode())
        self._ours = text

    def take_back(self) -> None:
        """Undo the last `write`, which nobody has read. OSError."""
        if self._former is not None:
            replace_kept(self.path, self._former.encode())
            self._ours = self._former


def _lines_of(lines: list[str], model: str) -> range | None:
    """The lines of a section, its head left out; None: there is not exactly one."""
    heads = [number for number, line in enumerate(lines) if _SECTION.fullmatch(line.rstrip("\r\n"))]
    ours = [number for number in heads if _name(lines[number]) == model]
    if len(ours) != 1:
        return None
    following = [number for number in heads if number > ours[0]]
    return range(ours[0] + 1, following[0] if following else len(lines))


def _name(line: str) -> str:
    found = _SECTION.fullmatch(line.rstrip("\r\n"))
    return found["name"].strip() if found else ""


def _with(text: str, model: str, names: tuple[str, ...], value: int | None) -> str:
    lines = text.splitlines(keepends=True)
    section = _lines_of(lines, model)
    assert section is not None  # `read` saw to that
    spelled = {name.lstrip("-") for name in names}
    places = [number for number in section if _key(lines[number]) in spelled]
    name = _key(lines[places[0]]) if places else names[0].lstrip("-")
    written = [] if value is None else [f"{name} = {value}\n"]
    kept = [line for number, line in enumerate(lines) if number not in places]
    where = places[0] if places else section.start
    if where and not kept[where - 1].endswith("\n"):
        kept[where - 1] += "\n"
    return "".join((*kept[:where], *written, *kept[where:]))


def _key(line: str) -> str:
    name, equals, _ = line.partition("=")
    return name.strip() if equals and not line.lstrip().startswith(("#", ";")) else ""
