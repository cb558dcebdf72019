"""`memory-proxy doctor`: check a configuration against the real upstream, store and models.

It creates no directory, so that a mistyped name shows as absent.
"""

import asyncio
import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from proxy import telemetry
from proxy.app import factories
from proxy.app.factories import cache_of, index_of, place_of, stores_of
from proxy.config import IdentitySettings, Settings
from proxy.domain.endpoint import Endpoint, endpoint
from proxy.domain.errors import ConfigError, ProxyError, StoreError, UpstreamError
from proxy.domain.ports import Stores
from proxy.http.auth.jwt import parse_key_set
from proxy.models import weights
from proxy.models.judge import load_judge
from proxy.models.load import load_embedder, short_name
from proxy.models.reranker import load_reranker
from proxy.models.tokens import Tokens
from proxy.storage.sql.external_index import IndexUnavailable
from proxy.storage.sql.outages import CORRUPT
from proxy.storage.sqlite.database import kind_of
from proxy.storage.sqlite.file import SCHEMA_VERSION, Survey, older_schema, survey
from proxy.upstream.client import Upstream, credential
from proxy.upstream.connection import Timeouts
from proxy.upstream.forms import described
from proxy.upstream.headers import Headers
from proxy.upstream.network import Network

GOOD, NOTE, BAD = "ok", "--", "!!"

LEAST_FREE_BYTES = 200_000_000
LARGE_LOG_BYTES = 256_000_000
CLOCK_S = 300.0  # that what is stored may be ahead of now


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing checked: how it is, and what to do about it."""

    mark: str
    subject: str
    text: str


def is_there(database: Path) -> bool:
    """False where a start would make an empty database: there is no file, or one without a byte."""
    return os.path.lexists(database) and not (database.is_file() and not database.stat().st_size)


def no_directory(path: Path) -> Finding:
    """Return what a data directory is that is not there: to be made by the first start, or mistyped."""
    nearest = next(parent for parent in (path, *path.absolute().parents) if os.path.lexists(parent))
    if not os.path.isdir(nearest):
        return Finding(BAD, "data", f"cannot make {path}: {nearest} is no directory; set --data-dir")
    if not os.access(nearest, os.W_OK | os.X_OK):
        return Finding(BAD, "data", f"cannot make {path}: {nearest} cannot be written by this user")
    return Finding(NOTE, "data", f"{path} is not there: the first start makes it, and knows nothing")


def absent(database: Path) -> Finding:
    """Return what a directory without a database is: to be used first, or one that has lost it."""
    traces = (database.with_suffix(".opening"), database.with_name(database.name + "-wal"))
    if not any(trace.exists() for trace in traces):
        return Finding(GOOD, "data", f"{database.parent}: nothing is stored yet")
    remedy = "put it back, or restore a backup (docs/operations.md)"
    return Finding(BAD, "data", f"{database} is gone: {remedy}; a start makes an empty one")


def of_older_version(database: Path) -> Finding | None:
    """Return what is to be known of a database that an older version has made. It is not opened here: an
    older proxy may be serving it, and could not go on."""
    try:
        schema = older_schema(database)
    except StoreError:  # what is wrong with it is for `findings` to say
        return None
    if schema is None:
        return None
    told = f"of an older version (schema {schema}): the first start brings it to {SCHEMA_VERSION}, for good"
    return Finding(NOTE, "data", f"{database.parent} is {told}; take a backup before. Not looked into here")


def findings(database: Path, model: str) -> Iterator[Finding]:
    """Yield what was found about the database; `model`: what the settings name for embeddings."""
    try:
        found = survey(database)
    except StoreError as error:
        if kind_of(error) == CORRUPT or not database.parent.is_dir():
            yield Finding(BAD, "database", f"{error}: restore a backup (docs/operations.md)")
            return
        # A full or read-only disk is no reason to put an old state in place of a sound file.
        yield Finding(BAD, "database", f"{error}: its disk may be at fault (docs/operations.md)")
        yield _disk(shutil.disk_usage(database.parent).free, LEAST_FREE_BYTES)
        return
    yield _soundness(database, found)
    yield _disk(found.free_bytes, max(LEAST_FREE_BYTES, found.bytes))
    yield from learnt(found.forms)
    if found.log_bytes > LARGE_LOG_BYTES:
        text = f"the write-ahead log has grown to {_size(found.log_bytes)}: a program reads the file for long"
        yield Finding(NOTE, "log", text)
    if found.exposed:
        names = " ".join(found.exposed)
        text = f"others on this machine may read {names}: chmod 600 in {database.parent}"
        yield Finding(BAD, "privacy", text)
    if found.newest_at is not None and found.newest_at > time.time() + CLOCK_S:
        at = datetime.fromtimestamp(found.newest_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
        text = f"this machine's clock is behind what is stored (the last is of {at}): set the clock"
        yield Finding(BAD, "clock", text)
    if found.model not in (None, model):
        text = f"the vectors were made with {found.model}, the settings name {model}: memory-proxy reembed"
        yield Finding(BAD, "vectors", text)


def learnt(rows: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what models were found to take, so that an operator sees why a request is written as it is."""
    for line in described(rows, time.time()):
        yield Finding(NOTE, "form", f"learnt: {line}")


