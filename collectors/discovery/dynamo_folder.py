"""NVIDIA Dynamo's discovery folder: every worker lies there as a file with its model card.

A card names addresses of its worker's system server, which serves its metrics page too. The worker's id is
its identity: it changes with every start of the worker.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from collectors.discovery.listing import Listed, ListingError, role_of, target_at
from collectors.home import at_home
from collectors.json_fields import text
from enginetop.fleet.foreign_json import field_at, model_name, texts

_MOST_FILES = 5000
_MOST_BYTES = 1024 * 1024
_MOST_DEPTH = 12
_CARD_PATH = "/v1/metadata/"
"""What the addresses in a card have in common: pages of the worker's system server."""


class DynamoFolder:
    """The workers whose cards lie in a folder, at any depth. A `Source`."""

    every_seconds = 2.0

    def __init__(self, folder: str) -> None:
        self.title = f"dynamo {folder}"
        self.note = ""
        self._folder = at_home(folder)

    def look(self) -> Sequence[Listed]:
        """One target a worker; a card that cannot be read is left out and told of.

        ListingError when the folder cannot be read.
        """
        found: dict[str, Listed] = {}
        broken: list[Path] = []
        try:
            for card in entries(self._folder, broken):
                if (listed := listed_card(card)) is not None:
                    found.setdefault(listed.target.url, listed)
        except OSError as error:
            raise ListingError(f"{self.title}: {error.strerror}") from None
        self.note = f"{self.title}: {broken[0].name} cannot be read; its worker is left out" if broken else ""
        return list(found.values())


def taints_of(folder: Path, worker: str) -> frozenset[str] | None:
    """The routing taints of the worker with this id (hex), as its card has them; None: it has no card there.

    OSError when the folder cannot be read.
    """
    for entry in entries(folder, []):
        listed = listed_card(entry)
        if listed is not None and listed.identity == worker:
            return frozenset(texts(field_at(entry, "card_json", "runtime_config", "taints")))
    return None


def entries(folder: Path, broken: list[Path]) -> Iterator[Any]:
    """What the files of a folder hold; those that cannot be read are added to `broken`.

    OSError when there is no such folder.
    """
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "no such folder")
    for path in paths[:_MOST_FILES]:
        try:
            with path.open("rb") as file:
                yield json.loads(file.read(_MOST_BYTES))
        except FileNotFoundError:
            continue  # its worker has just left
        except (OSError, ValueError, RecursionError):
            broken.append(path)


def listed_card(entry: Any) -> Listed | None:
    """The worker of one entry; None when it is no card, or names no address."""
    card = field_at(entry, "card_json")
    worker = field_at(entry, "instance_id")
    if not isinstance(card, dict) or not isinstance(worker, int) or isinstance(worker, bool):
        return None
    address = next(filter(None, map(_system_address, _words(card))), None)
    if address is None:
        return None
    kind = text(card, "worker_type")
    component = text(entry, "component") or "worker"
    try:
        target = target_at(
            address,
            name=f"{component}-{worker:x}",
            model=model_name(text(card, "display_name")),
            role=role_of(kind),
        )
    except ValueError:
        return None
    return Listed(target, f"{worker:x}")


def _system_address(word: str) -> str | None:
    """Host and port of the system server, where a word is the address of one of its pages."""
    try:
        parts = urlsplit(word)
    except ValueError:
        return None
    return parts.netloc if parts.scheme == "http" and parts.path.startswith(_CARD_PATH) else None


def _words(value: Any, depth: int = 0) -> Iterator[str]:
    """Every text in a JSON value."""
    if isinstance(value, str):
        yield value
    elif depth < _MOST_DEPTH and isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _words(item, depth + 1)
