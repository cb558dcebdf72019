"""`memory-proxy reembed`: give the memories of a data directory the vectors of another embedding model.

It works on the stores themselves, whether a proxy runs on them or not. A running one keeps answering:
what has no vector of its model is found by its words. Broken off, it goes on where it was.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import MofNCompleteColumn, TimeRemainingColumn

from proxy import telemetry
from proxy.admit.embedding import vectors_of
from proxy.app.open_stores import stores_of
from proxy.cli.shared import add_place, progress, settings_of
from proxy.config import Settings
from proxy.domain.errors import ConfigError, EmbeddingFailed, StoreError
from proxy.domain.ports import Embedder, EmbeddingModel
from proxy.domain.storage import Vectors
from proxy.models.embedder import OnnxEmbedder
from proxy.models.load import load_embedder

BATCH = 200  # memories in one transaction

Told = Callable[[int, int], None]
"""Is told how many memories are done and how many there are to do."""


def add_reembed(parser: argparse.ArgumentParser) -> None:
    """Make it the parser of `reembed`."""
    parser.description = (
        "Embed all memories with the configured model, or with --model. A proxy on the same data directory"
        " keeps answering meanwhile; restart it with the new model when this is done, or as soon as this has"
        " begun. Broken off, it goes on where it was when it is run again."
    )
    parser.add_argument(
        "--model", metavar="DIR|NAME", help="a directory with the weights, or a name (default: the settings')"
    )
    parser.add_argument("--force", action="store_true", help="embed again what has the model's vectors, too")
    add_place(parser)
    parser.set_defaults(func=lambda args: asyncio.run(_run(args)))


async def reembed(vectors: Vectors, embedder: Embedder, told: Told, *, anew: bool = False) -> int:
    """Embed what has no vector of the model, all of it where `anew`; return how many vectors were stored.

    What is written meanwhile by a proxy with another model is done in a further round. Raises WrongModel
    if another run begins with yet another model.
    """
    generation = await vectors.begin(embedder.model, anew=anew)
    total, done = await vectors.count(generation), 0
    told(done, total)
    while batch := await vectors.stale(generation, None, BATCH):
        while batch:
            made = await vectors_of(embedder, [stale.content for stale in batch])
            done += await vectors.put(generation, list(zip(batch, made, strict=True)))
            total = max(total, done)
            told(done, total)
            batch = await vectors.stale(generation, batch[-1], BATCH)
    return done


async def _run(args: argparse.Namespace) -> int:
    telemetry.configure("error", "console")
    try:
        settings = settings_of(args.config, args.data_dir)
        if settings.storage.backend == "sqlite" and not (settings.data_dir / "memory.db").is_file():
            raise ConfigError(f"there are no memories in {settings.data_dir}: set --data-dir")
        return await _embed_anew(settings, _chosen(args.model, settings), anew=args.force)
    except ConfigError as error:
        return _refused(str(error), 2)
    except (StoreError, EmbeddingFailed) as error:
        return _refused(f"{error}. What is done is kept: run it again to go on", 1)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The model to embed with: its name, and the directory with its weights where one was named."""

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


async def _embed_anew(settings: Settings, chosen: Chosen, *, anew: bool) -> int:
    embedder = await asyncio.to_thread(_loaded, settings, chosen)
    stores = stores_of(settings)
    try:
        await stores.open()
        doing = {"embed": escape(embedder.model.name)}
        with progress(doing, MofNCompleteColumn(), TimeRemainingColumn()) as told:
            background = embedder.in_background()
            count = await reembed(stores.vectors, background, partial(told, "embed"), anew=anew)
    finally:
        await stores.close()
        embedder.close()
    _say(count, embedder.model, chosen, settings)
    return 0


def _loaded(settings: Settings, chosen: Chosen) -> OnnxEmbedder:
    """Return the embedder. Raises ConfigError, before anything is changed, where it cannot be loaded."""
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


def _say(count: int, model: EmbeddingModel, chosen: Chosen, settings: Settings) -> None:
    """Say what was done, and which settings go with it."""
    out = Console(highlight=False, soft_wrap=True)
    noun = "memory" if count == 1 else "memories"
    out.print(escape(f"{count} {noun} embedded with {model.name} ({model.dimension} dimensions)."))
    now = settings.embedding
    if (now.model, now.dimension, now.path) != (chosen.name, model.dimension, chosen.path):
        path = f", path: {chosen.path.resolve()}" if chosen.path else ""
        out.print("Serve with this from now on, and restart what runs with another model:")
        wanted = f"{{model: {chosen.name}, dimension: {model.dimension}{path}}}"
        out.print(f"  embedding: {escape(wanted)}")


def _refused(message: str, status: int) -> int:
    print(f"memory-proxy: {message}", file=sys.stderr)
    return status
