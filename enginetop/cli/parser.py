"""The command line's grammar: one table of commands, parsers made from it."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass

from enginetop import __version__
from enginetop.alerts.silence import duration_seconds
from enginetop.cli.slo_flag import parse_slo
from tuners.control.flags import FLAGS

_TARGET_HELP = "http(s)://host:port[/path] or host:port; none: the fleet of the config file"


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its name, one line of help, the module of `enginetop.cli` that runs it, its arguments.

    `takes_command`: what follows `--` is a command line of its own, as `args.command`.
    """

    name: str
    help: str
    module: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    takes_command: bool = False


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def _interval(text: str) -> float:
    value = _positive(text)
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r}: an interval lies between 0.1 and 3600 seconds")
    return value


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _at_most(most: int) -> Callable[[str], int]:
    def count(text: str) -> int:
        number = _count(text)
        if number > most:
            raise argparse.ArgumentTypeError(f"{text!r}: at most {most}")
        return number

    return count


def _reading(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("targets", nargs="*", default=[], metavar="TARGET", help=_TARGET_HELP)
    _discover(parser)
    _prometheus(parser)
    parser.add_argument("--replay", metavar="FILE", help="read this recording instead of live targets")
    parser.add_argument(
        "--records",
        action="append",
        default=[],
        metavar="FILE[=TARGET]",
        help="follow this log of single requests too (JSON lines, a directory of such files, or - for stdin)",
    )
    parser.add_argument(
        "--thinking-budget", type=_count, metavar="N", help="limit of the reasoning in --records, in tokens"
    )
    _common(parser)


def _discover(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--discover",
        action="append",
        default=[],
        metavar="KIND:WHAT",
        help="targets that come and go: file_sd:FILE dns:HOST:PORT dns:_SERVICE._tcp.NAME dynamo:FOLDER "
        "prometheus:URL local",
    )


def _prometheus(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prometheus",
        metavar="URL",
        help="read the fleet from this Prometheus, Thanos, Mimir or VictoriaMetrics, not from its engines",
    )
    for flag, said in (
        ("--at", "with --prometheus: the fleet as it was then (2026-11-30T08:15, or 15m: so long ago)"),
        ("--from", "with --prometheus: review what happened from then on"),
        ("--to", "with --from: until then (default: now)"),
    ):
        parser.add_argument(flag, dest=f"{flag[2:]}_time", metavar="TIME", help=said)


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", metavar="FILE", help="config file (default: enginetop/config.toml under XDG_CONFIG_HOME)"
    )
    parser.add_argument("--interval", type=_interval, metavar="S", help="seconds between scrapes (default 2)")
    parser.add_argument(
        "--timeout", type=_positive, metavar="S", help="deadline of one scrape (default 0.9 x interval)"
    )
    parser.add_argument(
        "--window", type=_positive, metavar="S", help="window of rates and percentiles (default 60)"
    )
    parser.add_argument(
        "--slo", type=parse_slo, metavar="ttft=S,tpot=S,target=R", help="objective for this run"
    )


