"""docs/records.md names what the tables of the parsers name: no path more, none less."""

from __future__ import annotations

from pathlib import Path

from collectors.probe.client import MOST_AT_ONCE, MOST_REQUESTS, MOST_TOKENS
from collectors.records.formats import AUTO, FORMATS, NUMBERS, WORDS, RecordFormat
from collectors.records.open_file import MAX_BACKLOG_BYTES, MAX_LINE_BYTES
from collectors.records.source import MOST_AHEAD_SECONDS

PAGE = (Path(__file__).parents[2] / "docs" / "records.md").read_text(encoding="utf-8")


def cell(form: RecordFormat, figure: str) -> str:
    paths = {**form.numbers, **form.words}.get(figure, ())
    lengths = form.lengths.get(figure, ())
    return ", ".join([*(f"`{path}`" for path in paths), *(f"*`{path}`*" for path in lengths)])


def rows() -> list[str]:
    """The table as the code has it."""
    units = {name: f" ({unit})" for name, unit in NUMBERS.items()}
    return [
        f"| `{name}`{units.get(name, '')} | " + " | ".join(cell(form, name) for form in FORMATS) + " |"
        for name in (*NUMBERS, *WORDS)
    ]


def test_every_path_that_is_read_is_in_the_table() -> None:
    table = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert [" ".join(line.split()) for line in table] == [" ".join(line.split()) for line in rows()]


def test_every_format_is_described() -> None:
    for form in FORMATS:
        assert f"- `{form.name}`: {form.title}" in PAGE
    assert f"# {AUTO} {' '.join(form.name for form in FORMATS)};" in PAGE


def test_limits_are_those_of_the_code() -> None:
    assert f"last\n  {MAX_BACKLOG_BYTES >> 20} MiB" in PAGE
    assert f"lines above {MAX_LINE_BYTES >> 20} MiB" in PAGE
    assert f"more than {MOST_AHEAD_SECONDS:.0f} s ahead" in PAGE
    assert f"at most {MOST_REQUESTS} of {MOST_TOKENS}, {MOST_AT_ONCE} at a time" in PAGE
