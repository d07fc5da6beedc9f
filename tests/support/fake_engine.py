"""A server with the flags and the page of a vLLM and its companion, for tests of who starts it.

`--max-num-seqs 13` ends it, and so does every start while the file `--doomed` exists. A POST to `/exit/CODE`
ends it too, one to `/running/N` sets how many requests it says to have.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

UNLUCKY = 13


class _Engine(BaseHTTPRequestHandler):
    seats = 0
    running = 0
    served = 0

    def do_GET(self) -> None:
        type(self).served += 1  # somebody is always served, so that there is a rate
        labels = '{model_name="m",engine="0"}'
        page = (
            f"vllm:num_requests_running{labels} {self.running}\n"
            f"vllm:num_requests_waiting{labels} 0\n"
            f'vllm:cache_config_info{{num_gpu_blocks="9",engine="0"}} 1\n'
            f'enginetop_requests_total{{model_name="m",engine="0",outcome="stop"}} {self.served}\n'
        )
        body = {"/metrics": page, "/seats": str(self.seats), "/health": "", "/pid": str(os.getpid())}.get(
            self.path
        )
        self.send_response(404 if body is None else 200)
        self.send_header("content-type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write((body or "").encode())

    def do_POST(self) -> None:
        what, _, value = self.path.lstrip("/").partition("/")
        self.send_response(200)
        self.end_headers()
        if what == "exit":
            self.wfile.flush()
            os._exit(int(value))
        type(self).running = int(value)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--max-num-seqs", type=int, default=64)
    parser.add_argument("--api-key")
    parser.add_argument("--doomed", type=Path)
    parser.add_argument("--slow-start", type=float, default=0.0)
    args = parser.parse_args()
    if args.max_num_seqs == UNLUCKY or (args.doomed is not None and args.doomed.exists()):
        sys.exit(3)
    time.sleep(args.slow_start)
    _Engine.seats = args.max_num_seqs
    HTTPServer(("127.0.0.1", args.port), _Engine).serve_forever()


if __name__ == "__main__":
    main()
