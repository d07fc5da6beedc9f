"""An engine whose flags stand in a file, and that a named hook of the user's restarts.

Only a number that stands there already is changed, and only where it stands once: `--max-num-seqs 64`,
`--max-num-seqs=64`, `max_num_seqs: 64`. Everything else in the file stays as it is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from enginetop.fleet.model import EngineKind
from tuners.control.commands import Command
from tuners.control.files import read_short, replace_kept, write_synced
from tuners.control.flags import FLAGS, Flag
from tuners.control.restartable import Load, NothingDoneError, RestartError, StartKnob, Values

_MOST_BYTES = 1 << 20


class SettingsFile:
    """A `Restartable` engine. `hook` is the command that lets it start anew; it is given `environment`.

    `wanted` is a file that is prepared for a person who has to do our work.
    """

    def __init__(
        self,
        path: Path,
        hook: Sequence[str],
        look: Callable[[], Load],
        *,
        wanted: Path,
        kind: EngineKind,
        hook_seconds: float = 300.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """RestartError when the file cannot be read."""
        self._path, self.kind = path, kind
        self._hook, self._hook_seconds = tuple(hook), hook_seconds
        self._environment = dict(environment or {})
        self._look = look
        self._wanted = wanted
        self._restart: Command | None = None
        self._text()

    def knobs(self) -> tuple[StartKnob, ...]:
        """The knobs whose number stands in the file, once."""
        text = self._text()
        found = ((knob, flag, _number(text, flag)) for knob, flag in FLAGS.get(self.kind, {}).items())
        return tuple(
            # a number is changed, never taken out
            StartKnob(knob, value, flag.min + (flag.min == flag.without), flag.max, flag.unit)
            for knob, flag, value in found
            if value is not None
        )

    def present(self) -> Values:
        """The numbers that stand in the file now. RestartError when it cannot be read."""
        return {knob.name: knob.start for knob in self.knobs()}

    def load(self) -> Load:
        """See `Restartable`."""
        return self._look()

    def begin(self, values: Values) -> None:
        """See `Restartable`."""
        if self._restart is not None:
            self._restart.kill()
            self._restart = None
        try:
            replace_kept(self._path, self._with(values).encode())
        except OSError as error:
            raise NothingDoneError(f"{self._path}: {error.strerror or error}") from None
        self._restart = Command(self._hook, timeout_seconds=self._hook_seconds, environment=self._environment)

    def poll(self) -> bool:
        """See `Restartable`. The hook ends when the old engine is gone and the new one is under way."""
        if self._restart is None:
            return True
        try:
            if not self._restart.done():
                return False
        except RestartError:
            self._restart = None
            raise
        self._restart = None
        return True

    def by_hand(self, values: Values) -> str:
        """See `Restartable`."""
        path, hook = shlex.quote(str(self._path)), shlex.join(self._hook)
        try:
            write_synced(self._wanted, self._with(values).encode())
        except (OSError, RestartError):
            numbers = ", ".join(f"{knob} {value}" for knob, value in values.items())
            return f"put {numbers} into {path}, then run {hook}"
        return f"cp {shlex.quote(str(self._wanted))} {path} && {hook}"

    def _text(self) -> str:
        try:
            return read_short(self._path, _MOST_BYTES)
        except OSError as error:
            raise RestartError(f"{self._path}: {error.strerror or error}") from None

    def _with(self, values: Values) -> str:
        try:
            text = self._text()
        except RestartError as error:
            raise NothingDoneError(str(error)) from None
        for knob, value in values.items():
            place = _place(text, FLAGS[self.kind][knob])
            if place is None or value is None:
                raise NothingDoneError(f"{self._path}: the number of {knob} does not stand there once")
            text = text[: place[0]] + str(value) + text[place[1] :]
        return text


def _place(text: str, flag: Flag) -> tuple[int, int] | None:
    """Where the number of a flag stands; None: nowhere, or more than once. Comments do not count."""
    names = [name.lstrip("-") for name in flag.names if name.startswith("--")]
    spelled = "|".join("[-_]".join(map(re.escape, re.split("[-_]", name))) for name in names)
    if flag.key:
        spelled = re.escape(flag.key)
    pattern = re.compile(
        rf"(?<![\w-])(?:--)?[\"']?(?:{spelled})[\"']?(?:\s*[:=]\s*|[ \t]+)[\"']?(-?\d+)(?![\w.])"
    )
    places = [
        found.span(1)
        for found in pattern.finditer(text)
        if "#" not in text[text.rfind("\n", 0, found.start()) + 1 : found.start()]
    ]
    return places[0] if len(places) == 1 else None


def _number(text: str, flag: Flag) -> int | None:
    place = _place(text, flag)
    return None if place is None else int(text[place[0] : place[1]])
