"""Keys planted everywhere a server could show one are never said: not on the screen, not in any output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.answer import Answer
from collectors.engines.detect import SIDE_FIELDS
from collectors.exposition import PageParser
from collectors.layout import LayoutCache
from collectors.secrets import (
    MARK,
    bytes_without_secrets,
    bytes_without_these,
    may_hold_secret,
    without_secrets,
    without_these,
)
from enginetop.fleet.observation import FailureKind
from tests.support.engine_pages import FIXTURES
from tests.support.outputs import drawn, printed, recorded, recording_of, snapshot_of
from tests.support.strict_engines import ENGINES, Engine

CANARY = "SEKRIT0123456789abcdef"
SPEAKING = (
    f"--port 8000 --api-key {CANARY} --host x",
    f"--admin-api-key={CANARY}",
    f"hf_{CANARY}",
    f"sk-{CANARY}",
    f"Authorization: Bearer {CANARY}",
    f"https://user:{CANARY}@hub/model",
    f"admin_api_key: {CANARY}",
    f"HF_TOKEN={CANARY}",
    f"Invalid API key provided: {CANARY}",
)
"""Texts that show a key, as command lines, error messages and addresses do."""

_FIELDS: Mapping[str, object] = {
    "admin_api_key": CANARY,
    "api_key": CANARY,
    "launch_command": f"python -m server --api-key {CANARY}",
    "argv": ["--api-key", CANARY],
    "env_vars": {"HF_TOKEN": CANARY, "nested": [{"key": CANARY}]},
    "authorization": f"Bearer {CANARY}",
}


def with_keys(body: object) -> object:
    """A JSON page with keys in every object, and behind every text that may be shown."""
    if isinstance(body, dict):
        return {**{key: with_keys(value) for key, value in body.items()}, **_FIELDS}
    if isinstance(body, list):
        return [with_keys(item) for item in body]
    return f"{body} --api-key {CANARY}" if isinstance(body, str) else body


def page_with_keys(page: bytes) -> bytes:
    """A metrics page that shows keys in the labels of its own series and in a line of its own."""
    spoken = (text.replace("\\", "\\\\").replace('"', '\\"') for text in SPEAKING)
    prefix = page.split(b"# TYPE ", 1)[1].split(b"_", 1)[0].decode()
    labels = ",".join(f'l{number}="{text}"' for number, text in enumerate(spoken))
    info = f'{prefix}_launch_info{{{labels},api_key="{CANARY}",admin_api_key="{CANARY}"}} 1\n'
    for label in (b"model_name", b"model", b"worker", b"server", b"engine", b"worker_addr"):
        page = page.replace(label + b'="', label + f'="https://u:{CANARY}@h/ hf_{CANARY} '.encode())
    return info.encode() + page


def troubled(said: str) -> list[Answer]:
    """Answers that bring no page and repeat what they were told."""
    headers = {"location": f"https://user:{CANARY}@other/login?token={CANARY}#{CANARY}", "server": said}
    return [
        Answer(
            "/metrics",
            0.0,
            status=500,
            headers=headers,
            body=json.dumps({"error": {"message": said}}).encode(),
        ),
        Answer("/metrics", 0.0, status=400, headers=headers, body=json.dumps({"detail": said}).encode()),
        Answer("/metrics", 0.0, status=401, headers=headers, body=said.encode()),
        Answer("/metrics", 0.0, status=403, headers=headers, body=said.encode()),
        Answer("/metrics", 0.0, status=302, headers=headers),
        Answer("/metrics", 0.0, status=503, headers=headers, body=f"loading {said}".encode()),
        Answer("/metrics", 0.0, headers=headers, body=f"<html><title>{said}</title></html>".encode()),
        Answer("/metrics", 0.0, headers=headers, body=json.dumps({"message": said}).encode()),
        Answer("/metrics", 0.0, headers=headers, body=said.encode()),
        Answer("/metrics", 0.0, error=FailureKind.PROTOCOL, detail=said),
    ]


def said_of(recording: Path, capsys: pytest.CaptureFixture[str]) -> str:
    return printed(recording, capsys) + drawn(snapshot_of(recording)) + recorded(recording)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_keys_on_the_pages_of_an_engine(
    engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = {"server": engine.server, "x-key": CANARY}
    paths = dict.fromkeys((*engine.pages, *(side.path for side in engine.table.side_pages)))
    sides = [
        Answer(
            path,
            0.0,
            headers={**server, "content-type": "application/json"},
            body=json.dumps(with_keys(json.loads(engine.pages.get(path) or b"{}"))).encode(),
        )
        for path in paths
    ]
    metrics = Answer(engine.at, 0.0, headers=server, body=page_with_keys(engine.page))
    url = f"http://user:{CANARY}@r1:8000"
    recording = recording_of(tmp_path / "keys.jsonl", [(at, url, [*sides, metrics]) for at in (0.0, 10.0)])
    said = said_of(recording, capsys)
    assert "r1:8000" in said
    assert CANARY not in said


@pytest.mark.parametrize("text", SPEAKING)
def test_keys_in_what_a_server_in_trouble_says(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scrapes = [
        (at, f"http://r{number}:8000", [answer])
        for at in (0.0, 10.0, 200.0)
        for number, answer in enumerate(troubled(text))
    ]
    said = said_of(recording_of(tmp_path / "trouble.jsonl", scrapes), capsys)
    assert "NoEngineMetrics" in said
    assert CANARY not in said


@pytest.mark.parametrize("text", SPEAKING)
def test_what_looks_like_a_key_is_taken_out_and_the_rest_stays(text: str) -> None:
    shown = without_secrets(f"before {text} after")
    assert CANARY not in shown
    assert MARK in shown
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    assert may_hold_secret(text.encode())
    assert bytes_without_secrets(text.encode()).decode() == without_secrets(text)


@pytest.mark.parametrize(
    "text",
    [
        'vllm:generation_tokens_total{engine="0",model_name="m"} 1',
        'smg_router_tokens_total{token_type="output"} 3',
        "max token count of 4096 exceeded",
        "this model's maximum context length is 2048 tokens",
        "task-specific-instruction-tuned-model",
        "--api-key --port 8000",
        "http://127.0.0.1:8000/v1/models",
        "model not found: keyword-spotting-large",
    ],
)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert without_secrets(text) == text


def test_no_page_of_an_engine_seems_to_hold_a_key() -> None:
    for path in sorted(FIXTURES.rglob("*.prom")):
        page = path.read_bytes()
        assert bytes_without_secrets(page) == page, path.name


@settings(max_examples=200, deadline=None)
@given(
    st.text(
        alphabet=st.sampled_from("abk_-:=\"' Bearer token api_key hf_ sk- :// @ \\ 0123456789"), max_size=80
    )
)
def test_bytes_and_text_agree_and_nothing_is_found_twice(text: str) -> None:
    once = without_secrets(text)
    assert bytes_without_secrets(text.encode()).decode() == (once if may_hold_secret(text.encode()) else text)
    assert without_secrets(once) == once


@pytest.mark.parametrize(
    "keyed",
    [
        b'api_key="SECRETWORD"',
        b'argv="--hf-token=SECRETWORD"',
        b'argv="serve \\"--api-key\\" \\"SECRETWORD\\""',  # escapes: read by the full grammar
        b'caf\xc3\xa9="x",api_key="SECRETWORD"',
        b'url="http://u:SECRETWORD@h"',
    ],
)
@pytest.mark.parametrize("other", [b'model="m"', b'model="\\"m"', b'model="\xc3\xa9"'])
def test_labels_are_cleaned_whichever_way_their_line_is_read(keyed: bytes, other: bytes) -> None:
    page = PageParser(LayoutCache()).parse(b'a{%s} 1\na{%s} 2\na{z="z"} 3\n' % (keyed, other))
    labels = page.layout.labels
    assert len(labels) + page.bad_lines == 3
    assert "SECRETWORD" not in str(labels)
    assert "m" in str(labels) or "é" in str(labels)


def test_only_declared_fields_are_kept_of_json_pages() -> None:
    words = " ".join(field for fields in SIDE_FIELDS.values() for field in fields).lower()
    for word in ("key", "argv", "args", "env", "command", "password", "secret", "hf_token", "chat_template"):
        assert word not in words


KNOWN = 'pä:ss w0rd/+%&"q'


@pytest.mark.parametrize(
    "spelled",
    [
        KNOWN,
        "p%C3%A4%3Ass%20w0rd%2F%2B%25%26%22q",
        "p%C3%A4%3Ass%20w0rd/%2B%25%26%22q",
        "p%C3%A4%3Ass+w0rd%2F%2B%25%26%22q",
        'p\\u00e4:ss w0rd/+%&\\"q',
        "cMOkOnNzIHcwcmQvKyUmInE",
    ],
)
def test_a_known_secret_goes_however_it_is_spelled(spelled: str) -> None:
    assert without_these(f"a {spelled} b", [KNOWN]) == "a [key] b"
    assert bytes_without_these(f"a {spelled} b".encode(), [KNOWN]) == b"a [key] b"


def test_words_too_short_for_a_key_stay() -> None:
    assert without_these("EMPTY", ["EMPTY"]) == "EMPTY"
    body = b"EMPTY"
    assert bytes_without_these(body, ["EMPTY", KNOWN]) is body
