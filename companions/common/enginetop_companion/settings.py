"""What the environment says: whether the companion runs, where it listens, its token, its objective."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ON = "ENGINETOP_COMPANION"
LISTEN = "ENGINETOP_COMPANION_LISTEN"
TOKEN_FILE = "ENGINETOP_COMPANION_TOKEN_FILE"  # noqa: S105 - the name of a variable
OBJECTIVE = "ENGINETOP_SLO"


class SettingsError(ValueError):
    """A variable holds something that cannot be used; the text names it and the fix."""


@dataclass(frozen=True, slots=True)
class Objective:
    """What a request must keep: time to first token and time per output token, in seconds."""

    ttft_seconds: float = 1.0
    tpot_seconds: float = 0.1


@dataclass(frozen=True, slots=True)
class Address:
    """Where the knob API listens: a unix socket (`path`), or `host` and `port`."""

    path: Path | None = None
    host: str = ""
    port: int = 0

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return self.path is not None or self.host in {"localhost", "::1"} or self.host.startswith("127.")

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Settings:
    """The companion's settings. `token_file` None: there is no knob API, only the counters."""

    address: Address
    token_file: Path | None
    objective: Objective


def is_on(environment: Mapping[str, str]) -> bool:
    """Whether the companion was switched on."""
    return environment.get(ON, "").strip().lower() in {"1", "true", "yes", "on"}


def read_settings(environment: Mapping[str, str], engine: str, serving_port: int) -> Settings:
    """The settings; `{port}` in the address stands for the server's own port: one environment serves many.

    Raises SettingsError.
    """
    token_file = environment.get(TOKEN_FILE, "").strip()
    listen = environment.get(LISTEN, "").strip().replace("{port}", str(serving_port))
    return Settings(
        address=read_address(listen) if listen else default_address(environment, engine, serving_port),
        token_file=Path(token_file) if token_file else None,
        objective=read_objective(environment.get(OBJECTIVE, "")),
    )


def default_address(environment: Mapping[str, str], engine: str, serving_port: int) -> Address:
    """A unix socket in the user's runtime folder, one for each serving port."""
    folder = environment.get("XDG_RUNTIME_DIR") or f"/tmp/enginetop-{os.getuid()}"  # noqa: S108 - made 0700
    return Address(path=Path(folder) / "enginetop" / f"{engine}-{serving_port}.sock")


def read_address(text: str) -> Address:
    """`unix:/path`, `127.0.0.1:9400` or `[::1]:9400`. Raises SettingsError."""
    if text.startswith("unix:"):
        path = Path(text.removeprefix("unix:"))
        if not path.is_absolute():
            raise SettingsError(f"{LISTEN}: {text!r}: write unix: and an absolute path")
        return Address(path=path)
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise SettingsError(f"{LISTEN}: {text!r}: write unix:/path or HOST:PORT, as in 127.0.0.1:9400")
    return Address(host=host, port=int(port))


def read_objective(text: str) -> Objective:
    """`ttft=0.6,tpot=50ms`, in seconds unless a unit says otherwise.

    What is not named keeps its default; other keys are not ours.

    Raises SettingsError.
    """
    values = {"ttft": 1.0, "tpot": 0.1}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, _, number = part.partition("=")
        if key.strip() not in values:
            continue
        value = _seconds(number.strip())
        if not 0 < value < math.inf:
            raise SettingsError(
                f"{OBJECTIVE}: {part!r}: write ttft=SECONDS,tpot=SECONDS, as in ttft=0.6,tpot=50ms"
            )
        values[key.strip()] = value
    return Objective(values["ttft"], values["tpot"])


def _seconds(text: str) -> float:
    """Of a number with `ms`, with `s` or alone; NaN: it is none."""
    number, parts = (text[:-2], 1000.0) if text.endswith("ms") else (text.removesuffix("s"), 1.0)
    try:
        return float(number) / parts
    except ValueError:
        return math.nan
