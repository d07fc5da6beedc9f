"""Answers in order, the next ones asked for while the caller works on the one before."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
_AT_ONCE = 2


def asked_ahead(asks: Iterable[Callable[[], T]]) -> Iterator[T]:
    """What each call returns, or raises, in order; two of them are under way at a time.

    The threads hold up nobody's end: one that hangs is left behind.
    """
    waiting: deque[_Pending[T]] = deque()
    rest = iter(asks)
    while True:
        while len(waiting) < _AT_ONCE and (ask := next(rest, None)) is not None:
            waiting.append(_Pending(ask))
        if not waiting:
            return
        yield waiting.popleft().result()


class _Pending(Generic[T]):
    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask = ask
        self._found: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="enginetop-prometheus-ask", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found.append(self._ask())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error

    def result(self) -> T:
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._found.pop()
