"""The knob API as one companion answers it: requests in, documents out, whatever carries them.

`GET`, `PATCH` and `DELETE` of the knobs, `GET` and `PUT` of the SLO (contract, section 6). Every answer about
one knob is its row with `applied` and `total` beside it; an error adds `detail`, one line that says what is
wrong. Bodies are checked strictly: what is not understood changes nothing.
"""

from __future__ import annotations

import hmac
import json
import math
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

from enginetop.fleet.knobs import (
    KNOBS_PATH,
    SLO_PATH,
    KnobAnswer,
    KnobBoard,
    Outcome,
    row_document,
    sheet_document,
)
from enginetop.fleet.snapshot import Slo
from enginetop.simulator.http_messages import (
    Handler,
    Reply,
    Request,
    Routes,
    RouteTable,
    error_reply,
    json_reply,
)
from enginetop.simulator.knob_board import LONGEST_TTL_SECONDS

MOST_BODY_BYTES = 16 * 1024
_LONGEST_TEXT = 512
_LARGEST_VALUE = 1 << 40
_PATCH_KEYS = ("knob", "value", "if_version", "ttl_seconds", "change", "reason")
_SLO_KEYS = ("ttft_seconds", "tpot_seconds")
_LONGEST_SLO_SECONDS = 3600.0


class BodyError(ValueError):
    """A body that cannot be used; the text names the key and what is wrong with it."""


class KnobApi:
    """Answers for the engine of `board`.

    `clock` tells the board's time in seconds, by which a value on loan goes back: it must not be set back.
    `slo` and `set_slo` are the objective that requests are counted
    for; without them there is none to be asked for. With a `token` every request must bear it.
    """

    def __init__(
        self,
        board: KnobBoard,
        clock: Callable[[], float],
        slo: Callable[[], Slo] | None = None,
        set_slo: Callable[[Slo], None] = lambda _: None,
        token: str | None = None,
    ) -> None:
        self._board = board
        self._clock = clock
        self._slo = slo or Slo
        self._set_slo = set_slo
        self._token = token
        knobs: RouteTable = {
            KNOBS_PATH: {"GET": self._guarded(self._sheet), "PATCH": self._guarded(self._patch)},
            f"{KNOBS_PATH}/": {"DELETE": self._guarded(self._delete)},
        }
        objective: RouteTable = {
            SLO_PATH: {"GET": self._guarded(self._tell_slo), "PUT": self._guarded(self._put_slo)}
        }
        self.routes: RouteTable = {**knobs, **(objective if slo is not None else {})}
        self.handler = Routes(self.routes)

    def request(self, method: str, path: str, body: bytes | None = None) -> KnobAnswer:
        """One request without a wire (`KnobTransport`), bearing the token."""
        headers = {} if self._token is None else {"authorization": f"Bearer {self._token}"}
        reply = self.handler(Request(method, path, headers, body or b""))
        if not isinstance(reply, Reply):
            return KnobAnswer(None, detail="no answer")
        return KnobAnswer(reply.status, reply.body)

    def _guarded(self, handler: Callable[[Request], Reply]) -> Handler:
        def answer(request: Request) -> Reply:
            if not self._may(request):
                return error_reply(401, "a valid bearer token is needed", (("www-authenticate", "Bearer"),))
            if len(request.body) > MOST_BODY_BYTES:
                return error_reply(413, f"the body is larger than {MOST_BODY_BYTES} bytes")
            try:
                return handler(request)
            except BodyError as error:
                return error_reply(400, str(error))

        return answer

    def _may(self, request: Request) -> bool:
        if self._token is None:
            return True
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(
            given.strip().encode(), self._token.encode()
        )

    def _sheet(self, _: Request) -> Reply:
        return json_reply(sheet_document(self._board.sheet(self._clock())))

    def _patch(self, request: Request) -> Reply:
        body = _document(request.body, _PATCH_KEYS)
        ttl = (
            _number(body, "ttl_seconds", LONGEST_TTL_SECONDS) if body.get("ttl_seconds") is not None else None
        )
        version = _whole(body, "if_version") if body.get("if_version") is not None else None
        _text(body, "reason")
        return self._told(
            self._board.patch(
                _text(body, "knob"),
                _whole(body, "value"),
                if_version=version,
                ttl_seconds=ttl,
                change=_text(body, "change"),
                now=self._clock(),
            )
        )

    def _delete(self, request: Request) -> Reply:
        return self._told(self._board.delete(unquote(request.path.rpartition("/")[2]), self._clock()))

    def _told(self, outcome: Outcome) -> Reply:
        document: dict[str, Any] = {} if outcome.row is None else row_document(outcome.row)
        document |= {"applied": outcome.applied, "total": self._board.ranks}
        if outcome.detail:
            document["detail"] = outcome.detail
        wait = outcome.retry_after_seconds
        return json_reply(
            document, outcome.status, () if wait is None else (("retry-after", str(math.ceil(wait))),)
        )

    def _tell_slo(self, _: Request) -> Reply:
        slo = self._slo()
        return json_reply({"ttft_seconds": slo.ttft_seconds, "tpot_seconds": slo.tpot_seconds})

    def _put_slo(self, request: Request) -> Reply:
        body = _document(request.body, _SLO_KEYS)
        ttft, tpot = (_number(body, key, _LONGEST_SLO_SECONDS) for key in _SLO_KEYS)
        self._set_slo(Slo(ttft, tpot, self._slo().target, "flag"))
        return self._tell_slo(request)


def _document(body: bytes, known: tuple[str, ...]) -> Mapping[str, Any]:
    """The body as an object with known keys only; a key that stands twice is refused."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise BodyError("a key stands twice")
        return found

    try:
        document = json.loads(body, object_pairs_hook=unique)
    except BodyError:
        raise
    except (ValueError, RecursionError):
        raise BodyError("the body is not JSON") from None
    if not isinstance(document, dict):
        raise BodyError("the body is not an object")
    unknown = sorted(key for key in document if key not in known)
    if unknown:
        raise BodyError(f"unknown key {unknown[0][:64]!r}; known: {', '.join(known)}")
    return document


def _text(document: Mapping[str, Any], key: str) -> str:
    value = document.get(key, "")
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT or not value.isprintable():
        raise BodyError(f"{key}: not a plain text of at most {_LONGEST_TEXT} characters")
    return value


def _whole(document: Mapping[str, Any], key: str) -> int:
    value = document.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _LARGEST_VALUE:
        raise BodyError(f"{key}: not a whole number")
    return value


def _number(document: Mapping[str, Any], key: str, most: float) -> float:
    """A number above 0 and at most `most`; NaN is none."""
    value = document.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= most:
        raise BodyError(f"{key}: not a number above 0 and at most {most:g}")
    return float(value)
