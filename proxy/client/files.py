"""The commands that read and write files: export, import, and the knowledge documents.

Exports and imports may have any size: only what is in transit is held in memory.
"""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from proxy.client.api import MemoryApi, Refused
from proxy.client.output import (
    REFUSED,
    WRONG_USE,
    Result,
    Terminal,
    WrongUse,
    counted,
    page,
    print_error,
    print_refusal,
    print_result,
    table,
    two_lines,
    when,
)

STANDARD = "-"  # standard input or output, in place of a file
CHUNK_BYTES = 64 * 1024
_MARKDOWN = (".md", ".markdown", ".mdown")
_CHANGES = {"created": "Added", "updated": "New version", "unchanged": "Unchanged"}


# ---------------------------------------------------------------- export and import
def export(args: argparse.Namespace, api: MemoryApi) -> Result:
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
        Terminal(stderr=True).print(
            f"Exported: {counted(count, 'memory')} to {escape(args.file)}.", soft_wrap=True
        )
    return Result(None if args.file == STANDARD else {"file": args.file, "exported": count})


def import_(args: argparse.Namespace, api: MemoryApi) -> Result:
    """Send the file. The proxy skips memories that it has, so a second run resumes a first one."""
    try:
        file, size = _input(args.file)
    except OSError as e:
        raise WrongUse(f"Cannot read {args.file}: {e.strerror}.") from None
    with file, _progress("bytes", total=size) as (progress, task):
        answer = api.import_memories(_chunks(file, progress, task), size, user_id=args.user)
    skipped = f", {answer['skipped']} known already" if answer["skipped"] else ""
    refused = f", {answer['refused']} refused" if answer["refused"] else ""
    lines = [f"Imported: {counted(answer['imported'], 'memory')}{skipped}{refused}."]
    lines += [f"  line {error['line']}: {escape(error['message'])}" for error in answer["errors"]]
    if (more := answer["refused"] - len(answer["errors"])) > 0:
        lines.append(f"  … and {more} more")
    return Result(answer, lines, REFUSED if answer["refused"] else 0)


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


def _input(name: str) -> tuple[BinaryIO, int | None]:
    """Return the open file and its size in bytes, None for standard input."""
    if name == STANDARD:
        return sys.stdin.buffer, None
    path = Path(name)
    return path.open("rb"), path.stat().st_size


def _chunks(file: BinaryIO, progress: Progress, task: TaskID) -> Iterator[bytes]:
    while chunk := file.read(CHUNK_BYTES):
        yield chunk
        progress.advance(task, len(chunk))


@contextmanager
def _progress(unit: str, total: float | None = None) -> Iterator[tuple[Progress, TaskID]]:
    """Show a progress bar on standard error if that is a terminal."""
    console = Console(stderr=True)
    amount = TransferSpeedColumn() if unit == "bytes" else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield bar, bar.add_task(unit, total=total)


# ---------------------------------------------------------------- documents
def add_documents(args: argparse.Namespace, api: MemoryApi) -> Result:
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
    return Result(None, status=max(_add_document(args, api, file) for file in args.files))


def list_documents(args: argparse.Namespace, api: MemoryApi) -> Result:
    answer = api.documents(user_id=args.user, project_id=args.project, limit=args.limit, after=args.after)
    rows = table("document", "version", "passages", "since")
    for one in answer["data"]:
        mark = " [yellow](indexing)[/]" if one["status"] == "indexing" else ""
        cell = two_lines(one["name"], one["id"], mark)
        rows.add_row(cell, str(one["version"]), str(one["passages"]), when(one["updated_at"]))
    return page(answer, rows, "No documents.")


def show_document(args: argparse.Namespace, api: MemoryApi) -> Result:
    document = api.document(args.id, user_id=args.user, include="content" if args.content else None)
    if args.content and not args.json:
        sys.stdout.write(document["content"])
        return Result(document)
    about = f"{_size(document)}, {document['status']}"
    lines = [f"[bold]{escape(document['name'])}[/] [dim]{about}[/]"]
    for section in document["outline"]:
        headings = " › ".join(section["headings"]) or "(no heading)"
        lines.append(escape(headings) + (" [yellow](redacted)[/]" if section["redacted"] else ""))
    return Result(document, lines)


def delete_document(args: argparse.Namespace, api: MemoryApi) -> Result:
    answer = api.delete_document(args.id, user_id=args.user)
    lines = [
        f"Deleted: {escape(answer['id'])}, and the stored answers that were given with it in the prompt.",
        f"[dim]Receipt: {escape(str(answer['receipt']))}[/]",
    ]
    return Result(answer, lines)


def _add_document(args: argparse.Namespace, api: MemoryApi, file: str) -> int:
    """Send one file, print the outcome and return the exit code."""
    try:
        content = _text(file)
    except OSError as e:
        print_error(escape(f"Cannot read {file}: {e.strerror}."))
        return WRONG_USE
    except UnicodeDecodeError:
        print_error(escape(f"Cannot read {file}: it is no text in UTF-8."))
        return WRONG_USE
    name = args.name or Path(file).name
    is_markdown = Path(file).suffix.lower() in _MARKDOWN or file == STANDARD
    body: dict[str, Any] = {
        "name": name,
        "content": content,
        "format": args.format or ("markdown" if is_markdown else "text"),
        "user_id": args.user,
        "project_id": args.project,
    }
    try:
        document = api.add_document(**body)
    except Refused as e:
        print_refusal(e, name)
        return REFUSED
    lines = [f"{_CHANGES[document['change']]}: {escape(name)} {escape(document['id'])} ({_size(document)})"]
    for heading in document["redacted"]:
        lines.append(f"[yellow]Redacted under:[/] {escape(heading or '(no heading)')}")
    return print_result(Result(document, lines), as_json=args.json)


def _size(document: dict[str, Any]) -> str:
    return f"version {document['version']}, {counted(document['passages'], 'passage')}"


def _text(file: str) -> str:
    raw = sys.stdin.buffer.read() if file == STANDARD else Path(file).read_bytes()
    return raw.decode("utf-8-sig")
