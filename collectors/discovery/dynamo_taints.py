"""The routing taints of one Dynamo worker, as its model card in the discovery folder has them."""

from __future__ import annotations

from pathlib import Path

from collectors.discovery.dynamo_folder import entries, listed_card
from enginetop.fleet.foreign_json import field_at


def taints_of(folder: Path, worker: str) -> frozenset[str] | None:
    """The taints of the worker with this id (hex); None: no card of it is there.

    OSError when the folder cannot be read.
    """
    for entry in entries(folder, []):
        listed = listed_card(entry)
        if listed is not None and listed.identity == worker:
            told = field_at(entry, "card_json", "runtime_config", "taints")
            return (
                frozenset(one for one in told if isinstance(one, str))
                if isinstance(told, list)
                else frozenset()
            )
    return None
