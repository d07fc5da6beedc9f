"""The user's own columns: chosen, ordered, placed and kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from enginetop.cli.column_file import ColumnFile, ColumnFileError
from enginetop.fleet.errors import ConfigError
from tests.tui.snapshots import fleet, replica
from tui.view.arrange import Sort
from tui.view.cells import line_text, line_width
from tui.view.column_choice import choice_rows, listed, moved, toggled
from tui.view.columns import BY_KEY
from tui.view.condition import conditions_of
from tui.view.placing import read_choice
from tui.view.query import Query
from tui.view.table import FleetTable

ALL = tuple(BY_KEY)


def header(choice: Sequence[str], width: int = 80, sort: Sort = Sort()) -> list[str]:  # noqa: B008
    snapshot = fleet([replica("a1")])
    shown = FleetTable(
        snapshot, conditions_of(snapshot), width=width, sort=sort, query=Query(), choice=choice
    )
    line = shown.header()
    assert line_width(line) <= width
    return line_text(line).split()


def test_chosen_columns_stand_in_the_users_order() -> None:
    assert header(("name", "state", "tok", "kv", "run")) == ["replica", "state", "tok/s", "KV", "%", "run"]


def test_columns_that_no_replica_has_anything_for_take_no_room() -> None:
    assert header(("name", "state", "gpu", "run")) == ["replica", "state", "run"]


def test_what_does_not_fit_goes_by_the_tables_rank_not_by_the_users_order() -> None:
    narrow = header(("name", "state", "queue", "itl", "kv", "run", "wait"), width=45)
    assert narrow == ["replica", "state", "KV", "%", "run", "wait"]


def test_the_sorted_column_need_not_be_chosen_to_sort() -> None:
    assert header(("name", "state", "run"), sort=Sort("kv")) == ["replica", "state", "run"]


def test_a_column_goes_out_and_comes_back_where_it_was() -> None:
    without = toggled((), "run")
    assert without == tuple(key for key in ALL if key != "run")
    assert listed(without) == ALL
    assert toggled(without, "run") == ALL
    assert listed(()) == ALL


def test_a_hidden_column_is_listed_after_the_one_that_it_usually_follows() -> None:
    choice = ("name", "state", "wait", "kv", "run")  # usually: model run wait kv
    assert listed(choice)[:6] == ("name", "state", "model", "wait", "kv", "kv_trend")
    assert toggled(choice, "model") == ("name", "state", "model", "wait", "kv", "run")
    assert sorted(listed(choice)) == sorted(ALL)


@pytest.mark.parametrize("key", ["name", "state", "nonsense"])
def test_name_and_state_stay(key: str) -> None:
    assert toggled((), key) == ()
    assert moved((), key, 1) == ()


def test_columns_move_one_place_and_not_before_the_fixed_ones() -> None:
    choice = ("name", "state", "run", "wait", "kv")
    assert moved(choice, "wait", -1) == ("name", "state", "wait", "run", "kv")
    assert moved(choice, "wait", 1) == ("name", "state", "run", "kv", "wait")
    assert moved(choice, "run", -1) == choice
    assert moved(choice, "kv", 1) == choice
    assert moved(choice, "tok", 1) == choice


def test_the_list_tells_what_is_chosen_and_what_is_on_the_screen() -> None:
    shown = choice_rows(("name", "state", "kv"), ("name", "state"), 80)
    assert len(shown) == len(ALL)
    lines = [line_text(shown.line(index, selected=index == 2)) for index in range(4)]
    assert [line[:27].rstrip() for line in lines] == [
        " [=] replica     on screen",
        " [=] state       on screen",
        "▸[ ] model",
        " [ ] run",
    ]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["kv", "speed"], r"^FILE: no column is called 'speed'; there are: name state .*$"),
        (["kv", "run", "kv"], r"^FILE: column 'kv' is named twice$"),
    ],
)
def test_a_bad_choice_is_one_line(keys: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_choice(keys, "FILE")


def test_the_fixed_columns_lead_every_choice() -> None:
    assert read_choice(["kv", "state"], "FILE") == ("name", "state", "kv")


def test_what_is_saved_is_there_the_next_time(tmp_path: Path) -> None:
    path = tmp_path / "state" / "enginetop" / "columns.toml"
    assert ColumnFile(path).load() == ()
    assert ColumnFile(path, ("name", "state", "tok")).load() == ("name", "state", "tok")
    ColumnFile(path).save(("name", "state", "kv", "run"))
    assert ColumnFile(path, ("name", "state", "tok")).load() == ("name", "state", "kv", "run")
    assert [found.name for found in path.parent.iterdir()] == ["columns.toml"]
    ColumnFile(path).save(())
    ColumnFile(path).save(())
    assert ColumnFile(path).load() == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"columns = 3", "columns must be a list of names; remove the file"),
        (b"columns = [1]", "columns must be a list of names; remove the file"),
        (b"", "columns must be a list of names; remove the file"),
        (b"columns = ['kw']", "no column is called 'kw'"),
        (b"columns = [", "TOML"),
        (b"\xff", "not UTF-8 text; remove the file"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_in_one_line(tmp_path: Path, text: bytes, message: str) -> None:
    path = tmp_path / "columns.toml"
    path.write_bytes(text)
    with pytest.raises(ConfigError, match=message) as caught:
        ColumnFile(path).load()
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == text


def test_a_disk_that_does_not_take_it_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ColumnFileError, match="the columns are not kept"):
        ColumnFile(tmp_path / "file" / "columns.toml").save(("name", "state"))
