"""What several commands take: groups of arguments, and how their values are read."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

from enginetop.cli.slo_flag import parse_slo
from enginetop.fleet.durations import duration_seconds, plain_seconds
from enginetop.fleet.signals import KNOBS

TARGET_HELP = (
    "http(s)://host:port[/path], host:port or ssh://host/127.0.0.1:8000; none: the fleet of the config file"
)


def positive_seconds(text: str) -> float:
    """Seconds above 0, plain or with a unit (`500ms`, `5m`). ArgumentTypeError: it is not that."""
    value = plain_seconds(text)
    if value is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of seconds above 0, nor one like 500ms or 5m"
        )
    return value


def positive_number(text: str) -> float:
    """A finite number above 0. ArgumentTypeError: it is not that."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def interval_seconds(text: str) -> float:
    """The seconds between two scrapes, 0.1 to 3600. ArgumentTypeError: it is not that."""
    value = positive_seconds(text)
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r}: an interval lies between 0.1 and 3600 seconds")
    return value


def positive_count(text: str) -> int:
    """A whole number above 0. ArgumentTypeError: it is not that."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def knob_values(text: str) -> tuple[str, tuple[int, ...]]:
    """`KNOB=VALUE[,VALUE...]` of the command line. ArgumentTypeError: it is not that."""
    knob, equals, values = text.partition("=")
    if knob not in KNOBS or not equals:
        raise argparse.ArgumentTypeError(f"{text!r}: give KNOB=VALUE, with KNOB one of {', '.join(KNOBS)}")
    try:
        return knob, tuple(int(value) for value in values.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: the value of {knob} is a whole number") from None


def count_at_most(most: int) -> Callable[[str], int]:
    """Reads a whole number from 1 to `most`. ArgumentTypeError: it is not that."""

    def count(text: str) -> int:
        number = positive_count(text)
        if number > most:
            raise argparse.ArgumentTypeError(f"{text!r}: at most {most}")
        return number

    return count


def told_duration(text: str) -> float:
    """Seconds, from a duration with its unit (`90s`, `2h`). ArgumentTypeError: it is not that."""
    seconds = duration_seconds(text)
    if seconds is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration; write 45s, 30m, 2h or 3d")
    return seconds


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Where a fleet is read from, and how."""
    parser.add_argument("targets", nargs="*", default=[], metavar="TARGET", help=TARGET_HELP)
    add_discovery(parser)
    add_prometheus(parser)
    add_gpu_exporters(parser)
    parser.add_argument("--replay", metavar="FILE", help="read this recording instead of live targets")
    parser.add_argument(
        "--records",
        action="append",
        default=[],
        metavar="FILE[=TARGET]",
        help="follow this log of single requests too (JSON lines, a directory of such files, or - for stdin)",
    )
    parser.add_argument(
        "--thinking-budget",
        type=positive_count,
        metavar="N",
        help="limit of the reasoning in --records, in tokens",
    )
    add_common(parser)


def add_discovery(parser: argparse.ArgumentParser) -> None:
    """Targets that come, go and move."""
    parser.add_argument(
        "--discover",
        action="append",
        default=[],
        metavar="KIND:WHAT",
        help="targets that come and go: file_sd:FILE dns:HOST:PORT dns:_SERVICE._tcp.NAME dynamo:FOLDER "
        "prometheus:URL kubernetes:[CONTEXT][/NAMESPACE] local",
    )
    parser.add_argument(
        "--kubernetes",
        dest="discover",
        action="append_const",
        const="kubernetes",
        help="the serving pods of the kubeconfig's current context: --discover kubernetes",
    )


def add_prometheus(parser: argparse.ArgumentParser) -> None:
    """A Prometheus in place of the engines, now or in the past."""
    parser.add_argument(
        "--prometheus",
        metavar="URL",
        help="read the fleet from this Prometheus, Thanos, Mimir or VictoriaMetrics, not from its engines",
    )
    parser.add_argument(
        "--direct-knobs",
        action="store_true",
        help="with --prometheus: ask the engines themselves for settings, so that advice can name values",
    )
    for flag, said in (
        ("--at", "with --prometheus: the fleet as it was then (2026-11-30T08:15, or 15m: so long ago)"),
        ("--from", "with --prometheus: review what happened from then on"),
        ("--to", "with --from: until then (default: now)"),
    ):
        parser.add_argument(flag, dest=f"{flag[2:]}_time", metavar="TIME", help=said)


def add_gpu_exporters(parser: argparse.ArgumentParser) -> None:
    """GPUs of other machines."""
    parser.add_argument(
        "--gpu-exporter",
        dest="gpu_exporters",
        action="append",
        default=[],
        metavar="URL",
        help="GPUs as this exporter tells them (dcgm-exporter, AMD, Intel, Triton); may be given again",
    )


def add_config(parser: argparse.ArgumentParser) -> None:
    """Which config file."""
    parser.add_argument(
        "--config", metavar="FILE", help="config file (default: enginetop/config.toml under XDG_CONFIG_HOME)"
    )


def add_common(parser: argparse.ArgumentParser) -> None:
    """What every command that reads pages takes."""
    add_config(parser)
    parser.add_argument(
        "--interval", type=interval_seconds, metavar="S", help="seconds between scrapes (default 2)"
    )
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        metavar="S",
        help="deadline of one scrape (default 0.9 x interval)",
    )
    parser.add_argument(
        "--window", type=positive_seconds, metavar="S", help="window of rates and percentiles (default 60)"
    )
    parser.add_argument(
        "--slo",
        type=parse_slo,
        metavar="ttft=S,tpot=S,target=R",
        help="objective for this run, in seconds or with a unit: ttft=300ms,tpot=40ms,target=0.95",
    )


def add_screen(parser: argparse.ArgumentParser) -> None:
    """How the terminal UI is drawn."""
    parser.add_argument("--theme", metavar="NAME", help="colour theme")
    parser.add_argument("--ascii", action="store_true", help="draw with ASCII characters only")
    parser.add_argument("--no-mouse", action="store_true", help="leave the mouse to the terminal")


def add_scenario(parser: argparse.ArgumentParser) -> None:
    """Which simulated fleet."""
    parser.add_argument(
        "--scenario", metavar="NAME|FILE", help="built-in scenario of the simulated fleet, or a TOML file"
    )
    parser.add_argument(
        "--replicas",
        type=positive_count,
        metavar="N",
        help="simulated replicas (default: the scenario's; demo: 12)",
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="seed of the drawn requests (default 1)"
    )
