"""Whose page it is, from its names or from the server's header; and the mapping as data."""

from __future__ import annotations

import pytest

from collectors.engines.detect import SIDE_FIELDS, TABLES, by_server_header, recognise
from enginetop.fleet.beyond_catalogue import MEASURE_KINDS
from enginetop.fleet.model import EngineKind
from tests.support.engine_pages import FIXTURES, page_of

BY_FOLDER = {
    "vllm": EngineKind.VLLM,
    "llamacpp": EngineKind.LLAMACPP,
    "sglang": EngineKind.SGLANG,
    "trtllm": EngineKind.TRTLLM,
    "triton": EngineKind.TRITON,
    "tgi": EngineKind.TGI,
    "lmdeploy": EngineKind.LMDEPLOY,
    "router": EngineKind.ROUTER,
}
PAGES = [path for folder in BY_FOLDER for path in sorted((FIXTURES / folder).rglob("*.prom"))]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_captured_page_is_recognised(path: object) -> None:
    page_path = FIXTURES / str(path)
    found = recognise(page_of(page_path.read_bytes()).layout)
    assert found is not None
    assert found.kind is BY_FOLDER[page_path.relative_to(FIXTURES).parts[0]]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("dynamo_component_x 1\nvllm:num_requests_running 1\n", EngineKind.VLLM),
        ("dynamo_component_x 1\ntrtllm_num_requests_running 1\n", EngineKind.TRTLLM),
        ("dynamo_frontend_x 1\n", EngineKind.DYNAMO),
        ('vllm:num_requests_running{server="http://a"} 1\n', EngineKind.ROUTER),
        ('sglang_num_running_reqs{worker_addr="http://a"} 1\n', EngineKind.ROUTER),
        ("sglang_router_requests_total 1\n", EngineKind.ROUTER),
        ("llamacpp_requests_processing 1\n", EngineKind.LLAMACPP),
        ("process_start_time_seconds 1\n", None),
        ("", None),
    ],
)
def test_pages_that_several_could_claim(text: str, kind: EngineKind | None) -> None:
    found = recognise(page_of(text).layout)
    assert (found.kind if found else None) is kind


@pytest.mark.parametrize(
    ("server", "kind"),
    [
        ("llama.cpp", EngineKind.LLAMACPP),
        ("Llama.cpp/b1", EngineKind.LLAMACPP),
        ("uvicorn", None),
        ("", None),
    ],
)
def test_an_engine_may_name_itself_in_its_header(server: str, kind: EngineKind | None) -> None:
    table = by_server_header({"server": server})
    assert (table.kind if table else None) is kind


def test_the_mapping_names_only_known_measures() -> None:
    names = {table.title: table.sources for table in TABLES}
    assert len(names) == len(TABLES)
    for sources in names.values():
        assert set(sources) <= set(MEASURE_KINDS)
        assert all(sources.values())
    assert names["vLLM"]["kv_usage_ratio"] == (
        "vllm:kv_cache_usage_perc",
        "vllm:gpu_cache_usage_perc",
    )


def test_recordings_keep_declared_fields_of_every_side_page() -> None:
    assert set(SIDE_FIELDS) == {side.path for table in TABLES for side in table.side_pages}
    # Never what may hold a key or a command line.
    words = " ".join(field for fields in SIDE_FIELDS.values() for field in fields)
    assert not any(word in words for word in ("argv", "args", "env", "chat_template", "prompt ", "key"))
