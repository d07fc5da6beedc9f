"""A gateway's default thinking budget, read and set by a hook of the user's: one value for all requests.

Gateways have no common API for it, so that a command of this machine stands between. It is run without a
shell, with `ENGINETOP_ACTION` `read` or `write`, `ENGINETOP_KNOB`, and on writing `ENGINETOP_VALUE`. It ends
with 0 when it was done; the last line that it prints on reading is the budget in tokens, -1 for none.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence

from enginetop.fleet.foreign_json import clean_words
from enginetop.fleet.knobs import VALUE
from tuners.control.commands import NotStartedError, run
from tuners.control.flags import masked
from tuners.control.knob_api import ReplyKind
from tuners.control.restartable import RestartError
from tuners.control.stock.exchange import StockError
from tuners.control.stock.live_board import LiveKnob, Standing

KNOB = "thinking_token_budget"
NO_BUDGET = -1
_MOST_TOKENS = 1 << 20
_FRESH_SECONDS = 2.0
"""Engines behind one gateway are asked one after the other: one run of the hook answers for all."""
_LONGEST_LINE, _LONGEST_SHOWN = 400, 40


class Gateway:
    """A `LiveApi`; one thread at a time. `hook` names the command, which gets `environment` as well."""

    def __init__(
        self,
        name: str,
        hook: str,
        command: Sequence[str],
        *,
        timeout_seconds: float,
        environment: Mapping[str, str] | None = None,
        clock: Callable[[], float],
        clean: Callable[[str], str] = str,
    ) -> None:
        """`clean` takes out of the command's words what looks like a key."""
        self._name, self._hook = name, hook
        self._command = tuple(command)
        self._timeout_seconds = timeout_seconds
        self._environment = dict(environment or {})
        self._clean = clean
        self._clock = clock
        self._seen: tuple[float, int] | None = None

    @property
    def by_hand(self) -> str:
        """The command that sets the budget; see `KnobRow`."""
        given = {**_asked("write"), **self._environment}
        words = (f"{name}={shlex.quote(value)}" for name, value in given.items())
        return f"ENGINETOP_VALUE={VALUE} {' '.join(words)} {shlex.join(masked(self._command))}"

    def read(self) -> Standing:
        """See `LiveApi`."""
        now = self._clock()
        if self._seen is None or now - self._seen[0] > _FRESH_SECONDS:
            self._seen = None
            self._seen = (now, self._told(self._run(_asked("read"))))
        knob = LiveKnob(
            KNOB,
            (self._seen[1],),
            start=None,
            min=NO_BUDGET,
            max=_MOST_TOKENS,
            unit="tokens",
            note=f"one change reaches every request through gateway {self._name}",
        )
        return Standing((knob,), instance=f"gateway {self._name}")

    def write(self, knob: str, value: int) -> str:  # noqa: ARG002 - there is one
        """See `LiveApi`."""
        self._seen = None
        told = self._last_line(self._run(_asked("write", str(value))))
        return f"0 ({told})" if told else "0"

    def _run(self, asked: Mapping[str, str]) -> str:
        try:
            return run(
                self._command,
                timeout_seconds=self._timeout_seconds,
                environment={**self._environment, **asked},
            )
        except NotStartedError as error:
            raise StockError(f"hook {self._hook}: {self._clean(str(error))}", ReplyKind.MISSING) from None
        except RestartError as error:
            raise StockError(f"hook {self._hook}: {self._clean(str(error))}") from None

    def _told(self, output: str) -> int:
        line = self._last_line(output)
        digits = line.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= len(str(_MOST_TOKENS))):
            found = f"printed {line!r}" if line else "printed nothing"
            raise StockError(
                f"hook {self._hook}: {found}, not the budget: a whole number, {NO_BUDGET} for none"
            )
        value = int(line)
        if not NO_BUDGET <= value <= _MOST_TOKENS:
            raise StockError(f"hook {self._hook}: {value} is no budget ({NO_BUDGET} to {_MOST_TOKENS})")
        return value

    def _last_line(self, output: str) -> str:
        """The last line that is not empty, short and plain."""
        return clean_words(self._clean(output.strip().rpartition("\n")[2][:_LONGEST_LINE]))[:_LONGEST_SHOWN]


def _asked(action: str, value: str | None = None) -> dict[str, str]:
    asked = {"ENGINETOP_ACTION": action, "ENGINETOP_KNOB": KNOB}
    return asked if value is None else {**asked, "ENGINETOP_VALUE": value}
