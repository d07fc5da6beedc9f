"""CPU of one scrape's GET, our clients and httpx beside each other: `python -m bench.fetch [--json]`.

Pages of 74 KiB over kept connections, of our clients over https too; the servers are other processes. The
clients take turns, round by round, so that a busy machine is busy for all of them. CPU time of this process,
median over the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence

import httpx

from bench.figures import tell
from bench.page_server import PAGE_BYTES, TLS, page_server
from collectors.answer import Answer
from collectors.fetch import Credentials
from collectors.http import HttpFetcher

TARGETS = 16
ROUNDS = 12

Get = Callable[[str], Awaitable[int]]


async def measure(urls: Sequence[str], secure: Sequence[str], rounds: int = ROUNDS) -> dict[str, float]:
    """CPU milliseconds a GET, and how many times cheaper the fast path is; `secure` are those over https."""
    shared = httpx.AsyncClient(trust_env=False)
    own = {url: httpx.AsyncClient(trust_env=False) for url in urls}
    known = {url: Credentials(ca_file=str(TLS / "server.crt")) for url in secure}
    full, fast = HttpFetcher(known, fast_path=False), HttpFetcher(known)

    async def by_shared(url: str) -> int:
        return len((await shared.get(url + "/metrics")).content)

    async def by_own(url: str) -> int:
        return len((await own[url].get(url + "/metrics")).content)

    async def by_full(url: str) -> int:
        return len((await full.fetch(url, "/metrics", timeout_seconds=10)).body)

    async def by_fast(url: str) -> int:
        return len((await fast.fetch(url, "/metrics", timeout_seconds=10)).body)

    async def by_asking(url: str) -> int:
        told: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
        under_way = fast.ask(url, "/metrics", timeout_seconds=10, tell=told.set_result)
        answer = None if under_way is None else await told
        if answer is None:
            raise RuntimeError("no connection stands")
        return len(answer.body)

    ways: dict[str, tuple[Get, Sequence[str]]] = {
        "httpx_shared": (by_shared, urls),
        "httpx_per_target": (by_own, urls),
        "fetcher_without_fast_path": (by_full, urls),
        "fetcher_fast_path": (by_fast, urls),
        "fetcher_without_fast_path_https": (by_full, secure),
        "fetcher_fast_path_https": (by_fast, secure),
        # over the connections that these have opened
        "fetcher_without_task": (by_asking, urls),
        "fetcher_without_task_https": (by_asking, secure),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, (get, asked) in ways.items():
            began = time.process_time()
            sizes = [await get(url) for url in asked]
            if min(sizes) < PAGE_BYTES * 0.95:
                raise RuntimeError(f"{name}: a page of {min(sizes)} bytes")
            if turn:  # the first round opens the connections
                times[name].append((time.process_time() - began) / len(asked) * 1000)
    for client in (shared, *own.values()):
        await client.aclose()
    await full.aclose()
    await fast.aclose()
    figures = {f"{name}_cpu_ms": statistics.median(values) for name, values in times.items()}
    fast_ms = figures["fetcher_fast_path_cpu_ms"]
    figures["ratio_to_httpx_shared"] = figures["httpx_shared_cpu_ms"] / fast_ms
    figures["ratio_to_httpx_per_target"] = figures["httpx_per_target_cpu_ms"] / fast_ms
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="CPU of one GET of a 74 KiB page.")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with page_server(TARGETS) as server, page_server(TARGETS, tls=True) as secure:
        figures = asyncio.run(measure(server.good, secure.good, arguments.rounds))
    tell(figures, as_json=arguments.json)


if __name__ == "__main__":
    main()
