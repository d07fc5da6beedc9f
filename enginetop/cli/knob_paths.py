"""The way to the knobs of each target: what the config file says, else what is found on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from collectors.control_http import UNIX_SCHEME, HttpKnobTransport
from collectors.fetch import NO_CREDENTIALS, Credentials
from enginetop.cli.admin_look import AdminLook
from enginetop.cli.companion_socket import TOKEN_VARIABLE, companion_socket
from enginetop.cli.settings import KnobPath, Settings, state_folder
from enginetop.fleet.knobs import KnobTransport
from enginetop.fleet.model import Target
from tuners.control.knob_api import HttpKnobClient, KnobClient


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
        own_socket = None if path.address else companion_socket(target)
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


def has_path(settings: Settings, target: Target) -> bool:
    """Whether a path to its knobs is configured, or opened by itself on this machine."""
    configured = (settings.restarts, settings.engine_apis, settings.knob_paths)
    return any(target.url in ways for ways in configured) or companion_socket(target) is not None


def _restart_path(settings: Settings, target: Target) -> KnobTransport:
    from enginetop.cli.restart_paths import restart_path  # of use to few

    credentials = settings.credentials.get(target.url, NO_CREDENTIALS)
    return restart_path(settings.restarts[target.url], target, credentials, state_folder())


def _engine_api(settings: Settings, target: Target) -> KnobTransport:
    from enginetop.cli.engine_apis import engine_api_path  # of use to few

    credentials = settings.credentials.get(target.url, NO_CREDENTIALS)
    return engine_api_path(settings.engine_apis[target.url], target, credentials, state_folder())
