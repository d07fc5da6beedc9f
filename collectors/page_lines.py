"""Parsing a page from nothing: every line by itself, within limits."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, count, repeat
from operator import gt, not_
from types import MappingProxyType
from typing import Final, cast

from collectors.blocks import NO_SAMPLE
from collectors.layout import READ_ALL, SCRATCH, Template, Unread, put, template_of
from collectors.page import Layout
from collectors.plain_lines import PlainLines, Samples
from collectors.sample_line import OverLimitError, Sample, family_types, full_sample
from collectors.secrets import may_hold_secret, without_secrets
from enginetop.fleet.frozen import frozen

_CHUNK_LINES: Final = 4096
_TYPE_WITHIN: Final = 16
_BEHIND_COMMENTS: Final = b"$"  # names sort behind it; comments, empty and indented lines before it


@frozen
class ParseLimits:
    """Bounds of one page; what lies beyond is dropped and named in `Page.problem`.

    A body that is too long is cut at its last whole line. Lines, samples, bad lines: the rest is not read
    (bad lines are counted every few thousand lines). A line, a name or a label that is too long, or a sample
    with too many labels: that line is skipped and counted as bad. The defaults fit a router's page over a
    hundred engines.
    """

    body_bytes: int = 16 * 1024 * 1024
    lines: int = 400_000
    samples: int = 100_000
    bad_lines: int = 10_000
    line_bytes: int = 64 * 1024
    labels: int = 64
    label_characters: int = 4096


def parse_lines(lines: Sequence[bytes], limits: ParseLimits, unread: Unread = READ_ALL) -> Template:
    """The page whose lines these are, without their ends; `unread` as in `template_of`."""
    return _LineParser(lines, limits).template(unread)


class _LineParser:
    """Collects the samples of a page as columns, one row a sample line."""

    def __init__(self, lines: Sequence[bytes], limits: ParseLimits) -> None:
        self._lines = lines
        self._limits = limits
        self._plain = PlainLines(limits.labels, limits.label_characters)
        self._bad_lines = 0
        self._problem = ""
        self._whole = True
        self._all_plain = True
        self._type_lines: list[bytes] = []
        self._places: list[int] = []
        self._names: list[str] = []
        self._labels: list[Mapping[str, str]] = []
        self._keys: list[str] = []
        self._values = array("d")
        self._prefixes: list[bytes] = []

    def template(self, unread: Unread) -> Template:
        """Parse all lines."""
        places = self._sample_places()
        for start in range(0, len(places), _CHUNK_LINES):
            self._read(places[start : start + _CHUNK_LINES])
            if len(self._keys) > self._limits.samples:
                self._cut_short(f"more than {self._limits.samples} samples")
                self._cut(self._limits.samples)
                break
            if self._bad_lines > self._limits.bad_lines:
                self._cut_short(f"more than {self._limits.bad_lines} bad lines")
                break
        slots = self._merge_repeated()
        line_prefixes = [NO_SAMPLE] * len(self._lines)
        line_slots = [SCRATCH] * len(self._lines)
        put(line_prefixes, self._places, self._prefixes)
        put(line_slots, self._places, slots)
        return template_of(
            self._lines,
            line_prefixes,
            line_slots,
            Layout(tuple(self._names), self._public_labels(), tuple(self._keys), self._types()),
            self._values,
            bad_lines=self._bad_lines,
            problem=self._problem,
            whole=self._whole,
            unread=unread,
        )

    def _sample_places(self) -> list[int]:
        """Where lines stand that are neither empty nor comments; notes the TYPE lines on the way."""
        behind_comments = list(map(gt, self._lines, repeat(_BEHIND_COMMENTS)))
        places = list(compress(count(), behind_comments))
        indented = []
        for place in compress(count(), map(not_, behind_comments)):
            raw = self._lines[place]
            if raw[:1] != b"#":
                if raw:
                    indented.append(place)
            elif b"TYPE" in raw[:_TYPE_WITHIN]:
                self._type_lines.append(raw)
        if indented:
            places = sorted(places + indented)
        limit = self._limits.line_bytes
        if max(map(len, self._lines)) <= limit:
            return places
        fitting = [place for place in places if len(self._lines[place]) <= limit]
        if len(fitting) < len(places):
            self._note(f"a line is longer than {limit} bytes")
            self._bad_lines += len(places) - len(fitting)
        return fitting

    def _read(self, places: list[int]) -> None:
        joined = b"\n".join([self._lines[place] for place in places])
        texts = joined.decode("utf-8", "surrogateescape").split("\n")
        plain = self._plain.samples(texts)
        if not plain.complete:
            self._read_each(places, texts, plain)
            return
        self._places += places
        self._names += cast("list[str]", plain.names)
        self._labels += cast("list[Mapping[str, str]]", plain.labels)
        self._keys += plain.keys
        self._values.extend(cast("list[float]", plain.values))
        self._prefixes += plain.prefixes

    def _read_each(self, places: Sequence[int], texts: Sequence[str], plain: Samples) -> None:
        self._all_plain = False
        for row, (place, text) in enumerate(zip(places, texts, strict=True)):
            sample = plain.row(row) or self._read_fully(text)
            if sample is None:
                continue
            self._places.append(place)
            self._names.append(sample.name)
            self._labels.append(sample.labels)
            self._keys.append(sample.key)
            self._values.append(sample.value)
            self._prefixes.append(sample.prefix)

    def _read_fully(self, text: str) -> Sample | None:
        begin = text.lstrip(" \t\r")[:1]
        if not begin or begin == "#":
            return None
        try:
            sample = full_sample(text, self._limits.labels, self._limits.label_characters)
        except OverLimitError as error:
            self._note(str(error))
            sample = None
        self._bad_lines += sample is None
        return sample

    def _merge_repeated(self) -> Sequence[int]:
        """The slot of each row's value; of repeated samples the last wins, in the place of the first."""
        if len(set(self._keys)) == len(self._keys):
            return range(len(self._keys))
        row_of_key = dict(zip(self._keys, count()))
        self._bad_lines += len(self._keys) - len(row_of_key)
        slot_of_key = {key: slot for slot, key in enumerate(row_of_key)}
        slots = [
            slot_of_key[key] if row_of_key[key] == row else SCRATCH for row, key in enumerate(self._keys)
        ]
        last_rows = list(row_of_key.values())
        self._names = [self._names[row] for row in last_rows]
        self._labels = [self._labels[row] for row in last_rows]
        self._values = array("d", [self._values[row] for row in last_rows])
        self._keys = list(row_of_key)
        return slots

    def _types(self) -> Mapping[str, str]:
        comments = b"\n".join(self._type_lines).decode("utf-8", "surrogateescape")
        return MappingProxyType(family_types(comments))

    def _public_labels(self) -> tuple[Mapping[str, str], ...]:
        """The labels without what looks like a key: some exporters put a command line into one."""
        if self._all_plain and not _may_hold_secret(self._plain.label_texts):
            return tuple(self._labels)
        label_sets = {id(labels): labels for labels in self._labels}  # lines share them
        pairs = {pair for labels in label_sets.values() for pair in labels.items()}
        public = {pair: shown for pair in pairs if (shown := _public_value(*pair)) != pair[1]}
        cleaned = {
            key: {name: public.get((name, value), value) for name, value in labels.items()}
            for key, labels in label_sets.items()
        }
        return tuple(cleaned[id(labels)] for labels in self._labels)

    def _cut(self, rows: int) -> None:
        columns = self._places, self._names, self._labels, self._keys, self._values, self._prefixes
        for column in columns:
            del column[rows:]

    def _cut_short(self, limit: str) -> None:
        self._note(f"{limit}: the rest was not read")
        self._whole = False

    def _note(self, problem: str) -> None:
        """The first limit that is broken is the one that is told."""
        self._problem = self._problem or problem


def _may_hold_secret(texts: Iterable[str]) -> bool:
    """Whether it is worth looking for a key; always where blanks and letters may be other than ASCII's."""
    joined = "\n".join(texts)
    return not joined.isascii() or may_hold_secret(joined.encode("ascii"))


def _public_value(label: str, value: str) -> str:
    """A value as it may be shown; the label's name can announce a key."""
    shown = without_secrets(f'{label}="{value}"')
    return shown[len(label) + 2 : -1] if shown.startswith(f'{label}="') else without_secrets(value)
