"""One session of the library, from initialisation to shutdown: which GPUs there are, and their rows."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from collectors.gpu.devices import SESSION_OVER, Card, Row, failed_row, identify, read_card
from collectors.gpu.events import XidLog, XidWatcher
from collectors.gpu.library import Code, GpuLibrary, LibraryError

MAX_GPUS = 256


class Session:
    """The library, initialised. `LibraryError` from the constructor: it is not, and nothing is left behind.

    `known` are the GPUs of earlier sessions: each keeps its row, under its UUID, also when it is gone now.
    """

    def __init__(self, library: GpuLibrary, known: Sequence[Card], xids: XidLog, proc: Path) -> None:
        self._library = library
        self._proc = proc
        self._watcher = XidWatcher(library, xids)
        library.start()
        try:
            self._counted = library.device_count()
        except LibraryError:
            self.stop(0.0)
            raise
        self.cards = self._find_cards(known)

    def _find_cards(self, known: Sequence[Card]) -> list[Card]:
        found = [Card(index) for index in range(min(self._counted, MAX_GPUS))]
        for card in found:
            with contextlib.suppress(LibraryError):
                identify(self._library, card)
        seen = {card.uuid for card in found}
        missing = {card.uuid: card for card in known if card.uuid and card.uuid not in seen}
        for card in found:
            former = next((old for old in missing.values() if old.index == card.index), None)
            if not card.uuid and former is not None:  # it does not answer: most likely the one that was here
                card.uuid, card.name = former.uuid, former.name
                del missing[former.uuid]
        gone = [Card(old.index, old.uuid, old.name, gone=True) for old in missing.values()]
        return sorted(found + gone, key=lambda card: card.index)

    def rows(self) -> list[Row]:
        """The rows of all GPUs now. `LibraryError`: the session is over."""
        self._library.device_count()
        rows: list[Row] = []
        for card in self.cards:
            try:
                rows += self._rows_of(card)
            except LibraryError as error:
                if error.code in SESSION_OVER:
                    raise
                rows.append(failed_row(card, error))
        return rows

    def _rows_of(self, card: Card) -> list[Row]:
        if card.gone:
            raise LibraryError(Code.GPU_NOT_FOUND)
        if card.handle is None:
            identify(self._library, card)
        if card.uuid:
            self._watcher.watch(card.handle, card.uuid)
        return read_card(self._library, card, self._proc)

    def outdated(self) -> bool:
        """Whether the driver counts another number of GPUs than when the session began."""
        try:
            return self._library.device_count() != self._counted
        except LibraryError:
            return True

    def stop(self, timeout_seconds: float) -> bool:
        """Shut the library down. False: a call hangs in the driver, and the library was left as it is."""
        if not self._watcher.stop(timeout_seconds):
            return False
        with contextlib.suppress(LibraryError):  # after a driver reload there is nothing to shut down
            self._library.stop()
        return True
