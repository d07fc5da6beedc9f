"""What must be settled before Textual is imported: it reads these variables once, at import."""

from __future__ import annotations

from collections.abc import MutableMapping

_DEFAULTS = {
    "TEXTUAL_ANIMATIONS": "none",
    "TEXTUAL_SMOOTH_SCROLL": "0",
    "ESCDELAY": "50",
    "TEXTUAL_FPS": "120",  # a key waits for the next frame: 8 ms on the mean at Textual's 60
}


def prepare(environ: MutableMapping[str, str]) -> None:
    """Set what the user has not set. An empty `NO_COLOR` means nothing, so it is taken away."""
    for name, value in _DEFAULTS.items():
        environ.setdefault(name, value)
    if environ.get("NO_COLOR") == "":
        del environ["NO_COLOR"]


_PLAIN_TERMINALS = frozenset({"linux", "dumb", "ansi", "cons25", "vt100", "vt102", "vt220", "vt320"})


def wants_ascii(environ: MutableMapping[str, str]) -> bool:
    """Whether the terminal's font or encoding cannot be expected to have our glyphs.

    The encoding is that of the locale: `C`, or one that names another than UTF-8. No locale at all says
    nothing, for such is the environment of many a container with a UTF-8 terminal before it.
    """
    if environ.get("TERM") in _PLAIN_TERMINALS:
        return True
    spoken = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or ""
    encoding = spoken.partition(".")[2].partition("@")[0].lower().replace("-", "")
    return spoken in ("C", "POSIX") or encoding not in ("", "utf8")
