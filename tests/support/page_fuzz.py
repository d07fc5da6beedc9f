"""Pages as no engine would write them on purpose, made of pages that engines did write.

Every page follows from its seed alone. `Story` drives one target with them through the feed, the tracker and
the outputs, as the live loop would.
"""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Callable, Mapping
from functools import lru_cache

from collectors.answer import Answer
from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from enginetop.fleet.document import snapshot_document
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.model import Target
from enginetop.fleet.observation import FailureKind
from enginetop.fleet.prometheus_text import prometheus_text
from tests.support.engine_pages import FIXTURES
from tests.support.outputs import drawn
from tests.support.small_fleet import tracker_of
from tests.support.strict_engines import ENGINES, Engine

HOSTILE = (
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x9b2J",
    "\u202eesrever",
    "\u2066isolate\u2069",
    "zero\u200bwidth",
    "nul\x00nul",
    'line\\nline\\\\ \\" quote',
    "carriage\rreturn",
    "\U000e0041tag",
    "表情😀字",
    "e" + "\u0301" * 50,
    "long" * 1024,
    "[bold red]markup[/]",
    "{=}",
)
NUMBERS = (
    *("NaN", "nan", "-nan", "+Inf", "-Inf", "inf", "infinity", "1e308", "1e999", "-1e999", "1e-400", "-0"),
    *("0x1p3", "0x7f", "1_000", "1,5", "", "-", "١", "9" * 400, "1e", ".", "18446744073709551616", "true"),
    *("1 1700000000000", '3 # {trace="a"} 0.7 1700000000.0', "{count:3,sum:1,schema:0}"),
)
COMMENTS = (
    "# EOF",
    "# TYPE vllm:num_requests_running histogram",
    "# TYPE vllm:num_requests_running",
    "# HELP x \x1b[2J",
    "#",
    "# UNIT x seconds",
    '# {"deep": ' + "[" * 200,
    "# TYPE a_native histogram",
)
SPOILT = (b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80", b"\x00", b"\xef\xbb\xbf")

_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


@lru_cache(maxsize=1)
def pages() -> tuple[bytes, ...]:
    """Every captured page."""
    return tuple(path.read_bytes() for path in sorted(FIXTURES.rglob("*.prom")))


def fuzzed_page(rng: random.Random, whole_share: float = 0.02) -> bytes:
    """A page with a few of its lines changed, moved, repeated, cut or spoilt; mostly a part of a page."""
    lines = rng.choice(pages()).split(b"\n")
    if rng.random() >= whole_share:
        start = rng.randrange(len(lines))
        lines = lines[start : start + rng.randint(1, 60)]
        if rng.random() < 0.3:
            other = rng.choice(pages()).split(b"\n")
            at = rng.randrange(len(other))
            lines += other[at : at + rng.randint(1, 30)]
    for _ in range(rng.randint(0, 6)):
        if lines:
            rng.choice(_CHANGES)(rng, lines)
    body = rng.choice((b"\n", b"\n", b"\n", b"\r\n", b"\n\n")).join(lines)
    if rng.random() < 0.1:
        body = body[: rng.randrange(len(body) + 1)]
    if rng.random() < 0.05:
        at = rng.randrange(len(body) + 1)
        body = body[:at] + rng.choice(SPOILT) + body[at:]
    return body


def _number(rng: random.Random, lines: list[bytes]) -> None:
    at = rng.randrange(len(lines))
    head, space, _ = lines[at].rpartition(b" ")
    lines[at] = head + space + rng.choice(NUMBERS).encode()


def _numbers(rng: random.Random, lines: list[bytes]) -> None:
    for at, line in enumerate(lines):
        if rng.random() < 0.3 and not line.startswith(b"#"):
            head, space, _ = line.rpartition(b" ")
            lines[at] = head + space + rng.choice(NUMBERS).encode()


def _label(rng: random.Random, lines: list[bytes]) -> None:
    at = rng.randrange(len(lines))
    parts = lines[at].split(b'"')
    if len(parts) > 2:
        parts[rng.randrange(1, len(parts), 2)] = rng.choice(HOSTILE).encode("utf-8", "surrogatepass")
        lines[at] = b'"'.join(parts)


def _name(rng: random.Random, lines: list[bytes]) -> None:
    at = rng.randrange(len(lines))
    name, brace, rest = lines[at].partition(b"{")
    new = rng.choice((b"", name * 2, b'"' + name + b'"', name + b"_total", name + b"_created", b"{" + name))
    lines[at] = new + brace + rest


def _repeat(rng: random.Random, lines: list[bytes]) -> None:
    at = rng.randrange(len(lines))
    lines[at:at] = [lines[at]] * rng.choice((1, 2, 300))


def _shuffle(rng: random.Random, lines: list[bytes]) -> None:
    rng.shuffle(lines)


def _drop(rng: random.Random, lines: list[bytes]) -> None:
    del lines[rng.randrange(len(lines))]


def _comment(rng: random.Random, lines: list[bytes]) -> None:
    lines.insert(rng.randrange(len(lines) + 1), rng.choice(COMMENTS).encode())


def _bytes(rng: random.Random, lines: list[bytes]) -> None:
    at = rng.randrange(len(lines))
    line = bytearray(lines[at])
    for _ in range(rng.randint(1, 4)):
        if line:
            line[rng.randrange(len(line))] = rng.randrange(256)
    lines[at] = bytes(line)


def _ranks(rng: random.Random, lines: list[bytes]) -> None:
    at = rng.randrange(len(lines))
    label = rng.choice((b"engine", b"dp_rank", b"worker", b"server", b"tp_rank", b"priority", b"worker_id"))
    name, brace, rest = lines[at].partition(b"{")
    if brace:
        lines[at:at] = [b'%b{%b="%d",%b' % (name, label, n, rest) for n in range(rng.choice((2, 9, 70)))]


_CHANGES: tuple[Callable[[random.Random, list[bytes]], None], ...] = (
    _number,
    _numbers,
    _label,
    _label,
    _name,
    _repeat,
    _shuffle,
    _drop,
    _comment,
    _bytes,
    _ranks,
)


def page_of_one_number(page: bytes, number: str) -> bytes:
    """A page on which every sample, buckets apart, has the same value."""
    return b"\n".join(
        line
        if line.startswith(b"#") or b" " not in line
        else line.rpartition(b" ")[0] + b" " + number.encode()
        for line in page.split(b"\n")
        if b"_bucket" not in line
    )


def fuzzed_json(rng: random.Random, body: bytes) -> bytes:
    """A JSON page with values of other types, missing, deep, long or hostile ones; or none at all."""
    kind = rng.random()
    if kind < 0.1:
        return b"[" * rng.choice((10, 1000, 100_000))
    if kind < 0.2:
        return body[: rng.randrange(len(body) + 1)]
    try:
        document = json.loads(body)
    except ValueError:
        return body
    return json.dumps(_other(rng, document)).encode("utf-8", "surrogatepass")


def _other(rng: random.Random, value: object) -> object:
    if rng.random() < 0.08:
        odd: tuple[object, ...] = (None, True, -1, 1e308, 10**400, "", {}, [], [[]], {"": None}, *HOSTILE)
        return rng.choice(odd)
    if isinstance(value, dict):
        return {key: _other(rng, item) for key, item in value.items() if rng.random() > 0.05}
    if isinstance(value, list):
        return [_other(rng, item) for item in value] * rng.choice((1, 1, 1, 0, 3))
    return value


class Story:
    """One target that answers with fuzzed pages. `look` is one scrape; a fault raises with its seed."""

    def __init__(self, layouts: LayoutCache) -> None:
        self._layouts = layouts
        self._target = Target("http://r1:8000", "r1")
        self._at = 0.0
        self.begin()

    def begin(self) -> None:
        """A target that was never seen."""
        self._feed = TargetFeed(self._target, self._layouts)
        self.tracker: FleetTracker = tracker_of((self._target,))

    def look(self, seed: int) -> None:
        """One scrape whose pages all follow from `seed`."""
        rng = random.Random(seed)
        engine = rng.choice(ENGINES)
        self._at += rng.choice((0.5, 2.0, 2.0, 70.0))
        page = fuzzed_page(rng)
        answers: list[Answer] = []
        try:
            # Not `next_path`, which turns a fault of ours into an end of the scrape.
            while len(answers) < 32 and (request := self._feed._next_path(answers)) is not None:
                answers.append(self._answer(rng, engine, request, page))
            assert len(answers) < 32, "a scrape without end"
            observation = self._feed.take(answers, self._at, 0.01)
            failure = observation.failure
            assert failure is None or failure.kind is not FailureKind.COLLECTOR, failure
            self.tracker.observe(self._target.url, observation)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error

    def _answer(self, rng: random.Random, engine: Engine, request: str, page: bytes) -> Answer:
        path = request.partition("?")[0]
        kind = rng.choice(
            ("text/plain; version=0.0.4", "application/openmetrics-text", "application/json", "\x1b")
        )
        headers: Mapping[str, str] = {"content-type": kind, "server": rng.choice((engine.server, *HOSTILE))}
        if path.endswith("metrics"):
            return Answer(path, self._at, 0.01, 200, headers, page)
        if rng.random() < 0.05:
            return Answer(path, self._at, 0.01, rng.choice((401, 404, 500, 503)), headers, page[:300])
        sides = engine.pages or {"": b'{"data":[{"id":"m"}]}'}
        body = sides.get(path) or rng.choice(tuple(sides.values())) or b"{}"
        return Answer(path, self._at, 0.01, 200, headers, fuzzed_json(rng, body))

    def tell(self, seed: int) -> None:
        """Every output of the present picture; none may hold what a terminal obeys."""
        snapshot = self.tracker.snapshot(self._at)
        try:
            document = json.dumps(snapshot_document(snapshot), allow_nan=False, ensure_ascii=False)
            for text in (document, prometheus_text(snapshot), drawn(snapshot)):
                assert not unsafe_in(text), repr(unsafe_in(text))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error


def unsafe_in(text: str) -> set[str]:
    """Characters that a terminal would obey or that hide, line ends apart."""
    return {char for char in set(text) - {"\n"} if unicodedata.category(char) in _UNSAFE}
