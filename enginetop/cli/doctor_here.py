"""Facts about this side for `doctor`: terminal, config file, secrets, state folder, sinks, GPUs."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from collectors.fetch import Credentials, FetchError
from collectors.gpu.source import NvmlSource
from collectors.gpu_thread import GpuThread
from enginetop.cli.alert_settings import SinkSettings
from enginetop.cli.settings import Settings, state_folder
from enginetop.doctor.machine import (
    FolderFacts,
    GpuFacts,
    SecretFacts,
    SecretState,
    SinkFacts,
    TerminalFacts,
)
from enginetop.fleet.model import Target
from enginetop.fleet.snapshot import GpuReport

_GPU_SECONDS = 5.0


def terminal_facts() -> TerminalFacts:
    """The terminal that this process has."""
    size = shutil.get_terminal_size((80, 24))
    streams = (("stdin", sys.stdin), ("stdout", sys.stdout), ("stderr", sys.stderr))
    return TerminalFacts(
        columns=size.columns,
        lines=size.lines,
        term=os.environ.get("TERM", ""),
        colour_term=os.environ.get("COLORTERM", ""),
        encoding=(sys.stdout.encoding if sys.stdout else "") or "",
        no_color=bool(os.environ.get("NO_COLOR")),
        closed=tuple(name for name, end in streams if end is None or not end.isatty()),
    )


def secret_facts(settings: Settings, targets: Sequence[Target]) -> Iterator[SecretFacts]:
    """Every secret that the settings name for these targets and for the sinks."""
    for target in targets:
        credentials = settings.credentials.get(target.url)
        if credentials is not None:
            yield from _of_credentials(target.name, "API key", credentials, target.name)
        path = settings.knob_paths.get(target.url)
        if path is not None and path.token_file is not None:
            yield _secret(target.name, "knob token", None, path.token_file, target.name)
    for exporter, how in settings.gpu_exporters:
        yield from _of_credentials(f"GPU exporter {exporter.name}", "API key", how, "")
    if settings.prometheus is not None:
        yield from _of_credentials("Prometheus", "API key", settings.prometheus.credentials, "")
    for sink in settings.alerts.sinks:
        yield from _of_credentials(f"sink {sink.name}", "token", sink.credentials, "")
        if sink.url_env is not None or sink.url_file is not None:
            yield _secret(f"sink {sink.name}", "address", sink.url_env, sink.url_file, "")


def _of_credentials(owner: str, use: str, how: Credentials, target: str) -> Iterator[SecretFacts]:
    if how.api_key_env is not None or how.api_key_file is not None:
        yield _secret(owner, use, how.api_key_env, how.api_key_file, target)


def _secret(owner: str, use: str, variable: str | None, file: str | None, target: str) -> SecretFacts:
    state = SecretState.PRESENT
    mode: int | None = None
    if file is not None:
        try:
            mode = stat.S_IMODE(Path(file).stat().st_mode)
        except FileNotFoundError:
            state = SecretState.MISSING
        except OSError:
            state = SecretState.UNREADABLE
    elif variable not in os.environ:
        state = SecretState.MISSING
    if state is SecretState.PRESENT:
        state = _usable(variable, file)
    return SecretFacts(owner, use, file is not None, file or variable or "", state, mode, target)


def _usable(variable: str | None, file: str | None) -> SecretState:
    """How the secret reads; its value goes nowhere."""
    if file is not None and not os.access(file, os.R_OK):
        return SecretState.UNREADABLE
    try:
        Credentials(api_key_env=variable, api_key_file=file).bearer()
    except FetchError as fault:
        more = "more than one plain word" in fault.detail
        return SecretState.MALFORMED if more else SecretState.EMPTY
    return SecretState.PRESENT


def folder_facts() -> FolderFacts:
    """The state folder. Nothing is made or written."""
    folder = state_folder()
    return FolderFacts(
        shown_path(folder),
        os.access(folder, os.F_OK),
        _unwritable(folder),
        kill_switch=os.access(folder / "kill-switch", os.F_OK),
    )


def sink_facts(sinks: Sequence[SinkSettings]) -> list[SinkFacts]:
    """The sinks of the config file."""
    found = []
    for sink in sinks:
        trouble = ""
        if sink.path is not None:
            trouble = _unwritable(Path(sink.path))
        found.append(SinkFacts(sink.name, sink.kind, trouble and f"{sink.path}: {trouble}"))
    return found


def shown_path(path: Path) -> str:
    """The path as people write it: `~` for their home."""
    try:
        return f"~/{path.relative_to(Path.home())}"
    except (ValueError, RuntimeError):  # elsewhere, or no home
        return str(path)


def _unwritable(path: Path) -> str:
    """Why nothing can be written to a file or into a folder, or made there; empty when it can."""
    try:
        there = next((one for one in (path, *path.parents) if one.exists()), None)
    except OSError as error:  # a folder that cannot be looked into, a name that is too long for any
        return (error.strerror or type(error).__name__).lower()
    if there is None:
        return "no such folder"
    if there != path and not there.is_dir():
        return f"{there} is no folder"
    rights = os.W_OK | os.X_OK if there.is_dir() else os.W_OK
    return "" if os.access(there, rights) else f"{there} is not writable for this user"


def gpu_facts(targets: Sequence[Target]) -> GpuFacts:
    """The GPUs of this machine, or why there are none; within a few seconds."""
    reports: list[GpuReport] = []
    thread = GpuThread(NvmlSource(), targets, 3600.0, time.time, reports.append)
    thread.start()
    answered = thread.wait_for_first(_GPU_SECONDS)
    if answered:
        thread.stop()
    present = Path("/dev/nvidiactl").exists() or any(Path("/dev").glob("nvidia[0-9]*"))
    if not reports:
        return GpuFacts(problem="the GPU library does not answer; see dmesg", present=True)
    names = tuple(gpu.name for gpu in reports[0].gpus)
    return GpuFacts(names, reports[0].problem, present)
