"""What the commands print: tables that fit 80 columns, plain lines, JSON, and errors on standard error."""

import json
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from proxy.client.api import Refused

REFUSED, WRONG_USE = 1, 2  # exit codes
API_KEY = "MEMORY_PROXY_API_KEY"  # the environment variable that holds the credential
_NARROW = frozenset(("score", "type", "since", "state", "last used", "waiting", "tries", "when", "forgotten"))
# The same characters as in `/ui` (static/dom.js): terminal controls, text direction, invisible ones.
_HIDDEN = (
    *((0x00, 0x08), (0x0B, 0x1F), (0x7F, 0x9F), (0x061C, 0x061C), (0x200B, 0x200B), (0x2028, 0x202E)),
    *((0x2060, 0x206F), (0xFEFF, 0xFEFF), (0xFFF9, 0xFFFB), (0xE0000, 0xE007F)),
)
_VISIBLE = {
    code: chr(0x2400 + code) if code < 0x20 else f"‹U+{code:04X}›"
    for first, last in _HIDDEN
    for code in range(first, last + 1)
}


class WrongUse(Exception):
    """The command line asks for something that makes no sense. Nothing was sent."""


class Terminal(Console):
    """A console that makes control characters in memories visible instead of obeying them."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, emoji=False, highlight=False)  # ":wave:" stays six characters

    def render_str(self, text: str, **style: Any) -> Text:
        """Return the text with hidden characters made visible. Rich calls this for every string."""
        return super().render_str(text.translate(_VISIBLE), **style)


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a command: the proxy's answer for --json, else what to show, and the exit code."""

    answer: dict[str, Any] | None
    shown: Iterable[RenderableType] = ()
    status: int = 0


def print_result(result: Result, *, as_json: bool) -> int:
    """Print the result to standard output and return its exit code."""
    if not as_json:
        out = Terminal()
        for one in result.shown:
            out.print(one)
    elif result.answer is not None:
        print(json.dumps(result.answer, ensure_ascii=False, indent=2))
    return result.status


def print_error(markup: str) -> None:
    """Print a line to standard error."""
    Terminal(stderr=True).print(markup)


def print_refusal(error: Refused, about: str = "") -> None:
    """Print the proxy's error message and, for a refused credential, where the credential came from."""
    print_error(f"[red]Refused ({error.status}):[/] {escape(f'{about}: {error}' if about else str(error))}")
    if error.status == 401 and os.environ.get(API_KEY):
        print_error(f"The credential was read from {API_KEY}.")
    elif error.status == 401:
        print_error(f"Set {API_KEY} to a valid credential.")


def is_confirmed(what: str) -> bool:
    """Ask before something is lost for good. Without a terminal the answer is no."""
    if not sys.stdin.isatty():
        print_error(f"This would forget {escape(what)}. Add --yes to do it.")
        return False
    answer = Terminal().input(f"Forget {escape(what)}? This cannot be undone. \\[y/N] ")
    return answer.strip().lower() in ("y", "yes")


# ---------------------------------------------------------------- tables
def table(*columns: str) -> Table:
    """Return an empty table."""
    made = Table(show_edge=False, pad_edge=False, header_style="bold")
    for name in columns:
        made.add_column(name, overflow="fold", no_wrap=name in _NARROW)
    return made


def memory_table(memories: list[dict[str, Any]]) -> Table:
    """Return memories as a table that fits 80 columns."""
    made = table("memory", "type", "since")
    for memory in memories:
        ended = f" [yellow]({why})[/]" if (why := _inactive(memory)) else ""
        # Requests of another project do not see it: a frequent reason for a search without results.
        of = f" project {project}" if (project := memory.get("project_id")) else ""
        made.add_row(
            two_lines(memory["content"], f"{memory['id']}{of}", ended),
            escape(memory["type"]),
            when(memory["created_at"]),
        )
    return made


def page(answer: dict[str, Any], rows: Table, empty: str) -> Result:
    """Return a page as a table with how to see the next one, or `empty` without rows."""
    if not answer["data"]:
        return Result(answer, [empty])
    if not answer.get("has_more"):
        return Result(answer, [rows])
    of = f" of {answer['total']}" if answer.get("total") else ""
    last = escape(str(answer["data"][-1]["id"]))
    return Result(answer, [rows, f"{len(answer['data'])}{of}; for more: --after {last}"])


def _inactive(memory: dict[str, Any]) -> str:
    """Return why a memory is no longer searched, in the words of `/ui`; "" if it is."""
    if memory.get("superseded_by"):
        return "superseded"
    if memory.get("archived"):
        return "archived"
    return "expired" if (end := memory.get("expires_at")) and end <= time.time() else ""


def two_lines(content: str, below: str, mark: str = "") -> str:
    """Return a cell with the content and, dimmed on the next line, its identifier."""
    return f"{escape(content)}{mark}\n[dim]{escape(below)}[/]"


def when(seconds: float) -> str:
    """Return a time of the API as local date and time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def counted(count: int, noun: str) -> str:
    """Return the count with its noun: "1 memory", "2 memories"."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun.removesuffix('y')}ies" if noun.endswith("y") else f"{count} {noun}s"
