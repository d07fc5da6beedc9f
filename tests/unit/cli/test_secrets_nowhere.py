"""No key, token or password is in anything that any command prints, writes or logs.

Every command of the command line, in every format, against servers that repeat what they were sent, in pages
and in every kind of failure; with keys from the environment, from files, in addresses, and in servers' own
pages. What was printed and every file that was written is then searched.
"""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.gallery import KEYS
from enginetop.cli import doctor_here, ui
from enginetop.cli.main import main
from enginetop.cli.parser import COMMANDS, UI, Command, _parser
from enginetop.cli.settings import state_folder
from enginetop.doctor.machine import GpuFacts
from enginetop.fleet.change import ChangeState
from enginetop.fleet.plan import Plan, PlannedChange, Scope, plan_text
from tests.support import telltale
from tests.support.fake_prometheus import FakePrometheus
from tests.support.faulty_server import HANG, FaultyServer, Request
from tests.support.telltale import (
    ENV_KEY,
    FILE_KEY,
    HOOK,
    PAGES,
    PASSWORD,
    QUERY,
    TOKEN,
    USERINFO,
    traces_in,
    written,
)
from tests.support.watch_process import Receiver
from tui.actions import Place
from tui.app import FleetApp
from tuners.control.progress import Progress
from tuners.control.settings import ControlSettings
from tuners.control.store import ChangeStore

TLS = Path(__file__).parents[2] / "support" / "tls"
ADDRESS = f"http://u:{USERINFO}@127.0.0.1:1/{PAGES}?api_key={QUERY}#token={QUERY}"
QUICK = ("--interval", "0.3", "--timeout", "0.25", "--window", "2")
CONTROL = "[control]\nwarmup_seconds = 0\nblocks = 2\nblock_seconds = 1\nttl_seconds = 30\n"


@dataclass
class Desk:
    """Where commands are run: their folders, and what they printed until now."""

    given: Path
    made: Path
    capfd: pytest.CaptureFixture[str]
    targets: dict[str, str] = field(default_factory=dict)
    hooked: list[str] = field(default_factory=list)
    printed: list[tuple[str, str]] = field(default_factory=list)
    ran: set[str] = field(default_factory=set)
    formats: set[tuple[str, str]] = field(default_factory=set)

    @property
    def config(self) -> tuple[str, str]:
        return ("--config", str(self.given / "config.toml"))

    def run(self, *argv: str, cut_after: float = 0.0) -> int:
        """One command line in this process; the exit code. It is told to stop after `cut_after` seconds."""
        self.capfd.readouterr()
        with cut_short(cut_after):
            try:
                code = main(list(argv))
            except SystemExit as left:
                code = int(left.code or 0)
        self.note(" ".join(argv))
        self.ran.add(argv[0] if argv[0] in {one.name for one in COMMANDS} else "")
        if "--format" in argv:
            self.formats.add((argv[0], argv[argv.index("--format") + 1]))
        return code

    def note(self, what: str) -> None:
        """Keep what was printed by now."""
        streams = self.capfd.readouterr()
        self.printed.append((what, streams.out + streams.err))

    def leaks(self) -> list[str]:
        """Every place in which there is something of a secret."""
        found = [
            f"{what}: {trace}" for what, text in self.printed for trace in traces_in(text.encode("utf-8"))
        ]
        return found + [f"{name}: {trace}" for name, data in written(self.made) for trace in traces_in(data)]


