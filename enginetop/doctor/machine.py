"""Findings about this side: terminal, config file, secrets, state folder, sinks, GPU library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

from enginetop.doctor.finding import Finding, Level
from enginetop.fleet.frozen import frozen

_LEAST_COLUMNS, _LEAST_LINES = 80, 24
_FOR_OTHERS = 0o077


@frozen
class TerminalFacts:
    """What the terminal says of itself. `closed` names the standard streams that are no terminal."""

    columns: int
    lines: int
    term: str
    colour_term: str
    encoding: str
    no_color: bool = False
    closed: tuple[str, ...] = ()

    @property
    def colours(self) -> str:
        """How many colours it can be expected to show, in words."""
        if self.colour_term.lower() in ("truecolor", "24bit"):
            return "16 million colours"
        if "256color" in self.term or "direct" in self.term:
            return "256 colours"
        return "no colours" if self.term in ("", "dumb") or "mono" in self.term else "16 colours"


def terminal_findings(facts: TerminalFacts) -> Iterator[Finding]:
    """How the screen would look here."""
    size = f"{facts.columns}x{facts.lines}"
    troubles: list[Finding] = []

    def trouble(level: Level, what: str, fix: str) -> None:
        troubles.append(Finding("terminal", level, what, fix))

    if facts.closed:
        streams = " and ".join(facts.closed)
        trouble(Level.INFO, f"no terminal at {streams}: a table is printed instead of the screen", "")
    elif facts.term in ("", "dumb"):
        named = f"TERM is {facts.term}" if facts.term else "TERM is not set"
        trouble(
            Level.WARNING,
            f"{named}: a table is printed instead of the screen",
            "export TERM=xterm-256color, or what your terminal is",
        )
    elif facts.columns < _LEAST_COLUMNS or facts.lines < _LEAST_LINES:
        trouble(
            Level.WARNING,
            f"{size} is small: columns and lines are left out",
            f"give it {_LEAST_COLUMNS}x{_LEAST_LINES} or more",
        )
    if "utf" not in facts.encoding.lower():
        trouble(
            Level.WARNING,
            f"the encoding is {facts.encoding or 'not known'}: drawn with ASCII characters",
            "export LC_ALL=C.UTF-8",
        )
    if facts.no_color:
        trouble(Level.INFO, "NO_COLOR is set: states are told by glyph and word", "")
    if all(one.level is Level.INFO for one in troubles):
        said = f"{size}, {facts.colours}, {facts.encoding}, TERM {facts.term or 'not set'}"
        yield Finding("terminal", Level.OK, said)
    yield from troubles


@frozen
class ConfigFacts:
    """The config file: `problem` is why it cannot be used (`FILE: KEY: what; how to mend it`), `warnings`
    what is valid and cannot do what it is there for.
    """

    path: str
    found: bool
    problem: str = ""
    warnings: tuple[str, ...] = ()
    targets: int = 0
    writes: bool = False


def file_words(targets: int, *, writes: bool) -> str:
    """What is in a config file, in short."""
    changes = "changes allowed" if writes else "read-only: no [control] table"
    return f"{_count(targets, 'target')}, {changes}"


def config_findings(facts: ConfigFacts) -> Iterator[Finding]:
    """Whether the config file can be used."""
    if facts.problem:
        what, _, fix = facts.problem.partition("; ")
        yield Finding("config", Level.ERROR, what, fix or "correct the file")
    elif facts.found:
        yield Finding("config", Level.OK, f"{facts.path}: {file_words(facts.targets, writes=facts.writes)}")
    else:
        yield Finding("config", Level.INFO, f"none at {facts.path}: defaults, read-only")
    for warning in facts.warnings:
        what, _, fix = warning.partition("; ")
        yield Finding("config", Level.WARNING, what, fix)


class SecretState(StrEnum):
    """What became of a secret that is named somewhere."""

    PRESENT = "present"
    MISSING = "missing"
    EMPTY = "empty"
    UNREADABLE = "unreadable"
    MALFORMED = "malformed"


@frozen
class SecretFacts:
    """A named secret, never its value. `mode` holds the permission bits of a file."""

    owner: str
    use: str
    file: bool
    name: str
    state: SecretState
    mode: int | None = None
    target: str = ""

    @property
    def where(self) -> str:
        """The variable or file that is to hold it."""
        return f"the {'file' if self.file else 'variable'} {self.name}"


def secret_findings(secrets: Sequence[SecretFacts]) -> Iterator[Finding]:
    """Whether the named secrets are there, and for whom else to read."""
    for secret in secrets:
        head = f"{secret.owner}: {secret.use} in {secret.where}"
        if secret.state is not SecretState.PRESENT:
            trouble, fix = _lost(secret)
            yield Finding("credentials", Level.ERROR, f"{head} {trouble}", fix, secret.target)
        elif secret.mode is not None and secret.mode & _FOR_OTHERS:
            yield Finding(
                "credentials",
                Level.WARNING,
                f"{head} is open to other users (mode {secret.mode & 0o777:04o})",
                f"chmod 600 {secret.name}",
                secret.target,
            )
        else:
            yield Finding("credentials", Level.OK, f"{head} is there", target=secret.target)


def _lost(secret: SecretFacts) -> tuple[str, str]:
    put = f"write it to {secret.name}, mode 0600" if secret.file else f"export {secret.name}"
    return {
        SecretState.MISSING: ("is not there" if secret.file else "is not set", put),
        SecretState.EMPTY: ("is empty", put),
        SecretState.UNREADABLE: (
            "cannot be read",
            f"chown or chmod {secret.name} so that this user can read it",
        ),
        SecretState.MALFORMED: ("holds more than one plain word", "leave only the key in it"),
        SecretState.PRESENT: ("", ""),
    }[secret.state]


@frozen
class FolderFacts:
    """The state folder, or the nearest folder above it that exists. `problem` says why nothing can be written
    there. `kill_switch`: the file that stops every change is there.
    """

    path: str
    exists: bool
    problem: str = ""
    kill_switch: bool = False


def folder_findings(facts: FolderFacts) -> Iterator[Finding]:
    """Whether changes, the audit and undelivered alerts can be kept."""
    if facts.problem:
        fix = f"make {facts.path} writable, or set XDG_STATE_HOME"
        yield Finding("state", Level.ERROR, f"{facts.path}: {facts.problem}", fix)
    else:
        made = "writable" if facts.exists else "will be made when something is kept"
        yield Finding("state", Level.OK, f"{facts.path}: {made}")
    if facts.kill_switch:
        yield Finding(
            "state",
            Level.WARNING,
            f"the kill switch {facts.path}/kill-switch is on: nothing is changed",
            "remove that file when changes may be made again",
        )


@frozen
class SinkFacts:
    """A sink of alerts; `problem` says why a file of it cannot be written. Its secrets are facts apart."""

    name: str
    kind: str
    problem: str = ""


def sink_findings(sinks: Sequence[SinkFacts]) -> Iterator[Finding]:
    """Where alerts go."""
    if not sinks:
        yield Finding("sinks", Level.INFO, "none: `enginetop watch` tells alerts on standard output only")
        return
    broken = [sink for sink in sinks if sink.problem]
    for sink in broken:
        yield Finding(
            "sinks", Level.ERROR, f"{sink.name}: {sink.problem}", "name a file that this user can write"
        )
    good = [f"{sink.name} ({sink.kind})" for sink in sinks if not sink.problem]
    if good:
        yield Finding("sinks", Level.OK, f"{', '.join(good)}; not tried, nothing is sent by looking")


@frozen
class GpuFacts:
    """GPUs of this machine. `present`: the machine has NVIDIA devices, whatever the library says."""

    names: tuple[str, ...] = ()
    problem: str = ""
    present: bool = False


def gpu_findings(facts: GpuFacts) -> Iterator[Finding]:
    """Whether the GPU library works here."""
    if facts.problem:
        what, _, fix = facts.problem.partition("; ")
        yield Finding("GPU", Level.WARNING if facts.present else Level.INFO, what, fix)
    else:
        kinds = ", ".join(f"{facts.names.count(name)} x {name}" for name in dict.fromkeys(facts.names))
        yield Finding("GPU", Level.OK, kinds)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
