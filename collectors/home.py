"""Paths as people write them."""

from __future__ import annotations

from pathlib import Path


def at_home(text: str) -> Path:
    """The path with the home for `~` or `~user`; as it stands where nobody knows that home.

    Nothing is there then, which whoever opens it says. In a container a user may have no home at all.
    """
    path = Path(text)
    try:
        return path.expanduser()
    except RuntimeError:
        return path
