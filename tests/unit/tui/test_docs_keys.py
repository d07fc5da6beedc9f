"""docs/keys.md says what the table of actions says."""

from __future__ import annotations

from pathlib import Path

from enginetop.alerts.builtin import BUILTIN_NAMES
from tui.actions import ACTIONS
from tui.commands import commands_of
from tui.docs_keys import main, page
from tui.view.help import MOUSE, help_lines


def test_the_page_is_current(tmp_path: Path) -> None:
    assert (Path(__file__).parents[3] / "docs/keys.md").read_text(encoding="utf-8") == page(), (
        "run `make docs`"
    )
    assert main([str(tmp_path / "keys.md")]) == 0
    assert (tmp_path / "keys.md").read_text(encoding="utf-8") == page()


def test_every_rule_has_a_word_or_a_state_in_the_column() -> None:
    of_states = {"TargetDown", "NoProgress", "NoEngineMetrics", "Unauthorized"}
    text = page()
    assert {name for name in BUILTIN_NAMES if f"| `{name}` fires |" not in text} == of_states
    assert "| ✖ down | state `down` |" in text
    assert "| ◌ slow | " in text


def test_every_action_and_command_is_on_it() -> None:
    text = page()
    assert all(f"| {action.word} | {action.meaning}" in text for action in ACTIONS)
    assert all(f"`:{command.word} " in text for command in commands_of(()))
    assert text.count("**dangerous** |") == sum(action.dangerous for action in ACTIONS)


def test_the_mouse_is_on_it_and_on_the_help_page() -> None:
    text, shown = page(), "\n".join("".join(span.text for span in line) for line in help_lines(100))
    for deed, meaning in MOUSE:
        assert f"- **{deed}** {meaning}" in text
        assert f"{deed:<13}{meaning}" in shown
