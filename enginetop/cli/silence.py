"""`enginetop silence add|list|expire`: quiet for a while, for `watch`, `check` and the screen alike."""

from __future__ import annotations

import argparse
import difflib
import json
import time
from collections.abc import Iterable
from fnmatch import fnmatchcase

from enginetop.alerts.builtin import BUILTIN_NAMES
from enginetop.alerts.silence import Silence
from enginetop.cli import exit_codes
from enginetop.cli.alerting import quiet_file
from enginetop.cli.diagnostics import tell
from enginetop.cli.quiet_file import QuietFile, silence_document
from enginetop.cli.user import user_name
from enginetop.fleet.durations import countdown
from enginetop.fleet.errors import ConfigError, EnginetopError


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    file = quiet_file()
    try:
        return {"add": _add, "list": _list, "expire": _expire}[args.act](args, file)
    except ConfigError:
        raise
    except EnginetopError as error:
        tell(str(error))
        return exit_codes.REFUSED


def _add(args: argparse.Namespace, file: QuietFile) -> int:
    if args.duration is None:
        raise ConfigError("silence add: for how long? add --for 30m (or 45s, 2h, 3d)")
    if args.rule is None and args.target is None and not args.all:
        raise ConfigError(
            "silence add: which alerts? name --rule, --target or both; --all silences every one"
        )
    now = time.time()
    silence = Silence(now + args.duration, args.rule or "*", args.target or "*", args.reason, by=user_name())
    added, said = file.add(silence, now)
    if said:
        tell(said)
    _print([added], args.format, now)
    _doubt(silence.rule)
    return exit_codes.OK


def _doubt(rule: str) -> None:
    """Say when no built-in rule is meant: a slip of the pen would silence nothing. Own rules may be."""
    if not any(fnmatchcase(name, rule) for name in BUILTIN_NAMES):
        near = difflib.get_close_matches(rule, BUILTIN_NAMES, n=1, cutoff=0.6)
        tell(f"no built-in rule is called {rule}{f'; {near[0]} is' if near else ''}")


def _list(args: argparse.Namespace, file: QuietFile) -> int:
    now = time.time()
    silences = [silence for silence in file.read().silences if silence.until > now]
    _print(silences, args.format, now)
    if file.problem:
        tell(file.problem)
        return exit_codes.REFUSED
    return exit_codes.OK


def _expire(args: argparse.Namespace, file: QuietFile) -> int:
    if args.id is None:
        raise ConfigError("silence expire: which one? give an id of `enginetop silence list`")
    _print([file.expire(args.id)], args.format, time.time())
    return exit_codes.OK


def _print(silences: Iterable[Silence], form: str, now: float) -> None:
    for silence in silences:
        print(json.dumps(silence_document(silence)) if form == "json" else _line(silence, now))


def _line(silence: Silence, now: float) -> str:
    left = countdown(silence.until - now)
    why = f" ({silence.reason})" if silence.reason else ""
    line = f"{silence.id} rule {silence.rule} target {silence.target} for {left}, by {silence.by}{why}"
    return "".join(sign if sign.isprintable() else "?" for sign in line)
