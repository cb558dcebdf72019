"""What each command of `memory-proxy memory` sends to the proxy, and what it shows.

Exports and imports may have any size: only what is in transit is held in memory.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text

from proxy.client import MemoryClient, RequestRefused

REFUSED, WRONG_USE = 1, 2  # exit codes
API_KEY = "MEMORY_PROXY_API_KEY"  # the environment variable that holds the credential
NEVER = "never"  # of --expires
NO_PROJECT = "none"  # of --to-project
STANDARD = "-"  # standard input or output, in place of a file
CHUNK_BYTES = 64 * 1024
_MARKDOWN = (".md", ".markdown", ".mdown")
STORED = {"confirmed": "Known already", "superseded": "Stored in place of an older one"}
_CHANGES = {"created": "Added", "updated": "New version", "unchanged": "Unchanged"}
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


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The outcome of a command: the proxy's answer for --json, else what to show, and the exit code."""

    answer: dict[str, Any] | None
    shown: Iterable[RenderableType] = ()
    status: int = 0


def _asked(args: argparse.Namespace, api: MemoryClient, *path: str, **filters: Any) -> dict[str, Any]:
    page = {"user_id": args.user, "project_id": args.project, "limit": args.limit, "after": args.after}
    return api.get(*path, **page, **filters)


def _times(args: argparse.Namespace) -> dict[str, Any]:
    return {"since": args.since, "until": args.until}


# ---------------------------------------------------------------- memories
def list_(args: argparse.Namespace, api: MemoryClient) -> CommandResult:
    include = "inactive" if args.inactive else None
    answer = _asked(args, api, type=args.type, q=args.text, include=include, as_of=args.as_of, **_times(args))
    rows = _table("memory", "type", "since")
    for memory in answer["data"]:
        ended = f" [yellow]({why})[/]" if (why := _inactive(memory)) else ""
        # Requests of another project do not see it: a frequent reason for a search without results.
        of = f" project {project}" if (project := memory.get("project_id")) else ""
        cell = _two_lines(memory["content"], f"{memory['id']}{of}", ended)
        rows.add_row(cell, escape(memory["type"]), _when(memory["created_at"]))
    return _page(answer, rows, "Nothing is remembered here.")


def _inactive(memory: dict[str, Any]) -> str:
    """Return why a memory is no longer searched, in the words of `/ui`; "" if it is."""
    if memory.get("superseded_by"):
        return "superseded"
    if memory.get("archived"):
        return "archived"
    return "expired" if (end := memory.get("expires_at")) and end <= time.time() else ""


def search(args: argparse.Namespace, api: MemoryClient) -> CommandResult:
    answer = api.post(
        "search",
        query=args.query,
        user_id=args.user,
        project_id=args.project,
        memory_types=[args.type] if args.type else None,
        limit=args.limit,
        similarity_threshold=args.threshold,
    )
    rows = _table("score", "memory", "why")
    for match in answer["data"]:
        memory = match["memory"]
        cell = _two_lines(memory["content"], f"{memory['type']} {memory['id']}")
        rows.add_row(f"{match['score']:.2f}", cell, escape(str(match["why"])))
    shown: list[RenderableType] = [rows if answer["data"] else "No memory matches."]
    if answer.get("would_inject") is False:
        shown.append(f"A new conversation would get no memories: {escape(str(answer['reason']))}.")
    return CommandResult(answer, shown)


def add(args: argparse.Namespace, api: MemoryClient) -> CommandResult:
    memory = api.post(content=args.content, type=args.type, user_id=args.user, project_id=args.project)
    said = STORED.get(memory.get("change", ""), "Stored")
    return CommandResult(memory, [f"{said}: {escape(memory['id'])}"])


def get(args: argparse.Namespace, api: MemoryClient) -> CommandResult:
    memory = api.get(args.id, user_id=args.user)

    def shown() -> Iterator[RenderableType]:
        fields = Table.grid(padding=(0, 2))
        for name, value in memory.items():
            if value in (None, "", []) or name in ("object", "evidence"):
                continue
            is_time = name.endswith(("_at", "_accessed", "_from", "_to"))
            fields.add_row(f"[dim]{name}[/]", escape(_when(value) if is_time else str(value)))
        yield fields
        for event in api.get(args.id, "history", user_id=args.user)["data"]:
            line = f"[dim]{_when(event['at'])}[/] {escape(event['action'])} by {escape(str(event['by']))}"
            became = f" → {escape(event['became'])}" if event.get("became") else ""
            yield f"{line}: {escape(event['content'])}{became}"

    return CommandResult(memory, shown())


