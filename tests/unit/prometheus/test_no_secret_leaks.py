"""Keys and passwords that a run works with are in nothing that it prints or writes."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

import pytest

from enginetop.cli.main import main
from tests.support.fake_prometheus import FakePrometheus

KEY, PASSWORD = "sk-proj-0123456789abcdef", "correct-horse-battery-staple"


def test_nothing_that_is_printed_or_written_holds_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PROM_KEY", KEY)
    (tmp_path / "password").write_text(PASSWORD)
    fake = FakePrometheus()
    labels = {"job": "vllm", "instance": "h:1"}
    page = f'vllm:num_requests_running{{engine="0",model_name="m",argv="serve --api-key {KEY}"}} 1\n'
    for at in (980.0, 990.0):
        fake.scraped(labels, at, page)
    fake.scraped({**labels, "instance": "h:2"}, 990.0, None)
    fake.active = [
        {"labels": {**labels, "instance": "h:2"}, "lastError": f"Get http://h:2/?api_key={KEY}: refused"}
    ]
    written = []
    with fake.serving() as url:
        for secret, how in (
            (KEY, 'api_key_env = "PROM_KEY"'),
            (PASSWORD, f'username = "u"\npassword_file = "{tmp_path / "password"}"'),
        ):
            (tmp_path / "c.toml").write_text(f'[prometheus]\nurl = "{url}"\n{how}\n')
            config = ["--config", str(tmp_path / "c.toml")]
            for form in ("json", "table", "prometheus"):
                assert main(["snapshot", *config, "--format", form]) == 0
            main(["check", *config, "--format", "json"])
            main(["watch", *config, "--from", "1m"])
            main(["record", *config, "-o", str(tmp_path / "r.jsonl"), "--for", "0.5"])
            written.append((tmp_path / "r.jsonl").read_text())
            said = json.dumps({"error": f"no {fake.headers[-1]['authorization']} nor {secret}"}).encode()
            fake.fault = lambda path, said=said: (401, said)  # type: ignore[misc]
            assert main(["snapshot", *config]) == 2
            fake.fault = lambda path: None
        assert main(["snapshot", "--prometheus", f"http://u:{PASSWORD}@127.0.0.1:1"]) == 2
        assert main(["snapshot", "--discover", f"prometheus:http://u:{PASSWORD}@127.0.0.1:1"]) == 2
    printed = "".join(capfd.readouterr())
    assert "requests_running" in written[0]
    assert "HTTP 401" in printed
    for secret in (KEY, PASSWORD, b64encode(f"u:{PASSWORD}".encode()).decode()):
        assert secret not in printed
        assert all(secret not in text for text in written)
