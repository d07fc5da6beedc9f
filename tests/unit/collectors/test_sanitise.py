from __future__ import annotations

import unicodedata

import pytest

from collectors.sanitise import clean_text

UNSAFE = [
    pytest.param("\x1b[31mred", "\ufffd[31mred", id="escape"),
    pytest.param("a\x00b\x07c\x7fd", "a\ufffdb\ufffdc\ufffdd", id="c0-and-del"),
    pytest.param("a\x9b31mb\x84", "a\ufffd31mb\ufffd", id="c1"),
    pytest.param("a\tb\nc\rd\x0be\x0cf\x85g", "a b c d e f g", id="spacing-controls"),
    pytest.param("a\u2028b\u2029c", "a b c", id="line-separators"),
    pytest.param("user\u202egnp.exe\u2066x\u2069", "user\ufffdgnp.exe\ufffdx\ufffd", id="direction"),
    pytest.param("a\u200bb\u200dc\u2060d\ufeffe", "a\ufffdb\ufffdc\ufffdd\ufffde", id="zero-width"),
    pytest.param("a\u00adb\u3164c\ufe0f\u034f", "a\ufffdb\ufffdc\ufffd\ufffd", id="invisible"),
    pytest.param("a\ud800b\udcffc", "a\ufffdb\ufffdc", id="lone-surrogates"),
    pytest.param("a\ue000b\U000e0041c\uffff", "a\ufffdb\ufffdc\ufffd", id="private-tag-noncharacter"),
]


@pytest.mark.parametrize(("value", "expected"), UNSAFE)
def test_unsafe_characters_are_replaced_one_by_one(value: str, expected: str) -> None:
    assert clean_text(value, 100) == expected


@pytest.mark.parametrize(
    "value", ["", "meta-llama/Llama-3.1-8B", 'C:\\m\\q"4" {x},y', "模型-7B", "modèle", "[red]x[/red]", "🦙"]
)
def test_text_that_is_safe_stays_as_it_is(value: str) -> None:
    assert clean_text(value, 100) == value


def test_long_text_is_cut_to_the_limit_and_says_so() -> None:
    assert clean_text("abcdef", 6) == "abcdef"
    assert clean_text("abcdefg", 6) == "abcde…"
    assert clean_text("abc", 1) == "…"
    assert len(clean_text("\x1b" * 1000, 10)) == 10


def test_no_control_of_any_plane_survives() -> None:
    for code in range(0x110000):
        if unicodedata.category(chr(code)) in {"Cc", "Cf", "Cs", "Zl", "Zp"}:
            assert clean_text(chr(code), 1) in {" ", "\ufffd"}, hex(code)
