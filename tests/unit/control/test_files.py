"""Files that survive a crash, and the lock of the one controller: no room, no rights, links."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

import pytest

from tuners.control.files import OwnerLock, locked, locked_to_read, replace_kept
from tuners.control.store import ChangeStore


def test_a_file_whose_owner_cannot_be_kept_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings"
    file.write_text("old")

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "getuid", lambda: file.stat().st_uid + 1)  # somebody else of its group
    monkeypatch.setattr(os, "fchown", refuse)
    with pytest.raises(PermissionError):
        replace_kept(file, b"new")
    assert file.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["settings"]


def test_a_link_to_a_file_goes_on_to_lead_there(tmp_path: Path) -> None:
    file, link = tmp_path / "real" / "settings", tmp_path / "settings"
    file.parent.mkdir()
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)
    replace_kept(link, b"new")
    assert link.is_symlink()
    assert file.read_text() == "new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_lock_that_cannot_tell_its_holder_is_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = OwnerLock(tmp_path / "control.lock")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space left"):
            lock.take("the first change")
    assert lock.take("the second change") == ""
    assert "the second change" in OwnerLock(tmp_path / "control.lock").take("another")


def test_who_holds_a_lock_can_be_looked_up_without_taking_it(tmp_path: Path) -> None:
    lock, other = OwnerLock(tmp_path / "control.lock"), OwnerLock(tmp_path / "control.lock")
    assert other.holder() == ""  # no file yet
    lock.take("change 7f3a")
    assert other.holder() == lock.holder() == f"change 7f3a (process {os.getpid()})"
    lock.release()
    assert other.holder() == ""
    with (tmp_path / "control.lock").open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert other.holder() == ""  # who looks, too, holds nothing
    # of one who died its name is left in the file, not the lock
    (tmp_path / "control.lock").write_text("change 7f3a (process 1)")
    assert other.holder() == ""


def test_who_only_looks_for_a_holder_does_not_keep_anybody_from_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "control.lock"
    path.touch()
    looking = path.open()
    fcntl.flock(looking, fcntl.LOCK_SH)
    monkeypatch.setattr("time.sleep", lambda _: looking.close())
    assert OwnerLock(path).take("the change") == ""


def test_where_nobody_can_see_whether_a_stop_is_wanted_the_change_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ChangeStore(tmp_path)
    assert store.stop_wanted("7f3a") == ""

    def refuse(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", refuse)
    assert store.stop_wanted("7f3a") == f"the state folder {tmp_path} cannot be read (Permission denied)"


def test_who_only_reads_needs_no_lock_where_nobody_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(os, "open", refuse)
    refusal = errno.EROFS
    with locked_to_read(tmp_path / "lock"):
        refusal = errno.EACCES
    with pytest.raises(PermissionError), locked_to_read(tmp_path / "lock"):
        pass


def test_who_does_not_wait_for_a_lock_is_told_that_it_is_taken(tmp_path: Path) -> None:
    with locked(tmp_path / "lock"), pytest.raises(BlockingIOError), locked(tmp_path / "lock", wait=False):
        pass
    with locked(tmp_path / "lock", wait=False):
        pass
