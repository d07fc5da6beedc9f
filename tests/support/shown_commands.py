"""The command lines that the documents show, as a reader would copy them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = (
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "companions").rglob("*.md")),
    *sorted((ROOT / "requirements").glob("*.md")),
)
"""Every document of the project."""


def blocks(document: Path) -> Iterator[str]:
    """The indented blocks of a document, without the indent."""
    for found in re.finditer(r"(?:^ {4}.*\n|^\n(?= {4}))+", document.read_text(encoding="utf-8"), re.M):
        yield re.sub(r"^ {4}", "", found[0], flags=re.M)


def shown(document: Path) -> Iterator[str]:
    """Command lines of enginetop in the blocks of a document: no comments, redirections and times of cron."""
    for block in blocks(document):
        for line in block.splitlines():
            bare = re.sub(r"(^|\s{2,})#.*|^(?:[\d*/,-]+ ){5}", "", line)
            for command in re.split(r"\s+(?:;|&&|\|\|?)\s+", bare):
                if re.match(r"enginetop(\s|$)", command):
                    yield re.sub(r"\s+[<>].*", "", command).strip()


def named(document: Path) -> Iterator[str]:
    """Commands named in running text: parts of a command line, or its usage."""
    return (code for code in re.findall(r"`(enginetop [^`]+)`", document.read_text(encoding="utf-8")))


def arguments(command: str) -> list[str]:
    """What the shell would hand over, without `...`."""
    return [word for word in shlex.split(command)[1:] if word != "..."]
