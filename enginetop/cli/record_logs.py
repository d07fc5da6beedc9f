"""Logs of single requests: from the command line and the config file to sources that read them."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from collectors.home import at_home
from collectors.records.formats import AUTO
from collectors.records.reader import RecordReader
from collectors.records.source import STANDARD_INPUT, RecordLog, RecordSource
from collectors.secrets import without_secrets
from enginetop.cli.targets import parse_target
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import Target

if TYPE_CHECKING:
    from enginetop.fleet.config import RecordsTable


@frozen
class LogSetting:
    """One log as it was asked for. `origin` is how a message names the place where it was.

    `target`: URL or name, None: as each record says. `from_start` None: as the command has it.
    """

    origin: str
    path: str
    form: str = AUTO
    target: str | None = None
    from_start: bool | None = None
    thinking_token_budget: float | None = None


def flag_setting(text: str, thinking_token_budget: int | None = None) -> LogSetting:
    """What one `--records FILE[=TARGET]` asks for; a file whose own name has a `=` in it is found too.

    ConfigError: it names no file.
    """
    path, equals, target = text.rpartition("=")
    if not equals or os.access(text, os.F_OK):
        path, target = text, ""
    if not path:
        raise ConfigError(f"--records {text!r}: no file named; write FILE or FILE=TARGET")
    return LogSetting("--records", path, target=target or None, thinking_token_budget=thinking_token_budget)


def table_settings(
    tables: Sequence[RecordsTable], origin: str, configured: Sequence[Target], targets: Sequence[Target]
) -> tuple[LogSetting, ...]:
    """What the `[[records]]` entries of the config file `origin` ask for.

    An entry may name any target of the file; those of targets that this run leaves out are left out too.
    ConfigError when one names no target that there is.
    """
    found = []
    for number, table in enumerate(tables):
        setting = LogSetting(
            f"{origin}: records.{number}",
            str(at_home(table.path)) if table.path != STANDARD_INPUT else table.path,
            table.format,
            table.target,
            None if table.begin is None else table.begin == "start",
            table.thinking_token_budget,
        )
        if targets and table.target is not None:
            setting = replace(setting, target=_url_of(setting, (*configured, *targets)))
            if all(target.url != setting.target for target in targets):
                continue
        found.append(setting)
    return tuple(found)


def record_logs(
    settings: Sequence[LogSetting], targets: Sequence[Target], *, from_start: bool = False
) -> tuple[RecordLog, ...]:
    """The logs to be read. `from_start` counts where a setting says nothing.

    ConfigError when one names no target that there is, or when standard input is a keyboard or named twice.
    """
    paths = [setting.path for setting in settings]
    if STANDARD_INPUT in paths:
        if paths.count(STANDARD_INPUT) > 1:
            raise ConfigError("records: standard input can be read once only; name files for the others")
        if sys.stdin is None or sys.stdin.isatty():
            raise ConfigError("records: - is standard input, and that is a keyboard; pipe the records in")
    return tuple(
        RecordLog(
            setting.path,
            setting.form,
            _url_of(setting, targets),
            from_start if setting.from_start is None else setting.from_start,
            setting.thinking_token_budget,
        )
        for setting in settings
    )


def record_reader(
    settings: Sequence[LogSetting], targets: Sequence[Target], *, from_start: bool
) -> RecordReader | None:
    """A reader of all the logs; None when there are none. ConfigError as `record_logs`."""
    logs = record_logs(settings, targets, from_start=from_start)
    return RecordReader([RecordSource(log) for log in logs]) if logs else None


def _url_of(setting: LogSetting, targets: Sequence[Target]) -> str | None:
    wanted = setting.target
    if wanted is None:
        return None
    for target in targets:
        if wanted in (target.name, target.url):
            return target.url
    try:
        url = parse_target(wanted).url
    except ConfigError:
        url = ""  # a name, then
    if any(target.url == url for target in targets):
        return url
    known = [name for target in targets for name in (target.name, target.url)]
    near = difflib.get_close_matches(wanted, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else "name a target by its URL or name"
    # an address with a key in its query was cut there
    plain = without_secrets(f"{setting.path}={wanted}") == f"{setting.path}={wanted}"
    shown = repr(wanted) if plain else "what stands after the last = sign"
    raise ConfigError(f"{setting.origin}: {shown} is no target; {hint}")
