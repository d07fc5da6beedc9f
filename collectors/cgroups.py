"""Whose a process is, by its control group: the systemd unit and the container that it runs in.

The file says it in the words of whoever made the group: systemd (`/system.slice/vllm.service`), Docker and
Podman, containerd and CRI-O under a kubelet. Source: cgroups(7), and the names that those programs give.
"""

from __future__ import annotations

import re
from pathlib import Path

from collectors.sanitise import clean_text

_MOST_CHARACTERS = 65_536
_LONGEST_NAME = 200
_SHOWN_ID = 12
"""So many digits of a container's id its own tools show."""

_CONTAINER = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope|/|$)", re.MULTILINE)
_UNIT = re.compile(r"/([^/\n]+\.service)(?=/|$)", re.MULTILINE)
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")
_NOBODYS = re.compile(r"user@\d+\.service$")
"""The manager of a user's session: what was typed at a prompt runs below it."""


def unit_and_container(proc: Path, pid: int) -> tuple[str, str]:
    """The systemd service and the short id of the container of a process; empty: none, or not to be seen."""
    try:
        with (proc / str(pid) / "cgroup").open(encoding="utf-8", errors="replace") as file:
            return read_cgroup(file.read(_MOST_CHARACTERS))
    except OSError:
        return "", ""


def read_cgroup(text: str) -> tuple[str, str]:
    """`unit_and_container` from the text of `/proc/PID/cgroup`, of either version; the innermost of each."""
    containers = _CONTAINER.findall(text)
    units = [unit for unit in _UNIT.findall(text) if not _NOBODYS.match(unit)]
    unit = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), units[-1]) if units else ""
    return clean_text(unit, _LONGEST_NAME), containers[-1][:_SHOWN_ID] if containers else ""
