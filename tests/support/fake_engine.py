"""A server with the flags and the page of a vLLM, for tests of who starts it: `--max-num-seqs 13` ends it.

A POST to `/exit/CODE` ends it too, one to `/running/N` sets how many requests it says to have.
"""

from __future__ import annotations

import argparse
import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

UNLUCKY = 13


class _Engine(BaseHTTPRequestHandler):
    seats = 0
    running = 0

    def do_GET(self) -> None:
        labels = '{model_name="m",engine="0"}'
        page = (
            f"vllm:num_requests_running{labels} {self.running}\n"
            f"vllm:num_requests_waiting{labels} 0\n"
            f'vllm:cache_config_info{{num_gpu_blocks="9",engine="0"}} 1\n'
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
    args = parser.parse_args()
    if args.max_num_seqs == UNLUCKY:
        sys.exit(3)
    _Engine.seats = args.max_num_seqs
    HTTPServer(("127.0.0.1", args.port), _Engine).serve_forever()


if __name__ == "__main__":
    main()
