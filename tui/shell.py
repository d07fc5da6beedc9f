"""The shell of the app: command line, command list, clipboard, export."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from enginetop.fleet.errors import ConfigError
from themes.loader import Palette, choose_theme, load_theme, theme_names
from tui import export
from tui.actions import TYPING, Action, Place, actions_at
from tui.commands import (
    EXPORT_FORMS,
    Command,
    CommandError,
    Context,
    commands_of,
    complete,
    one_of,
    parse_columns,
    parse_command,
    parse_sort,
)
from tui.picture_app import PictureApp
from tui.screens.base import PictureScreen
from tui.screens.fleet import FleetScreen
from tui.screens.palette import PaletteScreen
from tui.view.numbers import many
from tui.view.query import QueryError, parse_query
from tui.widgets.command_bar import CommandBar
from tui.widgets.ink import textual_theme
from tui.widgets.line_view import LineView

_MOST_COPIED_BYTES = 70_000
"""Terminals drop a longer OSC 52."""
_HISTORY = 50
_NO_COMMANDS = frozenset(
    (
        *("command_line", "palette", "back"),
        *("cursor", "cursor_page", "cursor_end", "read", "read_page", "read_end"),
    )
)
"""What nobody would type."""

Done = Callable[[], str | Awaitable[str]]
"""Does what a line says; what there is to say of it, may be nothing."""
Understand = Callable[[str], Done]
"""Reads the argument of a command; nothing is done yet. CommandError, QueryError, ConfigError."""
_ANYWHERE_NAMES = frozenset(
    action.name.partition("(")[0] for action in actions_at(Place.ANYWHERE) if action.name != "leave"
)


class ShellApp(PictureApp):
    """An app with a command line. A subclass may know more commands with an argument: see `argued`."""

    _history: Sequence[str] = ()
    _theme_folder: Path | None = None
    """Where the user has themes of his own."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While somebody types, what holds anywhere holds nowhere."""
        if action in _ANYWHERE_NAMES and self.screen_stack:
            screen = self.screen
            if isinstance(screen, PictureScreen) and (screen.PLACE in TYPING or screen.types):
                return False
        return super().check_action(action, parameters)

    # -- command line and command list

    def action_command_line(self) -> None:
        """Open the command line."""
        self.open_command_line("")

    def open_command_line(self, value: str) -> None:
        """Open the command line with the beginning of a command."""
        screen, commands = self.top, self._commands()
        context = Context(tuple(self._urls()), theme_names(self._theme_folder))
        screen.open_bar(
            CommandBar(
                self.inks,
                self.note_failure,
                lambda line: complete(line, commands, context),
                self._history,
                value,
            )
        )

    def action_palette(self) -> None:
        """Open the list of commands."""

        def chosen(command: Command) -> None:
            if command.usage:
                self.open_command_line(f"{command.word} ")
            else:
                action = self._action(command.word)
                if action is not None:
                    self.begin_work()
                    self.begin(self._carry_out(lambda: self._act(action)))

        self.open_screen(PaletteScreen(self.inks, self.note_failure, self._commands(), chosen))

    async def on_command_bar_entered(self, message: CommandBar.Entered) -> None:
        """Carry a line out, or say in the bar why not."""
        screen, line = self.top, message.text.strip()
        try:
            done = self._prepared(line)
        except (CommandError, QueryError, ConfigError) as error:
            screen.say_in_bar(str(error))
            await self.answered()
            return
        self._remember(line)
        self.begin_work()
        screen.close_bar()
        self.call_after_refresh(self._carry_out, done)
        await self.answered()

    async def on_command_bar_left(self) -> None:
        """Close it."""
        self.top.close_bar()
        await self.answered()

    def _remember(self, line: str) -> None:
        if line:
            self._history = [*(old for old in self._history if old != line), line][-_HISTORY:]

    async def _carry_out(self, done: Done) -> None:
        try:
            said = done()
            if not isinstance(said, str):
                said = await said
            if said:
                self.top.say(said)
        finally:
            self.post_message(self.Done())

    def _prepared(self, line: str) -> Done:
        """The line understood; nothing is done yet. CommandError, QueryError, ConfigError."""
        if not line:
            return str
        command, argument = parse_command(line, self._commands())
        action = self._action(command.word)
        if action is not None and not argument:
            return lambda: self._act(action)
        understand = self.argued().get(command.word)
        if understand is None:
            raise CommandError(f"{command.word} cannot be done here")
        return understand(argument)

    def argued(self) -> dict[str, Understand]:
        """What understands the argument of each command that has one."""
        return {
            "filter": self._filter_command,
            "sort": self._sort_command,
            "columns": self._columns_command,
            "open": self._open_command,
            "theme": self._theme_command,
            "export": self._export_command,
        }

    def _filter_command(self, argument: str) -> Done:
        query = parse_query(argument)
        return lambda: self._on_fleet(lambda fleet: fleet.set_filter(query))

    def _sort_command(self, argument: str) -> Done:
        sort = parse_sort(argument)
        return lambda: self._on_fleet(lambda fleet: fleet.sort_by(sort))

    def _columns_command(self, argument: str) -> Done:
        choice = parse_columns(argument)
        return lambda: self._on_fleet(lambda fleet: fleet.choose(choice))

    def _open_command(self, argument: str) -> Done:
        if not argument:
            raise CommandError("open wants the name of a replica")
        urls = self._urls()
        url = urls[one_of(argument, urls, "replica")]
        return lambda: self._on_fleet(lambda fleet: fleet.open_row(url))

    def _theme_command(self, argument: str) -> Done:
        name = one_of(argument, theme_names(self._theme_folder), "theme")
        palette = load_theme(choose_theme(name, os.environ), self._theme_folder)
        return lambda: self._use(palette)

    def _action(self, word: str) -> Action | None:
        """The action of this word that can be taken on the screen on top."""
        screen = self.top
        offered = (action for action in actions_at(screen.PLACE, self.actions) if screen.offers(action))
        return next((action for action in offered if action.word == word), None)

    async def _act(self, action: Action) -> str:
        screen = self.top
        name = action.name.partition("(")[0]
        await self.run_action(action.name, screen if hasattr(screen, f"action_{name}") else self)
        return ""

    def _commands(self) -> tuple[Command, ...]:
        screen = self.top
        return commands_of(
            action
            for action in actions_at(screen.PLACE, self.actions)
            if screen.offers(action) and action.name.partition("(")[0] not in _NO_COMMANDS
        )

    def _urls(self) -> dict[str, str]:
        """The target URLs of the replicas by name."""
        snapshot = self.moment.shown
        return {} if snapshot is None else {one.target.name: one.target.url for one in snapshot.replicas}

    def _on_fleet(self, act: Callable[[FleetScreen], None]) -> str:
        """Do something on the fleet's screen, put on top."""
        self.action_fleet()
        screen = self.screen
        assert isinstance(screen, FleetScreen)
        act(screen)
        return ""

    def _use(self, palette: Palette) -> str:
        """Other colours."""
        theme = textual_theme(palette)
        self.register_theme(theme)
        self.inks.use(palette)
        self.theme = theme.name
        for screen in self.screen_stack:
            for view in screen.query(LineView):
                view.refresh()
        return f"theme {palette.name}"

    # -- clipboard and files

    def action_copy(self) -> None:
        """Copy the selected row, or the page."""
        text = self.top.copied_text()
        if not text:
            self.top.say("nothing to copy")
            return
        data = text.encode("utf-8")[:_MOST_COPIED_BYTES].decode("utf-8", "ignore")
        self.copy_to_clipboard(data)
        lines = data.count("\n") + 1
        self.top.say(f"sent to the clipboard: {many(lines, 'line')}")

    def action_export_view(self) -> None:
        """Ask in which form."""
        self.open_command_line("export svg")

    def _export_command(self, argument: str) -> Done:
        form, _, name = (argument or "svg").partition(" ")
        form = one_of(form, EXPORT_FORMS, "form")
        try:
            named = Path(name.strip()).expanduser() if name.strip() else None
        except RuntimeError:
            raise CommandError(f"nobody knows the home in {name.strip()}") from None
        return lambda: self._write(form, named)

    def _write(self, form: str, named: Path | None) -> str:
        """Write the view on top; what came of it."""
        screen = self.top
        try:
            path = named or export.new_file(Path.cwd(), screen.export_name, form, time.time())
            export.write_new(path, self._exported(screen, form))
        except (export.ExportError, CommandError) as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - told instead of ending the program
            self.note_failure("export", error)
            return f"export failed: {type(error).__name__}: {error}"
        return f"written: {path.resolve()}"

    def _exported(self, screen: PictureScreen, form: str) -> str:
        if form == "svg":
            return export.svg_text(self.export_screenshot(title=f"enginetop {screen.export_name}"))
        snapshot = screen.picture.snapshot
        if snapshot is None:
            raise CommandError("there is nothing to export yet")
        return export.form_text(snapshot, form, screen.exported_urls(), alerts=screen.PLACE is Place.ALERTS)
