"""`enginetop launch -- COMMAND`: start an engine so that its knobs can be changed by restarting it."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from collectors.fetch import NO_CREDENTIALS, Credentials
from collectors.secrets import without_secrets
from enginetop.cli import exit_codes
from enginetop.cli.companion_socket import TOKEN_VARIABLE, socket_folder
from enginetop.cli.diagnostics import tell
from enginetop.cli.engine_look import EngineLook
from enginetop.cli.knob_server import serving
from enginetop.cli.resolve import resolve
from enginetop.cli.settings import state_folder
from enginetop.cli.targets import parse_target
from enginetop.cli.until_stopped import stop_event
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.model import EngineKind, Target
from enginetop.simulator.http_messages import Request
from enginetop.simulator.knob_api import KnobApi
from tuners.control.files import OwnerLock, write_synced
from tuners.control.flags import FLAGS, Flag, engine_of, masked, text_of
from tuners.control.launched import LaunchedEngine
from tuners.control.restart_board import RestartBoard
from tuners.control.restart_move import Patience
from tuners.control.restartable import RestartError
from tuners.control.start_values import start_knobs

_TICK_SECONDS = 0.2
_TOLD_SECONDS = 60.0
"""How long a launcher whose engine cannot be brought back still answers, so that the reason can be read."""
_PORTS = {
    EngineKind.VLLM: 8000,
    EngineKind.SGLANG: 30000,
    EngineKind.LLAMACPP: 8080,
    EngineKind.TRTLLM: 8000,
    EngineKind.TGI: 3000,
    EngineKind.LMDEPLOY: 23333,
}
_PORT_FLAG = Flag(("--port", "-p", "--server-port"), "")
_RECORD = "enginetop.launch/1"
_HANDOVER_SECONDS = 60.0
"""How long a launcher whose engine is lost may take to end, once it was told to."""


def run(args: argparse.Namespace) -> int:
    """Run the command: the engine's exit code once it ended by itself, 0 when we were told to stop."""
    argv: tuple[str, ...] = tuple(args.command)
    if not argv:
        raise ConfigError("no command; write: enginetop launch -- vllm serve MODEL --max-num-seqs 64")
    kind = EngineKind(args.engine) if args.engine else engine_of(argv)
    if kind is None or kind not in FLAGS:
        raise ConfigError(
            f"{argv[0]}: not a command of an engine that is known; give the engine's own command, or --engine"
        )
    target = _target(args.url, argv, kind)
    settings = resolve(args, tell)
    engine = LaunchedEngine(
        argv,
        kind,
        EngineLook(target, settings.credentials.get(target.url, NO_CREDENTIALS)),
        launcher=_launcher(args, argv),
    )
    place = str(target.port)
    lock = OwnerLock(state_folder() / "launch" / f"{place}.lock")
    holder = _take(lock, place)
    if holder:
        raise ConfigError(f"port {place} has a launcher already: {holder}")
    try:
        return _serve(args, argv, kind, engine, target, place, lock)
    finally:
        lock.release()


def _name(place: str, *, lost: bool = False) -> str:
    """What a launcher is called in its lock; without an engine it makes room for another one."""
    return f"launch on port {place}{' without an engine' if lost else ''}"


def _take(lock: OwnerLock, place: str) -> str:
    """Take the port; who else has it. One whose engine is lost is told to make room, and waited for."""
    name = _name(place)
    holder = lock.take(name)
    lost = re.fullmatch(rf"{re.escape(_name(place, lost=True))} \(process (\d+)\)", holder)
    if lost is None:
        return holder
    with suppress(ProcessLookupError, PermissionError):
        os.kill(int(lost[1]), signal.SIGTERM)
    until = time.monotonic() + _HANDOVER_SECONDS
    while holder and time.monotonic() < until:
        time.sleep(_TICK_SECONDS)
        holder = lock.take(name)
    return holder


def _launcher(args: argparse.Namespace, argv: Sequence[str]) -> str:
    """This command line up to the engine's own, for a person who has to write it again."""
    words = ["enginetop"] if shutil.which("enginetop") else [sys.executable, "-m", "enginetop"]
    words.append("launch")
    usual = Patience()
    told = {
        "--engine": args.engine,
        "--url": args.url,
        "--drain": args.drain if args.drain != usual.drain_seconds else None,
        "--ready": args.ready if args.ready != usual.ready_seconds else None,
        "--config": args.config,
    }
    words += [word for flag, value in told.items() if value is not None for word in (flag, str(value))]
    if args.cut_requests:
        words.append("--cut-requests")
    command = shlex.join(words)
    here = ("/" in argv[0] and not Path(argv[0]).is_absolute()) or any(
        map(_names_file_here, (*argv[1:], args.config or ""))
    )
    return f"cd {shlex.quote(str(Path.cwd()))} && {command}" if here else command


