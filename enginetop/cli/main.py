"""Entry point: so small that ctrl+c is met while everything else is still being imported."""

from __future__ import annotations

from enginetop.cli import exit_codes


def main(argv: list[str] | None = None) -> int:
    """Run one command line and return its exit code. Never lets a traceback reach the terminal."""
    try:
        from enginetop.cli.dispatch import dispatch

        return dispatch(argv)
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
