"""JSON of others: whatever comes, a value or nothing."""

from __future__ import annotations

import pytest

from enginetop.fleet.foreign_json import decoded, error_words


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"a": [1, 2.5, null]}', {"a": [1, 2.5, None]}),
        ('"\u00e4"', "\u00e4"),
        (b"null", None),
        (b"", None),
        (b'{"a": 1', None),
        (b"\xff\xfe\xfa", None),
        (b"[" * 100_000, None),
        (b'{"a":' * 100_000, None),
    ],
)
def test_a_value_or_nothing(text: str | bytes, value: object) -> None:
    assert decoded(text) == value


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"error": "no such model"}, "no such model"),
        ({"error": {"message": "busy", "code": 5}}, "busy"),
        ({"error": None, "detail": "not now"}, "not now"),
        ({"detail": [{"loc": ["body"]}], "message": "invalid"}, "invalid"),
        ({"message": "two\r\nlines\x1b[31m"}, "two lines [31m"),
        ({"error": {"message": 5}}, ""),
        ({"error": []}, ""),
        ({"detail": {}}, ""),
        ([], ""),
        ("x", ""),
        (None, ""),
    ],
)
def test_what_a_body_says_of_its_error(document: object, words: str) -> None:
    assert error_words(document) == words


def test_of_a_long_text_the_beginning_is_shown() -> None:
    assert error_words({"detail": "x" * 1000}) == "x" * 200