def _soundness(database: Path, found: Survey) -> Finding:
    told = f"{found.memories:,} memories, {_size(found.bytes)}, schema {found.schema}"
    if found.is_sound is None:
        return Finding(NOTE, "database", f"{told}; too large to read through here: a backup verifies it")
    if not found.is_sound:
        return Finding(BAD, "database", f"{database} is corrupt: restore a backup (docs/operations.md)")
    return Finding(GOOD, "database", f"{told}, sound")


def _disk(free_bytes: int, wanted_bytes: int) -> Finding:
    if free_bytes < wanted_bytes:
        text = f"{_size(free_bytes)} free: a backup or a large forget may need {_size(wanted_bytes)}"
        return Finding(BAD, "disk", text)
    return Finding(GOOD, "disk", f"{_size(free_bytes)} free")


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"


_NO_KEY = Finding(BAD, "identity", "keys: there are none; run memory-proxy keys create --name NAME")


def diagnose(settings: Settings) -> int:
    """Print the findings; return 0 if nothing has to be fixed, else 1."""
    telemetry.configure("error", settings.logging.format)
    findings = [Finding(GOOD, "settings", "valid"), *_checks(settings)]
    for finding in findings:
        print(f"[{finding.mark}] {finding.subject:<11} {finding.text}")
    bad = sum(finding.mark == BAD for finding in findings)
    print(f"\n{bad} to fix." if bad else "\nNothing to fix.")
    return 1 if bad else 0


def _checks(settings: Settings) -> Iterator[Finding]:
    older = _older(settings)
    yield older or _data_dir(settings)
    if older is None and os.path.isfile(database := _database(settings)) and is_there(database):
        yield from findings(database, short_name(settings.embedding.model))
    yield from asyncio.run(_cache(settings))
    yield from asyncio.run(_index(settings))
    yield from _embedder(settings)
    yield from _reranker(settings)
    yield _tokens()
    yield from _identity(settings)
    try:
        network = factories.network_of(settings)
    except ConfigError as e:
        yield Finding(BAD, "network", str(e))
        return
    own, url = "upstream.api_key" if settings.upstream.api_key else None, settings.upstream.base_url
    yield asyncio.run(_upstream("upstream", url, _key(settings), configured=own, network=network))
    for model in settings.external_models:
        key, role = model.llm_api_key.get_secret_value() if model.llm_api_key else None, model.model_role
        own = "its llm_api_key" if key else None
        yield asyncio.run(
            _upstream(role, model.llm_endpoint, key, model.llm_model_name, configured=own, network=network)
        )


def _data_dir(settings: Settings) -> Finding:
    path = settings.data_dir
    if not os.path.isdir(path):  # Path.is_dir raises if a parent is not readable
        return no_directory(path)
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return Finding(BAD, "data", f"{path} cannot be read and written by this user")
    if settings.storage.backend != "sqlite":
        return asyncio.run(_store(settings))
    if not is_there(_database(settings)):
        # Opening the store would create a database, and a running proxy would take it for its lost one.
        return absent(_database(settings))
    return asyncio.run(_store(settings))


def _older(settings: Settings) -> Finding | None:
    is_ours = settings.storage.backend == "sqlite" and os.path.isfile(_database(settings))
    return of_older_version(_database(settings)) if is_ours else None


def _database(settings: Settings) -> Path:
    return settings.data_dir / "memory.db"


async def _store(settings: Settings) -> Finding:
    path, stores = place_of(settings), stores_of(settings)
    try:
        await stores.open()
        await stores.close()
    except StoreError as e:
        return Finding(BAD, "data", f"the store in {path} cannot be opened: {e}")
    return Finding(GOOD, "data", f"{path}")


async def _cache(settings: Settings) -> list[Finding]:
    cache = cache_of(settings, lambda: None)
    if cache is None:
        return []
    try:
        await cache.ping()
    except StoreError as e:
        text = f"{cache.place}: {e}: until it answers, each machine counts limits for itself"
        return [Finding(BAD, "cache", text)]
    finally:
        await cache.close()
    return [Finding(GOOD, "cache", f"{cache.place} answers")]


