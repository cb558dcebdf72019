"""The export and import commands, for any size: only what is in transit is held in memory."""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from proxy.client import shown
from proxy.client.api import MemoryApi
from proxy.client.shown import REFUSED

_CHUNK_BYTES = 64 * 1024


def export(args: argparse.Namespace, api: MemoryApi, out: Console) -> int:
    """Write every memory as a line; a file appears under its name only once it is whole."""
    query = {"user_id": args.user, "project_id": args.project}
    lines = api.export(**query)
    first = next(lines, b"")  # a refusal comes before any file is touched
    with _written(args.file) as file, _progress("memories") as (progress, task):
        count = 0
        for line in _all(first, lines):
            file.write(line)
            count += 1
            progress.update(task, completed=count)
    if args.json:
        return shown.print_json({"file": args.file, "exported": count}) if args.file != "-" else 0
    shown.Terminal(stderr=True).print(
        f"Exported: {shown.counted(count)} to {escape(args.file)}.", highlight=False, soft_wrap=True
    )
    return 0


def bring_in(args: argparse.Namespace, api: MemoryApi, out: Console) -> int:
    """Send the file; what is there already is skipped, so running it again resumes it."""
    try:
        file, size = _opened(args.file)
    except OSError as e:
        return shown.wrong_use(f"Cannot read {args.file}: {e.strerror}.")
    with file, _progress("bytes", total=size) as (progress, task):
        chunks = _told(file, progress, task)
        answer = api.bring_in(chunks, size, user_id=args.user)
    if args.json:
        shown.print_json(answer)
    else:
        _say(answer, out)
    return REFUSED if answer["refused"] else 0


def _say(answer: dict[str, Any], out: Console) -> None:
    skipped = f", {answer['skipped']} known already" if answer["skipped"] else ""
    refused = f", {answer['refused']} refused" if answer["refused"] else ""
    out.print(f"Imported: {shown.counted(answer['imported'])}{skipped}{refused}.", highlight=False)
    for error in answer["errors"]:
        out.print(f"  line {error['line']}: {escape(error['message'])}", highlight=False)
    if len(answer["errors"]) < answer["refused"]:
        out.print(f"  … and {answer['refused'] - len(answer['errors'])} more")


def _all(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
        yield from rest


@contextmanager
def _written(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(name)
    partial = path.with_name(f"{path.name}.partial")
    # For its owner's eyes, as the memories are in the proxy's own data directory.
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _opened(name: str) -> tuple[BinaryIO, int | None]:
    if name == "-":
        return sys.stdin.buffer, None
    path = Path(name)
    return path.open("rb"), path.stat().st_size


def _told(file: BinaryIO, progress: Progress, task: TaskID) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK_BYTES):
        yield chunk
        progress.advance(task, len(chunk))


@contextmanager
def _progress(unit: str, total: float | None = None) -> Iterator[tuple[Progress, TaskID]]:
    """Show a bar on a terminal's error stream; on none, nothing."""
    console = Console(stderr=True)
    amount = TransferSpeedColumn() if unit == "bytes" else MofNCompleteColumn()
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), amount,
        console=console, transient=True, disable=not console.is_terminal,
    )  # fmt: skip
    with bar:
        yield bar, bar.add_task(unit, total=total)
