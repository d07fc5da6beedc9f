"""The way from the screens to the controller."""

from __future__ import annotations

from enginetop.fleet.ports import ChangeControl
from tui.errands import Begin, Errands
from tui.widgets.line_view import Complain


class ControlDesk(Errands):
    """Asks the controller. `approver` is the user's name."""

    def __init__(self, control: ChangeControl, approver: str, begin: Begin, complain: Complain) -> None:
        super().__init__("control", begin, complain)
        self.control = control
        self._approver = approver

    def approval(self, word: str) -> str:
        """What the audit says of an approval by typing `word`."""
        return f'{self._approver} (typed "{word}")'.lstrip()
