"""Targets that are restarted for a new value, as the config file says: a unit, or a file and a hook."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from collectors.fetch import Credentials
from collectors.home import at_home
from enginetop.cli.one_each import OneEach
from enginetop.fleet.frozen import frozen
from enginetop.fleet.knobs import KnobAnswer
from enginetop.fleet.model import EngineKind, Target
from enginetop.simulator.knob_api import KnobApi
from tuners.control.restart_board import RestartBoard
from tuners.control.restart_move import Patience
from tuners.control.restartable import RestartError
from tuners.control.settings_file import SettingsFile
from tuners.control.systemd_unit import SystemdUnit

if TYPE_CHECKING:
    from enginetop.fleet.config import Config
    from enginetop.fleet.restart_tables import RestartTable


@frozen
class RestartSetting:
    """How one engine is restarted: `unit` (of the user's own manager with `user`), or `file` and `hook`, the
    command that the config file names, with its longest time in seconds.
    """

    engine: EngineKind | None
    patience: Patience
    unit: str | None = None
    user: bool = False
    file: Path | None = None
    hook: tuple[str, ...] = ()
    hook_seconds: float = 0.0


def restart_setting(table: RestartTable, config: Config) -> RestartSetting:
    """The setting of a `[targets.restart]` table; hooks are looked up by their names."""
    hook = config.hooks[table.hook] if table.hook is not None else None
    return RestartSetting(
        engine=EngineKind(table.engine) if table.engine is not None else None,
        patience=Patience(table.drain_seconds, table.ready_seconds, table.cut_requests),
        unit=table.unit,
        user=table.user,
        file=at_home(table.file) if table.file is not None else None,
        hook=hook.command if hook is not None else (),
        hook_seconds=hook.timeout_seconds if hook is not None else 0.0,
    )


class RestartPath:
    """A `KnobTransport` to an engine that this process restarts. What is needed is read at the first request;
    until it can be, every request says why not.
    """

    def __init__(
        self, setting: RestartSetting, target: Target, credentials: Credentials, state: Path
    ) -> None:
        self._setting = setting
        self._target = target
        self._credentials = credentials
        self._state = state
        self._lock = threading.Lock()
        self._api: KnobApi | None = None

    def request(self, method: str, path: str, body: bytes | None = None) -> KnobAnswer:
        """See `KnobTransport`."""
        with self._lock:
            if self._api is None:
                try:
                    self._api = KnobApi(self._board(), time.monotonic)
                except RestartError as error:
                    return KnobAnswer(None, detail=str(error))
            return self._api.request(method, path, body)

    def _board(self) -> RestartBoard:
        from enginetop.cli.engine_look import EngineLook

        setting = self._setting
        look = EngineLook(self._target, self._credentials)
        name = re.sub(r"[^A-Za-z0-9.-]", "_", self._target.name)
        wanted = self._state / "restart" / f"{name}.wanted"
        engine: SystemdUnit | SettingsFile
        if setting.unit is not None:
            engine = SystemdUnit(
                setting.unit,
                _drop_ins(setting.unit, user=setting.user),
                look,
                wanted=wanted,
                kind=setting.engine,
                systemctl=("systemctl", "--user") if setting.user else ("systemctl",),
            )
            writer, instance = "systemd", setting.unit
        else:
            assert setting.file is not None  # the config file's schema sees to that
            assert setting.engine is not None
            engine = SettingsFile(
                setting.file,
                setting.hook,
                look,
                wanted=wanted,
                kind=setting.engine,
                hook_seconds=setting.hook_seconds,
                environment={"ENGINETOP_TARGET": self._target.url},
            )
            writer, instance = "file", str(setting.file)
        return RestartBoard(
            engine,
            engine.knobs(),
            writer=writer,
            instance=instance,  # the same after a crash of ours: what was on trial is found and undone
            engine_name=engine.kind.value,
            patience=setting.patience,
            present=engine.present(),
            stands=engine.present,
        )


_paths: OneEach[tuple[str, RestartSetting], RestartPath] = OneEach()


def restart_path(
    setting: RestartSetting, target: Target, credentials: Credentials, state: Path
) -> RestartPath:
    """The path to a target; one for all who ask in this process, since it knows what is under way."""
    return _paths.get((target.url, setting), lambda: RestartPath(setting, target, credentials, state))


def _drop_ins(unit: str, *, user: bool, environment: Mapping[str, str] = os.environ) -> Path:
    """Where drop-ins of a unit belong."""
    if not user:
        return Path("/etc/systemd/system") / f"{unit}.d"
    base = environment.get("XDG_CONFIG_HOME") or str(at_home("~/.config"))
    return Path(base) / "systemd" / "user" / f"{unit}.d"
