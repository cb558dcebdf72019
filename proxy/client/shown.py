"""Output formats of the commands: tables of 80 columns, plain lines, JSON."""

import argparse
import json
import os
import sys
import time
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from proxy.client.api import Refused

REFUSED, WRONG_USE = 1, 2
API_KEY = "MEMORY_PROXY_API_KEY"  # the variable that holds the credential
_NARROW = frozenset(("score", "type", "since", "state", "last used", "waiting", "tries", "when", "forgotten"))
# As `/ui` shows them (static/dom.js): what steers a terminal, changes the order of a text, or is not seen.
_HIDDEN = (
    *((0x00, 0x08), (0x0B, 0x1F), (0x7F, 0x9F), (0x061C, 0x061C), (0x200B, 0x200B), (0x2028, 0x202E)),
    *((0x2060, 0x206F), (0xFEFF, 0xFEFF), (0xFFF9, 0xFFFB), (0xE0000, 0xE007F)),
)
_VISIBLE = {
    code: chr(0x2400 + code) if code < 0x20 else f"‹U+{code:04X}›"
    for first, last in _HIDDEN
    for code in range(first, last + 1)
}


class Terminal(Console):
    """A console on which a foreign text is shown as it is, and does nothing."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, emoji=False)  # ":wave:" in a memory is six characters

    def render_str(self, text: str, **style: Any) -> Text:
        """Return the text with its hidden characters made visible: all that is printed comes by here."""
        return super().render_str(text.translate(_VISIBLE), **style)


def print_refusal(error: Refused, about: str = "") -> None:
    """Say on standard error what the proxy refused, in its own words; of a credential, where it came from."""
    what = f"{about}: {error}" if about else str(error)
    errors = Terminal(stderr=True)
    errors.print(f"[red]Refused ({error.status}):[/] {escape(what)}", highlight=False)
    if error.status == 401:
        is_set = bool(os.environ.get(API_KEY))
        told = (
            f"What was sent is {API_KEY}." if is_set else f"These commands send {API_KEY}, which is not set."
        )
        errors.print(told, highlight=False)


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
        ended = f" [yellow]({why})[/]" if (why := _unused(memory)) else ""
        # A chat of another project never sees it, which is what many a search in vain comes from.
        of = f" project {project}" if (project := memory.get("project_id")) else ""
        made.add_row(
            two_lines(memory["content"], f"{memory['id']}{of}", ended),
            escape(memory["type"]),
            when(memory["created_at"]),
        )
    return made


def _unused(memory: dict[str, Any]) -> str:
    """Return why a memory is no longer searched, as `/ui` does, or "" where it is."""
    if memory.get("superseded_by"):
        return "superseded"
    if memory.get("archived"):
        return "archived"
    return "expired" if (end := memory.get("expires_at")) and end <= time.time() else ""


def two_lines(content: str, below: str, mark: str = "") -> str:
    """Return a cell: content, and in a dim line below what identifies it."""
    return f"{escape(content)}{mark}\n[dim]{escape(below)}[/]"


def when(seconds: float) -> str:
    """Return a time of the API as local date and time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def counted(count: int) -> str:
    return "1 memory" if count == 1 else f"{count} memories"


def forgotten(counts: dict[str, int]) -> str:
    """Return how many memories went, and how many documents if any did."""
    documents = counts.get("documents", 0)
    of_documents = f"{documents} document{'' if documents == 1 else 's'}"
    if not documents:
        return counted(counts["memories"])
    return f"{counted(counts['memories'])}, {of_documents}" if counts["memories"] else of_documents


def print_json(answer: dict[str, Any]) -> int:
    """Print the proxy's answer as it is."""
    print(json.dumps(answer, ensure_ascii=False, indent=2))
    return 0


def print_page(page: dict[str, Any], shown: Table, empty: str, out: Console) -> int:
    """Print a page as a table, and how to see more."""
    if not page["data"]:
        out.print(empty)
        return 0
    out.print(shown)
    if page.get("has_more"):
        last = escape(str(page["data"][-1]["id"]))
        of = f" of {page['total']}" if page.get("total") else ""
        out.print(f"{len(page['data'])}{of}; for more: --after {last}", highlight=False)
    return 0


def wrong_use(words: str) -> int:
    """Say what is wrong with the command line."""
    Terminal(stderr=True).print(words, highlight=False, markup=False)
    return WRONG_USE


def agreed(what: str, out: Console) -> bool:
    """Ask before something is lost for good; the question goes to a person, never to a pipe."""
    if not sys.stdin.isatty():
        Terminal(stderr=True).print(f"This would forget {escape(what)}. Say --yes to do it.", highlight=False)
        return False
    answer = out.input(f"Forget {escape(what)}? This cannot be undone. \\[y/N] ")
    return answer.strip().lower() in ("y", "yes")


def limit(text: str) -> int:
    """Return a page's length; argparse reports what is none."""
    if not text.isdigit() or not 1 <= int(text) <= 100:
        raise argparse.ArgumentTypeError("a whole number from 1 to 100")
    return int(text)
