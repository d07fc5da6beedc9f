"""One line of a request log: told from others, read by its format's table, numbers only.

A figure that is no number of at least zero within its bounds is not known; what words there are stay in here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from collectors.fetch import one_line
from collectors.json_fields import number
from collectors.records.formats import (
    AUTO,
    BY_NAME,
    ENGINETOP,
    FORMATS,
    NUMBERS,
    Paths,
    RecordFormat,
)
from enginetop.fleet.frozen import frozen
from enginetop.fleet.request_records import RequestFigures

LARGEST: Mapping[str, float] = MappingProxyType(
    {"Unix seconds": 1e10, "tokens": 1e9, "characters": 1e10, "seconds": 1e7, "tokens per second": 1e7}
)
"""By unit: anything above is a mistake (milliseconds for seconds, say), not a figure."""

_LONGEST_FINISH = 32
_LONGEST_WORD = 2048
_MOST_ITEMS = 1000
"""Items of one list that are looked at."""
_TELLING = ("output_tokens", "reasoning_tokens", "ttft_seconds", "tpot_seconds", "e2e_seconds")
"""A line without any of these says nothing of a request."""


class RecordLineError(ValueError):
    """A line that is no request record; the text says why, without anything of the line in it."""


@frozen
class RequestLine:
    """What a line says of one request. None or empty: not told. `ended_at` is its own, Unix seconds."""

    ended_at: float | None = None
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    reasoning_tokens: float | None = None
    reasoning_chars: float | None = None
    answer_chars: float | None = None
    thinking_token_budget: float | None = None
    ttft_seconds: float | None = None
    tpot_seconds: float | None = None
    e2e_seconds: float | None = None
    finish: str = ""
    target: str = ""
    model: str = ""
    api_base: str = ""

    def figures(self, at: float, source: str = "", budget: float | None = None) -> RequestFigures:
        """The figures as of `at`, from `source`; `budget` counts where the line names none of its own."""
        own = self.thinking_token_budget
        return RequestFigures(
            at=at,
            output_tokens=self.output_tokens,
            reasoning_tokens=self.reasoning_tokens,
            reasoning_chars=self.reasoning_chars,
            ttft_seconds=self.ttft_seconds,
            tpot_seconds=self.tpot_seconds,
            finish=self.finish,
            thinking_token_budget=budget if own is None else own,
            source=source,
        )


def parse_line(text: str, form: str = AUTO) -> RequestLine | None:
    """The request of one line; None for a blank line and for other kinds of a recording's lines.

    `form`: the name of a format, or `auto`. Raises RecordLineError.
    """
    text = text.strip("\x00 \t\r\n\ufeff")  # NULs: a writer that goes on at its old place in a truncated file
    if not text:
        return None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise RecordLineError("not JSON") from None
    if not isinstance(document, dict):
        raise RecordLineError("not a JSON object")
    if _is_other_recording_line(document):
        return None
    for known in FORMATS if form == AUTO else (BY_NAME[form],):
        for candidate in _unwrapped(document, known):
            if all(_any_value(candidate, paths) for paths in known.marks):
                return _told(read(candidate, known), known)
    if form == AUTO:
        raise RecordLineError(f"no request record of a known format ({', '.join(BY_NAME)})")
    raise RecordLineError(f"no request record of the format {form}")


def read(document: Mapping[str, Any], form: RecordFormat) -> RequestLine:
    """What an object of this format says."""
    told: dict[str, Any] = {name: _figure(document, name, paths) for name, paths in form.numbers.items()}
    told |= {name: _length(document, paths) for name, paths in form.lengths.items()}
    told |= {name: _word(document, paths) for name, paths in form.words.items()}
    began, first, ended = (told.pop(name, None) for name in ("began_at", "first_token_at", "ended_at"))
    speed = told.pop("decode_tokens_per_second", None)
    line = RequestLine(ended, **told)
    e2e = line.e2e_seconds if line.e2e_seconds is not None else _between(began, ended)
    if ended is None and began is not None and e2e is not None:
        ended = began + e2e
    ttft = line.ttft_seconds
    if ttft is None and first is not None and (ended is None or first < ended):
        ttft = _between(began, first)  # a first token at the end is what an answer in one piece is given
    tpot = line.tpot_seconds
    if tpot is None:
        tpot = 1 / speed if speed else _tpot(e2e, ttft, line.output_tokens)
    return replace(
        line,
        ended_at=ended,
        ttft_seconds=ttft,
        tpot_seconds=tpot,
        e2e_seconds=e2e,
        finish=line.finish[:_LONGEST_FINISH],
    )


def _told(line: RequestLine, form: RecordFormat) -> RequestLine:
    if form is ENGINETOP and line.ended_at is None:
        raise RecordLineError("no time `t`")
    if all(getattr(line, name) is None for name in _TELLING):
        raise RecordLineError("no figure of a request in it")
    return line


def _is_other_recording_line(document: Mapping[str, Any]) -> bool:
    """Whether it is a recording's header, or its line of a page or of GPUs."""
    if "enginetop_recording" in document:
        return True
    return "t" in document and "target" in document and document.get("kind") != "request"


def _unwrapped(document: Mapping[str, Any], form: RecordFormat) -> Iterator[Mapping[str, Any]]:
    yield document
    for path in form.wrappers:
        yield from (value for value in _values(document, path) if isinstance(value, dict))


def _values(value: Mapping[str, Any], path: str) -> Sequence[Any]:
    """What lies at a path; nothing where it ends early. Of a list only the first items are looked at."""
    found: list[Any] = [value]
    for key, kind in _steps(path):
        found = [one[key] for one in found if isinstance(one, dict) and key in one]
        if kind is not None:
            found = [item for one in found if isinstance(one, list) for item in one[:_MOST_ITEMS]]
        if kind:
            found = [one for one in found if isinstance(one, dict) and one.get("type") == kind]
        if not found:
            return ()
    return [one for one in found if one is not None]


@lru_cache(maxsize=256)
def _steps(path: str) -> tuple[tuple[str, str | None], ...]:
    """The keys of a path, each with the type of the items of a list under it; empty: any, None: no list."""
    parted = (step.removesuffix("]").partition("[") for step in path.split("."))
    return tuple((key, kind if bracket else None) for key, bracket, kind in parted)


def _any_value(document: Mapping[str, Any], paths: Paths) -> bool:
    return any(_values(document, path) for path in paths)


def _figure(document: Mapping[str, Any], name: str, paths: Paths) -> float | None:
    largest = LARGEST[NUMBERS[name]]
    for path in paths:
        for value in _values(document, path):
            found = number(value)
            if found is not None and 0 <= found <= largest:
                return found
    return None


def _length(document: Mapping[str, Any], paths: Paths) -> float | None:
    """Characters of the texts at the first path that holds any."""
    for path in paths:
        texts = [value for value in _values(document, path) if isinstance(value, str)]
        if texts:
            return float(sum(map(len, texts)))
    return None


def _word(document: Mapping[str, Any], paths: Paths) -> str:
    for path in paths:
        for value in _values(document, path):
            if isinstance(value, str) and value:
                return one_line(value[:_LONGEST_WORD])
    return ""


def _between(earlier: float | None, later: float | None) -> float | None:
    if earlier is None or later is None or later < earlier:
        return None
    return later - earlier


def _tpot(e2e: float | None, ttft: float | None, output: float | None) -> float | None:
    """Decode time of each token after the first; not known of a single token."""
    decode = _between(ttft, e2e)
    return decode / (output - 1) if decode is not None and output is not None and output > 1 else None