def _screen(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--theme", metavar="NAME", help="colour theme")
    parser.add_argument("--ascii", action="store_true", help="draw with ASCII characters only")
    parser.add_argument("--no-mouse", action="store_true", help="leave the mouse to the terminal")


def _ui_arguments(parser: argparse.ArgumentParser) -> None:
    _reading(parser)
    _screen(parser)


def _demo_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(targets=[])
    _scenario(parser)
    parser.add_argument("--list", action="store_true", help="print the scenarios and exit")
    _common(parser)
    _screen(parser)


def _scenario(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scenario", metavar="NAME|FILE", help="built-in scenario of the simulated fleet, or a TOML file"
    )
    parser.add_argument(
        "--replicas", type=_count, metavar="N", help="simulated replicas (default: the scenario's; demo: 12)"
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="seed of the drawn requests (default 1)"
    )


def _sim_arguments(parser: argparse.ArgumentParser) -> None:
    _scenario(parser)
    parser.add_argument(
        "--port", type=_count, metavar="P", help="first port; the next replicas follow (default: free ports)"
    )


def _snapshot_arguments(parser: argparse.ArgumentParser) -> None:
    _reading(parser)
    parser.add_argument(
        "--samples", type=_count, default=2, metavar="N", help="scrapes before the snapshot (default 2)"
    )
    parser.add_argument(
        "--format", choices=("json", "table", "prometheus"), default="json", help="default json"
    )


def _watch_arguments(parser: argparse.ArgumentParser) -> None:
    _reading(parser)
    parser.add_argument(
        "--format", choices=("ndjson", "table"), default="ndjson", help="default ndjson; table: sentences"
    )
    parser.add_argument(
        "--heartbeat", type=_positive, metavar="S", help="a line every S seconds that all is well"
    )
    parser.add_argument(
        "--listen",
        metavar="127.0.0.1:PORT",
        help="serve /metrics (Prometheus text of the fleet and of the watch) and /healthz there",
    )
    parser.add_argument(
        "--listen-any-address",
        action="store_true",
        help="--listen may name an address that other machines reach; whoever asks is answered",
    )


def _check_arguments(parser: argparse.ArgumentParser) -> None:
    _reading(parser)
    parser.add_argument(
        "--for",
        dest="duration",
        type=_positive,
        metavar="S",
        help="watch for S seconds, so that what needs a hold can count (default: two samples)",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default text")


def _curve_arguments(parser: argparse.ArgumentParser) -> None:
    _reading(parser)
    parser.add_argument(
        "--for",
        dest="duration",
        type=_positive,
        default=900.0,
        metavar="S",
        help="watch for S seconds (default 900)",
    )
    parser.add_argument(
        "--overlay",
        action="append",
        default=[],
        metavar="FILE",
        help="result of GuideLLM or AIPerf (JSON) to lay over; may be given again",
    )
    parser.add_argument("--format", choices=("table", "json"), default="table", help="default table")


def _record_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("targets", nargs="*", default=[], metavar="TARGET", help=_TARGET_HELP)
    _discover(parser)
    _prometheus(parser)
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="recording to write (.jsonl or .jsonl.gz)"
    )
    parser.add_argument(
        "--for", dest="duration", type=_positive, metavar="S", help="stop after S seconds (default: ctrl+c)"
    )
    _common(parser)


def _replay_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recording", metavar="FILE", help="recording to play back")
    parser.add_argument(
        "--speed", type=_positive, default=1.0, metavar="X", help="times real time (default 1)"
    )
    parser.set_defaults(targets=[])
    _common(parser)
    _screen(parser)


def _probe_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("targets", nargs=1, metavar="URL", help="http(s)://host:port or host:port")
    for flag, usual, most, said in (
        ("--requests", 8, 100, "requests to send"),
        ("--max-tokens", 2048, 16384, "tokens of one answer"),
        ("--concurrency", 1, 4, "requests at a time"),
    ):
        told = f"{said} (default {usual}, at most {most})"
        parser.add_argument(flag, type=_at_most(most), default=usual, metavar="N", help=told)
    parser.add_argument("--model", metavar="M", help="model to ask (default: the first that it names)")
    parser.add_argument("--prompt-file", metavar="F", help="ask the text of this file (default: puzzles)")
    parser.add_argument(
        "--records-out", metavar="FILE", help="append a record of each request, to be followed with --records"
    )
    parser.add_argument(
        "--timeout",
        dest="request_timeout",
        type=_positive,
        default=300.0,
        metavar="S",
        help="deadline of one request (default 300)",
    )
    parser.add_argument("--yes", action="store_true", help="send them without being asked")
    parser.add_argument("--format", choices=("table", "json"), default="table", help="default table")
    parser.add_argument(
        "--config", metavar="FILE", help="config file: a target's key and CA (default: as everywhere)"
    )
    parser.set_defaults(interval=None, timeout=None, window=None, slo=None)


def _tune_arguments(parser: argparse.ArgumentParser) -> None:
    _reading(parser)
    parser.add_argument(
        "--observe",
        type=_positive,
        default=180.0,
        metavar="S",
        help="watch for up to S seconds, less if the evidence suffices (default 180)",
    )
    parser.add_argument(
        "--plan",
        metavar="FILE",
        help="write the surest suggestion as a plan for `enginetop apply`; exit 3 when there is none",
    )
    parser.add_argument("--format", choices=("table", "json"), default="table", help="default table")


def _apply_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="plan file, as written by `enginetop tune --plan`")
    _control_arguments(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="hold the plan against the fleet and say so; change nothing"
    )


def _rollback_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("change", metavar="ID", help="id of the change, as `enginetop audit` shows it")
    _control_arguments(parser)


def _control_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("targets", nargs="*", default=[], metavar="TARGET", help=_TARGET_HELP)
    parser.add_argument("--yes", action="store_true", help="approve without being asked")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default text")
    _common(parser)


def _audit_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("change", nargs="?", metavar="ID", help="only this change")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default text")


def _doctor_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("targets", nargs="*", default=[], metavar="TARGET", help=_TARGET_HELP)
    parser.add_argument("--format", choices=("table", "json"), default="table", help="default table")
    _common(parser)


def _rules_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prometheus", metavar="URL", help="only of series that this Prometheus has, in its spelling"
    )
    parser.add_argument(
        "--config", metavar="FILE", help="config file: how the Prometheus is reached (default: as everywhere)"
    )
    parser.set_defaults(
        targets=[], discover=[], replay=None, interval=None, timeout=None, window=None, slo=None
    )


def _duration(text: str) -> float:
    seconds = duration_seconds(text)
    if seconds is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration; write 45s, 30m, 2h or 3d")
    return seconds


