"""Who we are to an API server: the secrets of a context, as files that every request reads anew.

All of our requests take their keys from files, so that they can be rotated. What a kubeconfig holds in line,
or a plugin prints, is put into files of a private folder that goes with the process.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from collectors.fetch import Credentials
from collectors.kubernetes.context import Context
from collectors.kubernetes.exec_plugin import Printed, run_plugin

_RENEWED_BEFORE_SECONDS = 60.0
"""Before it expires so long a printed credential is renewed."""


class Identity:
    """The credentials of one context. Any thread may ask."""

    def __init__(
        self,
        context: Context,
        *,
        run: Callable[[Context], Printed] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._context = context
        self._run = run or _run
        self._now = now
        self._lock = threading.Lock()
        self._folder: Path | None = None
        self._printed: Printed | None = None
        self._credentials: Credentials | None = None
        self.waits_for = ""
        """The command of the plugin that runs now; empty: none does."""

    def credentials(self) -> Credentials:
        """How the server is asked, at this moment. KubernetesError: a plugin gives nothing."""
        with self._lock:
            plugin = self._context.exec_plugin
            if plugin is not None and self._is_stale():
                self.waits_for = plugin.shown
                try:
                    self._take(self._run(self._context))
                finally:
                    self.waits_for = ""
            if self._credentials is None:
                self._credentials = self._written()
            return self._credentials

    def refused(self) -> bool:
        """The server refused us (401): whether asking again may help, as a plugin can print anew."""
        with self._lock:
            had, self._printed = self._printed, None
            return had is not None

    def _is_stale(self) -> bool:
        printed = self._printed
        if printed is None:
            return True
        return printed.until is not None and self._now() > printed.until - _RENEWED_BEFORE_SECONDS

    def _take(self, printed: Printed) -> None:
        self._printed = printed
        self._credentials = self._written()

    def _written(self) -> Credentials:
        context, printed = self._context, self._printed
        token = printed.token if printed is not None else context.token
        cert = _file(context.cert_file, context.cert_data)
        key = _file(context.key_file, context.key_data)
        if printed is not None and printed.cert is not None and printed.key is not None:
            cert, key = printed.cert.encode(), printed.key.encode()
        return Credentials(
            api_key_file=self._place("token", token.encode()) if token else context.token_file,
            ca_file=self._place("ca.pem", _file(context.ca_file, context.ca_data)),
            insecure_skip_verify=context.insecure,
            username=context.username if not token else None,
            password_file=self._place("password", context.password.encode()) if context.password else None,
            client_cert_file=self._place("client.pem", cert),
            client_key_file=self._place("client.key", key),
            proxy_url=context.proxy_url,
            tls_server_name=context.tls_server_name,
        )

    def _place(self, name: str, content: bytes | str | None) -> str | None:
        """The path of a file with that content; what is a path already stays it."""
        if content is None or isinstance(content, str):
            return content
        if self._folder is None:
            runtime = os.environ.get("XDG_RUNTIME_DIR", "")
            self._folder = Path(
                tempfile.mkdtemp(
                    prefix="enginetop-", dir=runtime if runtime and Path(runtime).is_dir() else None
                )
            )
            atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        path, fresh = self._folder / name, self._folder / f"{name}.new"
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        fresh.replace(path)
        return str(path)


def _file(path: str | None, data: bytes | None) -> bytes | str | None:
    """What is given in line goes before a path, as kubectl has it."""
    return data if data is not None else path


def _run(context: Context) -> Printed:
    if context.exec_plugin is None:
        raise AssertionError("no plugin to run")
    return run_plugin(context.exec_plugin, context)
