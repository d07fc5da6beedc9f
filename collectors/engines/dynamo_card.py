"""The card that a Dynamo worker publishes of itself for discovery: its role, its model and its limits.

Where discovery is Kubernetes, a worker serves its cards at `/metadata` of its system port; elsewhere they are
in the discovery store and the path answers 404. The values are those of the registration: a limit that is
changed later does not change the card.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from collectors.engines.base import Json, SidePage
from collectors.json_fields import integer, text
from enginetop.fleet.foreign_json import field_at, model_name
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import Role
from enginetop.fleet.reading import ConfigValue

METADATA = "/metadata"
SOURCE = "model card"

_LIMITS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "max_num_batched_tokens": ("runtime_config", "max_num_batched_tokens"),
        "max_num_seqs": ("runtime_config", "max_num_seqs"),
        "num_gpu_blocks": ("runtime_config", "total_kv_blocks"),
        "data_parallel_size": ("runtime_config", "data_parallel_size"),
        "num_speculative_tokens": ("runtime_config", "runtime_data", "spec_decode", "nextn"),
        "block_size": ("kv_cache_block_size",),
        "max_model_len": ("context_length",),
    }
)
"""Whole numbers of a card, by the name of the setting."""

_WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"reasoning_parser": ("runtime_config", "reasoning_parser")}
)
_ROLES = {"aggregated": Role.AGGREGATED, "prefill": Role.PREFILL, "decode": Role.DECODE}

_CARD_FIELDS = ("display_name", "worker_type", *(".".join(p) for p in (*_LIMITS.values(), *_WORDS.values())))
_ENTRY_FIELDS = ("type", "instance_id", *(f"card_json.{field}" for field in _CARD_FIELDS))

METADATA_PAGE = SidePage(
    METADATA, keep=(*_ENTRY_FIELDS, *(f"model_cards.*.{field}" for field in _ENTRY_FIELDS))
)
"""A card alone, or the page of a worker: cards by key. A card also holds addresses, which are not kept."""

_MAX_CARDS = 1000


@frozen
class WorkerCard:
    """One worker as its card tells. `worker` is its id, `capacity_tokens` what its KV cache holds."""

    worker: int | None
    model: str | None
    role: Role | None
    config: Mapping[str, ConfigValue]
    capacity_tokens: float | None

    @property
    def computed(self) -> tuple[float, ...]:
        """The value of the series that a card adds to a page, if it does."""
        return () if self.capacity_tokens is None else (self.capacity_tokens,)


NO_CARD = WorkerCard(None, None, None, MappingProxyType({}), None)
"""What an absent card tells."""


def card_of(body: Json, worker: int | None) -> WorkerCard | None:
    """The card of one worker among those of a page; a page with one card only needs no match.

    An adapter has a card of its own with the same id; the first one, the model's, counts.
    """
    cards = list(_cards(body))
    own = [card for card in cards if card.worker == worker and worker is not None]
    if own:
        return own[0]
    only = cards[0] if len(cards) == 1 else None
    return only if only is not None and None in (worker, only.worker) else None


def _cards(body: Json) -> Iterator[WorkerCard]:
    listed = field_at(body, "model_cards")
    entries = list(listed.values())[:_MAX_CARDS] if isinstance(listed, dict) else [body]
    for entry in entries:
        card = field_at(entry, "card_json")
        if isinstance(card, dict):
            yield _card(entry, card)


def _card(entry: Json, card: Json) -> WorkerCard:
    config = {
        name: ConfigValue(value, SOURCE)
        for name, path in _LIMITS.items()
        if (value := integer(card, *path)) is not None and value > 0
    }
    config |= {
        name: ConfigValue(word, SOURCE)
        for name, path in _WORDS.items()
        if (word := text(card, *path)) is not None
    }
    return WorkerCard(
        worker=_worker(field_at(entry, "instance_id")),
        model=model_name(text(card, "display_name")),
        role=_ROLES.get(text(card, "worker_type") or ""),
        config=MappingProxyType(config),
        capacity_tokens=_capacity(card),
    )


def _worker(number: Json) -> int | None:
    """An id exceeds what a float holds: it is taken as the integer that it is."""
    is_id = isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**64
    return number if is_id else None


def _capacity(card: Json) -> float | None:
    """Tokens in the KV cache, where the card is that of one rank."""
    blocks, size = integer(card, "runtime_config", "total_kv_blocks"), integer(card, "kv_cache_block_size")
    ranks = integer(card, "runtime_config", "data_parallel_size")
    if blocks is None or size is None or blocks <= 0 or size <= 0 or ranks not in (None, 1):
        return None
    return float(blocks * size)