def _silence_arguments(parser: argparse.ArgumentParser) -> None:
    acts = ("add", "list", "expire")
    parser.add_argument("act", choices=acts, metavar="{add,list,expire}", help="what to do")
    parser.add_argument("id", nargs="?", metavar="ID", help="of the silence that is to expire")
    parser.add_argument(
        "--for", dest="duration", type=_duration, metavar="2h", help="how long: 45s 30m 2h 3d"
    )
    parser.add_argument("--rule", metavar="PATTERN", help="rules, as a shell pattern")
    parser.add_argument("--target", metavar="PATTERN", help="names or URLs of targets, as a shell pattern")
    parser.add_argument("--all", action="store_true", help="every alert of every target")
    parser.add_argument("--reason", default="", metavar="TEXT", help="why, for whoever reads it")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default text")


def _launch_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [options] -- COMMAND ..."
    parser.add_argument("--engine", choices=[kind.value for kind in FLAGS], help="what COMMAND starts")
    parser.add_argument("--url", metavar="URL", help="where the engine answers (default: as COMMAND says)")
    parser.add_argument(
        "--drain", type=_positive, default=120.0, metavar="S", help="wait so long for requests (default 120)"
    )
    parser.add_argument(
        "--ready", type=_positive, default=900.0, metavar="S", help="and so long for its start (default 900)"
    )
    parser.add_argument(
        "--cut-requests",
        action="store_true",
        help="restart for a new value although requests still run then (default: leave it as it is)",
    )
    parser.add_argument("--config", metavar="FILE", help="config file: the engine's key")
    parser.set_defaults(targets=[], interval=None, timeout=None, window=None, slo=None)


UI = Command("", "the terminal UI on these targets", "ui", _ui_arguments)

COMMANDS: tuple[Command, ...] = (
    Command("demo", "the terminal UI on an embedded simulated fleet", "demo", _demo_arguments),
    Command("sim", "serve a simulated fleet on loopback, one base URL a line", "sim", _sim_arguments),
    Command("snapshot", "scrape, print one snapshot, exit", "snapshot", _snapshot_arguments),
    Command("curve", "goodput and TTFT p99 against load, and the knee", "curve", _curve_arguments),
    Command("tune", "watch, print advice, write a plan", "tune", _tune_arguments),
    Command("probe", "send a few requests: how much a model thinks; asks first", "probe", _probe_arguments),
    Command("watch", "alerts as lines, and to the sinks of the config file", "watch", _watch_arguments),
    Command("check", "one line and an exit code for cron and probes", "check", _check_arguments),
    Command("silence", "keep alerts quiet for a while: add, list, expire", "silence", _silence_arguments),
    Command("apply", "carry out a plan: canary, verdict, promotion or rollback", "apply", _apply_arguments),
    Command("rollback", "undo a change", "rollback", _rollback_arguments),
    Command("audit", "print what was changed, when and why", "audit", _audit_arguments),
    Command(
        "launch",
        "start an engine so that a restart can change its knobs",
        "launch",
        _launch_arguments,
        takes_command=True,
    ),
    Command("rules", "print recording rules for a Prometheus", "rules", _rules_arguments),
    Command("record", "record the raw pages of targets", "record", _record_arguments),
    Command(
        "doctor", "say what is wrong here and with the targets, and the fix", "doctor", _doctor_arguments
    ),
    Command("replay", "play a recording back in the terminal UI", "replay", _replay_arguments),
)


class _Parser(argparse.ArgumentParser):
    """argparse with one-line errors: what is wrong, and where help is."""

    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def parse(argv: list[str]) -> tuple[Command, argparse.Namespace]:
    """The command and its arguments. Exits with 0 after --help and --version, with 2 on a usage error."""
    command = next((known for known in COMMANDS if argv and argv[0] == known.name), UI)
    parser = _parser(command)
    if command.takes_command:
        end = argv.index("--") if "--" in argv else len(argv)
        args = parser.parse_args(argv[1:end])
        args.command = argv[end + 1 :]
        return command, args
    return command, parser.parse_intermixed_args(argv[1:] if command is not UI else argv)


def _parser(command: Command) -> _Parser:
    if command is not UI:
        parser = _Parser(prog=f"enginetop {command.name}", description=command.help, allow_abbrev=False)
    else:
        width = max(len(known.name) for known in COMMANDS)
        listing = "\n".join(f"  {known.name:<{width}}  {known.help}" for known in COMMANDS)
        parser = _Parser(
            prog="enginetop",
            description="Watch live LLM inference fleets. Without a command: the terminal UI on TARGETs.",
            epilog=f"commands:\n{listing}\n\n`enginetop COMMAND --help` tells more.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        parser.add_argument("--version", action="version", version=f"enginetop {__version__}")
    command.add_arguments(parser)
    return parser
