"""Who may come in: a bearer token from a file, and a brake on those who guess."""

from __future__ import annotations

import hmac
from collections import deque
from collections.abc import Callable
from pathlib import Path

FAILURES = 10
FAILURE_SPAN_SECONDS = 60.0
"""More failures than that in this span, and wrong tokens are told to wait. The right one is always let in:
a stranger who guesses must not keep the controller from renewing or taking back its change."""

_LONGEST_TOKEN_FILE = 4096


class TokenError(ValueError):
    """There is no token to be had from the file; the text says why."""


def read_token(file: Path) -> bytes:
    """The token: the file's text without surrounding white space. Raises TokenError."""
    try:
        with file.open("rb") as source:
            token = source.read(_LONGEST_TOKEN_FILE).strip()
    except OSError as error:
        raise TokenError(f"token file cannot be read: {error.strerror}") from None
    if not token:
        raise TokenError("token file is empty")
    return token


class Door:
    """Checks the Authorization header. The file is read at each request, so that a token can be replaced."""

    def __init__(self, file: Path, clock: Callable[[], float]) -> None:
        self._file = file
        self._clock = clock
        self._failures: deque[float] = deque(maxlen=FAILURES)

    def check(self, authorization: str | None) -> int:
        """200: come in, 401: no, 429: no, and too often."""
        try:
            expected = b"Bearer " + read_token(self._file)
        except TokenError:
            expected = b""
        given = (authorization or "").encode("utf-8", "replace")
        if hmac.compare_digest(given, expected) and expected:
            return 200
        now = self._clock()
        too_often = len(self._failures) == FAILURES and now - self._failures[0] < FAILURE_SPAN_SECONDS
        self._failures.append(now)
        return 429 if too_often else 401
