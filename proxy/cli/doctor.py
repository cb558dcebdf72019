"""`memory-proxy doctor`: check a configuration against the real upstream, store and models.

It creates no directory and no database: a mistyped name must show as absent, and a running proxy would take
an empty database for its lost one.
"""

import asyncio
import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from proxy import telemetry
from proxy.app.factories import auth_of, cache_of, index_of, network_of, place_of, stores_of
from proxy.cli import database_of, is_present, opened_stores, was_lost
from proxy.config import Settings
from proxy.domain.base_url import parse_base_url
from proxy.domain.errors import ConfigError, ProxyError, StoreError, UpstreamError
from proxy.http.auth.jwt import parse_key_set
from proxy.models.judge import load_judge
from proxy.models.load import load_embedder, short_name
from proxy.models.reranker import load_reranker
from proxy.models.tokens import Tokens
from proxy.models.weights import ENCODER_NAME
from proxy.storage.sql.database import CORRUPT
from proxy.storage.sql.vectors import IndexUnavailable
from proxy.storage.sqlite import older_schema, survey
from proxy.storage.sqlite.database import SCHEMA_VERSION, kind_of
from proxy.upstream.client import Upstream, credential
from proxy.upstream.connection import Timeouts
from proxy.upstream.forms import described
from proxy.upstream.network import Network
from proxy.wire.http import Headers

GOOD, NOTE, BAD = "ok", "--", "!!"

LEAST_FREE_BYTES = 200_000_000
LARGE_LOG_BYTES = 256_000_000
CLOCK_S = 300.0  # that stored times may be ahead of the clock


@dataclass(frozen=True, slots=True)
class CheckResult:
    mark: str
    subject: str
    text: str


good, note, bad = (partial(CheckResult, mark) for mark in (GOOD, NOTE, BAD))
_NO_KEY = bad("identity", "keys: there are none; run memory-proxy keys create --name NAME")


def diagnose(settings: Settings) -> int:
    """Print the findings; return 0 if nothing has to be fixed, else 1."""
    telemetry.configure("error", settings.logging.format)
    findings = [good("settings", "valid"), *_checks(settings)]
    for finding in findings:
        print(f"[{finding.mark}] {finding.subject:<11} {finding.text}")
    bad = sum(finding.mark == BAD for finding in findings)
    print(f"\n{bad} to fix." if bad else "\nNothing to fix.")
    return 1 if bad else 0


def _checks(settings: Settings) -> Iterator[CheckResult]:
    older, database = _older(settings), database_of(settings)
    yield older or _data_dir(settings)
    if older is None and os.path.isfile(database) and is_present(database):
        yield from database_findings(database, short_name(settings.embedding.model))
    yield from asyncio.run(_cache(settings))
    yield from asyncio.run(_index(settings))
    yield from _embedder(settings)
    yield from _reranker(settings)
    if Tokens().exact():
        yield good("tokens", "counted with OpenAI's tables")
    else:
        text = "estimated (within about 4 %); scripts/fetch-models installs the exact tables"
        yield note("tokens", text)
    yield from _identity(settings)
    try:
        network = network_of(settings)
    except ConfigError as e:
        yield bad("network", str(e))
        return
    if (base_url := settings.upstream.base_url) is None:
        yield note("upstream", "none: a scripted demo model answers; set --upstream URL")
    else:
        # Without a configured key: one in OPENAI_API_KEY is a client's, the proxy sends it nowhere.
        own, of_client = settings.upstream.api_key, os.environ.get("OPENAI_API_KEY")
        key, setting = (own.get_secret_value(), "upstream.api_key") if own else (of_client, None)
        yield asyncio.run(_upstream("upstream", Probe(setting, base_url, key, network)))
    for model in settings.external_models:
        key = model.llm_api_key.get_secret_value() if model.llm_api_key else None
        upstream = Probe("its llm_api_key" if key else None, model.llm_endpoint, key, network)
        yield asyncio.run(_upstream(model.model_role, upstream, model.llm_model_name))


