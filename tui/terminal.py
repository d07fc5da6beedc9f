"""What must be settled before Textual is imported: it reads these variables once, at import."""

from __future__ import annotations

from collections.abc import MutableMapping

_DEFAULTS = {
    "TEXTUAL_ANIMATIONS": "none",
    "TEXTUAL_SMOOTH_SCROLL": "0",
    "ESCDELAY": "50",
}


def prepare(environ: MutableMapping[str, str]) -> None:
    """Set what the user has not set. An empty `NO_COLOR` means nothing, so it is taken away."""
    for name, value in _DEFAULTS.items():
        environ.setdefault(name, value)
    if environ.get("NO_COLOR") == "":
        del environ["NO_COLOR"]


def wants_ascii(environ: MutableMapping[str, str]) -> bool:
    """Whether the terminal's font or encoding cannot be expected to have our glyphs."""
    if environ.get("TERM") == "linux":
        return True
    spoken = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or ""
    return spoken in ("C", "POSIX")
