"""Which replica served a request that a log tells of."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import Target
from enginetop.fleet.request_records import RequestFigures


@frozen
class ClaimedRecord:
    """A record and what it says of who served it; empty: nothing.

    `assigned` is the URL of the target that the whole log belongs to; `target` and `api_base` are addresses
    that the record names, `model` the model.
    """

    figures: RequestFigures
    assigned: str = ""
    target: str = ""
    api_base: str = ""
    model: str = ""


@frozen
class Owner:
    """Whose a record is: of the target `url`; None: of the fleet, where several targets may have served it.

    `foreign`: it names a server or model, and none of ours.
    """

    url: str | None = None
    foreign: bool = False


_THE_FLEETS = Owner()
_NOBODYS = Owner(foreign=True)


def owner_of(record: ClaimedRecord, targets: Sequence[tuple[Target, str | None]]) -> Owner:
    """The owner among `targets`, each with the model that it is known to serve.

    The first that tells: the log's own target, an address in the record that is a target's (a path such as
    `/v1` after it does not count), its model when exactly one target serves it. A record that names neither
    belongs to the only target there is. One whose model several targets serve, or perhaps one whose model is
    not known, is the fleet's.
    """
    if record.assigned:
        return Owner(record.assigned)
    for address in (record.target, record.api_base):
        for target, _ in targets:
            if address and _is_below(address, target.url):
                return Owner(target.url)
    if record.model:
        serving = [target.url for target, model in targets if model == record.model]
        if serving:
            return Owner(serving[0]) if len(serving) == 1 else _THE_FLEETS
        if any(model is None for _, model in targets):
            return _THE_FLEETS
    if record.target or record.api_base or record.model:
        return _NOBODYS
    return Owner(targets[0][0].url) if len(targets) == 1 else _THE_FLEETS


def _is_below(address: str, base: str) -> bool:
    """Whether an address is a base URL or a path below it; case and default ports aside."""
    try:
        same_server = _origin(base) == _origin(address)
        path, stem = urlsplit(address).path.rstrip("/"), urlsplit(base).path.rstrip("/")
    except ValueError:
        return False
    return same_server and (path == stem or path.startswith(f"{stem}/"))


def _origin(url: str) -> tuple[str, str, int]:
    target = Target(url, "")
    return urlsplit(url).scheme.lower(), target.host, target.port
