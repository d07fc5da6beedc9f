"""Errors that cross module boundaries.

Failures of targets are data (`observation.Failure`), never exceptions.
"""

from __future__ import annotations


class EnginetopError(Exception):
    """Base of our own errors; the text is one line for the user and says what to do."""


class ClusterError(EnginetopError):
    """An API server of Kubernetes that refuses or does not answer, in one line with what helps.

    `status` is the HTTP status of its answer, 0 when there was none.
    """

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class ConfigError(EnginetopError):
    """The command line, a config file, a scenario or a recording cannot be used (exit code 2)."""