@contextmanager
def cut_short(seconds: float) -> Iterator[None]:
    """Press ctrl+c after some seconds; 0: don't."""

    def press(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGALRM, press)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def desk(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    server: FaultyServer,
) -> Iterator[Desk]:
    """A fleet of hostile servers in a config file, with keys of every kind."""
    found = Desk(tmp_path / "given", tmp_path / "made", capfd)
    for folder in (found.given, found.made):
        folder.mkdir()
    monkeypatch.chdir(found.made)
    monkeypatch.setattr(doctor_here, "gpu_facts", lambda targets: GpuFacts(problem="none here"))
    for name, below in (("HOME", "home"), ("XDG_STATE_HOME", "state"), ("XDG_CONFIG_HOME", "conf")):
        monkeypatch.setenv(name, str(found.made / below))
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))  # private by definition, and gone with us
    monkeypatch.setenv("ENGINE_KEY", ENV_KEY)
    monkeypatch.setenv("http_proxy", f"http://u:{USERINFO}@127.0.0.1:1")
    for name, secret in (("key", FILE_KEY), ("password", PASSWORD), ("token", TOKEN)):
        (found.given / name).write_text(secret + "\n")
    monkeypatch.setenv("ENGINETOP_COMPANION_TOKEN_FILE", str(found.given / "token"))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(TLS / "server.crt", TLS / "server.key")
    keys = (
        'api_key_env = "ENGINE_KEY"',
        f'api_key_file = "{found.given / "key"}"',
        f'username = "u"\npassword_file = "{found.given / "password"}"',
    )
    scripts = {
        "chatty": telltale.chatty,
        "knobs": telltale.knobs,
        "refused": telltale.refusing(401),
        "forbidden": telltale.refusing(403, "text/plain"),
        "broken": telltale.refusing(500, "text/html"),
        "loading": telltale.refusing(503),
        "elsewhere": telltale.redirecting,
        "within": telltale.within,
        "garbled": telltale.garbled,
        "header": telltale.bad_header,
        "chunks": telltale.cut_chunks,
        "silent": lambda _: HANG,
    }
    lines = [CONTROL]
    for place, (name, script) in enumerate(scripts.items()):
        for number, key in enumerate(keys):
            if name not in ("chatty", "refused") and number != place % len(keys):
                continue
            url = found.targets[f"{name}-{number}"] = server.replica(script).url
            lines.append(f'[[targets]]\nname = "{name}-{number}"\nurl = "{url}"\n{key}\n')
            if name == "knobs":
                lines.append(f'control_url = "{url}"\ncontrol_token_file = "{found.given / "token"}"\n')
    self_signed = server.replica(telltale.chatty, tls=tls).url
    for name, url, more in (
        ("unsigned", self_signed, ""),
        ("signed", self_signed.replace("127.0.0.1", "localhost"), f'ca_file = "{TLS / "server.crt"}"\n'),
        ("nowhere", "https://engine.invalid:8000", ""),
        ("proxied", "http://engine.invalid:8000", ""),
        ("closed", "http://127.0.0.1:1", ""),
    ):
        found.targets[name] = url
        lines.append(f'[[targets]]\nname = "{name}"\nurl = "{url}"\n{keys[0]}\n{more}')
    for number, key in enumerate(keys):
        lines.append(f'[[gpu_exporters]]\nurl = "{server.replica(telltale.refusing(401)).url}"\n{key}\n')
        lines.append(f'[[gpu_exporters]]\nname = "g{number}"\nurl = "{found.targets["chatty-0"]}"\n{key}\n')
    (found.given / "fleet.toml").write_text("\n".join(lines))
    with Receiver() as receiver:
        receiver.status = 500
        (found.given / "hook").write_text(f"http://127.0.0.1:{receiver.port}/{HOOK}?token={QUERY}")
        found.hooked = receiver.paths
        lines += [
            *(f'[[alerts]]\nrule = "{rule}"\nfor_seconds = 0\n' for rule in ("TargetDown", "Unauthorized")),
            f'[[sinks]]\nkind = "file"\npath = "{found.made / "alerts.jsonl"}"\n',
            f'[[sinks]]\nkind = "webhook"\nurl_file = "{found.given / "hook"}"\n',
            f'token_file = "{found.given / "token"}"\n',
            f'[[sinks]]\nkind = "slack"\nurl_file = "{found.given / "hook"}"\n',
        ]
        (found.given / "config.toml").write_text("\n".join(lines))
        yield found


def plan_on(url: str, change_id: str = "c0ffee") -> Plan:
    change = PlannedChange(url, "i-1", "max_num_batched_tokens", 8192, 4096)
    return Plan(
        change_id,
        time.time() - 60,
        time.time() + 3600,
        "0",
        "e" * 64,
        Scope(None, "aggregated", url),
        (change,),
    )


