"""Secrets in foreign text: what looks like a key is taken out wherever text is shown or written.

Of JSON pages only declared fields are ever used. This is for text that has no fields: labels of series, the
words of an error page, the target of a redirect, a metrics page that goes into a recording. What a secret
looks like can only be guessed: well-known beginnings, words that announce one, and the user in a URL.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable
from typing import AnyStr, Final
from urllib.parse import quote, quote_plus

MARK: Final = "…"
KEY_MARK: Final = "[key]"
SHORTEST_KEY: Final = 8
"""Words shorter than a real key (`EMPTY` is common) are no secret, and may be part of a page."""

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
_USER = r"(?P<user>:/{1,2})[^/\s@\"']{1,256}(?=@)"  # a path is shown with one stroke
_PATTERN = rf"(?i:{_ANNOUNCED})|{_KNOWN}|{_USER}"

_TEXT = re.compile(_PATTERN)
_BYTES = re.compile(_PATTERN.encode("ascii"))
_KEPT = ("named", "flag", "scheme", "user")

# A page of numbers is looked through for every recording: first for a word, then for what has to follow it,
# in lower case; only a page with both is worth the pattern above, which takes fifty times as long.
_BEHIND = rb"(?:\s(?:provided|given|used|is))?\\?[\"']?\s?[=:]"
_SIGNS: tuple[tuple[bytes, re.Pattern[bytes] | None], ...] = (
    *(
        (word, re.compile(word + rest + _BEHIND))
        for word, rest in (
            (b"key", b""),
            (b"token", b""),
            (b"secret", b""),
            (b"passw", rb"(?:or)?d"),
            (b"authorization", b""),
            (b"credential", b"s?"),
        )
    ),
    (b"--", re.compile(rb"--[\w-]*(?:key|token|secret|passw|credential|authorization)")),
    (b"bearer", re.compile(rb"bearer\s")),
    (b"basic", re.compile(rb"basic\s")),
    (b"hf_", re.compile(rb"hf_[a-z0-9]{16}")),
    (b"sk-", re.compile(rb"sk-[\w-]{16}")),
    (b"ghp_", None),
    (b"gho_", None),
    (b"nvapi-", None),
    (b"akia", re.compile(rb"akia[0-9a-z]{16}")),
    (b"eyj", re.compile(rb"eyj[\w-]{10,}\.")),
    (b"@", re.compile(rb":/{1,2}[^/\s@\"']{1,256}@")),
)


def without_secrets(text: str) -> str:
    """`text` with a mark in the place of whatever looks like a key."""
    return _TEXT.sub(lambda found: _kept(found) + MARK, text)


def words_without_secrets(words: Iterable[str]) -> tuple[str, ...]:
    """Arguments of a command, the values of flags that announce a key (there may be several) left out."""
    shown: list[str] = []
    secret = False
    for word in words:
        flag, equals, _ = word.partition("=")
        if word.startswith("-"):
            announced = _announces(flag)
            secret = announced and not equals
            shown.append(f"{flag}={MARK}" if announced and equals else without_secrets(word))
        else:
            shown.append(MARK if secret else without_secrets(word))
    return tuple(shown)


def _announces(flag: str) -> bool:
    found = _TEXT.match(f"{flag} 0123456789")
    return found is not None and found["flag"] is not None


def may_hold_secret(body: bytes) -> bool:
    """Whether it is worth looking for a key in `body`."""
    lower = body.lower()
    return any(word in lower and (what is None or what.search(lower)) for word, what in _SIGNS)


def bytes_without_secrets(body: bytes) -> bytes:
    """`without_secrets` for bytes that may not be text; the very same object where there is nothing."""
    if not may_hold_secret(body):
        return body
    return _BYTES.sub(lambda found: _kept(found) + MARK.encode(), body)


def spellings(secret: str) -> tuple[str, ...]:
    """A secret that is known as whoever was sent it may repeat it, the longest first.

    Percent-encoded, as JSON writes it, in base64.
    """
    data = secret.encode("utf-8", "surrogateescape")
    in_json = json.dumps(secret)[1:-1]
    encoded = (b64encode(data).decode("ascii"), urlsafe_b64encode(data).decode("ascii"))
    forms = {
        secret,
        data.decode("latin-1"),  # in a header
        quote(data, safe=""),
        quote(data),
        quote_plus(data),
        in_json,
        json.dumps(in_json)[1:-1],  # a document within a document
        *(form.rstrip("=") for form in encoded),
    }
    return tuple(sorted(forms, key=len, reverse=True))


def without_these(text: str, secrets: Iterable[str]) -> str:
    """`text` without secrets that are known, however they are spelled."""
    for secret in secrets:
        for form in spellings(secret) if len(secret) >= SHORTEST_KEY else ():
            text = text.replace(form, KEY_MARK)
    return text


def bytes_without_these(body: bytes, secrets: Iterable[str]) -> bytes:
    """`without_these` for bytes that may not be text; the very same object where there is nothing."""
    for secret in secrets:
        for form in spellings(secret) if len(secret) >= SHORTEST_KEY else ():
            found = form.encode("utf-8", "surrogateescape")
            if found in body:
                body = body.replace(found, KEY_MARK.encode())
    return body


def _kept(found: re.Match[AnyStr]) -> AnyStr:
    """What announced the secret: it may be shown."""
    return next((found[name] for name in _KEPT if found[name] is not None), found[0][:0])
