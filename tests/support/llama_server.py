"""A real llama.cpp server on a free loopback port, in a process of its own.

As a script: `llama_server.py '{"model": ..., ...}'` prints its address and serves until its standard input
ends. The process keeps the server's threads and its log out of the test run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STOP_SECONDS = 10


@contextmanager
def llama_server(model: Path, **settings: object) -> Iterator[str]:
    """Serve `model`; yields the base URL.

    `settings` are fields of xllamacpp's CommonParams; with `draft_tokens` the model drafts for itself.
    """
    command = [sys.executable, __file__, json.dumps({"model": str(model), **settings})]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            assert address.startswith("http://"), "the server did not start"
            yield address
        finally:
            process.stdin.close()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _serve(settings: dict[str, object]) -> None:
    import xllamacpp  # of use in the server's process only

    params = xllamacpp.CommonParams()
    params.model.path = settings.pop("model")
    params.n_gpu_layers = 0
    params.port = 0
    params.cpuparams.n_threads = 1  # threads that wait for each other take minutes on a busy machine
    drafts = settings.pop("draft_tokens", 0)
    if drafts:
        kinds = xllamacpp.common_speculative_type
        params.speculative.draft.mparams.path = params.model.path
        params.speculative.draft.n_max = drafts
        params.speculative.draft.cpuparams.n_threads = 1
        params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
    for name, value in settings.items():
        setattr(params, name, value)
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _serve(json.loads(sys.argv[1]))