def test_no_command_lets_a_secret_out(
    desk: Desk,
    server: FaultyServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    chatty = desk.targets["chatty-0"]
    recording, plan = desk.made / "r.jsonl", desk.made / "plan.json"
    plan.write_text(plan_text(plan_on(desk.targets["knobs-1"])))
    read = (*desk.config, *QUICK)
    desk.run(*read)
    desk.run("demo", "--list")
    desk.run("sim", "--scenario", ADDRESS)
    for form in ("json", "table", "prometheus"):
        desk.run("snapshot", *read, "--format", form)
    for seconds in ("0.8", "3", "10"):  # a busy machine needs longer to answer itself
        how = ("--interval", "0.3", "--timeout", seconds, "--for", seconds)
        desk.run("record", *desk.config, *how, "-o", str(recording))
        if b"requests_running" in recording.read_bytes():
            break
    for form in ("table", "json"):
        desk.run("curve", *read, "--for", "0.3", "--format", form)
        desk.run("tune", *read, "--observe", "0.3", "--plan", str(desk.made / "p"), "--format", form)
        desk.run("doctor", *read[:2], "--format", form)
    for form in ("text", "json"):
        desk.run("check", *read, "--format", form)
        desk.run("apply", str(plan), *read, "--yes", "--format", form, cut_after=20.0)
        in_force = plan_on(desk.targets["knobs-1"], change_id=f"done-{form}")
        ChangeStore(state_folder()).save(
            Progress(in_force, ControlSettings(), "0", "somebody", ChangeState.DONE, time.time())
        )
        desk.run("rollback", in_force.id, *read, "--yes", "--format", form, cut_after=20.0)
        desk.run("audit", "--format", form)
    desk.run("apply", str(plan), *read, "--dry-run")
    desk.run("apply", str(plan), *read, "--emit-patch")
    for form in ("ndjson", "table"):
        for patience in (1.5, 5.0, 15.0):
            desk.run("watch", *read, "--format", form, "--heartbeat", "0.5", cut_after=patience)
            if desk.hooked and (desk.made / "alerts.jsonl").is_file():
                break
        desk.run("watch", "--replay", str(recording), "--format", form)
    for form in ("text", "json"):
        desk.run("silence", "add", "--for", "1h", "--all", "--reason", "r", "--format", form)
        desk.run("silence", "list", "--format", form)
    desk.run("replay", str(recording))
    asked = ("chatty-0", "chatty-1", "chatty-2", "refused-1", "garbled-2", "elsewhere-0", "nowhere")
    for number, name in enumerate(asked):
        out = ("--records-out", str(desk.made / "records.jsonl"))
        printed = ("--format", ("table", "json")[number % 2])
        probe = ("--yes", "--requests", "1", "--timeout", "1", *out, *printed, *desk.config)
        desk.run("probe", desk.targets[name], *probe)
    desk.run("launch", "--engine", "vllm", "--url", chatty, "--", "no-such-engine", "--api-key", PAGES)
    desk.run("rules")
    desk.run("config", "validate", *desk.config)
    _prometheus(desk, server)
    _kubernetes(desk, server, monkeypatch)
    _screen(desk, monkeypatch)
    _bad_config_files(desk)

    _what_is_left(desk)
    assert (desk.made / "alerts.jsonl").read_bytes()
    assert any(HOOK in path for path in desk.hooked)
    texts = dict(desk.printed)
    assert any("HTTP 401" in text for text in texts.values())
    assert any("TLS" in text for text in texts.values())
    assert any("name lookup failed" in text for text in texts.values())
    assert any("elsewhere.invalid" in text for text in texts.values())
    assert b"requests_running" in recording.read_bytes()
    assert [*traces_in(caplog.text.encode())] == []
    assert desk.leaks() == []


def _what_is_left(desk: Desk) -> None:
    """Commands and formats that were not named above."""
    for command in COMMANDS:
        needed = NEEDED.get(command.name, ())
        if command.name not in desk.ran:
            desk.run(command.name, *needed, cut_after=3.0)
        for action in _parser(command)._actions:
            for choice in (action.choices or ()) if "--format" in action.option_strings else ():
                if (command.name, choice) not in desk.formats:
                    desk.run(command.name, *needed, *desk.config, "--format", choice, cut_after=3.0)


def _prometheus(desk: Desk, server: FaultyServer) -> None:
    """Servers that scrape, and repeat; and one that is well but was told secrets."""
    fake = FakePrometheus()
    labels = {"job": "vllm", "instance": "h:1"}
    request = Request("/", {"authorization": f"Bearer {ENV_KEY}"}, 0, 0)
    argv = telltale.label_text(telltale.told(request))
    for at in (980.0, 990.0):
        fake.scraped(
            labels,
            at,
            f'vllm:num_requests_running{{model_name="m",argv="{argv}"}} 1\n',
        )
    fake.scraped({**labels, "instance": "h:2"}, 990.0, None)
    fake.active = [{"labels": {**labels, "instance": "h:2"}, "lastError": f"Get {ADDRESS}: refused"}]
    fake.warnings = [telltale.told(request)]
    config = desk.given / "prometheus.toml"
    with fake.serving() as url:
        wells = [url, *(server.replica(telltale.refusing(status)).url for status in (401, 422, 500))]
        wells += [server.replica(script).url for script in (telltale.redirecting, telltale.garbled)]
        keys = ('api_key_env = "ENGINE_KEY"', f'username = "u"\npassword_file = "{desk.given / "password"}"')
        for number, place in enumerate(wells):
            config.write_text(f'[prometheus]\nurl = "{place}"\n{keys[number % 2]}\ntenant = "t"\n')
            desk.run("snapshot", "--config", str(config))
            desk.run("doctor", "--config", str(config))
            if place == url:
                desk.run("rules", "--config", str(config))
                desk.run("watch", "--config", str(config), "--from", "1m")
                out = str(desk.made / "p.jsonl")
                desk.run("record", "--config", str(config), "-o", out, "--for", "0.3")
                desk.run("record", "--config", str(config), "-o", out, "--from", "1m")
            key_of_targets = f'api_key_file = "{desk.given / "key"}"'
            config.write_text(f'[[discovery]]\nkind = "prometheus"\nurl = "{place}"\n{key_of_targets}\n')
            desk.run("snapshot", "--config", str(config), *QUICK)


def _kubernetes(desk: Desk, server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """API servers that repeat the token."""
    for script in (telltale.refusing(401), telltale.redirecting, telltale.garbled, telltale.chatty):
        url = server.replica(script).url
        (desk.given / "kubeconfig").write_text(
            yaml.safe_dump(
                {
                    "current-context": "c",
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
                    "clusters": [{"name": "c", "cluster": {"server": url}}],
                    "users": [{"name": "c", "user": {"token": TOKEN}}],
                }
            )
        )
        monkeypatch.setenv("KUBECONFIG", str(desk.given / "kubeconfig"))
        desk.run("snapshot", "--kubernetes", *QUICK)


def _screen(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every view of the screen, drawn and exported, and the raw page of every replica."""

    def drive(source: Any, **options: Any) -> int:
        app = FleetApp(source, **options)

        async def go() -> None:
            async with app.run_test(size=(200, 60)) as pilot:
                while app.top.picture.snapshot is None or any(
                    one.scraped_at is None and one.last_failure is None
                    for one in app.top.picture.snapshot.replicas
                ):
                    await pilot.pause(0.1)
                ways = {**KEYS, Place.RAW: ("j", "2", "w")}
                del ways[Place.PALETTE], ways[Place.HELP], ways[Place.COMPARE]
                for place, keys in ways.items():
                    for key in keys:
                        await pilot.press(key)
                    await pilot.pause()
                    (desk.made / f"{place.value}.svg").write_text(app.export_screenshot())
                    await pilot.press("1")
                for form in ("svg", "csv", "json"):
                    app._write(form, None)

        asyncio.run(go())
        source.stop()
        return 0

    with monkeypatch.context() as patched:
        patched.setattr(ui, "has_terminal", lambda: True)
        patched.setattr("tui.run.run_app", drive)
        slowly = ("--interval", "3", "--timeout", "0.25", "--window", "10")  # what is drawn is what counts
        desk.run("--config", str(desk.given / "fleet.toml"), *slowly)
    assert [*desk.made.glob("enginetop-*.csv")]


def _bad_config_files(desk: Desk) -> None:
    """Keys written where only the name of a place belongs, and files that are broken behind one."""
    path = desk.given / "bad.toml"
    for text in (
        f'[[targets]]\nurl = "{ADDRESS}"\n',
        f'[[targets]]\nurl = "h:1"\napi_key = "{FILE_KEY}"\n',
        f'[[targets]]\nurl = "h:1"\napi_key_env = "{FILE_KEY}"\n',
        f'[[targets]]\nurl = "h:1"\nusername = "u:{PASSWORD}"\npassword_env = "X"\n',
        f'[prometheus]\nurl = "{ADDRESS}"\n',
        f'[prometheus]\nurl = "h:1"\npassword = "{PASSWORD}"\n',
        f'[[gpu_exporters]]\nurl = "{ADDRESS}"\n',
        f'[[discovery]]\nkind = "prometheus"\nurl = "{ADDRESS}"\n',
        f'[[discovery]]\nkind = "dns"\nname = "{ADDRESS}"\n',
        f'[[discovery]]\nkind = "file_sd"\npath = "{ADDRESS}"\n',
        f'[[sinks]]\nkind = "webhook"\nurl = "{ADDRESS}"\n',
        f'[[sinks]]\nkind = "alertmanager"\nurl = "{ADDRESS}"\n',
        f'[[sinks]]\nkind = "slack"\nurl_env = "X"\ntoken = "{TOKEN}"\n',
        f'token = "{TOKEN}"\n',
        f'api_key = "{FILE_KEY}\n',
        f"api_key_file = {FILE_KEY}\n",
        f'"{FILE_KEY}" = 1\n[[[',
    ):
        path.write_text(text)
        for command in ("snapshot", "doctor", "watch"):
            desk.run(command, "--config", str(path), *QUICK[:2], cut_after=1.0)
        for act in ("validate", "print"):
            desk.run("config", act, "--config", str(path))


NEEDED = {
    "record": ("-o", "r.jsonl", "127.0.0.1:1", "--for", "0.1"),
    "apply": ("plan.json",),
    "rollback": ("c0ffee",),
    "replay": ("r.jsonl",),
    "probe": ("127.0.0.1:1",),
    "silence": ("list",),
    "config": ("print",),
    "sim": ("--scenario", "no-such"),
    "demo": ("--list",),
}
"""What a command cannot do without."""


def arguments(command: Command) -> Iterator[tuple[str, ...]]:
    """Command lines with an address that holds keys in the place of each text, and where there is none."""
    name = (command.name,) if command is not UI else ()
    needed = NEEDED.get(command.name, ())
    for action in _parser(command)._actions:
        if action.option_strings and action.nargs != 0:
            yield (*name, *needed, action.option_strings[-1], ADDRESS)
        elif not action.option_strings:
            yield (*name, ADDRESS)
    yield (*name, *needed, "--api-key", PAGES)
    yield (*name, *needed, f"--token={PASSWORD}")
    yield (*name, *needed, "--password", PASSWORD)
    yield (*name, *needed, ADDRESS, ADDRESS)
    for kind in ("prometheus", "dns", "file_sd", "dynamo", "kubernetes", "x"):
        yield (*name, *needed, "--discover", f"{kind}:{ADDRESS}")


@pytest.mark.parametrize("command", [UI, *COMMANDS], ids=lambda command: command.name or "ui")
def test_no_argument_is_repeated_with_its_secrets(
    command: Command, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    (desk.made / "plan.json").write_text(plan_text(plan_on("http://127.0.0.1:1")))
    (desk.made / "r.jsonl").write_text("")
    for argv in arguments(command):
        desk.run(*argv, *(("--", "no-such") if command.takes_command else ()), cut_after=2.0)
    assert len(desk.printed) > 5
    assert desk.leaks() == []
    assert not [text for _, text in desk.printed if "Traceback" in text]
