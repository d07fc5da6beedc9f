"""The one place that reads TOML."""

from __future__ import annotations

from typing import Any

import tomli

from enginetop.fleet.errors import ConfigError


def parse_toml(text: str, origin: str) -> dict[str, Any]:
    """Read TOML text into plain dicts and lists.

    `origin` (a file name) starts the message of the ConfigError that is raised when the text is not TOML.
    """
    try:
        return tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        hint = "; is the file complete?" if "end of document" in str(error) else ""
        raise ConfigError(f"{origin}: not valid TOML: {error}{hint}") from error
