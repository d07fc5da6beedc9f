"""What each command takes."""

from __future__ import annotations

import argparse

from enginetop.cli.argument_groups import (
    TARGET_HELP,
    add_common,
    add_config,
    add_discovery,
    add_gpu_exporters,
    add_prometheus,
    add_reading,
    add_scenario,
    add_screen,
    count_at_most,
    knob_values,
    positive_count,
    positive_number,
    positive_seconds,
    told_duration,
)
from tuners.control.flags import FLAGS


def ui_arguments(parser: argparse.ArgumentParser) -> None:
    add_reading(parser)
    add_screen(parser)


def demo_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(targets=[])
    add_scenario(parser)
    parser.add_argument("--list", action="store_true", help="print the scenarios and exit")
    add_common(parser)
    add_screen(parser)


def sim_arguments(parser: argparse.ArgumentParser) -> None:
    add_scenario(parser)
    parser.add_argument(
        "--port",
        type=positive_count,
        metavar="P",
        help="first port; the next replicas follow (default: free ports)",
    )


def snapshot_arguments(parser: argparse.ArgumentParser) -> None:
    add_reading(parser)
    parser.add_argument(
        "--samples",
        type=positive_count,
        default=2,
        metavar="N",
        help="scrapes before the snapshot (default 2)",
    )
    parser.add_argument(
        "--format", choices=("json", "table", "prometheus"), default="json", help="default json"
    )


def watch_arguments(parser: argparse.ArgumentParser) -> None:
    add_reading(parser)
    parser.add_argument(
        "--format", choices=("ndjson", "table"), default="ndjson", help="default ndjson; table: sentences"
    )
    parser.add_argument(
        "--heartbeat", type=positive_seconds, metavar="S", help="a line every S seconds that all is well"
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


def check_arguments(parser: argparse.ArgumentParser) -> None:
    add_reading(parser)
    parser.add_argument(
        "--for",
        dest="duration",
        type=positive_seconds,
        metavar="S",
        help="watch for S seconds, so that what needs a hold can count (default: two samples)",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default text")


def curve_arguments(parser: argparse.ArgumentParser) -> None:
    add_reading(parser)
    parser.add_argument(
        "--for",
        dest="duration",
        type=positive_seconds,
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


def record_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("targets", nargs="*", default=[], metavar="TARGET", help=TARGET_HELP)
    add_discovery(parser)
    add_prometheus(parser)
    add_gpu_exporters(parser)
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="recording to write (.jsonl or .jsonl.gz)"
    )
    parser.add_argument(
        "--for",
        dest="duration",
        type=positive_seconds,
        metavar="S",
        help="stop after S seconds (default: ctrl+c)",
    )
    add_common(parser)
    parser.set_defaults(replay=None)


def replay_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recording", metavar="FILE", help="recording to play back")
    parser.add_argument(
        "--speed", type=positive_number, default=1.0, metavar="X", help="times real time (default 1)"
    )
    parser.set_defaults(targets=[])
    add_common(parser)
    add_screen(parser)


def probe_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("targets", nargs=1, metavar="URL", help="http(s)://host:port or host:port")
    for flag, usual, most, said in (
        ("--requests", 8, 100, "requests to send"),
        ("--max-tokens", 2048, 16384, "tokens of one answer"),
        ("--concurrency", 1, 4, "requests at a time"),
    ):
        told = f"{said} (default {usual}, at most {most})"
        parser.add_argument(flag, type=count_at_most(most), default=usual, metavar="N", help=told)
    parser.add_argument("--model", metavar="M", help="model to ask (default: the first that it names)")
    parser.add_argument("--prompt-file", metavar="F", help="ask the text of this file (default: puzzles)")
    parser.add_argument(
        "--records-out", metavar="FILE", help="append a record of each request, to be followed with --records"
    )
    parser.add_argument(
        "--timeout",
        dest="request_timeout",
        type=positive_seconds,
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


def tune_arguments(parser: argparse.ArgumentParser) -> None:
    add_reading(parser)
    parser.add_argument(
        "--observe",
        type=positive_seconds,
        default=180.0,
        metavar="S",
        help="watch for up to S seconds, less if the evidence suffices (default 180)",
    )
    parser.add_argument(
        "--plan",
        metavar="FILE",
        help="write the surest suggestion as a plan for `enginetop apply`; exit 3 when there is none",
    )
    parser.add_argument(
        "--what-if",
        action="append",
        type=knob_values,
        default=[],
        metavar="KNOB=N[,N...]",
        help="print what a knob would do at these values by what was seen, and what bounds that (repeatable)",
    )
    parser.add_argument("--format", choices=("table", "json"), default="table", help="default table")


def apply_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="plan file, as written by `enginetop tune --plan`")
    _control_arguments(parser)
    add_discovery(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="hold the plan against the fleet and say so; change nothing"
    )
    parser.add_argument(
        "--accept-open-admin",
        action="store_true",
        help="change engines whose control routes are open to whoever reaches their port",
    )
    parser.add_argument(
        "--emit-patch",
        action="store_true",
        help="print the change for kubectl, Kustomize and Helm, and what stands against it; change nothing",
    )


def rollback_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("change", metavar="ID", help="id of the change, as `enginetop audit` shows it")
    _control_arguments(parser)


def _control_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("targets", nargs="*", default=[], metavar="TARGET", help=TARGET_HELP)
    parser.add_argument("--yes", action="store_true", help="approve without being asked")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default text")
    add_common(parser)


def audit_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("change", nargs="?", metavar="ID", help="only this change")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default text")


def doctor_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("targets", nargs="*", default=[], metavar="TARGET", help=TARGET_HELP)
    parser.add_argument("--format", choices=("table", "json"), default="table", help="default table")
    add_common(parser)
    parser.set_defaults(prometheus=None)


def rules_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prometheus", metavar="URL", help="only of series that this Prometheus has, in its spelling"
    )
    parser.add_argument(
        "--config", metavar="FILE", help="config file: how the Prometheus is reached (default: as everywhere)"
    )
    parser.set_defaults(
        targets=[], discover=[], replay=None, interval=None, timeout=None, window=None, slo=None
    )


def config_arguments(parser: argparse.ArgumentParser) -> None:
    acts = ("init", "validate", "print")
    parser.add_argument("act", choices=acts, metavar="{init,validate,print}", help="what to do")
    parser.add_argument("--force", action="store_true", help="init: overwrite the file that is there")
    parser.add_argument("--format", choices=("toml", "json"), help="print: default toml")
    add_config(parser)
    parser.set_defaults(
        targets=[],
        discover=[],
        gpu_exporters=[],
        prometheus=None,
        replay=None,
        records=[],
        thinking_budget=None,
        interval=None,
        timeout=None,
        window=None,
        slo=None,
    )


def runbook_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "rule", nargs="?", metavar="RULE", help="a built-in rule; none: all of them, a line each"
    )


