"""Secrets that can be recognised wherever they end, and servers that repeat whatever they were sent.

Every secret begins and ends with a word of its own, so that half of one is found too; `traces_in` knows these
words in base64 (at every place in a triple), percent-encoded, and as JSON and XML write them.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from tests.support.engine_pages import fixture
from tests.support.faulty_server import Reply, Request, Script, page, raw

HEAD, TAIL = "Zq3headKx7", "Wv8tailJm5"


def _secret(middle: str) -> str:
    return f"{HEAD}{middle}{TAIL}"


ENV_KEY = f"sk-{_secret('-env')}"
FILE_KEY = _secret("/file+odd=chars&%41")
PASSWORD = _secret("pä:ss w0rd/+%2F&")
TOKEN = _secret("~token")
HOOK = _secret("hook/T0/B0")
USERINFO = _secret("%2Fuserinfo")
QUERY = _secret("query")
PAGES = f"hf_{_secret('pages0wn')}"
"""What a server says of itself, in the forms in which it can be known for a key."""

_MARKS = tuple(
    sorted(
        {
            form
            for mark in (HEAD, TAIL)
            for form in (
                mark.lower().encode(),
                mark[::-1].lower().encode(),
                mark.encode().hex().encode(),
                *(
                    b64encode(b"\0" * shift + mark.encode())[4:-4].lower()  # what does not hang on neighbours
                    for shift in range(3)
                ),
            )
        }
    )
)


def traces_in(text: bytes) -> Iterator[str]:
    """What there is of a secret in it, each with what stands around."""
    lower = text.lower()
    for mark in _MARKS:
        at = lower.find(mark)
        if at >= 0:
            yield repr(text[max(0, at - 60) : at + 60])


def told(request: Request) -> str:
    """Everything that a request holds and that a server may repeat, secrets of its own besides."""
    sent = request.headers.get("authorization", "")
    scheme, _, secret = sent.partition(" ")
    clear = b64decode(secret).decode() if scheme == "Basic" else secret
    password = clear.partition(":")[2] if scheme == "Basic" else clear
    forms = [sent, secret, clear, password, quote(password, safe=""), json.dumps(password)]
    forms += [b64encode(one.encode()).decode() for one in (clear, password)]
    forms += [f"--api-key {PAGES}", f"admin_api_key={_secret('admin')}", f"https://u:{USERINFO}@h/"]
    return " ".join(forms)


def label_text(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"")


def chatty_page(request: Request) -> bytes:
    """A metrics page with secrets in labels that are shown, kept, ignored, and in a line that is broken."""
    said = label_text(told(request))
    return (
        fixture("vllm/0.32.0/vllm-0.32.0-loaded.prom")
        + (
            f'vllm:num_requests_running{{engine="0",model_name="{said}"}} 3\n'
            f'vllm:cache_config_info{{engine="0",api_key="{PAGES}",argv="{said}",block_size="16"}} 1\n'
            f'vllm:lora_requests_info{{max_lora="1",running_lora_adapters="{said}"}} 1\n'
            f"broken {told(request)}\n"
        ).encode()
    )


def chatty(request: Request) -> Reply:
    """An engine whose every page repeats what it was sent."""
    path = request.path.partition("?")[0]
    said = told(request)
    cookie = f"set-cookie: session={PAGES}\r\nserver: x {said}\r\n"
    if path == "/metrics":
        return page(chatty_page(request), extra=cookie)
    document = {
        "version": said,
        "model_path": said,
        "served_model_name": said,
        "api_key": PAGES,
        "server_args": f"--api-key {PAGES} {said}",
        "data": [{"id": said, "root": said}],
        "detail": said,
        "error": {"message": said},
    }
    if request.method == "POST":
        return page(json.dumps(document).encode(), 403, "application/json")
    return page(json.dumps(document).encode(), 200, "application/json", extra=cookie)


def refusing(status: int, kind: str = "application/json") -> Script:
    """A server that refuses everything, and repeats why."""

    def script(request: Request) -> Reply:
        said = told(request)
        body = json.dumps({"error": {"message": said}, "message": said, "detail": said})
        return page((body if "json" in kind else f"<html>{said}</html>").encode(), status, kind)

    return script


def redirecting(request: Request) -> Reply:
    """A server that sends everybody elsewhere, with a key in the address."""
    where = f"http://u:{USERINFO}@elsewhere.invalid/{PAGES}?api_key={QUERY}"
    return page(b"", 302, extra=f"location: {where}\r\n")


def within(request: Request) -> Reply:
    """A server that redirects within itself, with a key in the query, to a page that is none."""
    if "?" in request.path:
        return page(told(request).encode(), 500)
    return page(b"", 307, extra=f"location: {request.path}?api_key={QUERY}\r\n")


def garbled(request: Request) -> Reply:
    """No HTTP at all."""
    return raw(f"{told(request)}\r\n\r\n".encode())


def bad_header(request: Request) -> Reply:
    """A head that no client takes."""
    return raw(f"HTTP/1.1 200 OK\r\n{told(request)}\r\ncontent-length: x\r\n\r\n".encode())


def cut_chunks(request: Request) -> Reply:
    """A length of a chunk that is none."""
    return raw(f"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{told(request)}\r\n".encode())


KNOB_SHEET = {
    "schema": "enginetop.knobs/1",
    "engine": "vllm",
    "engine_version": "0.32.0",
    "instance": "i-1",
    "applied": 1,
    "total": 1,
}


def knobs(request: Request) -> Reply:
    """An engine with a knob API that takes no value, and says why in many words."""
    if not request.path.startswith("/enginetop/"):
        return chatty(request)
    said = told(request)
    if request.method == "PATCH":
        return page(json.dumps({"detail": said, "error": said}).encode(), 503, "application/json")
    row = {
        "name": "max_num_batched_tokens",
        "value": 8192,
        "start": 8192,
        "min": 512,
        "max": 8192,
        "unit": "tokens",
        "version": 1,
        "expires_in_seconds": None,
        "note": said,
    }
    return page(json.dumps({**KNOB_SHEET, "knobs": [row]}).encode(), 200, "application/json")


def written(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every file below a folder, with its name."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield str(path), path.name.encode() + b"\n" + path.read_bytes()