def edit(args: argparse.Namespace, api: MemoryClient) -> CommandResult:
    given = {name: getattr(args, name) for name in ("content", "type", "importance", "archived")}
    changes = {name: value for name, value in given.items() if value is not None}
    if args.tags is not None:
        changes["tags"] = [tag.strip() for tag in args.tags.split(",") if tag.strip()]
    if args.expires is not None:
        changes["expires_at"] = None if args.expires == NEVER else args.expires
    if args.to_project is not None:
        changes["project_id"] = None if args.to_project == NO_PROJECT else args.to_project
    if not changes:
        raise WrongUse("Name a change: --content, --type, --tags, --importance, --expires, --archive, …")
    memory = api.patch(args.id, changes=changes, user_id=args.user)
    expires = f", expires {_when(changes['expires_at'])}" if changes.get("expires_at") else ""
    return CommandResult(memory, [f"Changed: {escape(memory['id'])}{expires}"])


def change(args: argparse.Namespace, api: MemoryClient) -> CommandResult:
    """Pin, unpin, archive or restore a memory."""
    memory = api.run(args.id, args.change, user_id=args.user)
    state = "pinned" if memory["pinned"] else _inactive(memory) or "current"
    return CommandResult(memory, [f"{escape(memory['id'])} is {state}: {escape(memory['content'])}"])


def undo(args: argparse.Namespace, api: MemoryClient) -> CommandResult:
    answer = api.run(args.id, "undo", user_id=args.user)
    return CommandResult(answer, [f"Current again: {escape(' '.join(answer['restored'])) or 'none'}"])


def contradictions(args: argparse.Namespace, api: MemoryClient) -> CommandResult:
    if args.id:
        answer = api.post("contradictions", args.id, user_id=args.user, keep=args.keep)
        return CommandResult(answer, [f"Decided: {escape(answer['id'])}"])
    answer = _asked(args, api, "contradictions")
    rows = _table("earlier", "later", "found")
    for one in answer["data"]:
        older, newer = one["older"]["content"], one["newer"]["content"]
        rows.add_row(_two_lines(older, one["id"]), escape(newer), _when(one["found_at"]))
    return _page(answer, rows, "No contradictions.")


def evolve(args: argparse.Namespace, api: MemoryClient) -> CommandResult:
    answer = api.post("evolve", user_id=args.user, dry_run=args.dry_run)
    rows = _table("step", "memories", "ids")
    for step in answer["steps"]:
        for action, ids in step["ids"].items():
            rows.add_row(escape(step["step"]), f"{len(ids)} {escape(action)}", escape(" ".join(ids[:5])))
    head = "Would change:" if args.dry_run else "Changed:"
    return CommandResult(answer, [head, rows] if rows.row_count else ["Nothing changes."])


def insights(args: argparse.Namespace, api: MemoryClient) -> CommandResult:
    answer = api.get("insights", user_id=args.user, days=args.days)
    numbers = ", ".join(f"{answer[name]} {name}" for name in ("active", "archived", "core", "pinned"))
    used = f"In {args.days} days: used {answer['used']}×, shown and not used {answer['unused']}×."
    rows = _table("fades", "memory", "type")
    for memory in answer["fading"]:
        cell = _two_lines(memory["content"], memory["id"])
        rows.add_row(_when(memory["fades_at"]), cell, escape(memory["type"]))
    return CommandResult(answer, [f"{numbers}.", used, rows])


# ---------------------------------------------------------------- forgetting
def forget(args: argparse.Namespace, api: MemoryClient) -> CommandResult:
    if args.id:
        if args.project or args.type:
            raise WrongUse("An id is enough: leave out --project and --type.")
        return _forgotten(api.delete(args.id, user_id=args.user, dry_run=args.dry_run or None))
    if not args.user:
        raise WrongUse("Name what to forget: an id, or --user for everything about one user.")
    filters = {"user_id": args.user, "project_id": args.project, "type": args.type}
    if args.dry_run:
        return _forgotten(api.delete(**filters, dry_run=True))
    if not args.yes:
        total = _deleted(api.delete(**filters, dry_run=True))
        of = f" of project {args.project}" if args.project else ""
        kind = f", type {args.type}," if args.type else ""
        what, answer = escape(f"{total}{of} of user {args.user}{kind}"), ""
        if sys.stdin.isatty():
            answer = _Terminal().input(f"Forget {what}? This cannot be undone. \\[y/N] ")
        else:
            print_error(f"This would forget {what}. Add --yes to do it.")
        if answer.strip().lower() not in ("y", "yes"):
            return CommandResult(None, ["Nothing was forgotten."], REFUSED)
    return _forgotten(api.delete(**filters))


