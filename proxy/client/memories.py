"""The commands about memories and extraction: list, search, add, get, edit, forget, receipts, sessions, end,
jobs, quarantine. Each sends its requests and returns a Result.
"""

import argparse
from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from proxy.client.api import MemoryApi
from proxy.client.output import (
    REFUSED,
    Result,
    WrongUse,
    counted,
    is_confirmed,
    memory_table,
    page,
    table,
    two_lines,
    when,
)

NEVER = "never"  # of --expires
NO_PROJECT = "none"  # of --to-project


def list_(args: argparse.Namespace, api: MemoryApi) -> Result:
    answer = api.list(
        user_id=args.user,
        project_id=args.project,
        type=args.type,
        q=args.text,
        include="inactive" if args.inactive else None,
        limit=args.limit,
        after=args.after,
    )
    return page(answer, memory_table(answer["data"]), "Nothing is remembered here.")


def search(args: argparse.Namespace, api: MemoryApi) -> Result:
    answer = api.search(
        query=args.query,
        user_id=args.user,
        project_id=args.project,
        memory_types=[args.type] if args.type else None,
        limit=args.limit,
        similarity_threshold=args.threshold,
    )
    rows = table("score", "memory", "why")
    for match in answer["data"]:
        memory = match["memory"]
        cell = two_lines(memory["content"], f"{memory['type']} {memory['id']}")
        rows.add_row(f"{match['score']:.2f}", cell, escape(str(match["why"])))
    shown: list[RenderableType] = [rows if answer["data"] else "No memory matches."]
    if answer.get("would_inject") is False:
        reason = escape(str(answer["reason"]))
        shown.append(f"A new conversation would get no memories: {reason}.")
    return Result(answer, shown)


def add(args: argparse.Namespace, api: MemoryApi) -> Result:
    memory = api.add(content=args.content, type=args.type, user_id=args.user, project_id=args.project)
    change = {"confirmed": "Known already", "superseded": "Stored in place of an older one"}
    return Result(memory, [f"{change.get(memory.get('change', ''), 'Stored')}: {escape(memory['id'])}"])


def get(args: argparse.Namespace, api: MemoryApi) -> Result:
    memory = api.get(args.id, user_id=args.user)

    def shown() -> Iterator[RenderableType]:
        fields = Table.grid(padding=(0, 2))
        for name, value in memory.items():
            if value in (None, "", []) or name in ("object", "evidence"):
                continue
            is_time = name.endswith(("_at", "_accessed", "_from", "_to"))
            fields.add_row(f"[dim]{name}[/]", escape(when(value) if is_time else str(value)))
        yield fields
        for event in api.history(args.id, user_id=args.user)["data"]:
            line = f"[dim]{when(event['at'])}[/] {escape(event['action'])} by {escape(str(event['by']))}"
            became = f" → {escape(event['became'])}" if event.get("became") else ""
            yield f"{line}: {escape(event['content'])}{became}"

    return Result(memory, shown())


def edit(args: argparse.Namespace, api: MemoryApi) -> Result:
    changes = _changes(args)
    if not changes:
        raise WrongUse("Name a change: --content, --type, --tags, --importance, --expires, --archive, …")
    memory = api.edit(args.id, changes, user_id=args.user)
    expires = f", expires {when(changes['expires_at'])}" if changes.get("expires_at") else ""
    return Result(memory, [f"Changed: {escape(memory['id'])}{expires}"])


