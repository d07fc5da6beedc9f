"""A probe of a real llama.cpp server: what it counts is what the server counts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from enginetop.cli.main import main
from tests.support.llama_server import llama_server
from tests.support.tiny_gguf import write_tiny_model


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_model(path)
    with llama_server(path, endpoint_metrics=True, n_parallel=2, n_ctx=2048) as url:
        yield url


def predicted(url: str) -> tuple[float, float]:
    """Prompt and output tokens that the server has counted since its start."""
    page = httpx.get(f"{url}/metrics", timeout=30, trust_env=False).text
    values = dict(line.rsplit(" ", 1) for line in page.splitlines() if line.startswith("llamacpp:"))
    return float(values["llamacpp:prompt_tokens_total"]), float(values["llamacpp:tokens_predicted_total"])


def test_tokens_times_and_cost(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    before = predicted(server)
    argv = ["--requests", "2", "--max-tokens", "12", "--concurrency", "2", "--yes", "--format", "json"]
    code = main(["probe", server, *argv])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    document = json.loads(printed.out)
    after = predicted(server)
    assert document["requests"]["answered"] == 2
    assert document["cost"]["output_tokens"] == after[1] - before[1]
    signals = document["signals"]
    assert signals["ttft_seconds"]["count"] == 2
    assert 0 < signals["ttft_seconds"]["p50"]["value"] < signals["e2e_seconds"]["p50"]["value"]
    assert signals["reasoning_tokens"]["quality"] == "unknown"  # it tells no count, and 0 it is not
