"""Terminal output of the demo: wide or narrow, with or without colour, or into a pipe."""

import re
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

MAX_WIDTH = 100
NAME_COLUMNS = 9  # "  Alice > "


class Stopped(Exception):
    """The demo was interrupted."""


class Screen:
    """Prints the demo. With `fast` there are no pauses for reading."""

    def __init__(self, console: Console, *, fast: bool) -> None:
        self._out, self._fast, self._stopped = console, fast, threading.Event()
        self._width = min(console.width, MAX_WIDTH)
        plain = console.options.ascii_only
        self._yes, self._no, self._arrow, self._dot = ("+", "x", ">", "-") if plain else ("✓", "✗", "▸", "·")

    def pause(self, seconds: float) -> None:
        """Give the reader time. Raises Stopped."""
        self.wait(0 if self._fast else seconds)

    def wait(self, seconds: float) -> None:
        """Wait, also with `fast`. Raises Stopped."""
        if self._stopped.wait(seconds):
            raise Stopped

    def stop(self) -> None:
        """End the demo at its next pause. Another thread may call this."""
        self._stopped.set()

    def panel(self, title: str, markup: str) -> None:
        """Show a framed text."""
        self._out.print(Panel(markup, title=title, width=self._width, padding=(0, 1)))
        self._out.print()

    def chapter(self, title: str, explanation: str = "") -> None:
        """Begin a part of the demo with a line across the screen."""
        self._out.print(Rule(title, align="left", style="cyan"), width=self._width)
        if explanation:
            self.narrate(explanation)

    def narrate(self, text: str) -> None:
        """Show a sentence about what comes next."""
        self._out.print(Text(text, style="italic"), width=self._width)
        self.pause(1)

    def said(self, who: str, text: str) -> None:
        """Show what a person says."""
        write = self.speaker(who, style="bold")
        write(text)
        write("\n")
        self.pause(0.5)

    def speaker(self, who: str, *, style: str = "") -> Callable[[str], None]:
        """Return a function that prints pieces of speech as they arrive, indented under the name."""
        self._out.print(Text(f"{who:>{NAME_COLUMNS - 3}} {self._arrow} ", style="bold cyan"), end="")
        return _Wrapped(self._out, self._width, style)

    def facts(self, *facts: str) -> None:
        """Show small print below what was said. A line breaks between facts, not inside one."""
        separator = f" {self._dot} "
        lines: list[str] = []
        for fact in filter(None, facts):
            if lines and len(lines[-1] + separator + fact) <= self._width - NAME_COLUMNS:
                lines[-1] += separator + fact
            else:
                lines.append(fact)
        self._indented(Text(" " * NAME_COLUMNS), Text("\n".join(lines), style="dim"))

    def check(self, ok: bool, text: str) -> None:
        """Show a check and its result."""
        mark = f"{' ' * (NAME_COLUMNS - 2)}{self._yes if ok else self._no} "
        self._indented(Text(mark, style="green" if ok else "bold red"), Text(text, style="" if ok else "red"))
        self._out.print()

    def waiting(self, text: str) -> AbstractContextManager[Any]:
        """Show a spinner inside the block. In a pipe it prints nothing."""
        return self._out.status(text, spinner="line" if self._out.options.ascii_only else "dots")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Show a table. Its last column takes the rest of the width."""
        table = Table(width=self._width, header_style="bold")
        for name in columns:
            table.add_column(name, overflow="fold", ratio=1 if name == columns[-1] else None)
        for row in rows:
            table.add_row(*map(Text, row))
        self._out.print(table)

    def _indented(self, head: Text, body: Text) -> None:
        grid = Table.grid()
        grid.add_column(no_wrap=True)
        grid.add_column()
        grid.add_row(head, body)
        self._out.print(grid, width=self._width)


class _Wrapped:
    """Writes pieces of text as they arrive, in whole words, and breaks lines between words."""

    def __init__(self, console: Console, width: int, style: str) -> None:
        self._out, self._width, self._style = console, width, style
        self._column, self._rest = NAME_COLUMNS, ""

    def __call__(self, piece: str) -> None:
        *words, self._rest = re.split(r"(?<=[ \n])", self._rest + piece)
        for word in words:
            if self._column + len(word.rstrip()) > self._width and self._column > NAME_COLUMNS:
                self._end_line()
            indent = "" if self._column else " " * NAME_COLUMNS
            text = indent + word.rstrip("\n")
            self._out.print(Text(text, style=self._style), end="", soft_wrap=True)
            self._column += len(text)
            if word.endswith("\n"):
                self._end_line()

    def _end_line(self) -> None:
        self._out.print()
        self._column = 0
