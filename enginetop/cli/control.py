"""Wiring of control: the state folder, the ways to the knobs, the controller, and who approves."""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from collectors.control_http import UNIX_SCHEME, HttpKnobTransport
from collectors.fetch import NO_CREDENTIALS, Credentials
from enginetop import __version__
from enginetop.cli import exit_codes
from enginetop.cli.admin_look import AdminLook
from enginetop.cli.diagnostics import tell
from enginetop.cli.settings import KnobPath, Settings, state_folder
from enginetop.cli.until_stopped import stop_event
from enginetop.cli.user import user_name
from enginetop.fleet.change import ChangeState, ChangeView
from enginetop.fleet.knobs import KnobTransport
from enginetop.fleet.model import LOCAL_HOST, Target, same_host
from enginetop.fleet.plan import Plan
from enginetop.fleet.ports import FleetSource
from tuners.control.controller import Controller, WorldOf, the_fleet
from tuners.control.driver import ControlError
from tuners.control.knob_api import HttpKnobClient, KnobClient
from tuners.control.recovery import StoredChangeError
from tuners.control.settings import ControlSettings
from tuners.control.store import ChangeStore

TOKEN_VARIABLE = "ENGINETOP_COMPANION_TOKEN_FILE"  # noqa: S105 - the name of a variable
"""The variable that a companion reads; on the same machine it serves both sides."""

_SOCKETS = ("vllm", "sglang", "launch")
"""Who may have opened a target's socket on this machine; what changes live comes first."""
_LOOK_SECONDS = 0.5
_EXIT_CODES = {
    ChangeState.DONE: exit_codes.OK,
    ChangeState.REFUSED: exit_codes.REFUSED,
    ChangeState.HELD: exit_codes.HELD,
    ChangeState.ROLLED_BACK: exit_codes.ROLLED_BACK,
    ChangeState.ROLLBACK_FAILED: exit_codes.ROLLBACK_FAILED,
}


def controller(
    settings: Settings,
    source: FleetSource,
    targets: Sequence[Target],
    folder: Path | None = None,
    *,
    accept_open_admin: bool = False,
) -> Controller:
    """A controller over a started source, for these targets only. Its state lies in `folder`, None: the
    user's. `accept_open_admin`: as in `ControlSettings`, whatever the config file says.
    """
    how = settings.control or ControlSettings()
    return Controller(
        source,
        knob_clients(settings, targets),
        ChangeStore(folder or state_folder()),
        settings=replace(how, accept_open_admin=True) if accept_open_admin else how,
        tool_version=__version__,
        clock=time.time,
        world_of=_world_of(settings, folder or state_folder()),
    )


def _world_of(settings: Settings, folder: Path) -> WorldOf:
    """The world of a plan: owners of Kubernetes have one of their own."""
    if not any(one.kind == "kubernetes" for one in settings.discovery):
        return the_fleet
    from enginetop.cli.kubernetes_apply import OwnerWorlds  # of use to some
    from enginetop.cli.kubernetes_owners import cluster_of

    cluster = cluster_of(settings.discovery)
    return the_fleet if cluster is None else OwnerWorlds(cluster, folder)


