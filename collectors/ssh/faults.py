"""What `ssh` writes on stderr, as one line that says what is wrong and what helps."""

from __future__ import annotations

import re

from collectors.fetch import FetchError
from collectors.ssh.address import SshHost
from enginetop.fleet.frozen import frozen
from enginetop.fleet.observation import FailureKind


@frozen
class _Said:
    """Words of `ssh` and what they mean: the failure, and a line in which `{ssh}` is the command to try."""

    words: re.Pattern[str]
    kind: FailureKind
    line: str


def _said(words: str, kind: FailureKind, line: str) -> _Said:
    return _Said(re.compile(words, re.IGNORECASE), kind, line)


_TABLE = (
    _said(
        r"host identification has changed|host key for .* has changed",
        FailureKind.TLS,
        "the host key has changed: somebody else may answer there; once verified: ssh-keygen -R {known}",
    ),
    _said(
        r"revoked host key|host key .* revoked",
        FailureKind.TLS,
        "the host key is revoked; ask whoever runs it for a new one",
    ),
    _said(
        r"host key verification failed|no .* host key is known",
        FailureKind.TLS,
        "the host key is not known; connect once with `{ssh}` and verify it",
    ),
    _said(
        r"permission denied|too many authentication failures",
        FailureKind.UNAUTHORIZED,
        "permission denied; `{ssh}` has to work without a password (a key in ssh's agent or config)",
    ),
    _said(
        r"could not resolve hostname",
        FailureKind.DNS,
        "no such host name; write it in full, or add it to ssh's config",
    ),
    _said(
        r"open failed: administratively prohibited",
        FailureKind.REFUSED,
        "the jump host refuses to forward; its sshd needs AllowTcpForwarding yes",
    ),
    _said(
        r"connection timed out|operation timed out|connection to .* timed out",
        FailureKind.TIMEOUT,
        "no answer from the machine; is it up, and is this its address and port?",
    ),
    _said(
        r"timeout, server .* not responding",
        FailureKind.TIMEOUT,
        "the machine answers no more; is it up, and is the network?",
    ),
    _said(
        r"no route to host|network is unreachable|host is down",
        FailureKind.REFUSED,
        "the machine cannot be reached; is the network or VPN up?",
    ),
    _said(
        r"connection refused",
        FailureKind.REFUSED,
        "connection refused; is sshd running there, and on this port?",
    ),
    _said(
        r"unable to negotiate|no matching .* found",
        FailureKind.PROTOCOL,
        "no algorithm in common; see `{ssh}`",
    ),
    _said(
        r"bad configuration option|terminating, \d+ bad configuration|bad owner or permissions",
        FailureKind.REFUSED,
        "ssh refuses its own config; see `{ssh}`",
    ),
    _said(
        r"connection (closed|reset)|closed by remote host|broken pipe",
        FailureKind.REFUSED,
        "the machine closed the connection; see `{ssh}`",
    ),
)
"""The first entry whose words were said counts: those that say more stand first."""

_CHANNEL = re.compile(r"open failed: (?P<why>[^\r\n]+)")
_BEHIND = (
    _said(
        r"administratively prohibited",
        FailureKind.REFUSED,
        "forwarding is refused there; its sshd needs AllowTcpForwarding yes and no PermitOpen against it",
    ),
    _said(
        r"connection refused",
        FailureKind.REFUSED,
        "nothing listens at {server} there; start the server, or correct its port",
    ),
    _said(r"timed out", FailureKind.TIMEOUT, "no answer from {server} there; does that machine reach it?"),
    _said(
        r"name or service|name resolution|nodename",
        FailureKind.DNS,
        "{server} is no known name there; write its address",
    ),
)


def connect_fault(machine: SshHost, stderr: str) -> FetchError:
    """Why there is no connection to a machine, by what `ssh` said of it."""
    shown = f"[{machine.host}]:{machine.port}" if machine.port else machine.host
    for entry in _TABLE:
        if entry.words.search(stderr):
            line = entry.line.format(ssh=command(machine), known=f"'{shown}'" if machine.port else shown)
            return ssh_fault(machine, entry.kind, line)
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    said = lines[-1] if lines else "it ended without a word"
    return ssh_fault(machine, FailureKind.REFUSED, f"{said}; see `{command(machine)}`")


def lost_fault(machine: SshHost, stderr: str) -> FetchError:
    """Why a connection that had stood is no more. What `ssh` said of servers behind it does not count."""
    said = "\n".join(line for line in stderr.splitlines() if not _CHANNEL.search(line))
    if not said.strip():
        return ssh_fault(machine, FailureKind.REFUSED, f"the connection was lost; see `{command(machine)}`")
    return connect_fault(machine, said)


def forward_fault(machine: SshHost, server: str, stderr: str) -> FetchError | None:
    """Why connections to a server behind a machine bring nothing; None when `ssh` did not tell.

    `ssh` does not say which server it means: where it told several reasons, all of them are given.
    """
    whys = list(dict.fromkeys(found["why"] for found in _CHANNEL.finditer(stderr)))
    if not whys:
        return None
    entry = next((entry for entry in _BEHIND if entry.words.search(whys[0])), None)
    if len(whys) > 1 or entry is None:
        return ssh_fault(
            machine, FailureKind.REFUSED, f"no connection to {server} there: {', or '.join(whys)}"
        )
    return ssh_fault(machine, entry.kind, entry.line.format(server=server))


def ssh_fault(machine: SshHost, kind: FailureKind, line: str) -> FetchError:
    """A fault on the way, which names the machine."""
    return FetchError(kind, f"ssh to {machine.name}: {line}")


def command(machine: SshHost) -> str:
    """What a person would type to see the same. The user is left out: it is in the target's address."""
    port = f"-p {machine.port} " if machine.port else ""
    return f"ssh {port}{machine.host}"
