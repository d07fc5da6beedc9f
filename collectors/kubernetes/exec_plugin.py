"""Exec plugins of a kubeconfig: programs that print short-lived credentials.

They never get our terminal: no stdin, a session of their own, a time limit. One that wants to ask somebody is
told of with the command to run by hand. Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from datetime import datetime

from collectors.json_fields import verbatim
from collectors.kubernetes.context import Context, ExecPlugin, KubernetesError
from enginetop.fleet.foreign_json import decoded, field_at
from enginetop.fleet.frozen import frozen

_VERSIONS = frozenset(f"client.authentication.k8s.io/{version}" for version in ("v1", "v1beta1"))
_MOST_SECONDS = 30.0
_MOST_BYTES = 1024 * 1024


@frozen(repr=False)
class Printed:
    """What a plugin printed. `until` is the Unix time at which it expires, None: when the server says so."""

    token: str | None
    cert: str | None
    key: str | None
    until: float | None


def run_plugin(plugin: ExecPlugin, context: Context, *, timeout_seconds: float = _MOST_SECONDS) -> Printed:
    """Run the plugin. KubernetesError says what to do: install it, log in with it, or look why it hangs."""
    by_hand = plugin.shown
    if plugin.api_version not in _VERSIONS:
        raise KubernetesError(
            f"{plugin.command}: {plugin.api_version} is not read; have the plugin write a v1 entry"
        )
    if plugin.interactive == "Always":
        raise KubernetesError(
            f"{plugin.command} needs a terminal, which it does not get here; run: {by_hand}"
        )
    output = _run(plugin, context, by_hand, timeout_seconds)
    printed = decoded(output)
    status = field_at(printed, "status")
    token, cert, key = (
        verbatim(status, name) for name in ("token", "clientCertificateData", "clientKeyData")
    )
    if token is None and (cert is None or key is None):
        raise KubernetesError(f"{plugin.command} printed no credentials; run: {by_hand}")
    return Printed(token, cert, key, _time(verbatim(status, "expirationTimestamp")))


def _run(plugin: ExecPlugin, context: Context, by_hand: str, timeout_seconds: float) -> bytes:
    info = {
        "apiVersion": plugin.api_version,
        "kind": "ExecCredential",
        "spec": {
            "interactive": False,
            **({"cluster": {"server": context.server}} if plugin.wants_cluster else {}),
        },
    }
    environment = {**os.environ, **dict(plugin.environment), "KUBERNETES_EXEC_INFO": json.dumps(info)}
    try:
        process = subprocess.Popen(  # noqa: S603 - the program that the kubeconfig names
            (plugin.command, *plugin.arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # without a controlling terminal it cannot ask behind our screen
        )
    except FileNotFoundError:
        hint = plugin.install_hint or "install it, or put it on PATH"
        raise KubernetesError(f"{plugin.command} is not there: {hint}") from None
    except (OSError, ValueError) as error:  # ValueError: no words that a process can be given
        why = error.strerror if isinstance(error, OSError) else error
        raise KubernetesError(f"{plugin.command} cannot be run: {why}") from None
    with process:
        try:
            output, errors = process.communicate(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # what it started may hold the pipes open
            process.communicate()
            raise KubernetesError(
                f"{plugin.command} gave no credentials within {timeout_seconds:g} s; log in: {by_hand}"
            ) from None
    if process.returncode:
        said = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise KubernetesError(f"{plugin.command} failed: {said or process.returncode}; log in: {by_hand}")
    return output[:_MOST_BYTES]


def _time(text: str | None) -> float | None:
    try:
        return None if text is None else datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
