"""Everything that the program says about a recording, as one text: for tests of what must never be said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collectors.answer import Answer
from collectors.engines.detect import SIDE_FIELDS
from collectors.recording_format import ScrapeRecord, answer_line, parse_record
from collectors.replay import run_replay
from enginetop.cli.main import main
from enginetop.fleet.snapshot import FleetSnapshot
from tests.support.small_fleet import new_feeds, tracker_of
from tui.view.cells import line_text
from tui.view.detail import detail_lines, detail_title
from tui.view.events import events_line
from tui.view.picture import Picture
from tui.view.title import title_line
from tui.view.totals import totals_line
from tui.view.verdict import verdict_line

WIDTH = 300


def recording_of(path: Path, scrapes: list[tuple[float, str, list[Answer]]]) -> Path:
    """A recording as anybody may write it, with whole bodies and all headers: time, target, its answers."""
    lines = [
        {
            "t": at,
            "target": url,
            "path": answer.path,
            **(
                {"error": str(answer.error), "detail": answer.detail}
                if answer.error
                else {
                    "status": answer.status,
                    "headers": dict(answer.headers),
                    "body": answer.body.decode("utf-8", "surrogateescape"),
                }
            ),
        }
        for at, url, answers in scrapes
        for answer in answers
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def printed(recording: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What the headless commands print: snapshots in every format, alerts, a verdict; on both streams."""
    said = []
    for argv in (
        ["snapshot", "--format", "json"],
        ["snapshot", "--format", "table"],
        ["snapshot", "--format", "prometheus"],
        ["watch", "--format", "ndjson"],
        ["watch", "--format", "table"],
        ["check", "--format", "json"],
        ["check"],
    ):
        main([*argv, "--replay", str(recording)])
        streams = capsys.readouterr()
        said += [streams.out, streams.err]
    return "".join(said)


def snapshot_of(recording: Path) -> FleetSnapshot:
    """The last snapshot of a recording."""
    return run_replay(recording, new_tracker=tracker_of, new_feed=new_feeds())


def drawn(snapshot: FleetSnapshot) -> str:
    """What the screen shows: headings, events, and the whole detail of every replica."""
    picture = Picture(snapshot)
    lines = [title_line(picture, WIDTH), verdict_line(picture, WIDTH), totals_line(picture, WIDTH)]
    lines.append(events_line(picture, WIDTH, 1000))
    for one in snapshot.replicas:
        lines.append(detail_title(picture, one.target.url, WIDTH))
        lines += detail_lines(picture, one.target.url, WIDTH)
    return "\n".join(line_text(line) for line in lines)


def recorded(recording: Path) -> str:
    """The lines that our own recorder writes of the same answers."""
    records = [parse_record(line) for line in recording.read_text().splitlines()]
    return "".join(
        answer_line(one.url, one.at, one.answer, SIDE_FIELDS)
        for one in records
        if isinstance(one, ScrapeRecord)
    )