def knob_clients(settings: Settings, targets: Sequence[Target]) -> Callable[[str], KnobClient | None]:
    """The knobs of each of the targets; of nothing else.

    The restart, the engine's own API, or the address and the token of the config file count; else the socket
    that a companion or a launcher on this machine opens by itself, else the target's own address with the
    target's own key.
    """
    cluster = None
    owner_first = any(one.knobs == "owner" for one in settings.discovery)
    if any(one.kind == "kubernetes" for one in settings.discovery):
        from enginetop.cli.kubernetes_owners import OwnedKnobs, cluster_of  # of use to some

        cluster = cluster_of(settings.discovery)
    clients: dict[str, KnobClient] = {}
    for target in targets:
        others = AdminLook(target, settings.credentials.get(target.url, NO_CREDENTIALS))
        if target.url in settings.restarts:
            clients[target.url] = HttpKnobClient(_restart_path(settings, target), others)
            continue
        if target.url in settings.engine_apis:
            clients[target.url] = HttpKnobClient(_engine_api(settings, target), others)
            continue
        path = settings.knob_paths.get(target.url, KnobPath(None, None))
        own_socket = None if path.address else _companion_socket(target)
        address = path.address or own_socket or target.url
        credentials = settings.credentials.get(target.url, NO_CREDENTIALS)
        token_file = path.token_file or (os.environ.get(TOKEN_VARIABLE) if own_socket else None)
        if token_file:
            credentials = Credentials(
                api_key_file=token_file,
                ca_file=credentials.ca_file,
                insecure_skip_verify=credentials.insecure_skip_verify,
            )
        elif address != target.url:
            credentials = NO_CREDENTIALS  # a key goes to the server that it was given for
        transport: KnobTransport = HttpKnobTransport(address, credentials)
        if cluster is not None:
            transport = OwnedKnobs(target, transport, cluster, owner_first=owner_first)
        # what a person should run is taken from this machine alone
        here = address.startswith(UNIX_SCHEME)
        clients[target.url] = HttpKnobClient(transport, others, commands=here)
    if settings.gateways and settings.control is not None:  # read-only, no hook is run
        from enginetop.cli.gateways import behind_gateways  # of use to few

        clients = behind_gateways(clients, settings.gateways, targets)
    if cluster is None:
        return clients.get
    from enginetop.cli.kubernetes_owners import KnobsOfPods

    return KnobsOfPods(clients.get, cluster, owner_first=owner_first)


def may_act(settings: Settings) -> bool:
    """Whether anything new may be written at all; says what is missing otherwise."""
    if settings.control is not None:
        return True
    tell("read-only: nothing is changed without a [control] table in the config file; an empty one will do")
    return False


