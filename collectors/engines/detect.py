"""Which engine is it? From the names on a page, else from the server's own header."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from collectors.engines.base import EngineTable
from collectors.engines.dynamo import DYNAMO
from collectors.engines.dynamo_passed import behind_dynamo
from collectors.engines.dynamo_worker import has_worker_series
from collectors.engines.gateways import GATEWAYS
from collectors.engines.llamacpp import LLAMACPP
from collectors.engines.lmdeploy import LMDEPLOY
from collectors.engines.mapping import LayoutMemo
from collectors.engines.sglang import SGLANG
from collectors.engines.tgi import TGI
from collectors.engines.triton import TRITON
from collectors.engines.trtllm import TRTLLM
from collectors.engines.trtllm_queue import QUEUE_FIELDS
from collectors.engines.vllm import VLLM
from collectors.layout import Unread
from collectors.page import Layout
from enginetop.fleet.model import EngineKind

TABLES: tuple[EngineTable, ...] = (VLLM, SGLANG, LLAMACPP, TRTLLM, TRITON, TGI, LMDEPLOY, DYNAMO, *GATEWAYS)
"""Everything that is read, in the order in which a page that holds several is tried: an engine's own series
come before a gateway's view."""

UNREAD = Unread(
    wholly=("http_", "python_", "go_", "promhttp_", "scrape_"),
    but_for_counts=tuple(
        name for engine in TABLES for table in engine.tables for name in table.counted_names()
    ),
)
"""What any server tells of its HTTP and its language, and histograms of which no table reads more than that
they move."""

_BEHIND_DYNAMO: Mapping[EngineKind, EngineTable] = MappingProxyType(
    {table.kind: behind_dynamo(table) for table in (VLLM, SGLANG, TRTLLM)}
)
"""How the pages of Dynamo workers are read that pass an engine's series through."""


def _recorded_fields() -> Mapping[str, tuple[str, ...]]:
    fields: dict[str, tuple[str, ...]] = {}
    for table in TABLES:
        for side in table.side_pages:
            fields[side.path] = tuple(dict.fromkeys((*fields.get(side.path, ()), *side.keep)))
    return MappingProxyType(fields)


SIDE_FIELDS = _recorded_fields()
"""What a recording may hold of each side page of any engine: dotted fields, `[]` for each list item."""

RECORDED_FIELDS: Mapping[str, tuple[str, ...]] = MappingProxyType({**SIDE_FIELDS, "/metrics": QUEUE_FIELDS})
"""The same of every JSON page: one engine has JSON in the place of its metrics page."""

STATUS_PATHS = frozenset(side.path for table in TABLES for side in table.side_pages if side.status_only)
"""Side pages of which the status is read, and no body."""


def _recognise(layout: Layout) -> EngineTable | None:
    for table in TABLES:
        if table.recognise(layout):
            behind = _BEHIND_DYNAMO.get(table.kind) if has_worker_series(layout) else None
            return behind or table
    return None


recognise = LayoutMemo(_recognise)
"""The table of the engine whose page it is by its names, None when no engine's series are on it."""


_NAMED_BY_SERVER = tuple((table.server_header, table) for table in TABLES if table.server_header)


def by_server_header(headers: Mapping[str, str]) -> EngineTable | None:
    """The engine that names itself in the `Server` header; also on a 404."""
    server = headers.get("server")
    return _named(server.lower()) if server else None


@lru_cache(maxsize=256)
def _named(server: str) -> EngineTable | None:
    return next((table for begin, table in _NAMED_BY_SERVER if server.startswith(begin)), None)
