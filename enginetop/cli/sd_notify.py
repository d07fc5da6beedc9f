"""Telling systemd how the service does: READY, RELOADING, STOPPING, WATCHDOG (see sd_notify(3))."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping


class Supervisor:
    """The service manager that started us, or nobody: then every call does nothing.

    `environment` is read once, at the start.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self.watchdog_seconds = _watchdog_seconds(environment) if self._address else None
        """Without a sign of life for so long we are killed; None: nobody watches."""

    def ready(self, status: str) -> None:
        """The service works."""
        self._send(f"READY=1\nSTATUS={_one_line(status)}")

    def reloading(self) -> None:
        """The configuration is read again; `ready` ends it."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """The service ends."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """A sign of life for the watchdog."""
        self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
                out.setblocking(False)
                out.sendto(message.encode(), self._address)
        except OSError:
            return  # a manager that does not listen is no reason to stop watching


def _watchdog_seconds(environment: Mapping[str, str]) -> float | None:
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    text = environment.get("WATCHDOG_USEC", "")
    return int(text) / 1e6 if text.isascii() and text.isdecimal() and int(text) > 0 else None


def _one_line(text: str) -> str:
    return " ".join(text.split())
