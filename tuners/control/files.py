"""Files that survive a crash: written whole or not at all, on disk when the call returns."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

_PRIVATE = 0o600
_LOOK_SECONDS = 0.02
"""Far longer than it takes to look whether a lock is held."""


def read_short(path: Path, most_bytes: int) -> str:
    """The text of a file. OSError, whose `strerror` says why: also where it is longer, or not UTF-8."""
    with path.open("rb") as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"larger than {most_bytes} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise OSError(errno.EILSEQ, "not UTF-8 text") from None


def write_synced(path: Path, data: bytes, *, like: os.stat_result | None = None) -> None:
    """Replace a file atomically, readable by its owner only, or with the owner and mode of `like`.

    OSError when that fails; the old file stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE)
    try:
        with os.fdopen(handle, "wb") as file:
            if like is not None:
                if (like.st_uid, like.st_gid) != (os.getuid(), os.getgid()):
                    os.fchown(file.fileno(), like.st_uid, like.st_gid)
                os.fchmod(file.fileno(), like.st_mode & 0o7777)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def replace_kept(path: Path, data: bytes) -> None:
    """Replace an existing file at once, its owner and its mode kept, and links that lead to it. OSError, with
    nothing changed, also where it may not be written itself (PermissionError) though its folder may.
    """
    path = path.resolve(strict=True)
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "permission denied")
    write_synced(path, data, like=path.stat())


def append_synced(path: Path, data: bytes, *, keep_bytes: int) -> None:
    """Append to a file after its first `keep_bytes` bytes (what follows them is a torn write)."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = not path.exists()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, _PRIVATE)
    with os.fdopen(handle, "wb") as file:  # wraps the descriptor: nothing is truncated by opening
        file.truncate(keep_bytes)
        file.seek(keep_bytes)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if new:
        _sync_folder(path.parent)


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold a lock file while the block runs. OSError: it cannot be made; without `wait`: somebody has it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _PRIVATE)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(handle)


@contextmanager
def locked_to_read(path: Path) -> Iterator[None]:
    """As `locked`, for who only reads: on a file system that nobody writes to no lock is needed."""
    with ExitStack() as held:
        try:
            held.enter_context(locked(path))
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
        yield


class OwnerLock:
    """A lock that one process holds for long, and that names its holder to others."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    def take(self, name: str) -> str:
        """Take the lock for `name`; returns who else has it, an empty text when it is ours now. OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, _PRIVATE)
        try:
            _lock(handle)
        except OSError:
            holder = os.read(handle, 200).decode("utf-8", "replace")
            os.close(handle)
            return " ".join(holder.split()) or "another process"
        self._handle = handle
        try:
            self.rename(name)
        except OSError:  # a full disk: what cannot be written is not held
            self.release()
            raise
        return ""

    def holder(self) -> str:
        """Who has the lock, we ourselves included; empty: nobody. OSError."""
        try:
            handle = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return ""
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return " ".join(os.read(handle, 200).decode("utf-8", "replace").split()) or "another process"
        finally:
            os.close(handle)
        return ""

    def rename(self, name: str) -> None:
        """Tell others another name of the holder, which we are."""
        if self._handle is not None:
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, f"{name} (process {os.getpid()})".encode(), 0)

    def release(self) -> None:
        """Let go; without effect when it is not held."""
        handle, self._handle = self._handle, None
        if handle is None:
            return
        try:
            os.ftruncate(handle, 0)
        finally:
            os.close(handle)


def _lock(handle: int) -> None:
    """Lock at once, or OSError; who only looks for a holder is waited for."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(_LOOK_SECONDS)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
