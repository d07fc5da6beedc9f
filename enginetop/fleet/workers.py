"""Workers that a gateway names: one worker, two spellings of its id, and the role that the gateway gives it.

NVIDIA Dynamo writes a worker's id in hexadecimal on the worker's own page and in decimal everywhere else
(frontend, router, planner, `/health`, event plane). It is an unsigned 64 bit number, beyond what a float can
hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from enginetop.fleet.model import Role

_LARGEST = 2**64 - 1


def worker_from_hex(text: str | None) -> int | None:
    """The id as a worker's own page writes it, without leading zeros; None where it is none."""
    return _number(text, 16, "0123456789abcdefABCDEF")


def worker_from_decimal(text: str | None) -> int | None:
    """The id as a frontend, a router or a planner writes it; None where it is none."""
    return _number(text, 10, "0123456789")


def roles_of_workers(told: Iterable[Mapping[int, Role]]) -> Mapping[int, Role]:
    """What several gateways say of workers, as one; the last one that names a worker wins."""
    roles: dict[int, Role] = {}
    for one in told:
        roles.update(one)
    return roles


def _number(text: str | None, base: int, digits: str) -> int | None:
    if not text or len(text) > 20 or any(character not in digits for character in text):
        return None
    number = int(text, base)
    return number if number <= _LARGEST else None