def receipts(args: argparse.Namespace, api: MemoryClient) -> CommandResult:
    answer = api.get("receipts", user_id=args.user, limit=args.limit, after=args.after)
    rows = _table("when", "what", "forgotten", "by")
    for one in answer["data"]:
        filters = [one[name] for name in ("memory_id", "project_id", "type") if one.get(name)]
        what = _two_lines(" ".join((one["user_id"], *filters)), one["id"])
        amount = _amount(one["counts"]["memories"], one["counts"].get("documents", 0))
        rows.add_row(_when(one["created_at"]), what, amount, escape(one["by"]))
    return _page(answer, rows, "Nothing was forgotten yet.")


def _forgotten(answer: dict[str, Any]) -> CommandResult:
    count = _deleted(answer)
    if answer.get("dry_run"):
        return CommandResult(answer, [f"This would forget {count}, with their sources. Nothing was changed."])
    lines = [f"Forgotten: {count}, with their sources."]
    if answer.get("receipt"):
        lines.append(f"[dim]Receipt: {escape(answer['receipt'])}[/]")
    return CommandResult(answer, lines)


def _deleted(answer: dict[str, Any]) -> str:
    return _amount(answer.get("deleted_count", 1), answer.get("deleted_documents", 0))


def _amount(memories: int, documents: int) -> str:
    """Return how many memories were forgotten, and how many documents if there were any."""
    parts = [_counted(memories, "memory")] if memories or not documents else []
    return ", ".join(parts + ([_counted(documents, "document")] if documents else []))


# ---------------------------------------------------------------- time
def timeline(args: argparse.Namespace, api: MemoryClient) -> CommandResult:
    answer = _asked(args, api, "timeline", **_times(args))
    rows = _table("when", "memory", "what")
    for one in answer["data"]:
        became = f" → {one['became']}" if one["became"] else ""
        cell = _two_lines(one["content"] + became, one["memory_id"])
        rows.add_row(_when(one["at"]), cell, escape(one["action"]))
    return _page(answer, rows, "Nothing has happened here.")


def entities(args: argparse.Namespace, api: MemoryClient) -> CommandResult:
    if args.id is None:
        answer = _asked(args, api, "entities")
        rows = _table("name", "kind", "memories")
        for one in answer["data"]:
            also = ", ".join([one["id"], *one["aliases"]])
            rows.add_row(_two_lines(one["name"], also), escape(one["kind"]), str(one["memories"]))
        return _page(answer, rows, "No names are known.")
    answer = _asked(args, api, "entities", args.id, "memories")
    rows = _table("memory", "type")
    for memory in answer["data"]:
        rows.add_row(_two_lines(memory["content"], memory["id"]), escape(memory["type"]))
    return _page(answer, rows, "No memory names it.")


# ---------------------------------------------------------------- sessions, jobs, quarantine
def sessions(args: argparse.Namespace, api: MemoryClient) -> CommandResult:
    answer = _asked(args, api, "sessions")
    rows = _table("session", "exchanges", "waiting", "last used")
    for one in answer["data"]:
        rows.add_row(escape(one["id"]), str(one["exchanges"]), str(one["pending"]), _when(one["last_at"]))
    return _page(answer, rows, "No sessions.")


def end(args: argparse.Namespace, api: MemoryClient) -> CommandResult:
    answer = api.run("sessions", args.id, "end", user_id=args.user, project_id=args.project)
    return CommandResult(answer, [f"Queued: {_counted(answer['queued_exchanges'], 'exchange')}."])


def jobs(args: argparse.Namespace, api: MemoryClient) -> CommandResult:
    if args.retry:
        answer = api.run("jobs", "retry", user_id=args.user)
        return CommandResult(answer, [f"Queued again: {_counted(answer['revived'], 'job')}."])
    answer = api.get("jobs", user_id=args.user, state=args.state, limit=args.limit, after=args.after)
    rows = _table("job", "user", "state", "tries", "since")
    for one in answer["data"]:
        name = _two_lines(str(one["session_id"]), str(one["id"]))
        state = f"{one['state']} ({one['reason']})" if one["reason"] else one["state"]
        user, tries = escape(one["user_id"]), str(one["attempts"])
        rows.add_row(name, user, escape(state), tries, _when(one["created_at"]))
    return _page(answer, rows, "No jobs.")


