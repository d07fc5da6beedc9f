"""Credentials of a context: plugins that print, expire, fail, hang or want a terminal."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from collectors.kubernetes.context import Context, ExecPlugin, KubernetesError
from collectors.kubernetes.exec_plugin import Printed, run_plugin
from collectors.kubernetes.identity import Identity


def plugin(
    command: str, *arguments: str, interactive: str = "IfAvailable", version: str = "v1"
) -> ExecPlugin:
    return ExecPlugin(
        command,
        arguments,
        (("EXTRA", "there"),),
        f"client.authentication.k8s.io/{version}",
        interactive,
        "",
        True,
    )


def context(one: ExecPlugin | None = None, **fields: object) -> Context:
    return Context("c", "https://api:6443", "default", exec_plugin=one, **fields)  # type: ignore[arg-type]


def shell(script: str) -> ExecPlugin:
    return plugin("/bin/sh", "-c", script)


def printed(**status: str) -> str:
    return json.dumps({"kind": "ExecCredential", "status": status})


def test_what_a_plugin_prints() -> None:
    one = shell(f"echo '{printed(token='abc', expirationTimestamp='2026-11-30T12:00:00Z')}'")
    found = run_plugin(one, context(one))
    assert (found.token, found.until) == ("abc", 1796040000.0)


def test_a_plugin_gets_its_variables_and_no_terminal() -> None:
    script = (
        'test -z "$(cat)" && ! (: < /dev/tty) 2>/dev/null && '
        'printf \'{"status": {"token": "%s-%s"}}\' "$EXTRA" '
        '"$(printf %s "$KUBERNETES_EXEC_INFO" | grep -o https://api:6443)"'
    )
    assert run_plugin(shell(script), context()).token == "there-https://api:6443"


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (shell("echo no session >&2; exit 3"), "/bin/sh failed: no session; log in: /bin/sh -c"),
        (shell("echo hello"), "printed no credentials"),
        (shell(f"echo '{printed(clientCertificateData='c')}'"), "printed no credentials"),
        (plugin("/nonexistent/aws"), "/nonexistent/aws is not there: install it"),
        (
            plugin("/bin/true", interactive="Always"),
            "needs a terminal, which it does not get here; run: /bin/true",
        ),
        (plugin("/bin/true", version="v1alpha1"), "v1alpha1 is not read"),
        (plugin("/bin/true", "a\0b"), "/bin/true cannot be run: embedded null byte"),
        (plugin("/bin/a\0b"), "cannot be run: embedded null byte"),
        (replace(plugin("/bin/true"), environment=(("A=B", "c"),)), "cannot be run: illegal environment"),
        (shell("printf '%0100000d' 0 | tr 0 '['"), "printed no credentials"),
    ],
)
def test_a_plugin_that_gives_nothing_says_what_to_do(one: ExecPlugin, said: str) -> None:
    with pytest.raises(KubernetesError) as raised:
        run_plugin(one, context(one))
    assert said in str(raised.value)


def test_one_that_hangs_is_ended_with_all_that_it_started() -> None:
    one = shell("sleep 600 & sleep 600")
    with pytest.raises(KubernetesError, match=r"no credentials within 0\.2 s; log in"):
        run_plugin(one, context(one), timeout_seconds=0.2)


def test_credentials_are_renewed_before_they_expire() -> None:
    clock = [1000.0]
    runs: list[float] = []

    def run(_: Context) -> Printed:
        runs.append(clock[0])
        return Printed(f"token-{len(runs)}", None, None, clock[0] + 600)

    identity = Identity(context(plugin("x")), run=run, now=lambda: clock[0])
    assert identity.credentials().bearer() == "token-1"
    clock[0] = 1539.0
    assert identity.credentials().bearer() == "token-1"
    clock[0] = 1541.0
    before = identity.credentials()
    assert (before.bearer(), runs) == ("token-2", [1000.0, 1541.0])
    assert identity.refused()
    assert identity.credentials() == before, (
        "whoever holds the credentials reads the new token from the same file"
    )
    assert before.bearer() == "token-3"


def test_without_a_plugin_a_refusal_is_final() -> None:
    identity = Identity(context(token="t"))
    assert identity.credentials().bearer() == "t"
    assert not identity.refused()


def test_what_is_in_line_lies_where_only_we_may_read() -> None:
    one = Identity(context(token="t", ca_data=b"CA", cert_data=b"CERT", key_data=b"KEY")).credentials()
    for path, content in (
        (one.ca_file, b"CA"),
        (one.client_cert_file, b"CERT"),
        (one.client_key_file, b"KEY"),
    ):
        assert path is not None
        assert Path(path).read_bytes() == content
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
        assert stat.S_IMODE(Path(path).parent.stat().st_mode) == 0o700


def test_data_goes_before_a_path_and_a_token_before_a_password() -> None:
    one = Identity(
        context(ca_file="/ca", cert_file="/c", token="t", username="u", password="p")
    ).credentials()
    assert (one.ca_file, one.client_cert_file, one.username) == ("/ca", "/c", None)
    basic = Identity(context(username="u", password="p")).credentials()
    assert basic.authorization() == ("Basic dTpw", ("dTpw", "p"))
