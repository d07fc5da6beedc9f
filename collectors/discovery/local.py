"""Engines that listen on this machine, as a source of targets: they come and go with their processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from collectors.discovery.listing import Listed
from collectors.local_engines import local_targets


class LocalProcesses:
    """The engines of the process table. A `Source`."""

    every_seconds = 5.0
    note = ""
    title = "local"

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc

    def look(self) -> Sequence[Listed]:
        """One target an engine; none where there is no process table."""
        return [Listed(target) for target in local_targets(self._proc)]