def quarantine(args: argparse.Namespace, api: MemoryClient) -> CommandResult:
    if args.release:
        memory = api.run("quarantine", args.release, "release", user_id=args.user)
        return CommandResult(memory, [f"Remembered: {escape(memory['id'])}"])
    if args.discard:
        answer = api.delete("quarantine", args.discard, user_id=args.user)
        return CommandResult(answer, [f"Discarded: {escape(answer['id'])}"])
    answer = _asked(args, api, "quarantine")
    rows = _table("held", "reason", "since")
    for one in answer["data"]:
        cell = _two_lines(one["content"], one["id"])
        rows.add_row(cell, escape(one["reason"]), _when(one["created_at"]))
    return _page(answer, rows, "Nothing is in quarantine.")


# ---------------------------------------------------------------- export and import
def export(args: argparse.Namespace, api: MemoryClient) -> CommandResult:
    """Write one memory per line. The file appears under its name only when it is complete."""
    lines = api.export(user_id=args.user, project_id=args.project)
    first = next(lines, b"")  # before the file is touched: the proxy may refuse
    count = 0
    with _output(args.file) as file, _progress("memories") as (progress, task):
        for line in chain(filter(None, [first]), lines):
            file.write(line)
            count += 1
            progress.update(task, completed=count)
    if not args.json:
        said = f"Exported: {_counted(count, 'memory')} to {escape(args.file)}."
        _Terminal(stderr=True).print(said, soft_wrap=True)
    return CommandResult(None if args.file == STANDARD else {"file": args.file, "exported": count})


def import_(args: argparse.Namespace, api: MemoryClient) -> CommandResult:
    """Send the file. The proxy skips memories that it has, so a second run resumes a first one."""
    path = Path(args.file)
    is_piped = args.file == STANDARD
    try:
        file = sys.stdin.buffer if is_piped else path.open("rb")
        size = None if is_piped else path.stat().st_size
    except OSError as e:
        raise WrongUse(f"Cannot read {args.file}: {e.strerror}.") from None
    with file, _progress("bytes", total=size) as (progress, task):

        def chunks() -> Iterator[bytes]:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk
                progress.advance(task, len(chunk))

        answer = api.import_memories(chunks(), size, user_id=args.user)
    skipped = f", {answer['skipped']} known already" if answer["skipped"] else ""
    refused = f", {answer['refused']} refused" if answer["refused"] else ""
    lines = [f"Imported: {_counted(answer['imported'], 'memory')}{skipped}{refused}."]
    lines += [f"  line {error['line']}: {escape(error['message'])}" for error in answer["errors"]]
    if (more := answer["refused"] - len(answer["errors"])) > 0:
        lines.append(f"  … and {more} more")
    return CommandResult(answer, lines, REFUSED if answer["refused"] else 0)


@contextmanager
def _output(name: str) -> Iterator[BinaryIO]:
    if name == STANDARD:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(name)
    partial = path.with_name(f"{path.name}.partial")
    # Readable by its owner only, like the proxy's own data directory.
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _progress(unit: str, total: float | None = None) -> Iterator[tuple[Progress, TaskID]]:
    """Show a progress bar on standard error if that is a terminal."""
    console = Console(stderr=True)
    amount = TransferSpeedColumn() if unit == "bytes" else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield bar, bar.add_task(unit, total=total)


# ---------------------------------------------------------------- documents
def add_documents(args: argparse.Namespace, api: MemoryClient) -> CommandResult:
    """Send each file as a document. A file that fails does not stop the others."""
    if args.name and len(args.files) > 1:
        raise WrongUse("--name is for a single file: several files are stored under their own names.")
    if STANDARD in args.files and not args.name:
        raise WrongUse("Standard input needs a --name.")
    names = Counter(Path(file).name for file in dict.fromkeys(args.files))
    if repeated := [name for name, count in names.items() if count > 1]:
        raise WrongUse(
            f"Several files would be stored as {', '.join(repeated)}: add these one by one, with --name."
        )
    return CommandResult(None, status=max(_add_document(args, api, file) for file in args.files))


def _add_document(args: argparse.Namespace, api: MemoryClient, file: str) -> int:
    try:
        raw = sys.stdin.buffer.read() if file == STANDARD else Path(file).read_bytes()
        content = raw.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        why = e.strerror if isinstance(e, OSError) else "it is not text in UTF-8"
        print_error(escape(f"Cannot read {file}: {why}."))
        return WRONG_USE
    name = args.name or Path(file).name
    is_markdown = Path(file).suffix.lower() in _MARKDOWN or file == STANDARD
    try:
        kind = args.format or ("markdown" if is_markdown else "text")
        scope = {"user_id": args.user, "project_id": args.project}
        document = api.post("documents", name=name, content=content, format=kind, **scope)
    except RequestRefused as e:
        print_refusal(e, name)
        return REFUSED
    lines = [f"{_CHANGES[document['change']]}: {escape(name)} {escape(document['id'])} ({_size(document)})"]
    for heading in document["redacted"]:
        lines.append(f"[yellow]Redacted under:[/] {escape(heading or '(no heading)')}")
    return print_result(CommandResult(document, lines), as_json=args.json)