async def _index(settings: Settings) -> list[Finding]:
    """Ask Qdrant. Does not open the database: a doctor changes nothing."""
    if (index := index_of(settings)) is None:
        return []
    url = settings.qdrant.url
    try:
        made = await index.generations()
    except IndexUnavailable as e:
        text = f"{url} does not answer ({e}): until it does, users with many memories are searched exactly"
        return [Finding(BAD, "qdrant", text)]
    finally:
        await index.close()
    return [Finding(GOOD, "qdrant", f"{url} answers, with {len(made)} collection(s) of ours")]


def _embedder(settings: Settings) -> Iterator[Finding]:
    wanted = settings.embedding
    with _models_dir(settings) as directory:
        loaded = load_embedder(
            directory,
            model=wanted.model,
            path=wanted.path,
            allow_download=wanted.allow_download,
        )
        judge = load_judge(directory, loaded.embedder)
    for note in loaded.notes:
        yield Finding(NOTE, "embeddings", note)
    if judge.judge is not None:
        judge.judge.close()
        yield Finding(GOOD, "judge", f"the heads of {weights.ENCODER_NAME}")
    else:
        yield Finding(BAD, "judge", f"{judge.note}; memories are chosen by vectors and words alone")
    if loaded.embedder is None:
        remedy = "run scripts/install, name a directory (embedding.path) or set embedding.allow_download"
        yield Finding(BAD, "embeddings", f"no model: search is lexical only; {remedy}")
        return
    model = loaded.embedder.model
    loaded.embedder.close()
    if model.dimension != wanted.dimension:
        text = f"{model.name} has {model.dimension} dimensions: set embedding.dimension={model.dimension}"
        yield Finding(BAD, "embeddings", text)
        return
    yield Finding(GOOD, "embeddings", f"{model.name}, {model.dimension} dimensions, from {loaded.source}")


def _reranker(settings: Settings) -> Iterator[Finding]:
    """Yield whether the configured reranker can be loaded; nothing without one."""
    wanted = settings.retrieval.rerank
    allowed = settings.embedding.allow_download
    with _models_dir(settings) as directory:
        loaded = load_reranker(directory, wanted, allow_download=allowed)
    if loaded.reranker is not None:
        loaded.reranker.close()
        yield Finding(GOOD, "rerank", wanted)
    elif loaded.note:
        yield Finding(BAD, "rerank", f"{loaded.note}; memories are not reranked")


@contextlib.contextmanager
def _models_dir(settings: Settings) -> Iterator[Path]:
    """Yield the directory of the models, or an empty temporary one if it does not exist."""
    models = settings.data_dir / "models"
    if os.path.isdir(models):
        yield models
        return
    with TemporaryDirectory(prefix="memory-proxy-doctor-") as temporary:
        yield Path(temporary)


def _identity(settings: Settings) -> Iterator[Finding]:
    """Yield what the identity mode lacks, and what gives access to strangers."""
    identity = settings.identity
    try:
        stores = stores_of(settings)
        factories.auth_of(settings, stores.keys)
    except ConfigError as e:
        yield Finding(BAD, "identity", str(e))
        return
    match identity.mode:
        case "open":
            yield Finding(NOTE, "identity", "open: every client that reaches the port may name any user")
        case "keys":
            if settings.storage.backend == "sqlite" and not is_there(_database(settings)):
                yield _NO_KEY
            elif _older(settings) is None:
                yield asyncio.run(_keys(stores))
        case "jwt":
            yield asyncio.run(_tokens_of(identity))
        case "header":
            wide = [p for p in identity.trusted_peers if p.endswith("/0")]
            text = f"{identity.user_header} is believed from {', '.join(identity.trusted_peers)}"
            yield Finding(
                BAD if wide else GOOD, "identity", text + (": that is every address" if wide else "")
            )


async def _keys(stores: Stores) -> Finding:
    try:
        await stores.open()
        valid = [key for key in await stores.keys.list() if key.revoked_at is None]
    except StoreError as e:
        return Finding(BAD, "identity", f"keys: the store cannot be read: {e}")
    finally:
        await stores.close()
    if not valid:
        return _NO_KEY
    return Finding(GOOD, "identity", f"keys: {len(valid)} valid")


async def _tokens_of(identity: IdentitySettings) -> Finding:
    if identity.jwt_jwks_url is None:
        return Finding(GOOD, "identity", f"jwt: tokens for {identity.jwt_audience}, by a shared secret")
    from proxy.upstream.httpx_transport import fetch  # httpx takes a tenth of a second to import

    try:
        usable = len(parse_key_set(await fetch(identity.jwt_jwks_url)))
    except (ProxyError, ValueError) as e:
        return Finding(BAD, "identity", f"jwt: {identity.jwt_jwks_url}: {type(e).__name__}")
    text = f"jwt: tokens for {identity.jwt_audience}, {usable} usable keys at {identity.jwt_jwks_url}"
    return Finding(GOOD if usable else BAD, "identity", text)