def _changes(args: argparse.Namespace) -> dict[str, Any]:
    """Return the changes to send. None means "never" and "no project"."""
    given: dict[str, Any] = {
        "content": args.content,
        "type": args.type,
        "importance": args.importance,
        "tags": None if args.tags is None else [tag.strip() for tag in args.tags.split(",") if tag.strip()],
        "archived": args.archived,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    if args.expires is not None:
        changes["expires_at"] = None if args.expires == NEVER else args.expires
    if args.to_project is not None:
        changes["project_id"] = None if args.to_project == NO_PROJECT else args.to_project
    return changes


# ---------------------------------------------------------------- forgetting
def forget(args: argparse.Namespace, api: MemoryApi) -> Result:
    if args.id:
        if args.project or args.type:
            raise WrongUse("An id is enough: leave out --project and --type.")
        return _forgotten(api.forget(args.id, user_id=args.user, dry_run=args.dry_run or None))
    if not args.user:
        raise WrongUse("Name what to forget: an id, or --user for everything about one user.")
    filters = {"user_id": args.user, "project_id": args.project, "type": args.type}
    if args.dry_run:
        return _forgotten(api.forget_all(**filters, dry_run=True))
    if not args.yes:
        total = _deleted(api.forget_all(**filters, dry_run=True))
        of = f" of project {args.project}" if args.project else ""
        kind = f", type {args.type}," if args.type else ""
        if not is_confirmed(f"{total}{of} of user {args.user}{kind}"):
            return Result(None, ["Nothing was forgotten."], REFUSED)
    return _forgotten(api.forget_all(**filters))


def receipts(args: argparse.Namespace, api: MemoryApi) -> Result:
    answer = api.receipts(user_id=args.user, limit=args.limit, after=args.after)
    rows = table("when", "what", "forgotten", "by")
    for one in answer["data"]:
        filters = [one[name] for name in ("memory_id", "project_id", "type") if one.get(name)]
        what = two_lines(" ".join((one["user_id"], *filters)), one["id"])
        counts = one["counts"]
        rows.add_row(
            when(one["created_at"]),
            what,
            _amount(counts["memories"], counts.get("documents", 0)),
            escape(one["by"]),
        )
    return page(answer, rows, "Nothing was forgotten yet.")


def _forgotten(answer: dict[str, Any]) -> Result:
    count = _deleted(answer)
    if answer.get("dry_run"):
        return Result(answer, [f"This would forget {count}, with their sources. Nothing was changed."])
    lines = [f"Forgotten: {count}, with their sources."]
    if answer.get("receipt"):
        lines.append(f"[dim]Receipt: {escape(answer['receipt'])}[/]")
    return Result(answer, lines)


def _deleted(answer: dict[str, Any]) -> str:
    return _amount(answer.get("deleted_count", 1), answer.get("deleted_documents", 0))


def _amount(memories: int, documents: int) -> str:
    """Return how many memories were forgotten, and how many documents if there were any."""
    parts = [counted(memories, "memory")] if memories or not documents else []
    return ", ".join(parts + ([counted(documents, "document")] if documents else []))


# ---------------------------------------------------------------- sessions, jobs, quarantine
def sessions(args: argparse.Namespace, api: MemoryApi) -> Result:
    answer = api.sessions(user_id=args.user, project_id=args.project, limit=args.limit, after=args.after)
    rows = table("session", "exchanges", "waiting", "last used")
    for one in answer["data"]:
        rows.add_row(escape(one["id"]), str(one["exchanges"]), str(one["pending"]), when(one["last_at"]))
    return page(answer, rows, "No sessions.")


def end(args: argparse.Namespace, api: MemoryApi) -> Result:
    answer = api.end_session(args.id, user_id=args.user, project_id=args.project)
    return Result(answer, [f"Queued: {counted(answer['queued_exchanges'], 'exchange')}."])


def jobs(args: argparse.Namespace, api: MemoryApi) -> Result:
    if args.retry:
        answer = api.retry_jobs(user_id=args.user)
        return Result(answer, [f"Queued again: {counted(answer['revived'], 'job')}."])
    answer = api.jobs(user_id=args.user, state=args.state, limit=args.limit, after=args.after)
    rows = table("job", "user", "state", "tries", "since")
    for one in answer["data"]:
        name = two_lines(str(one["session_id"]), str(one["id"]))
        state = f"{one['state']} ({one['reason']})" if one["reason"] else one["state"]
        rows.add_row(
            name, escape(one["user_id"]), escape(state), str(one["attempts"]), when(one["created_at"])
        )
    return page(answer, rows, "No jobs.")


def quarantine(args: argparse.Namespace, api: MemoryApi) -> Result:
    if args.release:
        memory = api.release(args.release, user_id=args.user)
        return Result(memory, [f"Remembered: {escape(memory['id'])}"])
    if args.discard:
        answer = api.discard(args.discard, user_id=args.user)
        return Result(answer, [f"Discarded: {escape(answer['id'])}"])
    answer = api.quarantine(user_id=args.user, project_id=args.project, limit=args.limit, after=args.after)
    rows = table("held", "reason", "since")
    for one in answer["data"]:
        cell = two_lines(one["content"], one["id"])
        rows.add_row(cell, escape(one["reason"]), when(one["created_at"]))
    return page(answer, rows, "Nothing is in quarantine.")
