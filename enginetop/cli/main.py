"""Entry point: dispatch, and the last line of defence between a fault and the user."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path

from enginetop.cli import exit_codes
from enginetop.cli.diagnostics import tell
from enginetop.cli.parser import parse
from enginetop.fleet.errors import ConfigError

_OUR_PACKAGES = ("tui", "collectors", "tuners", "themes")


def main(argv: list[str] | None = None) -> int:
    """Run one command line and return its exit code. Never lets a traceback reach the terminal."""
    try:
        return _run(sys.argv[1:] if argv is None else argv)
    except ConfigError as error:
        tell(str(error))
        return exit_codes.USAGE
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        # the reader of our output went away (`| head`), its right; keep the interpreter's own flush quiet
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.OK
    except Exception as error:
        if os.environ.get("ENGINETOP_TRACEBACK"):
            raise
        what = " ".join(f"{type(error).__name__}: {error}".split())
        tell(f"a fault of enginetop itself: {what} (ENGINETOP_TRACEBACK=1 shows where)")
        return exit_codes.INTERNAL


def _run(argv: list[str]) -> int:
    command, args = parse(argv)
    _explain_clash()
    module = importlib.import_module(f"enginetop.cli.{command.module}")
    code: int = module.run(args)
    return code


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