def _names_file_here(word: str) -> bool:
    """Whether a word, or what follows its `=`, names a file by a relative path."""
    path = Path(word.partition("=")[2] if word.startswith("-") else word)
    # not `exists`, which raises for what is too long to be a name, as a flag's JSON is
    return bool(path.name) and not path.is_absolute() and os.access(path, os.F_OK)


def _serve(
    args: argparse.Namespace,
    argv: tuple[str, ...],
    kind: EngineKind,
    engine: LaunchedEngine,
    target: Target,
    place: str,
    port: OwnerLock,
) -> int:
    """Serve the knobs of an engine that is started, until it is no more; `port` is told when it is lost."""
    board = RestartBoard(
        engine,
        start_knobs(argv, kind),
        writer="process",
        instance=f"launch-{uuid.uuid4().hex[:12]}",
        engine_name=kind.value,
        patience=Patience(args.drain, args.ready, args.cut_requests),
        ticks_elsewhere=True,
    )
    api = KnobApi(board, time.monotonic, token=_token())
    lock = threading.Lock()  # of the board

    def answer(request: Request) -> object:
        with lock:
            return api.handler(request)

    path = socket_folder() / f"launch-{place}.sock"
    record = state_folder() / "launch" / f"{place}.json"
    with stop_event() as stopped:
        try:
            engine.start()
        except RestartError as error:
            raise ConfigError(str(error)) from None
        try:
            _record(record, argv, kind, engine, target, path)
            with serving(path, answer):
                tell(f"{target.name}: knobs {', '.join(board.lasting)} by restart, at {path}")
                return _watch(board, lock, engine, stopped, lambda lost: port.rename(_name(place, lost=lost)))
        except OSError as error:
            raise ConfigError(f"{error.filename or path}: {error.strerror or error}") from None
        finally:
            engine.stop()
            record.unlink(missing_ok=True)


def _watch(
    board: RestartBoard,
    lock: threading.Lock,
    engine: LaunchedEngine,
    stopped: threading.Event,
    tell_lost: Callable[[bool], object],
) -> int:
    """Let the board go on until somebody says stop, or the engine is no more. `tell_lost` is told whether
    there is an engine at all, whenever that changes.
    """
    lasting, note = board.lasting, ""
    failed_at: float | None = None
    while not stopped.wait(_TICK_SECONDS):
        with lock:
            board.tick(time.monotonic())
        if board.note != note:
            note = board.note
            if note:
                tell(note)
        if board.settled and board.lasting != lasting:
            lasting = board.lasting
            tell(f"to keep it beyond this launch: {engine.by_hand(lasting)}")
        if board.ended:
            tell(f"the engine is gone: {board.ended}")
            return engine.exit_code or exit_codes.OK
        lost = board.failed and board.settled  # while it is tried once more it may yet come
        if lost is not (failed_at is not None):
            failed_at = time.monotonic() if lost else None
            tell_lost(lost)
        if failed_at is not None and time.monotonic() - failed_at > _TOLD_SECONDS:
            return exit_codes.INTERNAL
    return exit_codes.OK


def _target(url: str | None, argv: Sequence[str], kind: EngineKind) -> Target:
    if url is not None:
        return parse_target(url)
    port = text_of(argv, _PORT_FLAG) or str(_PORTS[kind])
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"the engine's --port {port} is no port (1 to 65535)")
    return parse_target(f"http://127.0.0.1:{port}")


def _token() -> str | None:
    """The token that companions on this machine ask for, if there is one; the socket is the user's anyway."""
    file = os.environ.get(TOKEN_VARIABLE)
    return Credentials(api_key_file=file).bearer() if file else None


def _record(
    path: Path,
    argv: tuple[str, ...],
    kind: EngineKind,
    engine: LaunchedEngine,
    target: Target,
    socket: Path,
) -> None:
    """How the engine was started, for whoever looks after us: of the environment names only, no secrets."""
    document = {
        "schema": _RECORD,
        "engine": kind.value,
        "url": target.url,
        "socket": str(socket),
        "launcher": os.getpid(),
        "process": engine.pid,
        "command": without_secrets(shlex.join(masked(argv))),
        "environment": sorted(os.environ),
        "folder": str(Path.cwd()),
    }
    write_synced(path, json.dumps(document, indent=1).encode() + b"\n")