# ---------------------------------------------------------------- the data directory and its database
def _data_dir(settings: Settings) -> CheckResult:
    path, database = settings.data_dir, database_of(settings)
    if not os.path.isdir(path):  # Path.is_dir raises if a parent is not readable
        nearest = next(parent for parent in (path, *path.absolute().parents) if os.path.lexists(parent))
        if not os.path.isdir(nearest):
            return bad("data", f"cannot create {path}: {nearest} is not a directory; set --data-dir")
        if not os.access(nearest, os.W_OK | os.X_OK):
            return bad("data", f"cannot create {path}: {nearest} cannot be written by this user")
        return note("data", f"{path} does not exist: the first start creates it, without memories")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return bad("data", f"{path} cannot be read and written by this user")
    if settings.storage.backend != "sqlite" or is_present(database):
        return asyncio.run(_store(settings))
    if not was_lost(database):
        return good("data", f"{path}: nothing is stored yet")
    remedy = "put it back, or restore a backup (docs/operations.md)"
    return bad("data", f"{database} is missing: {remedy}; a start creates an empty one")


async def _store(settings: Settings) -> CheckResult:
    path = place_of(settings)
    try:
        async with opened_stores(settings):
            return good("data", path)
    except StoreError as e:
        return bad("data", f"the store in {path} cannot be opened: {e}")


def _older(settings: Settings) -> CheckResult | None:
    """Return a note if an older version has created the database. It is not opened: opening migrates it, and
    the older proxy that may be running could not continue."""
    database = database_of(settings)
    if settings.storage.backend != "sqlite" or not os.path.isfile(database):
        return None
    try:
        schema = older_schema(database)
    except StoreError:  # reported by `database_findings`
        return None
    if schema is None:
        return None
    text = f"of an older version (schema {schema}): the first start migrates it to {SCHEMA_VERSION}, for good"
    return note("data", f"{database.parent} is {text}; take a backup before. Not checked further")


