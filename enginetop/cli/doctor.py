"""`enginetop doctor [TARGET ...]`: what is wrong here and with the targets, and what mends it."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import time
from collections.abc import Iterator, Sequence

from collectors.discovery.local import local_targets
from collectors.event_loop import EngineEventLoop
from collectors.layout import LayoutCache
from collectors.sanitise import clean_text
from collectors.secrets import without_secrets
from enginetop.cli import doctor_here
from enginetop.cli.config_check import screen_problems
from enginetop.cli.doctor_paths import path_findings
from enginetop.cli.doctor_probe import probe
from enginetop.cli.doctor_sources import exporter_findings, prometheus_findings
from enginetop.cli.output import print_lines
from enginetop.cli.resolve import resolve
from enginetop.cli.settings import Settings, config_path
from enginetop.cli.stdout import print_document
from enginetop.doctor.facts import TargetFacts
from enginetop.doctor.finding import Finding, Level
from enginetop.doctor.machine import (
    ConfigFacts,
    config_findings,
    folder_findings,
    gpu_findings,
    secret_findings,
    sink_findings,
    terminal_findings,
)
from enginetop.doctor.report import Report, document, lines
from enginetop.doctor.target import target_findings
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.model import Target
from tui.view.cells import plain

_PATIENCE_SECONDS = 5.0
"""How long each step may take where no --timeout is given: doctor waits for pages that a scrape gives up."""
_AT_ONCE = 16
"""More at the same time would measure this machine rather than the targets."""
_LONGEST_LINE = 600


def run(args: argparse.Namespace) -> int:
    """Run the command; exit 0: nothing is wrong, 1: warnings, 2: errors."""
    settings, config = _settings(args)
    targets = settings.targets or local_targets()
    patience = args.timeout or max(settings.timeout_seconds, _PATIENCE_SECONDS)
    with asyncio.Runner(loop_factory=EngineEventLoop) as runner:
        looked = runner.run(_look(targets, settings, patience))
    now = time.time()
    secrets = list(secret_findings(list(doctor_here.secret_facts(settings, targets))))
    here = [
        *terminal_findings(doctor_here.terminal_facts()),
        *config_findings(config),
        *_screen_findings(settings),
        *(one for one in secrets if not one.target),
        *folder_findings(doctor_here.folder_facts()),
        *(() if config.problem else sink_findings(doctor_here.sink_facts(settings.alerts.sinks))),
        *gpu_findings(doctor_here.gpu_facts(targets)),
        *exporter_findings(settings, patience, now),
        *prometheus_findings(settings.prometheus, now),
        *(_no_targets(targets, config) if settings.prometheus is None else ()),
    ]
    report = Report(
        now,
        tuple(map(_clean, here)),
        tuple(
            (
                facts,
                tuple(
                    _clean(one)
                    for one in (
                        *(secret for secret in secrets if secret.target == facts.name),
                        *target_findings(facts, now),
                        *path_findings(settings, target, facts),
                    )
                ),
            )
            for target, facts in zip(targets, looked, strict=True)
        ),
    )
    if args.format == "json":
        print_document(document(report), "the report")
    else:
        print_lines(plain(line) for line in lines(report, shutil.get_terminal_size((100, 24)).columns))
    return report.exit_code


def _settings(args: argparse.Namespace) -> tuple[Settings, ConfigFacts]:
    """The settings; those of the arguments alone where the config file cannot be used."""
    path = args.config or doctor_here.shown_path(config_path())
    warnings: list[str] = []
    try:
        settings = resolve(args, warnings.append)
    except ConfigError as error:
        without_file = argparse.Namespace(**{**vars(args), "config": os.devnull})
        settings = resolve(without_file, warnings.append)  # raises again when the arguments are at fault
        return settings, ConfigFacts(path, found=True, problem=str(error))
    return settings, ConfigFacts(
        path,
        found=args.config is not None or os.access(config_path(), os.F_OK),
        warnings=tuple(warnings),
        targets=len(settings.targets),
        writes=settings.control is not None,
    )


async def _look(targets: Sequence[Target], settings: Settings, patience: float) -> list[TargetFacts]:
    """The facts of all targets, some of them at the same time."""
    free = asyncio.Semaphore(_AT_ONCE)
    layouts = LayoutCache()

    async def one(target: Target) -> TargetFacts:
        async with free:
            return await probe(target, settings, patience, layouts)

    found = await asyncio.gather(*(one(target) for target in targets))
    await asyncio.sleep(0)  # lets closed transports release their sockets
    return found


def _screen_findings(settings: Settings) -> Iterator[Finding]:
    for problem in screen_problems(settings.keys, settings.look, settings.origin):
        what, _, fix = problem.partition("; ")
        yield Finding("config", Level.ERROR, what, fix or "correct the file")


def _no_targets(targets: Sequence[Target], config: ConfigFacts) -> Iterator[Finding]:
    if not targets:
        listed = "the config file cannot be used" if config.problem else "none is in the config file"
        yield Finding(
            "targets",
            Level.WARNING,
            f"nothing to look at: no target is named, {listed}, no engine listens here",
            "enginetop doctor host:port, or list [[targets]] in the config file",
        )


def _clean(finding: Finding) -> Finding:
    """The finding without anything that a terminal could obey or that looks like a key, whoever wrote it."""
    return Finding(
        finding.area,
        finding.level,
        *(
            clean_text(without_secrets(text), _LONGEST_LINE)
            for text in (finding.what, finding.fix, finding.target)
        ),
    )
