"""The knob API without any transport: requests in, answers out. Paths and bodies: the contract, section 6."""

from __future__ import annotations

import json
import logging
from typing import Any, Protocol, TypeGuard
from urllib.parse import unquote

from enginetop_companion.board import Answer
from enginetop_companion.settings import Objective

KNOBS_PATH = "/enginetop/v1/knobs"
SLO_PATH = "/enginetop/v1/slo"
SCHEMA = "enginetop.knobs/1"
TTL_SECONDS = (1.0, 24 * 3600.0)
_LONGEST_NAME = 128
_LARGEST = 1 << 40


class BadRequestError(ValueError):
    """The body is not what the contract says; the text names the key."""


class Engine(Protocol):
    """What is done to the knobs of one engine, all of its ranks together. Nothing of it raises."""

    async def sheet(self) -> Answer:
        """`instance applied total knobs`."""

    async def change(self, asked: dict[str, Any]) -> Answer:
        """The contract's PATCH, as `read_change` made it."""

    async def reset(self, name: str) -> Answer:
        """A knob back at its start value."""

    async def set_objective(self, objective: list[float]) -> Answer:
        """TTFT and TPOT in seconds, for all processes of the engine."""

    def objective(self) -> Objective:
        """The objective in force."""


class Api:
    """Answers requests. `name` and `version` are those of the engine; changes go into its own `log`."""

    def __init__(self, engine: Engine, name: str, version: str, log: logging.Logger) -> None:
        self._engine = engine
        self._head = {"schema": SCHEMA, "engine": name, "engine_version": version}
        self._log = log

    async def answer(self, method: str, path: str, body: bytes) -> Answer:
        """Do what is asked. Never raises for anything that a client sends."""
        try:
            if path == SLO_PATH:
                return await self._slo(method, body)
            if path == KNOBS_PATH and method == "GET":
                return await self._sheet()
            if path == KNOBS_PATH and method == "PATCH":
                return await self._change(read_change(body))
            if path.startswith(KNOBS_PATH + "/") and method == "DELETE":
                return await self._engine.reset(unquote(path.removeprefix(KNOBS_PATH + "/")))
        except BadRequestError as error:
            return Answer(400, {"error": str(error)})
        known = path == KNOBS_PATH or path.startswith(KNOBS_PATH + "/")
        return (
            Answer(405, {"error": "not with this method"})
            if known
            else Answer(404, {"error": "no such path"})
        )

    async def _sheet(self) -> Answer:
        answer = await self._engine.sheet()
        return answer if answer.status != 200 else Answer(200, self._head | answer.body)

    async def _change(self, asked: dict[str, Any]) -> Answer:
        answer = await self._engine.change(asked)
        what = (asked["change"], asked["knob"], asked["value"], answer.status)
        self._log.info("enginetop companion: change %r: %r to %s: %s", *what)
        return answer

    async def _slo(self, method: str, body: bytes) -> Answer:
        if method == "PUT":
            answer = await self._engine.set_objective(read_objective(body))
            if answer.status != 200:
                return answer
        elif method != "GET":
            return Answer(405, {"error": "GET or PUT"})
        now = self._engine.objective()
        return Answer(200, {"ttft_seconds": now.ttft_seconds, "tpot_seconds": now.tpot_seconds})


def read_change(body: bytes) -> dict[str, Any]:
    """The body of a PATCH, checked key by key. Raises BadRequestError."""
    document = _document(body)
    ttl = document.get("ttl_seconds")
    if "ttl_seconds" not in document or not (ttl is None or _is_number(ttl)):
        raise BadRequestError("ttl_seconds: a number of seconds, or null for a change that stays")
    if ttl is not None and not TTL_SECONDS[0] <= ttl <= TTL_SECONDS[1]:
        raise BadRequestError(f"ttl_seconds: {TTL_SECONDS[0]:g} to {TTL_SECONDS[1]:g} seconds")
    version = document.get("if_version")
    return {
        "knob": _text(document, "knob"),
        "value": _whole(document.get("value"), "value"),
        "if_version": None if version is None else _whole(version, "if_version"),
        "ttl_seconds": ttl,
        "change": _text(document, "change"),
    }


def read_objective(body: bytes) -> list[float]:
    """The body of a PUT: TTFT and TPOT in seconds. Raises BadRequestError."""
    document = _document(body)
    values = [document.get("ttft_seconds"), document.get("tpot_seconds")]
    numbers = [float(value) for value in values if _is_number(value) and value > 0]
    if len(numbers) != len(values):
        raise BadRequestError("ttft_seconds and tpot_seconds: two numbers of seconds above 0")
    return numbers


def _document(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise BadRequestError("the body is not a JSON object")
    return document


def _text(document: dict[str, Any], key: str) -> str:
    value = document.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_NAME:
        raise BadRequestError(f"{key}: a text of 1 to {_LONGEST_NAME} characters")
    return value


def _whole(value: object, key: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _LARGEST:
        raise BadRequestError(f"{key}: not a whole number")
    return value


def _is_number(value: object) -> TypeGuard[float]:
    """A number that a float can be made of; JSON has longer ones, and NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST
