"""`enginetop probe URL`: a few chat requests of our own, to see how much a model thinks.

They load the engine and cost tokens: it asks first, and there are caps.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from collectors.fetch import NO_CREDENTIALS, one_line
from collectors.probe.client import ProbeAnswer, ProbeClient, ProbeError, ProbePlan
from collectors.recording_format import request_line
from collectors.ssh.address import BY_HAND
from collectors.ssh.address import SCHEME as SSH_SCHEME
from enginetop.cli import exit_codes
from enginetop.cli.control import approval
from enginetop.cli.diagnostics import tell
from enginetop.cli.probe_report import probe_document, report_lines
from enginetop.cli.resolve import resolve
from enginetop.fleet.errors import ConfigError

PROMPTS = (
    "A train leaves at 9:40 and arrives at 13:05 after two stops of 7 minutes. How long did it move?",
    "Which is larger, 17 to the power of 3 or 3 to the power of 8? Show how you know.",
    "Boxes are labelled apples, pears and both; every label is wrong. One fruit tells all: from which box?",
    "Write the next two terms of 2, 6, 12, 20, 30 and say why.",
)
"""Asked in turn where no file of its own is given; they make a reasoning model think for a while."""

_MOST_PROMPT_BYTES = 1024 * 1024


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    settings = resolve(args, tell)
    (target,) = settings.targets
    if target.url.startswith(SSH_SCHEME):
        raise ConfigError(f"probe: {BY_HAND}")
    prompts = _prompts(args.prompt_file)
    client = ProbeClient(settings.credentials.get(target.url, NO_CREDENTIALS))
    try:
        model = args.model or client.only_model(target.url, settings.timeout_seconds)
    except ProbeError as error:
        tell(str(error))
        return exit_codes.INTERNAL
    plan = ProbePlan(
        target.url,
        model,
        prompts,
        requests=args.requests,
        max_tokens=args.max_tokens,
        at_once=args.concurrency,
        timeout_seconds=args.request_timeout,
    )
    tell(
        f"a probe of {target.url}, model {one_line(model)}: {plan.requests} requests of up to "
        f"{plan.max_tokens} tokens each, {plan.at_once} at a time; they take room from others and cost tokens"
    )
    if approval(args.yes, "probe", f"send {plan.requests} requests to {target.name}") is None:
        return exit_codes.REFUSED
    return _probe(args, client, plan)


def _probe(args: argparse.Namespace, client: ProbeClient, plan: ProbePlan) -> int:
    log = _RecordsOut(Path(args.records_out), plan.url) if args.records_out else None
    answers: list[ProbeAnswer] = []

    def take(answer: ProbeAnswer) -> None:
        answers.append(answer)
        if answer.error:
            tell(f"request {len(answers)}: {answer.error}")
        if log is not None:
            log.take(answer)

    stopped = False
    try:
        client.run(plan, take)
    except KeyboardInterrupt:
        stopped = True
        tell("stopped; this is what came until then")
    finally:
        if log is not None:
            log.close()
    _print(plan, answers, args.format)
    if stopped:
        return exit_codes.INTERRUPTED
    return exit_codes.OK if any(answer.record for answer in answers) else exit_codes.INTERNAL


def _print(plan: ProbePlan, answers: Sequence[ProbeAnswer], form: str) -> None:
    document = probe_document(plan, answers)
    if form == "json":
        print(json.dumps(document, allow_nan=False))
    else:
        print("\n".join(report_lines(document)))


def _prompts(path: str | None) -> Sequence[str]:
    if path is None:
        return PROMPTS
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MOST_PROMPT_BYTES + 1)
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"{path}: {reason}; name a readable text file with --prompt-file") from error
    if len(data) > _MOST_PROMPT_BYTES or not text.strip():
        raise ConfigError(f"{path}: a prompt has between 1 byte and 1 MiB of text")
    return (text,)


class _RecordsOut:
    """Appends the records to a file that can be followed. ConfigError when it cannot be opened."""

    def __init__(self, path: Path, url: str) -> None:
        self._path = path
        self._url = url
        self._broken = False
        try:
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}; name a file that can be written") from error

    def take(self, answer: ProbeAnswer) -> None:
        """Write the record of one answer; a full disk is told once and ends nothing."""
        if answer.record is None or self._broken:
            return
        try:
            self._file.write(request_line(self._url, answer.at, answer.record))
            self._file.flush()
        except OSError as error:
            self._break(error)

    def close(self) -> None:
        """Close the file."""
        try:
            self._file.close()
        except OSError as error:
            self._break(error)

    def _break(self, error: OSError) -> None:
        if not self._broken:
            tell(f"{self._path}: records are no longer written: {(error.strerror or 'error').lower()}")
        self._broken = True
