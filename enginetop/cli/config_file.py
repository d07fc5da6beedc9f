"""`enginetop config init|validate|print`: a file to start from, what is wrong with one, what it comes to."""

from __future__ import annotations

import argparse
import errno
import os
import secrets
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from collectors.sanitise import clean_text
from collectors.secrets import without_secrets
from enginetop.cli import exit_codes
from enginetop.cli.config_check import Checked, checked
from enginetop.cli.config_starter import STARTER
from enginetop.cli.config_text import effective, toml_text
from enginetop.cli.diagnostics import tell
from enginetop.cli.settings import NO_HOME, config_path
from enginetop.cli.stdout import open_stdout, print_document, takes_unicode
from enginetop.doctor.machine import file_words
from enginetop.fleet.errors import ConfigError

_STANDARD_OUTPUT = "-"
_LONGEST_LINE, _LONGEST_PATH = 600, 4096
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})
"""A file system without hard links."""
_PRIVATE_FILE, _PRIVATE_FOLDER = 0o600, 0o700


def run(args: argparse.Namespace) -> int:
    """Run the command; exit 2: it is there already, cannot be written, or something is wrong with it."""
    if args.force and args.act != "init":
        raise ConfigError(f"config {args.act}: --force goes with init")
    if args.format and args.act != "print":
        raise ConfigError(f"config {args.act}: --format goes with print")
    acts = {"init": _init, "validate": _validate, "print": _print}
    return acts[args.act](args)


def _init(args: argparse.Namespace) -> int:
    if args.config == _STANDARD_OUTPUT:
        print(STARTER, end="")
        return exit_codes.OK
    path = Path(args.config) if args.config else config_path()
    if not args.config and NO_HOME in path.parents:
        raise ConfigError("no home folder is known; name a file with --config, or set XDG_CONFIG_HOME")
    try:
        _write(path, force=args.force)
    except FileExistsError:
        raise ConfigError(f"{path}: it is there already; --force overwrites it") from None
    except OSError as error:
        reason = (error.strerror or "cannot be written").lower()
        raise ConfigError(f"{path}: {reason}; name another file with --config") from None
    print(_shown(str(path), _LONGEST_PATH))
    return exit_codes.OK


def _write(path: Path, *, force: bool) -> None:
    """Put the file there at once or not at all. FileExistsError: something is there, also a broken link.

    `force`: where a link leads to a file, that file is overwritten.
    """
    if force:
        path = Path(os.path.realpath(path))
    elif os.path.lexists(path):  # told before a folder that could not be written
        raise FileExistsError
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=_PRIVATE_FOLDER)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, f"{path.parent} is no folder") from None
    beside = path.with_name(f".{secrets.token_hex(8)}.new")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_FILE)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(STARTER)
            file.flush()
            os.fsync(file.fileno())
        if force:
            beside.replace(path)
        else:
            _link(path, beside)
    finally:
        with suppress(OSError):
            beside.unlink()


def _link(path: Path, beside: Path) -> None:
    """Unlike a rename, a link never overwrites what came in between."""
    try:
        path.hardlink_to(beside)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(path):
            raise FileExistsError from None
        beside.replace(path)


def _validate(args: argparse.Namespace) -> int:
    found = checked(args)
    code = _tell(found)
    if found.settings is None:
        return code
    origin = found.settings.origin
    if found.tables is None:
        raise ConfigError(f"{origin}: no such file; enginetop config init writes one")
    words = file_words(len(found.settings.targets), writes=found.settings.control is not None)
    print(_shown(f"{origin}: ok, {words}"))
    return code


def _print(args: argparse.Namespace) -> int:
    found = checked(args)
    code = _tell(found)
    if found.settings is None:
        return code
    document = effective(found.tables or {}, found.settings)
    if args.format == "json":
        print_document(document, "the settings", default=datetime.isoformat)
        return code
    path = _shown(found.settings.origin)
    ascii_only = not takes_unicode(open_stdout("the settings"))
    print(f"# {path}, with defaults" if found.tables is not None else f"# no file at {path}: defaults")
    print(toml_text(document, ascii_only=ascii_only), end="")
    return code


def _tell(found: Checked) -> int:
    for problem in found.problems:
        tell(_shown(problem))
    for doubt in found.doubts:
        tell(f"warning: {_shown(doubt)}")
    return exit_codes.USAGE if found.problems else exit_codes.OK


def _shown(text: str, limit: int = _LONGEST_LINE) -> str:
    """The text without anything that a terminal could obey or that looks like a key, whoever wrote it."""
    return clean_text(without_secrets(text), limit)
