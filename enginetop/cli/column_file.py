"""The user's columns on disk: one small TOML file in the state folder, replaced at once or not at all."""

from __future__ import annotations

import json
from pathlib import Path

from enginetop.fleet.errors import ConfigError, EnginetopError
from enginetop.fleet.toml_text import parse_toml
from tui.view.column_choice import Choice
from tui.view.placing import read_choice
from tuners.control.files import write_synced

_MOST_CHARACTERS = 100_000


class ColumnFileError(EnginetopError):
    """The file cannot be written; the text says why, in one line."""


class ColumnFile:
    """A `ColumnStore` at `path`; `configured` is what counts where nothing was saved."""

    def __init__(self, path: Path, configured: Choice = ()) -> None:
        self._path = path
        self._configured = configured

    def load(self) -> Choice:
        """See `ColumnStore`."""
        try:
            with self._path.open(encoding="utf-8") as file:
                text = file.read(_MOST_CHARACTERS)
        except FileNotFoundError:
            return self._configured
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise ConfigError(f"{self._path}: {reason}; remove the file") from error
        keys = parse_toml(text, str(self._path)).get("columns")
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise ConfigError(f"{self._path}: columns must be a list of names; remove the file")
        return read_choice(keys, str(self._path))

    def save(self, choice: Choice) -> None:
        """See `ColumnStore`."""
        try:
            if not choice:
                self._path.unlink(missing_ok=True)
                return
            write_synced(self._path, f"columns = {json.dumps(list(choice))}\n".encode())
        except OSError as error:
            raise ColumnFileError(f"{self._path}: {error.strerror}; the columns are not kept") from error
