"""The routing taints of one Dynamo worker, as its model card in the discovery folder has them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from collectors.discovery.dynamo_folder import entries, listed_card
from collectors.engines.json_fields import field_at
from enginetop.fleet.model import same_host


def taints_of(folder: Path, address: str) -> tuple[str, frozenset[str]] | None:
    """The id (hex) and the taints of the worker whose system server is at `address`; None: no such card.

    OSError when the folder cannot be read.
    """
    wanted = urlsplit(address)
    for entry in entries(folder, []):
        listed = listed_card(entry)
        if listed is None:
            continue
        found = urlsplit(listed.target.url)
        if found.port == wanted.port and same_host(found.hostname or "", wanted.hostname or ""):
            told = field_at(entry, "card_json", "runtime_config", "taints")
            taints = told if isinstance(told, list) else []
            return listed.identity, frozenset(one for one in taints if isinstance(one, str))
    return None
