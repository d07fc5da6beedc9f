"""The command line's grammar: one table of commands, parsers made from it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence

from collectors.secrets import words_without_secrets
from enginetop import __version__
from enginetop.cli import command_arguments as take
from enginetop.cli import exit_codes
from enginetop.cli.diagnostics import plain_line
from enginetop.fleet.frozen import frozen


@frozen
class Command:
    """One command: its name, one line of help, the module of `enginetop.cli` that runs it, its arguments.

    `takes_command`: what follows `--` is a command line of its own, as `args.command`. `unusable` and
    `broken` are its exit codes where it cannot be used, and where it breaks.
    """

    name: str
    help: str
    module: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    takes_command: bool = False
    unusable: int = exit_codes.USAGE
    broken: int = exit_codes.INTERNAL


UI = Command("", "the terminal UI on these targets", "ui", take.ui_arguments)

COMMANDS: tuple[Command, ...] = (
    Command("demo", "the terminal UI on an embedded simulated fleet", "demo", take.demo_arguments),
    Command("sim", "serve a simulated fleet on loopback, one base URL a line", "sim", take.sim_arguments),
    Command("snapshot", "scrape, print one snapshot, exit", "snapshot", take.snapshot_arguments),
    Command("curve", "goodput and TTFT p99 against load, and the knee", "curve", take.curve_arguments),
    Command("tune", "watch, print advice, write a plan", "tune", take.tune_arguments),
    Command(
        "probe", "send a few requests: how much a model thinks; asks first", "probe", take.probe_arguments
    ),
    Command("watch", "alerts as lines, and to the sinks of the config file", "watch", take.watch_arguments),
    Command(
        "check",
        "one line and an exit code for cron and probes",
        "check",
        take.check_arguments,
        unusable=exit_codes.UNKNOWN,
        broken=exit_codes.UNKNOWN,
    ),
    Command("runbook", "what an alert means, and what to do", "runbook", take.runbook_arguments),
    Command("silence", "keep alerts quiet for a while: add, list, expire", "silence", take.silence_arguments),
    Command(
        "apply", "carry out a plan: canary, verdict, promotion or rollback", "apply", take.apply_arguments
    ),
    Command("rollback", "undo a change", "rollback", take.rollback_arguments),
    Command("audit", "print what was changed, when and why", "audit", take.audit_arguments),
    Command(
        "launch",
        "start an engine so that a restart can change its knobs",
        "launch",
        take.launch_arguments,
        takes_command=True,
    ),
    Command("rules", "print recording rules for a Prometheus", "rules", take.rules_arguments),
    Command("record", "record the raw pages of targets", "record", take.record_arguments),
    Command(
        "doctor", "say what is wrong here and with the targets, and the fix", "doctor", take.doctor_arguments
    ),
    Command("config", "the config file: init, validate, print", "config_file", take.config_arguments),
    Command("replay", "play a recording back in the terminal UI", "replay", take.replay_arguments),
    Command("completion", "print completions for bash, zsh or fish", "completion", take.completion_arguments),
)


class _Parser(argparse.ArgumentParser):
    """argparse with one-line errors: what is wrong, and where help is. `typed` are the arguments; what may be
    a key among them is not repeated. `unusable` is what it exits with.
    """

    typed: Sequence[str] = ()
    unusable = exit_codes.USAGE

    def error(self, message: str) -> None:  # type: ignore[override]
        for word, shown in zip(self.typed, words_without_secrets(self.typed), strict=True):
            message = message.replace(word, shown) if word != shown else message
        wrong = message.removeprefix("unrecognized arguments: ")
        if wrong != message and (near := _nearest(wrong.partition(" ")[0], self._option_string_actions)):
            message += f"; did you mean {near}?"
        self.exit(self.unusable, f"{self.prog}: {plain_line(message)} (see {self.prog} --help)\n")


def parse(argv: list[str]) -> tuple[Command, argparse.Namespace]:
    """The command and its arguments. Exits with 0 after --help, with `unusable` on a usage error."""
    command = next((known for known in COMMANDS if argv and argv[0] == known.name), UI)
    parser = _parser(command)
    parser.typed, parser.unusable = argv, command.unusable
    if command.takes_command:
        end = argv.index("--") if "--" in argv else len(argv)
        args = parser.parse_args(argv[1:end])
        args.command = argv[end + 1 :]
        return command, args
    args = parser.parse_intermixed_args(argv[1:] if command is not UI else argv)
    _refuse_flags(parser, args)
    if command is UI:
        _refuse_words(parser, args.targets)
    return command, args


def _nearest(word: str, known: Iterable[str]) -> str:
    import difflib  # of use to those who mistype

    near = difflib.get_close_matches(word.partition("=")[0], list(known), n=1, cutoff=0.7)
    return near[0] if near else ""


def _refuse_words(parser: _Parser, targets: Iterable[str]) -> None:
    """A command that is mistyped, or not the first word, is no target either: it has no port."""
    names = [known.name for known in COMMANDS]
    for word in targets:
        if word in names:
            parser.error(f"the command comes first: enginetop {word} ...")
        if word.isalpha() and (near := _nearest(word, names)):
            parser.error(f"{word!r} is no command and no target; did you mean enginetop {near}?")


def _refuse_flags(parser: _Parser, args: argparse.Namespace) -> None:
    """argparse takes an unknown flag for a word where there is a space in its value."""
    for action in parser._actions:
        found = getattr(args, action.dest, None) if not action.option_strings else None
        for word in found if isinstance(found, list) else [found]:
            if isinstance(word, str) and word.startswith("--"):
                parser.error(f"unrecognized arguments: {word}")


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
