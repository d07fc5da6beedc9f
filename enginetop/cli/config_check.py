"""What is wrong with a config file: everything that a command or the screen would refuse, a line each."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from enginetop.cli.alert_settings import alert_settings
from enginetop.cli.reading_settings import (
    config_origin,
    configured_targets,
    discovery_settings,
    gpu_exporters,
    listen_setting,
    log_settings,
    prometheus_setting,
)
from enginetop.cli.resolve import address_problems, config_tables, resolve, user_keys, user_look
from enginetop.cli.settings import Look, Settings, config_path
from enginetop.cli.targets import parse_target
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.frozen import frozen
from themes.loader import load_theme
from tui.keymap import with_keys
from tui.view.placing import read_choice

if TYPE_CHECKING:
    from enginetop.fleet.config import Config


@frozen
class Checked:
    """A config file that was looked through: `settings` are there when nothing is wrong with it.

    `tables` are what it says; None: there is no file, or it cannot be read.
    """

    problems: tuple[str, ...]
    doubts: tuple[str, ...] = ()
    settings: Settings | None = None
    tables: Mapping[str, Any] | None = None


def checked(args: argparse.Namespace) -> Checked:
    """Look through the config file of these arguments; no file at all is an empty one.

    It is read once: a pipe has nothing to say the second time. What commands do with it decides. Only where
    they refuse it is it taken apart for everything else that they would come upon.
    """
    doubts: list[str] = []
    try:
        tables = config_tables(args.config)
    except ConfigError as error:
        return Checked((str(error),))
    try:
        settings = resolve(args, doubts.append, lambda _: tables)
    except ConfigError as error:
        problems = dict.fromkeys((str(error), *_all_problems(args, tables or {})))
        return Checked((*problems,), tuple(doubts), tables=tables)
    of_screen = tuple(screen_problems(settings.keys, settings.look, settings.origin))
    return Checked(of_screen, tuple(doubts), None if of_screen else settings, tables)


def screen_problems(keys: Mapping[str, Sequence[str]], look: Look, origin: str) -> Iterator[str]:
    """What only the screen asks of the config file `origin`, and would refuse to begin with."""
    return _refusals(
        (
            lambda: with_keys(keys, f"{origin}: keys"),
            lambda: read_choice(look.columns, f"{origin}: screen.columns") if look.columns else None,
            lambda: load_theme(look.theme, config_path().parent / "themes") if look.theme else None,
        )
    )


def _all_problems(args: argparse.Namespace, tables: Mapping[str, Any]) -> Iterator[str]:
    from enginetop.fleet.config import Config, parse_config
    from enginetop.fleet.strict_tables import table_problems

    origin = config_origin(args)
    problems = table_problems(Config, tables, origin)
    if problems:
        yield from problems
        return
    config = parse_config(tables, origin)
    addresses = [*address_problems(config, origin)]
    yield from addresses
    readable = replace(config, targets=()) if addresses else config
    yield from _refusals(_tables(args, readable, origin))
    yield from _entries(args, readable, origin)
    yield from screen_problems(user_keys(config), user_look(config), origin)


def _tables(args: argparse.Namespace, config: Config, origin: str) -> Iterator[Callable[[], object]]:
    """What asks more of tables than their schema."""
    yield lambda: configured_targets((), config, origin, only_named=False)
    for table in config.discovery:
        yield partial(discovery_settings, args, replace(config, discovery=(table,)), ())
    yield lambda: prometheus_setting(args, config)
    yield lambda: listen_setting(args, config)


def _entries(args: argparse.Namespace, config: Config, origin: str) -> Iterator[str]:
    """What is wrong with entries of tables whose reader stops at the first one that is, and numbers it.

    That one is taken out, and the reader asked again.
    """
    targets = tuple(parse_target(table.url, table.name) for table in config.targets)
    readers: Mapping[str, Callable[[Config], object]] = {
        "gpu_exporters": lambda some: gpu_exporters(args, some),
        "alerts": lambda some: alert_settings(replace(some, sinks=()), origin, some.window_seconds),
        "sinks": lambda some: alert_settings(replace(some, alerts=()), origin, some.window_seconds),
        "records": lambda some: log_settings(args, some, targets),
    }
    for key, read in readers.items():
        entries = getattr(config, key)
        kept = [*range(len(entries))]
        while True:
            some: dict[str, Any] = {key: tuple(entries[place] for place in kept)}
            problem = next(_refusals((partial(read, replace(config, **some)),)), None)
            if problem is None:
                break
            start = f"{origin}: {key}."
            number = re.match(r"\d+", problem.removeprefix(start))
            if number is None:
                yield problem
                break
            yield f"{start}{kept.pop(int(number[0]))}{problem.removeprefix(start)[number.end() :]}"


def _refusals(asked: Iterable[Callable[[], object]]) -> Iterator[str]:
    for ask in asked:
        try:
            ask()
        except ConfigError as error:
            yield str(error)
