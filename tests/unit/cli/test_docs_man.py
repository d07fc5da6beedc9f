"""The man page: what the parser says, in roff that formatters take."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from enginetop.cli.command_tree import Argument, CommandGrammar
from enginetop.cli.parser import COMMANDS, UI
from enginetop.docs_man import EXIT_CODES, page

ROOT = Path(__file__).parents[3]
FILE = ROOT / "docs" / "man" / "enginetop.1"


def test_the_page_is_what_the_parser_says() -> None:
    assert FILE.read_text(encoding="utf-8") == page(), "run: make docs"


def test_the_exit_codes_are_told_alike_in_the_documents() -> None:
    rows = [f"| {code} | {' '.join(meaning.split())} |" for code, meaning in EXIT_CODES]
    assert "\n".join(rows) in (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")


def plain(text: str) -> str:
    return re.sub(r"\\f[BIR]", "", text).replace("\\-", "-")


def test_every_command_and_option_is_told() -> None:
    sections = dict(re.findall(r"^\.SS enginetop ([a-z]+).*\n((?:.*\n)*?)(?=\.S[SH])", plain(page()), re.M))
    assert list(sections) == [command.name for command in COMMANDS]
    for command in (UI, *COMMANDS):
        parser = argparse.ArgumentParser()
        command.add_arguments(parser)
        text = sections[command.name] if command.name else plain(page())
        for action in parser._actions:
            for flag in action.option_strings[-1:]:
                assert re.search(rf"(?<![\w-]){flag}(?![\w-])", text), (command.name, flag)


def test_what_roff_would_read_as_a_command_is_text() -> None:
    option = Argument(("--path",), "FILE", ".so /etc/passwd\\n and it's a - b")
    tree = (CommandGrammar("", "", (), ()), CommandGrammar("eat", "take", (option,), ()))
    assert "\n\\&.so /etc/passwd\\en and it\\(aqs a \\- b.\n" in page(tree)


def test_variables_that_it_names_are_read() -> None:
    names = set(re.findall(r"\b[A-Z]+_[A-Z_]+\b|\bKUBECONFIG\b", page().partition(".SH FILES")[2]))
    sources = "\n".join(
        path.read_text(encoding="utf-8")
        for room in ("enginetop", "collectors", "tui", "themes")
        for path in (ROOT / room).rglob("*.py")
        if path.name != "docs_man.py"
    )
    by_the_http_client = {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}
    assert {name for name in names - by_the_http_client if name not in sources} == set()


@pytest.mark.skipif(shutil.which("groff") is None, reason="there is no groff here")
def test_groff_has_nothing_to_say_about_it() -> None:
    ran = subprocess.run(["groff", "-man", "-ww", "-Tutf8", str(FILE)], capture_output=True, timeout=30)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert b"ENGINETOP(1)" in ran.stdout