def database_findings(database: Path, model: str) -> Iterator[CheckResult]:
    """Yield the findings about the database; `model` is the embedding model of the settings."""
    try:
        found = survey(database)
    except StoreError as error:
        if kind_of(error) == CORRUPT or not database.parent.is_dir():
            yield bad("database", f"{error}: restore a backup (docs/operations.md)")
            return
        # A full or read-only disk does not justify replacing a sound file with an old backup.
        yield bad("database", f"{error}: its disk may be at fault (docs/operations.md)")
        yield _disk(shutil.disk_usage(database.parent).free, LEAST_FREE_BYTES)
        return
    text = f"{found.memories:,} memories, {_size(found.bytes)}, schema {found.schema}"
    if found.is_sound is None:
        yield note("database", f"{text}; too large to check here: a backup verifies it")
    elif found.is_sound:
        yield good("database", f"{text}, sound")
    else:
        yield bad("database", f"{database} is corrupt: restore a backup (docs/operations.md)")
    yield _disk(found.free_bytes, max(LEAST_FREE_BYTES, found.bytes))
    # The request forms that models were found to accept: they explain how requests are written.
    yield from (note("form", f"learnt: {line}") for line in described(found.forms, time.time()))
    if found.log_bytes > LARGE_LOG_BYTES:
        size = _size(found.log_bytes)
        text = f"the write-ahead log has grown to {size}: another program reads the file for a long time"
        yield note("log", text)
    if found.exposed:
        names = " ".join(found.exposed)
        yield bad("privacy", f"others on this machine may read {names}: chmod 600 in {database.parent}")
    if found.newest_at is not None and found.newest_at > time.time() + CLOCK_S:
        at = datetime.fromtimestamp(found.newest_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
        yield bad("clock", f"this machine's clock is behind the newest stored row ({at}): set the clock")
    if found.model not in (None, model):
        text = f"the vectors were made with {found.model}, the settings name {model}: memory-proxy reembed"
        yield bad("vectors", text)


def _disk(free_bytes: int, wanted_bytes: int) -> CheckResult:
    if free_bytes < wanted_bytes:
        text = f"{_size(free_bytes)} free: a backup or a large forget may need {_size(wanted_bytes)}"
        return bad("disk", text)
    return good("disk", f"{_size(free_bytes)} free")


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"


# ---------------------------------------------------------------- Redis and Qdrant
async def _cache(settings: Settings) -> list[CheckResult]:
    cache = cache_of(settings, lambda: None)
    if cache is None:
        return []
    try:
        await cache.ping()
    except StoreError as e:
        text = f"{cache.place}: {e}: until it answers, each machine counts limits for itself"
        return [bad("cache", text)]
    finally:
        await cache.close()
    return [good("cache", f"{cache.place} answers")]


async def _index(settings: Settings) -> list[CheckResult]:
    if (index := index_of(settings)) is None:
        return []
    url = settings.qdrant.url
    try:
        generations = await index.generations()
    except IndexUnavailable as e:
        text = f"{url} does not answer ({e}): until it does, users with many memories are searched exactly"
        return [bad("qdrant", text)]
    finally:
        await index.close()
    return [good("qdrant", f"{url} answers, with {len(generations)} collection(s) of ours")]


# ---------------------------------------------------------------- models
def _embedder(settings: Settings) -> Iterator[CheckResult]:
    wanted = settings.embedding
    with _models_dir(settings) as directory:
        loaded = load_embedder(
            directory, model=wanted.model, path=wanted.path, allow_download=wanted.allow_download
        )
        judge = load_judge(directory, loaded.embedder)
    yield from (note("embeddings", text) for text in loaded.notes)
    if judge.judge is not None:
        judge.judge.close()
        yield good("judge", f"the heads of {ENCODER_NAME}")
    else:
        yield bad("judge", f"{judge.note}; memories are chosen by vectors and words alone")
    if loaded.embedder is None:
        remedy = "run scripts/install, name a directory (embedding.path) or set embedding.allow_download"
        yield bad("embeddings", f"no model: search is lexical only; {remedy}")
        return
    model = loaded.embedder.model
    loaded.embedder.close()
    if model.dimension != wanted.dimension:
        text = f"{model.name} has {model.dimension} dimensions: set embedding.dimension={model.dimension}"
        yield bad("embeddings", text)
        return
    yield good("embeddings", f"{model.name}, {model.dimension} dimensions, from {loaded.source}")


def _reranker(settings: Settings) -> Iterator[CheckResult]:
    wanted, allow_download = settings.retrieval.rerank, settings.embedding.allow_download
    with _models_dir(settings) as directory:
        loaded = load_reranker(directory, wanted, allow_download=allow_download)
    if loaded.reranker is not None:
        loaded.reranker.close()
        yield good("rerank", wanted)
    elif loaded.note:
        yield bad("rerank", f"{loaded.note}; memories are not reranked")


@contextlib.contextmanager
def _models_dir(settings: Settings) -> Iterator[Path]:
    """Yield the directory of the models, or an empty temporary one if it does not exist."""
    models = settings.data_dir / "models"
    if os.path.isdir(models):
        yield models
        return
    with TemporaryDirectory(prefix="memory-proxy-doctor-") as temporary:
        yield Path(temporary)


# ---------------------------------------------------------------- identity
def _identity(settings: Settings) -> Iterator[CheckResult]:
    identity = settings.identity
    try:
        auth_of(settings, stores_of(settings).keys)
    except ConfigError as e:
        yield bad("identity", str(e))
        return
    match identity.mode:
        case "open":
            yield note("identity", "open: every client that reaches the port may name any user")
        case "keys":
            if settings.storage.backend == "sqlite" and not is_present(database_of(settings)):
                yield _NO_KEY
            elif _older(settings) is None:
                yield asyncio.run(_keys(settings))
        case "jwt":
            yield asyncio.run(_jwt(settings))
        case "header":
            wide = any(peer.endswith("/0") for peer in identity.trusted_peers)
            text = f"{identity.user_header} is believed from {', '.join(identity.trusted_peers)}"
            text += ": that is every address" if wide else ""
            yield CheckResult(BAD if wide else GOOD, "identity", text)


async def _keys(settings: Settings) -> CheckResult:
    try:
        async with opened_stores(settings) as stores:
            valid = [key for key in await stores.keys.list() if key.revoked_at is None]
    except StoreError as e:
        return bad("identity", f"keys: the store cannot be read: {e}")
    return good("identity", f"keys: {len(valid)} valid") if valid else _NO_KEY


async def _jwt(settings: Settings) -> CheckResult:
    identity = settings.identity
    if identity.jwt_jwks_url is None:
        return good("identity", f"jwt: tokens for {identity.jwt_audience}, by a shared secret")
    from proxy.upstream.httpx_transport import fetch  # httpx takes a tenth of a second to import

    try:
        usable = len(parse_key_set(await fetch(identity.jwt_jwks_url, network=network_of(settings))))
    except (ProxyError, ValueError) as e:
        return bad("identity", f"jwt: {identity.jwt_jwks_url}: {type(e).__name__}")
    text = f"jwt: tokens for {identity.jwt_audience}, {usable} usable keys at {identity.jwt_jwks_url}"
    return CheckResult(GOOD if usable else BAD, "identity", text)


# ---------------------------------------------------------------- upstreams
@dataclass(frozen=True, slots=True)
class Probe:
    """Sends single requests through the client of the relay, so that proxies, unix sockets and base paths are
    checked too."""

    key_setting: str | None  # the setting of the key; None if the key is a client's
    url: str
    key: str | None
    network: Network

    async def request(
        self, method: str, target: bytes, body: bytes | None = None, *, url: str | None = None
    ) -> tuple[int, bytes]:
        """Return the status and the first megabyte of the body. Raises UpstreamError and ConfigError."""
        headers: Headers = credential(parse_base_url(self.url), self.key) if self.key else []
        if body:
            headers = [*headers, (b"content-type", b"application/json")]
        timeouts = Timeouts(headers_s=10, read_s=10)
        async with Upstream(url or self.url, timeouts=timeouts, network=self.network) as upstream:
            with await upstream.open(method, target, headers, body) as response:
                found = b""
                while not response.at_end and len(found) < 1_000_000:
                    found += await response.read()
                return response.status, found


async def _upstream(subject: str, probe: Probe, model: str | None = None) -> CheckResult:
    """Request the list of models; `model` must be in it."""
    at = parse_base_url(probe.url)
    route = probe.network.described(at)
    shown = at.shown + (f" ({route})" if route else "")
    try:
        status, body = await probe.request("GET", b"/v1/models")
        if status == 404 and b"v1" not in at.path.split(b"/"):
            base, mark, query = probe.url.partition("?")
            colon = ":" if at.socket and not at.path else ""
            url = f"{base.rstrip('/')}{colon}/v1{mark}{query}"
            with_v1, _ = await probe.request("GET", b"/v1/models", url=url)
            if with_v1 not in (404, 405):
                return bad(subject, f"{shown} has no /models, but /v1/models answers: add /v1 to the URL")
        if status in (401, 403):
            return _unauthorised(subject, shown, status, probe)
        if status >= 400:
            return await _without_models(subject, shown, status, probe)
    except (UpstreamError, ProxyError) as e:
        return bad(subject, f"{shown}: {e}")
    try:
        names = [entry["id"] for entry in json.loads(body)["data"]]
    except (ValueError, KeyError, TypeError):
        return note(subject, f"{shown}/models answers, but not in OpenAI's form")
    if model is not None and model not in names:
        return bad(subject, f"{shown} does not list the model {model}")
    return good(subject, f"{shown} answers, {len(names)} models")


async def _without_models(subject: str, shown: str, status: int, probe: Probe) -> CheckResult:
    """Check whether an upstream without a list of models has chat completions. An empty request is free."""
    chat, body = await probe.request("POST", b"/v1/chat/completions", b"{}")
    if chat in (401, 403):
        return _unauthorised(subject, shown, chat, probe)
    both = f"{shown} answers {status} for /models and {chat} for"
    if chat in (404, 405) and b"model" not in body.lower():
        return bad(subject, f"{both} /chat/completions: the URL is wrong")
    if chat < 500:
        return good(subject, f"{shown} has chat completions, but no list of models (status {status})")
    return note(subject, f"{both} an empty chat")


def _unauthorised(subject: str, shown: str, status: int, probe: Probe) -> CheckResult:
    if probe.key_setting is None:
        return note(subject, f"{shown} answers and requires a key (status {status}): clients send theirs")
    if status == 403:  # a valid key may be limited to chat
        return note(subject, f"{shown} does not list its models to {probe.key_setting} (status 403)")
    return bad(subject, f"{shown} refuses {probe.key_setting} (status 401): set a valid key")
