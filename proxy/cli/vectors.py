"""`memory-proxy reembed`: embed all memories with another model. `memory-proxy reindex`: fill Qdrant again.

They open the stores themselves, whether or not a proxy is running. During `reembed` a running proxy finds
memories that have no vector of its model by their words. An interrupted run resumes when it is started again.
"""

import argparse
import asyncio
import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import MofNCompleteColumn, TimeRemainingColumn

from proxy import telemetry
from proxy.admit.gate import vectors_of
from proxy.cli import add_place, database_of, opened_stores, progress, settings_of
from proxy.config import Settings
from proxy.domain.errors import ConfigError, EmbeddingFailed, StoreError
from proxy.domain.ports import Embedder, EmbeddingModel
from proxy.models.embedder import OnnxEmbedder
from proxy.models.load import load_embedder
from proxy.storage.sql.embeddings import SqlVectors

BATCH = 200  # memories in one transaction

Report = Callable[[int, int], None]
"""Takes the number of memories that are done, and the total."""


def add_reembed(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `reembed`."""
    parser.description = (
        "Embed all memories with the configured model, or with --model. A proxy on the same store may run:"
        " restart it with the new model at any time after the start of this command. If it is interrupted,"
        " run it again to resume."
    )
    parser.add_argument(
        "--model", metavar="DIR|NAME", help="a directory with the weights, or a name (default: the settings)"
    )
    parser.add_argument(
        "--force", action="store_true", help="also embed memories again that have a vector of this model"
    )
    add_place(parser)
    parser.set_defaults(func=lambda args: asyncio.run(_run_reembed(args)))


def add_reindex(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `reindex`."""
    parser.description = (
        "Delete the collections in Qdrant and fill them again from the database, after a change of"
        " quantization or replication. Running proxies answer with exact search until it is done. If it is"
        " interrupted, run it again to resume, or leave the rest to a running proxy."
    )
    add_place(parser)
    parser.set_defaults(func=lambda args: asyncio.run(_run_reindex(args)))


# ---------------------------------------------------------------- reembed


async def reembed(vectors: SqlVectors, embedder: Embedder, report: Report, *, all_again: bool = False) -> int:
    """Embed the memories without a vector of the model, or all; return how many vectors were stored.

    Memories that a proxy with another model writes during the run are embedded in a further round. Raises
    WrongModel if another run starts with yet another model.
    """
    generation = await vectors.begin(embedder.model, all_again=all_again)
    total, done = await vectors.count(generation), 0
    report(done, total)
    while batch := await vectors.stale(generation, None, BATCH):
        while batch:
            made = await vectors_of(embedder, [stale.content for stale in batch])
            done += await vectors.put(generation, list(zip(batch, made, strict=True)))
            total = max(total, done)
            report(done, total)
            batch = await vectors.stale(generation, batch[-1], BATCH)
    return done


async def _run_reembed(args: argparse.Namespace) -> int:
    telemetry.configure("error", "console")
    settings = settings_of(args.config, args.data_dir)
    if settings.storage.backend == "sqlite" and not database_of(settings).is_file():
        raise ConfigError(f"there are no memories in {settings.data_dir}: set --data-dir")
    try:
        return await _reembed_all(settings, _chosen(args.model, settings), all_again=args.force)
    except (StoreError, EmbeddingFailed) as error:
        error.add_note("Vectors that are stored stay: run it again to resume")
        raise


@dataclass(frozen=True, slots=True)
class Chosen:
    """The model to embed with: its name, and the directory with its weights if one was named."""

    name: str
    path: Path | None


def _chosen(given: str | None, settings: Settings) -> Chosen:
    if given is None:
        return Chosen(settings.embedding.model, settings.embedding.path)
    path = Path(given)
    if path.is_dir():
        return Chosen(path.resolve().name, path)
    if given.startswith((os.sep, ".", "~")):
        raise ConfigError(f"--model {given}: there is no such directory")
    return Chosen(given, None)


async def _reembed_all(settings: Settings, chosen: Chosen, *, all_again: bool) -> int:
    embedder = await asyncio.to_thread(_loaded, settings, chosen)
    doing = {"embed": escape(embedder.model.name)}
    with contextlib.closing(embedder):
        async with opened_stores(settings) as stores:
            with progress(doing, MofNCompleteColumn(), TimeRemainingColumn()) as report:
                background, shown = embedder.in_background(), partial(report, "embed")
                count = await reembed(stores.vectors, background, shown, all_again=all_again)
    _print_summary(count, embedder.model, chosen, settings)
    return 0


def _loaded(settings: Settings, chosen: Chosen) -> OnnxEmbedder:
    """Return the embedder. Raises ConfigError if it cannot be loaded; nothing was changed then."""
    loaded = load_embedder(
        settings.data_dir / "models",
        model=chosen.name,
        path=chosen.path,
        allow_download=settings.embedding.allow_download,
    )
    if loaded.embedder is None:
        raise ConfigError(
            f"the model {chosen.name} cannot be loaded, and nothing was changed:\n  "
            + "\n  ".join(loaded.notes)
        )
    if chosen.path is not None and loaded.source != "directory":
        loaded.embedder.close()
        raise ConfigError(f"{chosen.path} cannot be used, and nothing was changed: {loaded.notes[0]}")
    return loaded.embedder


def _print_summary(count: int, model: EmbeddingModel, chosen: Chosen, settings: Settings) -> None:
    """Print what was done, and the settings for it."""
    out = Console(highlight=False, soft_wrap=True)
    noun = "memory" if count == 1 else "memories"
    out.print(escape(f"{count} {noun} embedded with {model.name} ({model.dimension} dimensions)."))
    now = settings.embedding
    if (now.model, now.dimension, now.path) != (chosen.name, model.dimension, chosen.path):
        path = f", path: {chosen.path.resolve()}" if chosen.path else ""
        out.print("Use these settings from now on, and restart every proxy that uses another model:")
        wanted = f"{{model: {chosen.name}, dimension: {model.dimension}{path}}}"
        out.print(f"  embedding: {escape(wanted)}")


# ---------------------------------------------------------------- reindex
async def _run_reindex(args: argparse.Namespace) -> int:
    telemetry.configure("error", "console")
    settings = settings_of(args.config, args.data_dir)
    if settings.storage.vectors != "qdrant":
        raise ConfigError("storage.vectors is not qdrant: there is nothing to fill")
    try:
        async with opened_stores(settings) as stores:
            with progress({"send": "sending"}, MofNCompleteColumn(), TimeRemainingColumn()) as report:
                sent = await stores.reindex(partial(report, "send"))
    except StoreError as error:
        error.add_note("What was sent stays: run it again to resume")
        raise
    print(f"{sent:,} memories sent to {settings.qdrant.url}.")
    return 0
