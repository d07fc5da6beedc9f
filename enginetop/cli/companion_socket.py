"""The sockets that companions and launchers open on this machine, and whose they are."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from collectors.control_http import UNIX_SCHEME
from enginetop.cli.diagnostics import tell
from enginetop.fleet.model import LOCAL_HOST, Target, same_host

TOKEN_VARIABLE = "ENGINETOP_COMPANION_TOKEN_FILE"  # noqa: S105 - the name of a variable
"""The variable that a companion reads; on the same machine it serves both sides."""

_SOCKETS = ("vllm", "sglang", "launch")
"""Who may have opened a target's socket on this machine; what changes live comes first."""


def socket_folder() -> Path:
    """Where companions and launchers on this machine open their sockets."""
    folder = os.environ.get("XDG_RUNTIME_DIR") or f"/tmp/enginetop-{os.getuid()}"  # noqa: S108 - the companion's
    return Path(folder) / "enginetop"


def companion_socket(target: Target) -> str | None:
    """The socket that a companion or a launcher opened for an engine on this machine, as `unix:PATH`.

    None: there is none, or somebody else could have put it there, which is told.
    """
    if not same_host(target.host, LOCAL_HOST):
        return None
    names = (f"{who}-{target.port}.sock" for who in _SOCKETS)
    path = next((path for name in names if (path := socket_folder() / name).is_socket()), None)
    if path is None:
        return None
    if path.stat().st_uid not in (os.getuid(), 0):
        tell(f"the socket {path} is left alone: it is another user's")
        return None
    for above in (path.parent.parent, path.parent):
        if _ruled_by_others(above.stat(), os.getuid()):
            tell(f"the socket {path} is left alone: other users can change {above}")
            return None
    return f"{UNIX_SCHEME}{path}"


def _ruled_by_others(folder: os.stat_result, user: int) -> bool:
    """Whether somebody else than `user` and root may replace what is in a folder, and be sent the token.

    A group with the number of the folder's owner is his own, as most systems give each user one.
    """
    shared = stat.S_IWOTH if folder.st_gid == folder.st_uid else stat.S_IWOTH | stat.S_IWGRP
    open_to_others = folder.st_mode & shared and not folder.st_mode & stat.S_ISVTX
    return folder.st_uid not in (user, 0) or bool(open_to_others)