def list_documents(args: argparse.Namespace, api: MemoryClient) -> CommandResult:
    answer = _asked(args, api, "documents")
    rows = _table("document", "version", "passages", "since")
    for one in answer["data"]:
        mark = " [yellow](indexing)[/]" if one["status"] == "indexing" else ""
        cell = _two_lines(one["name"], one["id"], mark)
        rows.add_row(cell, str(one["version"]), str(one["passages"]), _when(one["updated_at"]))
    return _page(answer, rows, "No documents.")


def show_document(args: argparse.Namespace, api: MemoryClient) -> CommandResult:
    include = "content" if args.content else None
    document = api.get("documents", args.id, user_id=args.user, include=include)
    if args.content and not args.json:
        sys.stdout.write(document["content"])
        return CommandResult(document)
    lines = [f"[bold]{escape(document['name'])}[/] [dim]{_size(document)}, {document['status']}[/]"]
    for section in document["outline"]:
        headings = " › ".join(section["headings"]) or "(no heading)"
        lines.append(escape(headings) + (" [yellow](redacted)[/]" if section["redacted"] else ""))
    return CommandResult(document, lines)


def delete_document(args: argparse.Namespace, api: MemoryClient) -> CommandResult:
    answer = api.delete("documents", args.id, user_id=args.user)
    line = f"Deleted: {escape(answer['id'])}, and the stored answers that were given with it in the prompt."
    return CommandResult(answer, [line, f"[dim]Receipt: {escape(str(answer['receipt']))}[/]"])


def _size(document: dict[str, Any]) -> str:
    return f"version {document['version']}, {_counted(document['passages'], 'passage')}"


# ---------------------------------------------------------------- output: tables fit 80 columns
class _Terminal(Console):
    """A console that makes control characters in memories visible instead of obeying them."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, emoji=False, highlight=False)  # ":wave:" stays six characters

    def render_str(self, text: str, **style: Any) -> Text:
        """Return the text with hidden characters made visible. Rich calls this for every string."""
        return super().render_str(text.translate(_VISIBLE), **style)


def print_result(result: CommandResult, *, as_json: bool) -> int:
    """Print the result to standard output and return its exit code."""
    if not as_json:
        out = _Terminal()
        for one in result.shown:
            out.print(one)
    elif result.answer is not None:
        print(json.dumps(result.answer, ensure_ascii=False, indent=2))
    return result.status


def print_error(markup: str) -> None:
    _Terminal(stderr=True).print(markup)


def print_refusal(error: RequestRefused, about: str = "") -> None:
    """Print the proxy's error message and, for a refused credential, where the credential came from."""
    print_error(f"[red]Refused ({error.status}):[/] {escape(f'{about}: {error}' if about else str(error))}")
    if error.status == 401 and os.environ.get(API_KEY):
        print_error(f"The credential was read from {API_KEY}.")
    elif error.status == 401:
        print_error(f"Set {API_KEY} to a valid credential.")


def _table(*columns: str) -> Table:
    made = Table(show_edge=False, pad_edge=False, header_style="bold")
    for name in columns:
        made.add_column(name, overflow="fold", no_wrap=name in _NARROW)
    return made


def _page(answer: dict[str, Any], rows: Table, empty: str) -> CommandResult:
    """Return a page as a table with how to see the next one, or `empty` without rows."""
    shown: list[RenderableType] = [rows if answer["data"] else empty]
    if answer["data"] and answer.get("has_more"):
        of = f" of {answer['total']}" if answer.get("total") else ""
        last = escape(str(answer["data"][-1]["id"]))
        shown.append(f"{len(answer['data'])}{of}; for more: --after {last}")
    return CommandResult(answer, shown)


def _two_lines(content: str, below: str, mark: str = "") -> str:
    """Return a cell with the content and, dimmed on the next line, its identifier."""
    return f"{escape(content)}{mark}\n[dim]{escape(below)}[/]"


def _when(seconds: float) -> str:
    """Return a time of the API as local date and time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _counted(count: int, noun: str) -> str:
    """Return the count with its noun: "1 memory", "2 memories"."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun.removesuffix('y')}ies" if noun.endswith("y") else f"{count} {noun}s"
