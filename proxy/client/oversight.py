"""The commands on what is being remembered: sessions, jobs, quarantine."""

import argparse

from rich.console import Console
from rich.markup import escape

from proxy.client import shown
from proxy.client.api import MemoryApi


def sessions(args: argparse.Namespace, api: MemoryApi, out: Console) -> int:
    page = api.sessions(user_id=args.user, project_id=args.project, limit=args.limit, after=args.after)
    if args.json:
        return shown.print_json(page)
    table = shown.table("session", "exchanges", "waiting", "last used")
    for one in page["data"]:
        row = (escape(one["id"]), str(one["exchanges"]), str(one["pending"]), shown.when(one["last_at"]))
        table.add_row(*row)
    return shown.print_page(page, table, "No sessions.", out)


def end(args: argparse.Namespace, api: MemoryApi, out: Console) -> int:
    answer = api.end_session(args.id, user_id=args.user, project_id=args.project)
    if args.json:
        return shown.print_json(answer)
    queued = answer["queued_exchanges"]
    out.print(f"Queued: {queued} exchange{'' if queued == 1 else 's'}.", highlight=False)
    return 0


def jobs(args: argparse.Namespace, api: MemoryApi, out: Console) -> int:
    if args.retry:
        answer = api.retry_jobs(user_id=args.user)
        if args.json:
            return shown.print_json(answer)
        revived = answer["revived"]
        out.print(f"Queued again: {revived} job{'' if revived == 1 else 's'}.", highlight=False)
        return 0
    page = api.jobs(user_id=args.user, state=args.state, limit=args.limit, after=args.after)
    if args.json:
        return shown.print_json(page)
    table = shown.table("job", "user", "state", "tries", "since")
    for one in page["data"]:
        name = shown.two_lines(str(one["session_id"]), str(one["id"]))
        state = f"{one['state']} ({one['reason']})" if one["reason"] else one["state"]
        since = shown.when(one["created_at"])
        table.add_row(name, escape(one["user_id"]), escape(state), str(one["attempts"]), since)
    return shown.print_page(page, table, "No jobs.", out)


def quarantine(args: argparse.Namespace, api: MemoryApi, out: Console) -> int:
    if args.release:
        memory = api.release(args.release, user_id=args.user)
        if args.json:
            return shown.print_json(memory)
        out.print(f"Remembered: {escape(memory['id'])}", highlight=False)
        return 0
    if args.discard:
        answer = api.discard(args.discard, user_id=args.user)
        if args.json:
            return shown.print_json(answer)
        out.print(f"Discarded: {escape(answer['id'])}", highlight=False)
        return 0
    page = api.quarantine(user_id=args.user, project_id=args.project, limit=args.limit, after=args.after)
    if args.json:
        return shown.print_json(page)
    table = shown.table("held", "reason", "since")
    for one in page["data"]:
        cell = shown.two_lines(one["content"], one["id"])
        table.add_row(cell, escape(one["reason"]), shown.when(one["created_at"]))
    return shown.print_page(page, table, "Nothing is held.", out)
