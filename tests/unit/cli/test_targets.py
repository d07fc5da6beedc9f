"""TARGET arguments: what they name, and what is refused in one line."""

from __future__ import annotations

from urllib.parse import SplitResult

import pytest

from enginetop.cli import targets
from enginetop.cli.targets import distinct, parse_target
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.model import Target


@pytest.mark.parametrize(
    ("text", "url", "name", "page"),
    [
        ("r1:8000", "http://r1:8000", "r1:8000", None),
        ("http://r1:8000/", "http://r1:8000", "r1:8000", None),
        ("https://r1", "https://r1", "r1", None),
        ("http://r1:8000/metrics", "http://r1:8000", "r1:8000", "/metrics"),
        ("http://r1:8000/metrics/", "http://r1:8000", "r1:8000", "/metrics"),
        ("r1:8000/prometheus/metrics", "http://r1:8000", "r1:8000", "/prometheus/metrics"),
        ("http://gw/r/7/metrics", "http://gw/r/7", "gw/r/7", "/metrics"),
        ("http://gw/r/7", "http://gw/r/7", "gw/r/7", None),
        ("[::1]:8000", "http://[::1]:8000", "[::1]:8000", None),
        ("HTTP://R1:8000", "http://r1:8000", "r1:8000", None),
    ],
)
def test_forms_of_a_target(text: str, url: str, name: str, page: str | None) -> None:
    assert parse_target(text) == Target(url=url, name=name, metrics_path=page)


def test_a_name_holds_nothing_that_a_terminal_obeys() -> None:
    assert parse_target("r1:8000", "a\x1b[31m\nb").name == "a\ufffd[31m b"
    assert parse_target("r1:8000", " \n").name == "r1:8000"


@pytest.mark.parametrize(
    "text",
    ["", "r1", "snapshoot", "ftp://r1:21", "http://", "http://r1:99999", "r1:80o0", "http://r1:8000?model=x",
     "http://r1:8000/#a", "http://r 1:8000", "http://r1:8000/\x1b[31m", "[::1:8000", "http://:8000"],
)  # fmt: skip
def test_what_is_no_target_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_target(text)
    message = str(caught.value)
    assert message.isprintable()
    assert "host:port" in message


@pytest.mark.parametrize(
    "text",
    ["http://me:hunter2@r1:8000", "me:hunter2@r1:8000", "http://hunter2@r1:x", "r1:8000?key=hunter2",
     "http://r1:8000/#hunter2", "http://me:a?hunter2@r1:8000", "r1:8000?key=me@hunter2"],
)  # fmt: skip
def test_a_secret_in_an_address_is_refused_and_never_repeated(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_target(text)
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(caught.value.__cause__)


def test_repeats_are_dropped_and_the_first_mention_stays_first() -> None:
    targets = [parse_target(text) for text in ("b:1", "a:1", "http://b:1/metrics")]
    assert [target.url for target in distinct(targets)] == ["http://b:1", "http://a:1"]


def test_an_address_that_is_asked_for_again_is_not_taken_apart_again(monkeypatch: pytest.MonkeyPatch) -> None:
    split: list[str] = []
    work = targets._split

    def counting(text: str) -> SplitResult:
        split.append(text)
        return work(text)

    monkeypatch.setattr(targets, "_split", counting)
    wanted = [f"http://once-more-{number}:8000" for number in range(3)]
    assert [parse_target(url) for url in wanted] == [parse_target(url) for url in wanted]
    assert split == wanted