def silence_arguments(parser: argparse.ArgumentParser) -> None:
    acts = ("add", "list", "expire")
    parser.add_argument("act", choices=acts, metavar="{add,list,expire}", help="what to do")
    parser.add_argument("id", nargs="?", metavar="ID", help="of the silence that is to expire")
    parser.add_argument(
        "--for", dest="duration", type=told_duration, metavar="2h", help="how long: 45s 30m 2h 3d"
    )
    parser.add_argument("--rule", metavar="PATTERN", help="rules, as a shell pattern")
    parser.add_argument("--target", metavar="PATTERN", help="names or URLs of targets, as a shell pattern")
    parser.add_argument("--all", action="store_true", help="every alert of every target")
    parser.add_argument("--reason", default="", metavar="TEXT", help="why, for whoever reads it")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default text")


def launch_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [options] -- COMMAND ..."
    parser.add_argument("--engine", choices=[kind.value for kind in FLAGS], help="what COMMAND starts")
    parser.add_argument("--url", metavar="URL", help="where the engine answers (default: as COMMAND says)")
    parser.add_argument(
        "--drain",
        type=positive_seconds,
        default=120.0,
        metavar="S",
        help="wait so long for requests (default 120)",
    )
    parser.add_argument(
        "--ready",
        type=positive_seconds,
        default=900.0,
        metavar="S",
        help="and so long for its start (default 900)",
    )
    parser.add_argument(
        "--cut-requests",
        action="store_true",
        help="restart for a new value although requests still run then (default: leave it as it is)",
    )
    parser.add_argument("--config", metavar="FILE", help="config file: the engine's key")
    parser.set_defaults(targets=[], interval=None, timeout=None, window=None, slo=None)


def completion_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="which shell")