def approval(yes: bool, word: str, what: str) -> str | None:
    """Who approves, in words; None: nobody does, and why was said. `word` has to be typed on a terminal."""
    user = user_name()
    if yes:
        return f"{user} (--yes)"
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        tell(f"{what} needs a typed confirmation on a terminal, or --yes")
        return None
    print(f"type {word} to {what}: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() != word:
        tell("not confirmed; nothing was changed")
        return None
    return f'{user} (typed "{word}")'


def follow(control: Controller, since: float) -> ChangeView:
    """Print each step of the change under way on stderr until it is over; ctrl+c undoes it. Its last view.

    What was done before `since` (Unix seconds), by an earlier run, is for `audit` to tell. ControlError when
    the change ended without a view.
    """
    shown = 0
    with stop_event() as stopped:
        while True:
            view = control.wait(_LOOK_SECONDS)
            latest = view or next(iter(control.latest()), None)
            for row in () if latest is None else latest.history[shown:]:
                shown += 1
                if row.at >= since:
                    tell(f"{time.strftime('%H:%M:%S', time.localtime(row.at))} {row.state} {row.detail}")
            if view is not None:
                return view
            if not control.busy:
                raise ControlError("the change ended without a word")
            if stopped.is_set() and latest is not None:
                stopped.clear()
                tell("stopping: the change is undone first")
                control.roll_back(latest.id, "enginetop was told to stop")


@contextmanager
def recovery(control: Controller) -> Iterator[threading.Thread]:
    """Undo what an earlier run left unfinished, beside what the caller does; trouble is told at the end.

    The controller refuses every new change until that is done, and says so where one is asked for.
    """
    troubles: list[str] = []

    def recover() -> None:
        try:
            control.recover()
        except (ControlError, StoredChangeError, OSError) as error:
            troubles.append(" ".join(str(error).split()))

    thread = threading.Thread(target=recover, name="enginetop-recovery", daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        for trouble in troubles:
            tell(trouble)


def conclude(view: ChangeView, form: str) -> int:
    """Print the outcome of a change on stdout; its exit code."""
    if form == "json":
        document = {
            "id": view.id,
            "state": view.state.value,
            "verdict": view.verdict.value if view.verdict else None,
            "knob": view.knob,
            "from": view.before,
            "to": view.after,
            "canary": view.canary_target,
            "promoted": [*view.together, *view.promote_targets] if view.state is ChangeState.DONE else [],
            "detail": view.detail,
            "arms": {
                "canary": asdict(view.canary) if view.canary else None,
                "baseline": asdict(view.baseline) if view.baseline else None,
            },
        }
        print(json.dumps(document, allow_nan=False))
    else:
        verdict = f" ({view.verdict})" if view.verdict else ""
        print(f"change {view.id}: {view.state}{verdict}: {view.detail}")
    return exit_code(view.state)


def refused_document(plan: Plan, detail: str) -> dict[str, Any]:
    """A plan that was refused before it began, in the form of `conclude`."""
    canary = plan.canary
    return {
        "id": plan.id,
        "state": ChangeState.REFUSED.value,
        "verdict": None,
        "knob": canary.knob,
        "from": canary.before,
        "to": canary.after,
        "canary": canary.target,
        "promoted": [],
        "detail": detail,
        "arms": {"canary": None, "baseline": None},
    }


def exit_code(state: ChangeState) -> int:
    """The exit code of a final state."""
    return _EXIT_CODES.get(state, exit_codes.INTERNAL)


def has_path(settings: Settings, target: Target) -> bool:
    """Whether a path to its knobs is configured, or opened by itself on this machine."""
    configured = (settings.restarts, settings.engine_apis, settings.knob_paths)
    return any(target.url in ways for ways in configured) or _companion_socket(target) is not None


def _restart_path(settings: Settings, target: Target) -> KnobTransport:
    from enginetop.cli.restart_paths import restart_path  # of use to few

    credentials = settings.credentials.get(target.url, NO_CREDENTIALS)
    return restart_path(settings.restarts[target.url], target, credentials, state_folder())


def _engine_api(settings: Settings, target: Target) -> KnobTransport:
    from enginetop.cli.engine_apis import engine_api_path  # of use to few

    credentials = settings.credentials.get(target.url, NO_CREDENTIALS)
    return engine_api_path(settings.engine_apis[target.url], target, credentials, state_folder())


def socket_folder() -> Path:
    """Where companions and launchers on this machine open their sockets."""
    folder = os.environ.get("XDG_RUNTIME_DIR") or f"/tmp/enginetop-{os.getuid()}"  # noqa: S108 - the companion's
    return Path(folder) / "enginetop"


def _companion_socket(target: Target) -> str | None:
    if not same_host(target.host, LOCAL_HOST):
        return None
    names = (f"{who}-{target.port}.sock" for who in _SOCKETS)
    path = next((path for name in names if (path := socket_folder() / name).is_socket()), None)
    if path is None:
        return None
    if path.stat().st_uid not in (os.getuid(), 0):
        tell(f"the socket {path} is left alone: it is another user's")
        return None
    for above in (path.parent.parent, path.parent):
        if _ruled_by_others(above.stat(), os.getuid()):
            tell(f"the socket {path} is left alone: other users can change {above}")
            return None
    return f"{UNIX_SCHEME}{path}"


def _ruled_by_others(folder: os.stat_result, user: int) -> bool:
    """Whether somebody else than `user` and root may replace what is in a folder, and be sent the token.

    A group with the number of the folder's owner is his own, as most systems give each user one.
    """
    shared = stat.S_IWOTH if folder.st_gid == folder.st_uid else stat.S_IWOTH | stat.S_IWGRP
    open_to_others = folder.st_mode & shared and not folder.st_mode & stat.S_ISVTX
    return folder.st_uid not in (user, 0) or bool(open_to_others)
