"""File-SD in JSON and YAML: what is read of it, and files that are broken, half written or away."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.discovery.file_sd import FileSd, listed_in
from collectors.discovery.listing import Listed, ListingError
from enginetop.fleet.model import Role, Target

GROUPS = [
    {
        "targets": ["10.0.0.1:8000"],
        "labels": {"name": "a1", "model": "llama", "role": "prefill", "__metrics_path__": "/r/1/metrics"},
    },
    {"targets": ["10.0.0.2:8000", "[fd00::1]:8000"], "labels": {"name": "both", "__scheme__": "https"}},
]
YAML = """
- targets: ['10.0.0.1:8000']
  labels: {name: a1, model: llama, role: prefill, __metrics_path__: /r/1/metrics}
- targets: [ '10.0.0.2:8000', '[fd00::1]:8000' ]
  labels: {name: both, __scheme__: https}
"""
READ = [
    Listed(Target("http://10.0.0.1:8000/r/1", "a1", "/metrics", "llama", Role.PREFILL), "a1"),
    Listed(Target("https://10.0.0.2:8000", "10.0.0.2:8000")),
    Listed(Target("https://[fd00::1]:8000", "[fd00::1]:8000")),
]


@pytest.mark.parametrize(
    ("name", "text"), [("t.json", json.dumps(GROUPS)), ("t.yml", YAML), ("t.yaml", YAML)]
)
def test_both_forms_say_the_same(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert FileSd(str(tmp_path / name)).look() == READ


@pytest.mark.parametrize(
    ("path", "base", "page"),
    [
        ("/metrics", "", "/metrics"),
        ("/a/metrics/?x=1", "/a", "/metrics"),
        ("/stats", "", "/stats"),
        ("/stats?format=text", "", "/stats"),  # an answer tells its path without: it would be asked for ever
        ("/", "", "/"),
    ],
)
def test_a_page_is_asked_without_a_query(path: str, base: str, page: str) -> None:
    (found,) = listed_in([{"targets": ["h:1"], "labels": {"__metrics_path__": path}}])
    assert (found.target.url, found.target.metrics_path) == (f"http://h:1{base}", page)


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (json.dumps(GROUPS)[:-20], "not JSON (line 1)"),
        ("", "empty"),
        ("{}", "not a list of target groups"),
        ('[{"labels": {}}]', "group 0 has no list of targets"),
        ('[{"targets": [7]}]', "a target of group 0: an address that is no word"),
        ('[{"targets": ["a b:1"]}]', "a target of group 0: no host:port"),
        ('[{"targets": ["h:99999"]}]', "a target of group 0"),
        ('[{"targets": ["h:1"], "labels": {"a": []}}]', "labels of group 0"),
        ('[{"targets": ["h:1"], "labels": {"__scheme__": "ftp"}}]', "the scheme 'ftp'"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_broken_file_keeps_its_last_good_list(tmp_path: Path, broken: str, why: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(GROUPS))
    source = FileSd(str(path))
    source.look()
    path.write_text(broken)
    assert source.look() == READ
    assert why in source.note
    assert "last good list" in source.note
    assert "\n" not in source.note
    path.write_text(json.dumps(GROUPS[:1]))
    assert source.look() == READ[:1]
    assert source.note == ""


def test_half_written_at_any_byte(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    whole = json.dumps(GROUPS).encode()
    path.write_bytes(whole)
    source = FileSd(str(path))
    source.look()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        assert source.look() == READ


def test_a_file_that_was_never_good_has_no_list(tmp_path: Path) -> None:
    with pytest.raises(ListingError, match="no such file"):
        FileSd(str(tmp_path / "t.json")).look()
    (tmp_path / "t.json").write_text("[")
    with pytest.raises(ListingError, match="not JSON"):
        FileSd(str(tmp_path / "t.json")).look()


def test_a_file_that_is_away_for_a_moment_keeps_its_list(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(GROUPS))
    source = FileSd(str(path))
    source.look()
    path.unlink()
    assert source.look() == READ
    assert "no such file" in source.note


def test_an_empty_list_is_a_list(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text("[]")
    assert FileSd(str(tmp_path / "t.json")).look() == []


def test_a_pattern_names_files_that_come_and_go(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text('[{"targets": ["b:1"]}]')
    source = FileSd(str(tmp_path / "*.json"))
    assert [one.target.name for one in source.look()] == ["b:1"]
    (tmp_path / "a.json").write_text('[{"targets": ["a:1"]}]')
    assert [one.target.name for one in source.look()] == ["a:1", "b:1"]
    (tmp_path / "b.json").unlink()
    assert [one.target.name for one in source.look()] == ["a:1"]


def test_a_file_replaced_with_the_same_size_and_time_is_seen(tmp_path: Path) -> None:
    path, new = tmp_path / "t.json", tmp_path / "new"
    path.write_text('[{"targets": ["a:1"]}]')
    source = FileSd(str(path))
    source.look()
    stamp = path.stat()
    new.write_text('[{"targets": ["b:1"]}]')
    os.utime(new, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    new.rename(path)
    assert [one.target.name for one in source.look()] == ["b:1"]


def test_an_unchanged_file_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.json"
    path.write_text('[{"targets": ["a:1"]}]')
    source = FileSd(str(path))
    first = source.look()
    monkeypatch.setattr(Path, "open", lambda *_: pytest.fail("read again"))
    assert source.look() == first


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["targets", "labels", "x"]), inner)
    ),
    max_leaves=12,
)


@settings(max_examples=80, deadline=None)
@given(JSON)
def test_any_document_is_a_list_or_an_error_in_words(document: Any) -> None:
    found = []
    try:
        found = list(listed_in(document))
    except ValueError as error:
        said = str(error)
    else:
        said = "a list"
    assert said
    assert all(one.target.url.startswith("http://") for one in found)