def _tokens() -> Finding:
    tokens = Tokens()
    tokens.start().result(timeout=30)
    if tokens.exact():
        return Finding(GOOD, "tokens", "counted with OpenAI's tables")
    return Finding(
        NOTE, "tokens", "estimated (within about 4 %); scripts/fetch-models installs the exact tables"
    )


def _key(settings: Settings) -> str | None:
    configured = settings.upstream.api_key
    return configured.get_secret_value() if configured else os.environ.get("OPENAI_API_KEY")


async def _upstream(
    subject: str,
    url: str | None,
    key: str | None,
    model: str | None = None,
    *,
    configured: str | None = None,
    network: Network | None = None,
) -> Finding:
    """Request the model list. `configured` names the setting of the key; None if the key is the client's."""
    if url is None:
        return Finding(NOTE, subject, "none: a scripted demo model answers; set --upstream URL")
    at, network = endpoint(url), network or Network()
    headers = credential(at, key) if key else []
    way = network.described(at)
    shown = at.shown + (f" ({way})" if way else "")
    try:
        status, body = await _models(url, headers, network)
        elsewhere = status == 404 and b"v1" not in at.path.split(b"/")
        if elsewhere and (await _models(_with_v1(at, url), headers, network))[0] not in (404, 405):
            text = f"{shown} has no /models, but /v1/models answers: add /v1 to the URL"
            return Finding(BAD, subject, text)
    except (UpstreamError, ProxyError) as e:
        return Finding(BAD, subject, f"{shown}: {e}")
    if status in (401, 403):
        return _unauthorised(subject, shown, status, configured)
    if status >= 400:
        return await _without_models(subject, shown, status, _Probe(url, headers, network), configured)
    return _listed(subject, shown, body, model)


def _with_v1(at: Endpoint, url: str) -> str:
    base, mark, query = url.partition("?")
    colon = ":" if at.socket and not at.path else ""
    return f"{base.rstrip('/')}{colon}/v1{mark}{query}"


@dataclass(frozen=True, slots=True)
class _Probe:
    """Sends single requests to the upstream."""

    url: str
    headers: Headers
    network: Network

    async def ask(self, method: str, target: bytes, body: bytes | None = None) -> tuple[int, bytes]:
        """Return the status and the first megabyte of the body. Raises UpstreamError."""
        limits = Timeouts(headers_s=10, read_s=10)
        headers = [*self.headers, (b"content-type", b"application/json")] if body else self.headers
        async with Upstream(self.url, timeouts=limits, network=self.network) as upstream:
            with await upstream.open(method, target, headers, body) as opened:
                found = b""
                while not opened.at_end and len(found) < 1_000_000:
                    found += await opened.read()
                return opened.status, found


async def _models(url: str, headers: Headers, network: Network) -> tuple[int, bytes]:
    """Request the list of models; return the status and the body."""
    return await _Probe(url, headers, network).ask("GET", b"/v1/models")


async def _without_models(
    subject: str, shown: str, status: int, asker: _Probe, configured: str | None
) -> Finding:
    """Return whether an upstream without a list of models has chat completions. An empty request is free."""
    try:
        taken, body = await asker.ask("POST", b"/v1/chat/completions", b"{}")
    except UpstreamError as e:
        return Finding(BAD, subject, f"{shown}: {e}")
    if taken in (401, 403):
        return _unauthorised(subject, shown, taken, configured)
    if taken in (404, 405) and b"model" not in body.lower():
        text = f"{shown} answers {status} for /models and {taken} for /chat/completions: the URL is wrong"
        return Finding(BAD, subject, text)
    if taken < 500:
        return Finding(
            GOOD, subject, f"{shown} has chat completions, but no list of models (status {status})"
        )
    return Finding(NOTE, subject, f"{shown} answers {status} for /models and {taken} for an empty chat")


def _unauthorised(subject: str, url: str, status: int, configured: str | None) -> Finding:
    if configured is None:
        return Finding(
            NOTE, subject, f"{url} answers and requires a key (status {status}): clients send theirs"
        )
    if status == 403:  # a valid key may be limited to chat
        return Finding(NOTE, subject, f"{url} does not list its models to {configured} (status 403)")
    return Finding(BAD, subject, f"{url} refuses {configured} (status 401): set a valid key")


def _listed(subject: str, url: str, body: bytes, model: str | None) -> Finding:
    try:
        names = [entry["id"] for entry in json.loads(body)["data"]]
    except (ValueError, KeyError, TypeError):
        return Finding(NOTE, subject, f"{url}/models answers, but not in OpenAI's form")
    if model is not None and model not in names:
        return Finding(BAD, subject, f"{url} does not list the model {model}")
    return Finding(GOOD, subject, f"{url} answers, {len(names)} models")
