"""How the demo looks in a terminal: wide or narrow, with or without colour, or in a pipe."""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

_WIDEST = 100
_NAME_COLUMNS = 9  # "  Alice > "


class Stopped(Exception):
    """The person has seen enough."""


class Screen:
    """Prints the demo. With `fast` nothing waits for the reader."""

    def __init__(self, console: Console, *, fast: bool) -> None:
        self._out = console
        self._fast = fast
        self._stopped = threading.Event()
        self._width = min(console.width, _WIDEST)
        plain = console.options.ascii_only
        self._yes, self._no, self._arrow, self._dot = ("+", "x", ">", "-") if plain else ("✓", "✗", "▸", "·")

    def pause(self, seconds: float) -> None:
        """Give the reader time. Raises Stopped."""
        self.wait(0 if self._fast else seconds)

    def wait(self, seconds: float) -> None:
        """Wait, fast or not. Raises Stopped."""
        if self._stopped.wait(seconds):
            raise Stopped

    def stop(self) -> None:
        """End the demo at its next pause; called from another thread."""
        self._stopped.set()

    def panel(self, title: str, text: str) -> None:
        self._out.print(Panel(text, title=title, width=self._width, padding=(0, 1)))

    def chapter(self, title: str, explanation: str = "") -> None:
        """Open a part of the story."""
        self._out.print()
        self._out.print(Rule(title, align="left", style="cyan"), width=self._width)
        if explanation:
            self._out.print(Text(explanation, style="italic"), width=self._width)
        self.pause(0.8)

    def said(self, who: str, text: str) -> None:
        """Show what a person says."""
        write = self.speaker(who, style="bold")
        write(text)
        write("\n")
        self.pause(0.5)

    def speaker(self, who: str, *, style: str = "") -> Callable[[str], None]:
        """Return a function that prints what is said as it comes, wrapped at words under the name."""
        self._out.print(Text(f"{who:>{_NAME_COLUMNS - 3}} {self._arrow} ", style="bold cyan"), end="")
        return _Wrapped(self._out, self._width, style)

    def facts(self, *facts: str) -> None:
        """Show small print below what was said; a line breaks between facts, not inside one."""
        separator = f" {self._dot} "
        lines: list[str] = []
        for fact in filter(None, facts):
            if lines and len(lines[-1] + separator + fact) <= self._width - _NAME_COLUMNS:
                lines[-1] += separator + fact
            else:
                lines.append(fact)
        self._small("\n".join(lines))

    def check(self, ok: bool, text: str) -> None:
        """Show whether the proxy kept a promise."""
        mark = Text(
            f"{' ' * (_NAME_COLUMNS - 2)}{self._yes if ok else self._no} ",
            style="green" if ok else "bold red",
        )
        self._out.print(_hanging(mark, Text(text, style="" if ok else "red")), width=self._width)

    def waiting(self, text: str) -> AbstractContextManager[Any]:
        """Show a spinner inside the block; in a pipe, one line."""
        if not self._out.is_terminal:
            self._small(text)
        return self._out.status(text, spinner="line" if self._out.options.ascii_only else "dots")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        table = Table(width=self._width, header_style="bold", show_lines=False)
        for i, name in enumerate(columns):
            table.add_column(name, overflow="fold", ratio=1 if i == len(columns) - 1 else None)
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        self._out.print(table)

    def _small(self, text: str) -> None:
        self._out.print(_hanging(Text(" " * _NAME_COLUMNS), Text(text, style="dim")), width=self._width)


def _hanging(head: Text, body: Text) -> Table:
    grid = Table.grid()
    grid.add_column(no_wrap=True)
    grid.add_column()
    grid.add_row(head, body)
    return grid


class _Wrapped:
    """Writes pieces of text as they come, and breaks lines between words."""

    def __init__(self, console: Console, width: int, style: str) -> None:
        self._out, self._width, self._style = console, width, style
        self._column, self._word = _NAME_COLUMNS, ""

    def __call__(self, piece: str) -> None:
        for char in piece:
            if char not in " \n":
                self._word += char
                continue
            self._flush()
            self._line() if char == "\n" else self._put(" ")
        # A terminal shows the half word at once, unless it may have to move to the next line.
        if self._word and self._column + len(self._word) + 12 < self._width:
            self._put(self._word)
            self._word = ""

    def _flush(self) -> None:
        if self._column + len(self._word) > self._width and self._column > _NAME_COLUMNS:
            self._line()
            self._put(" " * _NAME_COLUMNS)
        self._put(self._word)
        self._word = ""

    def _put(self, text: str) -> None:
        self._out.print(Text(text, style=self._style), end="", soft_wrap=True)
        self._column += len(text)

    def _line(self) -> None:
        self._out.print()
        self._column = 0
