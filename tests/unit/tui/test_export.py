"""Files that a view is written to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tui.export import ExportError, write_new


def test_a_file_that_could_not_be_written_whole_is_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "view.csv"
    with pytest.raises(ExportError, match=r"view\.csv"):
        write_new(path, "name \ud800")
    write_new(path, "name")
    with pytest.raises(ExportError, match="is there already"):
        write_new(path, "another")
    assert path.read_text(encoding="utf-8") == "name"
