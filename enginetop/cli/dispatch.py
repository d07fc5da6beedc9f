"""Dispatch, and the last line of defence between a fault and the user."""

from __future__ import annotations

import errno
import importlib
import importlib.util
import os
import sys
import threading
from argparse import Namespace
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from enginetop.cli import exit_codes
from enginetop.cli.diagnostics import tell
from enginetop.cli.garbage import pace_garbage
from enginetop.cli.parser import UI, Command, parse
from enginetop.cli.stdout import escape_what_is_not_encoded
from enginetop.fleet.errors import ConfigError

_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_OUR_PACKAGES = ("tui", "collectors", "tuners", "themes")


def dispatch(argv: list[str] | None = None) -> int:
    """Run one command line and return its exit code. Never lets a traceback reach the terminal."""
    pace_garbage()
    escape_what_is_not_encoded()
    former, threading.excepthook = threading.excepthook, _tell_of_thread
    try:
        return _code(argv)
    finally:
        threading.excepthook = former


def _code(argv: list[str] | None) -> int:
    command = UI
    try:
        try:
            command, args = parse(sys.argv[1:] if argv is None else argv)
            return _run(command, args)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # the interpreter's own flush would fail with a traceback
    except ConfigError as error:
        tell(str(error))
        return command.unusable
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        _drop_output()  # its reader went away (`| head`), its right
        return exit_codes.OK
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _UNWRITABLE:
            _drop_output()
            tell(f"the output cannot be written: {os.strerror(error.errno).lower()}")
            return command.broken
        if os.environ.get("ENGINETOP_TRACEBACK"):
            raise
        _tell_of_fault(error)
        return command.broken


def _tell_of_fault(error: BaseException, where: str = "") -> None:
    what = " ".join(f"{type(error).__name__}: {error}".split())
    tell(f"a fault of enginetop itself{where}: {what} (ENGINETOP_TRACEBACK=1 shows where)")


def _tell_of_thread(died: threading.ExceptHookArgs) -> None:
    """A thread that dies says so in one line too; what it did for the others ends with it."""
    if os.environ.get("ENGINETOP_TRACEBACK"):
        threading.__excepthook__(died)
    elif died.exc_value is not None:
        _tell_of_fault(died.exc_value, f" in the thread {died.thread.name if died.thread else '?'}")


def _drop_output() -> None:
    """Send what is still to be printed nowhere, so that the interpreter's own flush stays quiet."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(command: Command, args: Namespace) -> int:
    _explain_clash()
    module = importlib.import_module(f"enginetop.cli.{command.module}")
    with _past(args):
        code: int = module.run(args)
    return code


def _past(args: Namespace) -> AbstractContextManager[None]:
    """The past that a command asks for, as the recording that it replays; nothing for the others."""
    if all(getattr(args, f"{name}_time", None) is None for name in ("at", "from", "to")):
        return nullcontext()
    from enginetop.cli.past import past_range
    from enginetop.cli.resolve import resolve

    return past_range(args, lambda: resolve(args, lambda _: None))


def _explain_clash() -> None:
    """Our other packages have plain names; another distribution may have taken one of them."""
    home = Path(__file__).resolve().parents[2]
    for name in _OUR_PACKAGES:
        spec = importlib.util.find_spec(name)
        origin = Path(spec.origin).resolve() if spec and spec.origin else None
        if origin is None or origin.parents[1] != home:
            found = f"is taken by {origin}" if origin else "is missing"
            raise ConfigError(
                f"the package {name!r} {found}; give enginetop an environment of its own (pipx, uv tool)"
            )
