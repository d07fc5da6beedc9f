"""Wiring of alerts: the audit as a source of alerts, addresses that are secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collectors.fetch import NO_CREDENTIALS, Credentials
from enginetop.alerts.sinks.courier import Delivery
from enginetop.alerts.sinks.notice import Notice
from enginetop.cli.alert_settings import AlertSettings, SinkSettings
from enginetop.cli.alerting import AuditNews, _sink, open_desk
from enginetop.fleet.change import AuditRow, ChangeState
from tests.support.watch_process import Receiver
from tests.tui.snapshots import AT, alert
from tuners.control.audit import Audit

URL = "http://r1:8000"


def row(change: str, target: str = URL) -> AuditRow:
    return AuditRow(change, AT, ChangeState.ROLLED_BACK, target, "max_num_seqs", 64, 32)


def test_the_audit_is_read_again_when_it_grew(tmp_path: Path) -> None:
    news = AuditNews(tmp_path, {URL})
    assert news() == ()
    audit = Audit(tmp_path)
    audit.append([row("c1"), row("c2", "http://elsewhere:8000")])
    assert [found.change for found in news()] == ["c1"]
    assert news() is news()  # nothing new, nothing read
    audit.append([row("c3")])
    assert [found.change for found in news()] == ["c1", "c3"]
    (tmp_path / "audit.jsonl").unlink()
    assert [found.change for found in news()] == ["c1", "c3"]


def webhook(**address: str) -> SinkSettings:
    known = {"path": None, "url": None, "url_env": None, "url_file": None, **address}
    return SinkSettings(kind="webhook", name="hook", severity="info", credentials=NO_CREDENTIALS, **known)


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        (None, "cannot be read: no such file or directory"),
        ("", "holds none"),
        ("ftp://S3CRET", "holds none"),
        ("http://[S3CRET", "holds none"),
        ("http://[S3CRET]/x", "holds none"),
        ("http://S3CRET\u2100@127.0.0.1:1/x", "holds none"),
        ("http://127.0.0.1:S3CRET/x", ""),
        ("http://127.0.0.1:1/S3CRET", "connection refused"),
        ("http://S3CRET.invalid/S3CRET?S3CRET", ""),
    ],
)
def test_an_address_that_cannot_be_used_is_told_without_it(
    tmp_path: Path, written: str | None, problem: str
) -> None:
    file = tmp_path / "address"
    if written is not None:
        file.write_text(written + "\n", encoding="utf-8")
    delivery = _sink(webhook(url_file=str(file))).deliver([Notice(1, AT, alert("R", URL))])
    assert delivery.taken == 0
    assert problem in delivery.problem
    assert "S3CRET" not in delivery.problem
    assert delivery.problem


def sink(kind: str, **fields: Any) -> SinkSettings:
    known: dict[str, Any] = {"path": None, "url": None, "url_env": None, "url_file": None}
    return SinkSettings(
        **{**known, "kind": kind, "name": "s", "severity": "info", "credentials": NO_CREDENTIALS, **fields}
    )


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (sink("webhook", url_env="E_UNSET"), "no address: the variable E_UNSET holds none"),
        (sink("slack", url_file="/no/such"), "the file /no/such cannot be read: no such file or directory"),
        (sink("file", path="/no/such/file"), "the folder /no/such is not there, or not writable"),
        (sink("file", path=f"/{'a' * 300}/file"), "a is not there, or not writable"),
        (sink("file", path="/no\0such/file"), "such is not there, or not writable"),
        (
            sink("alertmanager", url="http://a:1", credentials=Credentials(api_key_env="E_UNSET")),
            "no API key: the variable E_UNSET",
        ),
        (sink("alertmanager", url="http://a:1"), ""),
        (sink("file", path="alerts.jsonl"), ""),
    ],
    ids=lambda one: one.kind if isinstance(one, SinkSettings) else "",
)
def test_what_keeps_a_sink_from_delivering_is_told_before_the_first_alert(
    settings: SinkSettings,
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("E_UNSET", raising=False)
    opened = open_desk(AlertSettings(sinks=(settings,), origin="fleet.toml"))
    assert opened is not None
    opened[0].start()
    opened[0].stop()
    told = capsys.readouterr().err
    if problem:
        assert told.startswith("enginetop: fleet.toml: sink s: ")
        assert problem in told
        assert told.endswith("; until then its alerts wait\n")
        assert told.count("\n") == 1
    else:
        assert told == ""


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", ""),
        (b"channel_is_archived", ": channel_is_archived"),  # as Slack answers
        (b'{"code": 400, "message": "bad start"}', ": bad start"),
        (b'"no such tenant"', ": no such tenant"),
        (b"<html><title>502</title></html>", ""),
        (b"\xff\xfe", ""),
        (b"two\r\nlines\x1b[31m " + b"x" * 5000, ": two lines [31m " + "x" * 184),
        (b"no /S3CRET/hook?key=S3CRET here, and no token-S3CRET", ": no …?… here, and no [key]"),
    ],
    ids=["empty", "plain", "json", "a string", "html", "no text", "hostile", "secrets"],
)
def test_what_a_receiver_says_is_told_without_the_address(
    monkeypatch: pytest.MonkeyPatch, answer: bytes, said: str
) -> None:
    with Receiver() as receiver:
        monkeypatch.setenv("HOOK", f"http://127.0.0.1:{receiver.port}/S3CRET/hook?key=S3CRET")
        monkeypatch.setenv("TOKEN", "token-S3CRET")
        how = Credentials(api_key_env="TOKEN")
        sink = _sink(SinkSettings("webhook", "s", "info", None, None, "HOOK", None, how))
        receiver.status, receiver.answer = 400, answer
        found = sink.deliver([Notice(1, AT, alert("R", URL))])
        assert found == Delivery(0, f"the receiver answers 400{said}", refused=True)


def test_an_address_and_a_token_are_read_anew_for_every_post(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Receiver() as receiver:
        monkeypatch.setenv("HOOK", f"http://127.0.0.1:{receiver.port}/a?x=1")
        monkeypatch.setenv("TOKEN", "one-long-token")
        settings = SinkSettings(
            "slack", "s", "info", None, None, "HOOK", None, Credentials(api_key_env="TOKEN")
        )
        sink = _sink(settings)
        assert sink.deliver([Notice(1, AT, alert("R", URL, summary="why"))]).problem == ""
        assert receiver.post() == {"text": f"[warning] R {URL}: why"}
        monkeypatch.setenv("TOKEN", "another-token")
        monkeypatch.setenv("HOOK", f"http://127.0.0.1:{receiver.port}/b/")
        receiver.status = 503
        assert sink.deliver([Notice(2, AT, alert("R", URL))]).problem == "the receiver answers 503"
        assert receiver.paths == ["/a?x=1", "/b/"]
        assert receiver.tokens == ["Bearer one-long-token", "Bearer another-token"]
