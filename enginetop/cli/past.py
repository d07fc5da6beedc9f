"""`--at` and `--from`: the past of a fleet, from a Prometheus.

What it keeps is written as a recording, so that whatever plays recordings plays it.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from enginetop.cli.diagnostics import tell
from enginetop.cli.prometheus import client_of
from enginetop.cli.settings import Settings
from enginetop.cli.until_stopped import passing_folder
from enginetop.fleet.durations import duration_seconds
from enginetop.fleet.errors import ConfigError

_LONGEST_SECONDS = 7 * 86400.0
_TOLD_SECONDS = 5.0
"""How often it is said how far a long stretch is read."""
_TIMES = (
    "write a time (2026-11-30T08:15, with Z or an offset where it is not this machine's) or how long ago: 15m"
)


def time_of(text: str, now: float) -> float:
    """The Unix time that a flag names. ConfigError when it names none."""
    ago = duration_seconds(text)
    if ago is not None:
        return now - ago
    try:
        at = _unix_seconds(text)
    except (ValueError, OverflowError, OSError):
        at = math.nan
    if not math.isfinite(at):
        raise ConfigError(f"{text!r} is no time; {_TIMES}")
    return at


def _unix_seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return datetime.fromisoformat(text).astimezone().timestamp()


@contextmanager
def past_range(args: argparse.Namespace, settle: Callable[[], Settings]) -> Iterator[None]:
    """While a command runs: the past that its flags ask for, as the recording that it replays.

    ConfigError: flags that do not go together, or no Prometheus that has a past.
    """
    at, begin, end = (getattr(args, name, None) for name in ("at_time", "from_time", "to_time"))
    if (at is None) == (begin is None) or (end is not None and begin is None):
        raise ConfigError("write either --at TIME, or --from TIME and, if it ended, --to TIME")
    settings = settle()
    if settings.prometheus is None:
        raise ConfigError("--at and --from read the past from a Prometheus; name it with --prometheus URL")
    with passing_folder("enginetop-past-") as folder:
        path = folder / "past.jsonl"
        args.past = write_past(settings, path, at, begin, end)
        args.replay, args.prometheus = str(path), None
        yield


def write_past(settings: Settings, path: Path, at: str | None, begin: str | None, end: str | None) -> str:
    """Write what the server has of a stretch of time as a recording; what it is, in words.

    `at`: of the window that ends then. ConfigError when there is nothing.
    """
    from collectors.prometheus.client import PrometheusError
    from collectors.prometheus.past import record_past

    if settings.prometheus is None:
        raise ConfigError("the past is read from a Prometheus; name it with --prometheus URL")
    client = client_of(settings.prometheus)
    try:
        now = client.now()
        ends = end if at is None else at
        last = now if ends is None else time_of(ends, now)
        first = last - 2 * settings.window_seconds if begin is None else time_of(begin, now)
        last = min(last, now)
        if wrong := _wrong_range(first, last, now):
            raise ConfigError(f"{stretch_text(first, last)}: {wrong}")
        told = began = time.monotonic()

        def on_part(until: float) -> None:
            nonlocal told
            if until < last and time.monotonic() - told > _TOLD_SECONDS:
                told = time.monotonic()
                share = (until - first) / (last - first)
                tell(f"{share:.0%} of {stretch_text(first, last)} read; ctrl+c ends it")

        scrapes = record_past(client, path, first, last, settings.interval_seconds, on_part)
    except PrometheusError as error:
        raise ConfigError(str(error)) from None
    finally:
        client.close()
    url, stretch = settings.prometheus.url, stretch_text(first, last)
    if not scrapes:
        raise ConfigError(
            f"{url}: no engine was scraped in {stretch}; does it keep so much, or in another job?"
        )
    tell(f"{scrapes} scrapes of {stretch} read from {url} in {time.monotonic() - began:.1f} s")
    return f"{url}, {stretch}"


def _wrong_range(first: float, last: float, now: float) -> str:
    """Why a stretch of time cannot be read; empty when it can."""
    if first >= now:
        return "the server's clock is not there yet; a review needs a past"
    if first >= last:
        return "it ends before it begins; --from comes first, --to after it"
    if last - first > _LONGEST_SECONDS:
        return "a stretch of the past lasts up to 7 days"
    return ""


def stretch_text(first: float, last: float) -> str:
    """A stretch of time as people of this time zone write it: `2026-11-30 08:40:15 to 08:41:18`; in Unix
    seconds where no calendar has it.
    """
    try:
        begin, end = (datetime.fromtimestamp(at).astimezone() for at in (first, last))
    except (ValueError, OverflowError, OSError):
        return f"{first:g} to {last:g}"
    same = begin.date() == end.date()
    return f"{begin:%Y-%m-%d %H:%M:%S} to {end:{'%H:%M:%S' if same else '%Y-%m-%d %H:%M:%S'}}"
