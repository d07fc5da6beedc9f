"""Who we are."""

from __future__ import annotations

import getpass
import os


def user_name() -> str:
    """The user's name, for the audit and for whoever reads a silence."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"
