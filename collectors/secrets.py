"""Secrets in foreign text: what looks like a key is taken out wherever text is shown or written.

Of JSON pages only declared fields are ever used. This is for text that has no fields: labels of series, the
words of an error page, the target of a redirect, a metrics page that goes into a recording. What a secret
looks like can only be guessed: well-known beginnings, words that announce one, and the user in a URL.
"""

from __future__ import annotations

import re
from typing import AnyStr, Final

MARK: Final = "…"

_WORDS = (
    r"(?:(?:api|admin|access)[-_ ]?key|token|secret|passw(?:or)?d|authorization|credentials?)"
    r"(?:\s(?:provided|given|used|is))?"
)
_ANNOUNCED = (
    # api_key="...", "admin_api_key": "...", --hf-token=..., invalid api key: ...
    rf"(?P<named>(?:{_WORDS})\\?[\"']?\s?[=:]\s?\\?[\"']?)(?!\s|bearer|basic)[^\s\"'\\,;&}}\]]{{6,}}"
    # --api-key ..., also as items of a list
    rf"|(?P<flag>--[\w-]*(?:{_WORDS})(?:\s|\\?[\"'],?\s?)\\?[\"']?)[^\s\"'\\,;&}}\]-][^\s\"'\\,;&}}\]]{{5,}}"
    r"|(?P<scheme>\b(?:bearer|basic)\s)[\w.~+/=-]{6,}"
)
_KNOWN = (
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[\w-]{16,}|gh[po]_[A-Za-z0-9]{20,}|nvapi-[\w-]{16,}|AKIA[0-9A-Z]{16}"
    r"|eyJ[\w-]{10,}\.[\w-]{5,}(?:\.[\w-]*)?)"
)
_USER = r"(?P<user>://)[^/\s@\"']{1,256}(?=@)"
_PATTERN = rf"(?i:{_ANNOUNCED})|{_KNOWN}|{_USER}"

_TEXT = re.compile(_PATTERN)
_BYTES = re.compile(_PATTERN.encode("ascii"))
_KEPT = ("named", "flag", "scheme", "user")

# Looked for first, since most text holds none of them and a search for words is a hundred times cheaper.
_SIGNS = tuple(
    word.encode()
    for word in (
        *("api_key", "api-key", "apikey", "api key", "admin_key", "admin-key", "access_key", "access-key"),
        *(
            'token"',
            "token'",
            "token=",
            "token:",
            "token provided",
            "token is",
            "token\\",
            "secret",
            "passw",
            "authoriz",
        ),
        *("credential", "bearer", "basic ", "hf_", "sk-", "ghp_", "gho_"),
        *("nvapi-", "akia", "eyj"),
    )
)


def without_secrets(text: str) -> str:
    """`text` with a mark in the place of whatever looks like a key."""
    return _TEXT.sub(lambda found: _kept(found) + MARK, text)


def may_hold_secret(body: bytes) -> bool:
    """Whether it is worth looking for a key in `body`."""
    lower = body.lower()
    if b"://" in lower and b"@" in lower:
        return True
    return any(sign in lower for sign in _SIGNS) or (b"--" in lower and b"-token" in lower)


def bytes_without_secrets(body: bytes) -> bytes:
    """`without_secrets` for bytes that may not be text; the very same object where there is nothing."""
    if not may_hold_secret(body):
        return body
    return _BYTES.sub(lambda found: _kept(found) + MARK.encode(), body)


def _kept(found: re.Match[AnyStr]) -> AnyStr:
    """What announced the secret: it may be shown."""
    return next((found[name] for name in _KEPT if found[name] is not None), found[0][:0])
