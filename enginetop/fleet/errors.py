"""Errors that cross module boundaries.

Failures of targets are data (`observation.Failure`), never exceptions.
"""

from __future__ import annotations


class EnginetopError(Exception):
    """Base of our own errors; the text is one line for the user and says what to do."""


class ConfigError(EnginetopError):
    """The command line, a config file, a scenario or a recording cannot be used (exit code 2)."""
