"""The one place that reads TOML."""

from __future__ import annotations

from typing import Any

import tomli

from enginetop.fleet.errors import ConfigError

_BYTE_ORDER_MARK = "\ufeff"
"""What some editors begin a file with; it says nothing."""


def parse_toml(text: str, origin: str) -> dict[str, Any]:
    """Read TOML text into plain dicts and lists.

    `origin` (a file name) starts the message of the ConfigError that is raised when the text is not TOML.
    """
    try:
        return tomli.loads(text.removeprefix(_BYTE_ORDER_MARK))
    except tomli.TOMLDecodeError as error:
        hint = "; is the file complete?" if "end of document" in str(error) else ""
        raise ConfigError(f"{origin}: not valid TOML: {error}{hint}") from error
    except RecursionError:
        raise ConfigError(f"{origin}: not valid TOML: arrays or tables are nested too deeply") from None
    except ValueError:  # a number of thousands of digits
        raise ConfigError(f"{origin}: not valid TOML: a number has too many digits") from None
