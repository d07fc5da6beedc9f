"""How fast a recording is played, and where on its clock an hour of the day is."""

from __future__ import annotations

from datetime import datetime

from tui.commands import CommandError

PACES = (1.0, 2.0, 10.0, 60.0)


def next_pace(speed: float, step: int) -> float:
    """The next higher (1) or lower (-1) of the usual paces; at the ends the last one."""
    if step > 0:
        return next((pace for pace in PACES if pace > speed), max(speed, PACES[-1]))
    return next((pace for pace in reversed(PACES) if pace < speed), PACES[0])


def parse_pace(text: str) -> float:
    """A pace such as `10` or `0.5x`. CommandError."""
    try:
        speed = float(text.rstrip("x×"))
    except ValueError:
        speed = 0.0
    if not 0.01 <= speed <= 10_000:
        raise CommandError(f"{text!r} is no pace; write 1, 2, 10, 60, pause or play")
    return speed


def local_instant(near: float, hour: int, minute: int, second: int) -> float:
    """Unix time of an hour of the local day of `near`."""
    day = datetime.fromtimestamp(near).astimezone()
    return day.replace(hour=hour, minute=minute, second=second, microsecond=0).timestamp()
