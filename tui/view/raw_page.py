"""The last page of a replica as it was served, with the lines that a search finds."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import chop_cells

from enginetop.fleet.ports import RawScrape
from tui.view import numbers
from tui.view.cells import Line, Span, clip, merge, plain, printable
from tui.view.picture import Picture
from tui.view.title import screen_title


def raw_title(picture: Picture, url: str, scrape: RawScrape | None, width: int) -> Line:
    """Whose page, and how old it is."""
    age = ""
    if scrape is not None and picture.snapshot is not None:
        age = f" · {numbers.seconds_text(picture.snapshot.at - scrape.at)} ago"
    return screen_title(picture, f"raw page · {picture.name_of(url)}", age, width)


def raw_lines(scrape: RawScrape | None, words: str, width: int) -> list[Line]:
    """The pages, long lines folded; with `words` only the lines that hold all of them, in any case."""
    if scrape is None:
        return [clip(plain(" waiting for the next page of this replica", "dim"), width)]
    wanted = words.casefold().split()
    lines: list[Line] = []
    for page in scrape.pages:
        found = [line for line in page.lines if _holds(line, wanted)] if wanted else page.lines
        count = f" · {len(found)} of {len(page.lines)} lines" if wanted else ""
        lines.append(clip((Span(f" GET {page.path}", "group"), Span(f"  {page.said}{count}", "dim")), width))
        for line in found:
            lines += _folded(line, wanted, width)
    return lines


def found_text(scrape: RawScrape | None, words: str) -> str:
    """How many lines a search finds."""
    lines = [line for page in scrape.pages for line in page.lines] if scrape is not None else []
    wanted = words.casefold().split()
    return f"{sum(_holds(line, wanted) for line in lines)} of {len(lines)} lines"


def _holds(line: str, wanted: list[str]) -> bool:
    folded = line.casefold()
    return all(word in folded for word in wanted)


def _folded(line: str, wanted: list[str], width: int) -> Iterator[Line]:
    text = printable(line)
    room = max(width - 3, 1)
    pieces = (
        [text[at : at + room] for at in range(0, len(text), room)]
        if text.isascii()
        else chop_cells(text, room)
    )
    for number, piece in enumerate(pieces or [""]):
        lead = Span("   " if number else " ")
        comment = line.startswith("#")
        yield clip(merge((lead, *_marked(piece, wanted, comment=comment))), width)


def _marked(piece: str, wanted: list[str], *, comment: bool) -> Iterator[Span]:
    """What was looked for stands out; a comment stands back."""
    folded, at = piece.casefold(), 0
    if len(folded) != len(piece):  # folding changed its length: places do not match
        yield Span(piece)
        return
    while wanted:
        places = [(folded.find(word, at), word) for word in wanted if folded.find(word, at) >= 0]
        if not places:
            break
        start, word = min(places)
        yield Span(piece[at:start], "dim" if comment else "text")
        yield Span(piece[start : start + len(word)], "info")
        at = start + len(word)
    yield Span(piece[at:], "dim" if comment else "text")
