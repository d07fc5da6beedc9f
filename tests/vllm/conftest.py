"""Two real servers for the whole suite: one speculates, one reasons and has two API server processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.installing import Environment
from tests.vllm.installation import install, source_of
from tests.vllm.server import Server

SPECULATION = (
    '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4, "prompt_lookup_min": 2}'
)
SPECULATING = ("--speculative-config", SPECULATION, "--reasoning-parser", "qwen3")
REASONING = ("--reasoning-parser", "qwen3", "--api-server-count", "2")


@pytest.fixture(scope="session")
def installation() -> Environment:
    return install()


@pytest.fixture(scope="session")
def package() -> Path:
    """vLLM's own source. `ENGINETOP_VLLM_SOURCE` names that of another release, unpacked from its wheel."""
    other = os.environ.get("ENGINETOP_VLLM_SOURCE")
    return Path(other) if other else source_of(install())


@pytest.fixture(scope="session")
def servers(
    installation: Environment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, Server]]:
    """Both, started at the same time: most of a start is imports and waiting."""
    both = (
        Server(installation, tmp_path_factory.mktemp("s"), *SPECULATING),
        Server(installation, tmp_path_factory.mktemp("r"), *REASONING, tcp=True),
    )
    try:
        for server in both:
            server.wait_until_ready()
        yield both
    finally:
        for server in both:
            server.stop()


@pytest.fixture(scope="session")
def speculating(servers: tuple[Server, Server]) -> Server:
    """Drafts 4 tokens with ngram; one API server; its knobs at the companion's own choice of a socket."""
    return servers[0]


@pytest.fixture(scope="session")
def reasoning(servers: tuple[Server, Server]) -> Server:
    """Two API server processes; its knobs at a port of loopback."""
    return servers[1]


@pytest.fixture(scope="session")
def record() -> Iterator[dict[str, object]]:
    """Figures of this run, printed at its end: what docs/verified.md is written from."""
    figures: dict[str, object] = {}
    yield figures
    for name, value in figures.items():
        print(f"\nFIGURE {name}: {value}", end="")
