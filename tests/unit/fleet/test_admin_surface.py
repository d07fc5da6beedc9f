"""Admin surfaces: each engine of the table open, guarded, and not told; and bodies of any shape."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.admin_surface import (
    KEYLESS,
    AdminFacts,
    AdminSurface,
    Openness,
    admin_surface,
    facts_of,
    sglang_keys,
)
from enginetop.fleet.model import EngineKind, Role

SECRET = "sk-0d1f7c22"
Answers = dict[str, tuple[int, object]]


def judged(kind: EngineKind, answers: Answers) -> AdminSurface:
    """What the answers (status, document) of pages amount to."""
    found = {page: (status, json.dumps(document).encode()) for page, (status, document) in answers.items()}
    return admin_surface(kind, Role.AGGREGATED, None, facts_of(found))


def listing(*routes: str) -> Answers:
    return {"/openapi.json": (200, {"paths": dict.fromkeys(routes, "any")})}


def info(api: object, admin: object, page: str = "/server_info") -> Answers:
    gone: Answers = {"/server_info": (404, None)} if page != "/server_info" else {}
    return {**gone, page: (200, {"api_key": api, "admin_api_key": admin})}


CASES: list[tuple[EngineKind, Answers, Openness, str]] = [
    (EngineKind.VLLM, listing("/v1/models", "/sleep"), Openness.OPEN, "port: /sleep"),
    (EngineKind.VLLM, {"/openapi.json": (404, None), "/is_sleeping": (200, {})}, Openness.OPEN, "/wake_up"),
    (EngineKind.VLLM, listing("/v1/models", "/scale_elastic_ep"), Openness.GUARDED, "no development routes"),
    (EngineKind.VLLM, {"/openapi.json": (404, None), "/is_sleeping": (404, None)}, Openness.UNKNOWN, "no /"),
    (EngineKind.VLLM, {"/openapi.json": (401, None)}, Openness.UNKNOWN, "no /openapi.json"),
    (EngineKind.SGLANG, info(None, None), Openness.OPEN, "/set_internal_state"),
    (EngineKind.SGLANG, info("", ""), Openness.OPEN, "no key is set"),
    (EngineKind.SGLANG, info(None, None, "/get_server_info"), Openness.OPEN, "no key is set"),
    (EngineKind.SGLANG, info(None, SECRET), Openness.OPEN, "tells the key"),
    (EngineKind.SGLANG, info(SECRET, None), Openness.OPEN, "tells the key"),
    (EngineKind.SGLANG, info(None, "****"), Openness.GUARDED, "need a key"),
    (EngineKind.SGLANG, {"/server_info": (401, None)}, Openness.GUARDED, "need a key"),
    (EngineKind.SGLANG, {"/server_info": (403, None)}, Openness.GUARDED, "need a key"),
    (EngineKind.SGLANG, {"/server_info": (200, {"version": "0.4.6"})}, Openness.UNKNOWN, "unless --admin"),
    (EngineKind.SGLANG, {"/server_info": (404, None)}, Openness.UNKNOWN, "cannot be told"),
    (EngineKind.LLAMACPP, {"/props": (200, {})}, Openness.OPEN, "slots"),
    (EngineKind.LLAMACPP, {"/props": (401, {})}, Openness.GUARDED, "need a key"),
    (EngineKind.LLAMACPP, {"/props": (503, {})}, Openness.UNKNOWN, "cannot be told"),
    (EngineKind.LMDEPLOY, {"/v1/models": (200, {})}, Openness.OPEN, "sleep"),
    (EngineKind.LMDEPLOY, {"/v1/models": (401, {})}, Openness.GUARDED, "need a key"),
    (EngineKind.LMDEPLOY, {"/v1/models": (404, {})}, Openness.UNKNOWN, "cannot be told"),
    (EngineKind.DYNAMO, listing("/busy_threshold"), Openness.OPEN, "sheds requests"),
    (EngineKind.DYNAMO, listing("/health"), Openness.GUARDED, "not mounted"),
    (EngineKind.DYNAMO, {"/openapi.json": (404, None)}, Openness.UNKNOWN, "no /openapi.json"),
    (EngineKind.TRTLLM, listing("/release_memory"), Openness.UNKNOWN, "older versions ask for no key"),
    (EngineKind.TRTLLM, listing("/v1/models"), Openness.UNKNOWN, "cannot be told"),
    (EngineKind.TGI, {}, Openness.NOTHING, "nothing of it can be changed"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "answers", "openness", "words"), CASES)
def test_what_the_answers_tell(kind: EngineKind, answers: Answers, openness: Openness, words: str) -> None:
    found = judged(kind, answers)
    assert (found.openness, words in found.what) == (openness, True), found
    assert bool(found.fix) or openness is not Openness.OPEN
    assert SECRET not in repr(found)


@pytest.mark.parametrize("kind", EngineKind)
def test_no_answer_at_all_is_unknown(kind: EngineKind) -> None:
    wanted = Openness.NOTHING if kind is EngineKind.TGI else Openness.UNKNOWN
    assert judged(kind, {}).openness is wanted


def test_every_engine_of_the_table_has_each_case_here() -> None:
    for kind, pages in KEYLESS.items():
        seen = {openness for known, _, openness, _ in CASES if known is kind}
        wanted = {Openness.UNKNOWN} if kind is EngineKind.TRTLLM else {*Openness} - {Openness.NOTHING}
        assert seen == (wanted if pages else {Openness.NOTHING}), kind


@pytest.mark.parametrize(
    ("role", "open_"), [(Role.DECODE, True), (Role.GATEWAY, False), (Role.ROUTER, False)]
)
def test_a_worker_of_dynamo_is_open_whatever_it_answers(role: Role, open_: bool) -> None:
    found = admin_surface(EngineKind.VLLM, role, "dynamo", AdminFacts(routes=frozenset()))
    assert (found.openness is Openness.OPEN) is open_


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["paths", "api_key", "admin_api_key", "/sleep", "x"]), inner)
    ),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(KEYLESS)), JSON.map(json.dumps).map(str.encode) | st.binary(max_size=40))
def test_bodies_of_any_shape_are_facts_or_nothing(kind: EngineKind, body: bytes) -> None:
    facts = facts_of(dict.fromkeys(KEYLESS[kind], (200, body)))
    found = admin_surface(kind, Role.AGGREGATED, None, facts)
    assert "\n" not in found.what
    assert found.what.isprintable()


def test_routes_that_a_server_makes_up_reach_nobody() -> None:
    found = judged(EngineKind.VLLM, listing("/sleep", "/sleep\x1b[2J", "/pause`id`"))
    assert found.what.endswith("port: /sleep")


@pytest.mark.parametrize("document", [None, [], {}, {"api_key": None}, "x"])
def test_a_page_that_does_not_tell_of_keys(document: object) -> None:
    assert sglang_keys(document) == (None, False)
