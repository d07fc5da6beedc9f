"""What a real llama.cpp says yes to without doing it: the reason why no writer asks for it."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.support.llama_server import llama_server
from tests.support.tiny_gguf import UNPRINTABLE_TOKENS, write_tiny_model

BARRED = [[token, False] for token in range(UNPRINTABLE_TOKENS)]


@pytest.mark.parametrize("asked", [{"n_parallel": 1}, {"reasoning_budget": 0, "n_ubatch": 32}, {}])
def test_post_props_answers_success_and_changes_nothing(tmp_path: Path, asked: dict[str, int]) -> None:
    write_tiny_model(tmp_path / "tiny.gguf")
    with (
        llama_server(tmp_path / "tiny.gguf", endpoint_props=True, n_parallel=2, endpoint_slots=True) as url,
        httpx.Client(base_url=url, timeout=20.0, trust_env=False) as client,
    ):
        before = client.get("/props").json()
        answer = client.post("/props", json=asked)
        assert (answer.status_code, answer.json()) == (httpx.codes.OK, {"success": True})
        assert client.get("/props").json() == before
        assert len(client.get("/slots").json()) == 2


def test_a_requests_own_number_of_drafts_is_accepted_and_ignored(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "tiny.gguf")
    drafted = set()
    with llama_server(tmp_path / "tiny.gguf", draft_tokens=4, n_parallel=1) as url:
        for own in ({}, {"speculative.n_max": 1}, {"speculative.n_max": 0}):
            body = {"prompt": "monitor " * 10, "n_predict": 8, "ignore_eos": True, "temperature": 0}
            answer = httpx.post(
                f"{url}/completion", json={**body, "logit_bias": BARRED, **own}, timeout=60.0, trust_env=False
            )
            drafted.add(answer.json()["timings"]["draft_n"])
    assert len(drafted) == 1
    assert drafted.pop() > 8
