"""`enginetop runbook [RULE]`: what an alert means, where to look first, what to do."""

from __future__ import annotations

import argparse
import difflib
import re
import shutil
import textwrap
from collections.abc import Iterator, Mapping
from importlib import resources

from enginetop.alerts.builtin import builtin_rules
from enginetop.cli import exit_codes
from enginetop.fleet.errors import ConfigError

_WIDEST = 100
_USUAL_WINDOW_SECONDS = 60.0


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    print("\n".join(_listing() if args.rule is None else _told(args.rule, width)))
    return exit_codes.OK


def text() -> str:
    """The whole runbook, Markdown."""
    return (resources.files("enginetop.alerts") / "runbook.md").read_text(encoding="utf-8")


def sections() -> Mapping[str, str]:
    """The section of each rule, without its heading."""
    _, *parts = re.split(r"^## (\w+)\n", text(), flags=re.M)
    return dict(zip(parts[::2], (part.strip() for part in parts[1::2]), strict=True))


def _told(rule: str, width: int) -> Iterator[str]:
    """One section for a terminal. ConfigError: there is no such rule."""
    known = {name.lower(): name for name in sections()}
    name = known.get(rule.lower())
    if name is None:
        near = difflib.get_close_matches(rule.lower(), known, 1)
        hint = f"did you mean {known[near[0]]}?" if near else "`enginetop runbook` lists those that have one"
        raise ConfigError(f"no built-in rule is called {rule!r}; {hint}")
    for rule_stage in builtin_rules(_USUAL_WINDOW_SECONDS):
        if rule_stage.name == name:
            hold = f"after {rule_stage.hold_seconds:g} s" if rule_stage.hold_seconds else "at once"
            yield f"{name}, {rule_stage.severity} {hold}: {rule_stage.meaning}"
    for block in sections()[name].split("\n\n"):
        yield ""
        yield from (line for item in re.split(r"\n(?=\d\. )", block) for line in _wrapped(item, width))


def _wrapped(item: str, width: int) -> Iterator[str]:
    plain = " ".join(item.replace("**", "").split())
    indent = "   " if re.match(r"\d\. ", plain) else ""
    yield from textwrap.wrap(
        plain, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _listing() -> Iterator[str]:
    meanings: dict[str, list[str]] = {}
    for rule in builtin_rules(_USUAL_WINDOW_SECONDS):
        meanings.setdefault(rule.name, []).append(rule.meaning)
    widest = max(map(len, meanings))
    for name, said in meanings.items():
        yield f"{name:<{widest}}  {'; '.join(said)}"
