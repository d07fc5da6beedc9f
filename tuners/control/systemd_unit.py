"""An engine that systemd runs: its command is overridden by a drop-in of ours, its unit restarted.

The unit's own files are never touched. Without the drop-in the unit is as its owner made it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from enginetop.fleet.model import EngineKind
from tuners.control.commands import Command, run
from tuners.control.files import write_synced
from tuners.control.flags import FLAGS, FlagError, edited, engine_of, value_of
from tuners.control.restartable import Load, NothingDoneError, RestartError, StartKnob, Values
from tuners.control.start_values import start_knobs

DROP_IN = "50-enginetop.conf"
_MARK = "# written by enginetop; without this file the unit is as its owner made it"
_UNIT = re.compile(r"[A-Za-z0-9:_.@\\-]{1,200}\.service")
_FILE = re.compile(r"# (/.*)")
_READABLE = 0o644
_PREFIXES = "@-:+!|"
"""What systemd lets stand before a program."""
_RESTART_SECONDS = 3600.0
"""The board's own patience ends sooner; this only bounds what is left behind."""


class SystemdUnit:
    """A `Restartable` unit. `folder` is where drop-ins of the unit belong (`UNIT.d`), `systemctl` the command
    with its options, `wanted` a file that is prepared for a person who has to do our work.
    """

    def __init__(
        self,
        unit: str,
        folder: Path,
        look: Callable[[], Load],
        *,
        wanted: Path,
        kind: EngineKind | None = None,
        systemctl: Sequence[str] = ("systemctl",),
    ) -> None:
        """`kind` None: as its command says.

        RestartError when the unit cannot be read, or its command cannot be overridden.
        """
        if not _UNIT.fullmatch(unit):
            raise RestartError(f"{unit!r} is no name of a service unit")
        self._unit = unit
        self._path = folder / DROP_IN
        self._wanted = wanted
        self._look = look
        self._systemctl = tuple(systemctl)
        self._restart: Command | None = None
        texts = self._texts()
        self._argv = _command(text for path, text in texts if path != self._path)
        self._stands = _command(text for _, text in texts)
        self._looked_at = self._drop_in()
        found = kind or engine_of((self._argv[0].lstrip(_PREFIXES), *self._argv[1:]))
        if found is None:
            raise RestartError(f"{unit} starts no engine that is known; name it with `engine`")
        self.kind = found

    def knobs(self) -> tuple[StartKnob, ...]:
        """The knobs that flags of the unit's own command set."""
        return start_knobs(self._argv, self.kind)

    def present(self) -> Values:
        """The values that it would be started with now, a drop-in of ours from before included; systemd is
        asked anew when that has changed. RestartError when it does not tell.
        """
        found = self._drop_in()
        if found != self._looked_at:
            self._stands = _command(text for _, text in self._texts())
            self._looked_at = found
        return {knob.name: value_of(self._stands, FLAGS[self.kind][knob.name]) for knob in self.knobs()}

    def load(self) -> Load:
        """See `Restartable`."""
        return self._look()

    def begin(self, values: Values) -> None:
        """See `Restartable`."""
        former = self._own_drop_in()
        try:
            self._put(self._text(values))
        except OSError as error:
            raise NothingDoneError(f"{self._path}: {error.strerror or error}") from None
        try:
            run((*self._systemctl, "daemon-reload"))
            self._check(values)
        except RestartError as error:
            with suppress(OSError, RestartError):
                self._put(former)
                run((*self._systemctl, "daemon-reload"))
            raise NothingDoneError(str(error)) from None
        self._restart = Command((*self._systemctl, "restart", self._unit), timeout_seconds=_RESTART_SECONDS)

    def poll(self) -> bool:
        """See `Restartable`. What systemd does by itself with a unit that ends is its own business."""
        if self._restart is None:
            return True
        if not self._restart.done():
            return False
        self._restart = None
        state = run((*self._systemctl, "show", self._unit, "--property=ActiveState", "--value")).strip()
        if state != "active":
            raise RestartError(f"{self._unit} is {state or 'unknown'} after its restart")
        return True

    def by_hand(self, values: Values) -> str:
        """See `Restartable`."""
        text = self._text(values)
        path = shlex.quote(str(self._path))
        if text is None:
            first = f"rm -f {path}"
        else:
            try:
                write_synced(self._wanted, text.encode())
                first = f"cp {shlex.quote(str(self._wanted))} {path}"
            except OSError:
                first = f"rm -f {path}"  # the unit as its owner made it is the best that can be had
        tool = shlex.join(self._systemctl)
        return f"{first} && {tool} daemon-reload && {tool} restart {shlex.quote(self._unit)}"

    def _text(self, values: Values) -> str | None:
        """The drop-in for these values; None: none is needed."""
        try:
            argv = edited(self._argv, self.kind, values)
        except FlagError as error:
            raise NothingDoneError(str(error)) from None
        if argv == self._argv:
            return None
        return f"{_MARK}\n[Service]\nExecStart=\nExecStart={' '.join(map(_quoted, argv))}\n"

    def _drop_in(self) -> bytes | None:
        """The drop-in as it is, whoever wrote it; None: there is none that can be read."""
        try:
            return self._path.read_bytes()
        except OSError:
            return None

    def _own_drop_in(self) -> str | None:
        """The drop-in as it is; None: there is none. NothingDoneError: somebody else's has its name."""
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise NothingDoneError(f"{self._path}: cannot be read ({type(error).__name__})") from None
        if not text.startswith(_MARK):
            raise NothingDoneError(f"{self._path} exists already, and enginetop did not write it")
        return text

    def _put(self, text: str | None) -> None:
        if text is None:
            self._path.unlink(missing_ok=True)
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_synced(self._path, text.encode())
        self._path.chmod(_READABLE)

    def _check(self, values: Values) -> None:
        """Whether systemd would start it with these values: a later drop-in may say otherwise."""
        argv = _command(text for _, text in self._texts())
        for knob, value in values.items():
            found = value_of(argv, FLAGS[self.kind][knob])
            if found != value:
                raise RestartError(
                    f"{self._unit} would still start with {knob} {found}: another drop-in rules"
                )

    def _texts(self) -> list[tuple[Path, str]]:
        """The unit's files in the order in which they count, by path."""
        found: list[tuple[Path, str]] = []
        for line in run((*self._systemctl, "cat", self._unit)).splitlines():
            named = _FILE.fullmatch(line)
            if named and Path(named[1]).suffix in (".conf", ".service"):
                found.append((Path(named[1]), ""))
            elif found:
                path, text = found[-1]
                found[-1] = (path, f"{text}{line}\n")
        return found


def _command(texts: Iterable[str]) -> tuple[str, ...]:
    """The words of the only `ExecStart=` that counts. RestartError when there is not one."""
    commands: list[str] = []
    section = ""
    for text in texts:
        for line in text.replace("\\\n", " ").splitlines():
            stripped = line.strip()
            if stripped.startswith("["):
                section = stripped
            key, equals, value = stripped.partition("=")
            if section != "[Service]" or key.strip() != "ExecStart" or not equals:
                continue
            commands = [*commands, value.strip()] if value.strip() else []
    if len(commands) != 1:
        raise RestartError(f"the unit has {len(commands)} commands (ExecStart), one can be overridden")
    try:
        return tuple(shlex.split(commands[0]))
    except ValueError as error:
        raise RestartError(f"its command cannot be read ({error})") from None


def _quoted(word: str) -> str:
    """A word as systemd reads it back; specifiers and variables stay what they are."""
    if word and not re.search(r"[\s\"'\\;]", word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
