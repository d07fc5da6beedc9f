"""The tables of rooms in docs/design name modules and types that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DESIGN = sorted((ROOT / "docs" / "design").glob("*.md"))
BASES = [ROOT, *(ROOT / name for name in ("enginetop", "collectors", "tuners"))]
"""Where a name of a table starts: the tree, or the part that its document is about."""
TYPES = set(
    re.findall(
        r"^(?:class )?([A-Z]\w+)\b(?=[(:]| =)",
        "\n".join(
            path.read_text()
            for room in ("enginetop", "collectors", "tuners", "tui")
            for path in (ROOT / room).rglob("*.py")
        ),
        re.M,
    )
)


def rows(document: Path) -> Iterator[list[str]]:
    """The rows of the tables whose first column is of rooms or modules."""
    of_rooms = False
    for line in document.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if not line.startswith("|"):
            of_rooms = False
        elif cells[0] in ("room", "module"):
            of_rooms = True
        elif of_rooms and not line.startswith("| --- "):
            yield cells


def modules(cell: str) -> Iterator[str]:
    """`a/b c` is a/b and a/c; braces hold several; a word in angle brackets stands for any."""
    for code in re.findall(r"`([^`]+)`", cell):
        folder = ""
        for word in code.split():
            if "/" in word:
                folder = word.rpartition("/")[0] + "/"
            path = word if "/" in word else folder + word
            choice = re.fullmatch(r"(.*)\{(.+)\}(.*)", path)
            for one in choice[2].split(",") if choice else [""]:
                name = f"{choice[1]}{one}{choice[3]}" if choice else path
                yield re.sub(r"<\w+>", "*", name)


def exists(name: str) -> bool:
    if name.endswith("/"):
        return any((base / name).is_dir() for base in BASES)
    return any([*base.glob(f"{name}.py"), *base.glob(f"{name}/")] for base in BASES)


NAMED = [
    pytest.param(name, id=f"{document.name}: {name}")
    for document in DESIGN
    for cells in rows(document)
    for name in modules(cells[0])
]


def test_there_are_tables_of_rooms() -> None:
    assert len(NAMED) > 100


@pytest.mark.parametrize("name", NAMED)
def test_a_room_that_is_named_exists(name: str) -> None:
    assert exists(name)


def test_main_types_exist() -> None:
    named = {
        word
        for document in DESIGN
        for cells in rows(document)
        for code in re.findall(r"`([^`]+)`", " ".join(cells[1:]))
        for word in code.split()
        if re.fullmatch(r"(?:[A-Z][a-z]+){2,}", word)
    }
    assert "FleetTracker" in named
    assert named <= TYPES
