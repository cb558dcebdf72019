"""Settings: one YAML file, overridden by the environment, checked once, frozen.

`load` is the only reader of files and environment. Unknown keys are refused with the nearest valid
name; a wrong value is reported with its full key. config/default.yaml shows every key and its default.
"""

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import platformdirs
import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from proxy.domain import timezones
from proxy.domain.core import KINDS
from proxy.domain.errors import ConfigError
from proxy.values import (
    api_base,
    directory,
    header_key,
    host_name,
    http_url,
    origin_rule,
    postgres_url,
    redis_url,
)

PREFIX = "MEMORY_PROXY__"
CONFIG_FILE = "MEMORY_PROXY_CONFIG"  # names the file, where the command line does not

_OUT_OF_REDIS = (
    "choose another storage.backend, copy what is in Redis into it with `memory-proxy migrate --from URL`,"
    " and name the Redis in cache.redis_url if replicas are to share rate limits"
)

Source = tuple[str, Mapping[Any, Any]]
"""Where settings stand, as a person finds the place, and the sections and keys that stand there."""


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


A_CENTURY = 36_500  # days: what is kept for longer has no date any more (the last is in the year 9999)


class Server(Section):
    host: str = "127.0.0.1"
    port: int = Field(8080, ge=0, le=65535)
    workers: int = Field(1, ge=1, le=64)
    allow_open: bool = False
    public_url: str | None = None
    max_body_bytes: int = Field(104_857_600, ge=1024)
    head_timeout_seconds: float = Field(20, ge=0)
    body_timeout_seconds: float = Field(60, ge=0)
    max_connections: int = Field(0, ge=0)
    max_connections_per_peer: int = Field(0, ge=0)
    shutdown_seconds: float = Field(10, ge=0)
    leave_seconds: float = Field(3, ge=0)

    @field_validator("public_url")
    @classmethod
    def can_be_reached(cls, url: str | None) -> str | None:
        return None if url is None else http_url(url.rstrip("/")).removesuffix("/v1")


class UpstreamSettings(Section):
    base_url: str | None = None
    api_key: SecretStr | None = None
    responses: Literal["auto", "native", "translate"] = "auto"
    max_connections: int = Field(0, ge=0)
    connect_timeout_seconds: float = Field(5, gt=0)
    response_timeout_seconds: float = Field(1800, gt=0)
    read_timeout_seconds: float = Field(1800, gt=0)
    proxy: SecretStr | None = None
    ca_file: str | None = None
    stream_start_seconds: float = Field(0.5, ge=0, le=3600)
    keep_alive_seconds: float = Field(15, ge=0, le=3600)
    max_answer_mb: int = Field(32, ge=1, le=1024)

    @field_validator("base_url")
    @classmethod
    def is_a_base_url(cls, url: str | None) -> str | None:
        return None if url is None else api_base(url)

    @field_validator("api_key")
    @classmethod
    def goes_into_a_header(cls, key: SecretStr | None) -> SecretStr | None:
        return header_key(key)


class Storage(Section):
    backend: Literal["sqlite", "postgres"] = "sqlite"
    postgres_url: SecretStr | None = None
    postgres_connections: int = Field(8, ge=2, le=200)
    data_dir: Path | None = None
    allow_network_filesystem: bool = False
    index_cache_mb: int = Field(256, ge=1)
    vectors: Literal["exact", "qdrant"] = "exact"
    exchange_ttl_days: float = Field(30, gt=0, le=A_CENTURY)
    response_ttl_days: float = Field(30, gt=0, le=A_CENTURY)
    conversation_ttl_days: float = Field(365, gt=0, le=A_CENTURY)

    @field_validator("backend", mode="before")
    @classmethod
    def is_a_store(cls, backend: object) -> object:
        if backend in ("redis", "redis+qdrant"):
            raise ValueError(f"{backend} no longer stores memories: {_OUT_OF_REDIS}")
        return backend

    @field_validator("postgres_url")
    @classmethod
    def is_of_a_postgres(cls, url: SecretStr | None) -> SecretStr | None:
        text = url.get_secret_value().strip() if url is not None else ""
        return SecretStr(postgres_url(text)) if text else None

    @model_validator(mode="after")
    def names_its_database(self) -> "Storage":
        if self.backend == "postgres" and self.postgres_url is None:
            raise ValueError(
                "backend postgres needs storage.postgres_url, or MEMORY_PROXY__STORAGE__POSTGRES_URL"
            )
        return self

    @field_validator("data_dir", mode="before")  # a path of "" is "." afterwards
    @classmethod
    def names_a_directory(cls, path: object) -> object:
        return directory(path) if isinstance(path, str) else path


class CacheSettings(Section):
    redis_url: SecretStr | None = None
    prefix: str = "memory-proxy:"
    timeout_seconds: float = Field(0.25, gt=0, le=5)

    @field_validator("redis_url")
    @classmethod
    def is_of_a_redis(cls, url: SecretStr | None) -> SecretStr | None:
        return None if url is None else SecretStr(redis_url(url.get_secret_value().strip()))


class QdrantSettings(Section):
    url: str = "http://127.0.0.1:6333"
    api_key: SecretStr | None = None
    collection: str = Field("memories", pattern=r"^[A-Za-z0-9_-]+$")
    exact_up_to: int = Field(2_000, ge=0)
    timeout_seconds: float = Field(10, ge=1, le=30)
    search_timeout_seconds: float = Field(0.1, gt=0)
    prefer_grpc: bool = False
    replication_factor: int = Field(1, ge=1)
    write_consistency_factor: int = Field(1, ge=1)
    shard_number: int = Field(0, ge=0)
    on_disk: bool = False
    quantization: Literal["none", "scalar", "binary"] = "none"


class Identity(Section):
    mode: Literal["open", "keys", "jwt", "header"] = "open"
    accept_openai_user: bool = False
    jwt_issuer: str | None = None
    jwt_audience: str | None = None
    jwt_jwks_url: str | None = None
    jwt_secret: SecretStr | None = None
    jwt_algorithms: tuple[str, ...] = ()
    jwt_user_claim: str = "sub"
    jwt_tenant_claim: str | None = None
    user_header: str = "x-forwarded-user"
    tenant_header: str | None = None
    trusted_peers: tuple[str, ...] = ("127.0.0.1/32", "::1/128")
    allowed_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()

    @field_validator("allowed_origins")
    @classmethod
    def are_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(origin_rule, origins))

    @field_validator("allowed_hosts")
    @classmethod
    def are_host_names(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(host_name, hosts))


class LimitSettings(Section):
    requests_per_minute: int = Field(0, ge=0)
    requests_burst: int = Field(0, ge=0)
    memory_requests_per_minute: int = Field(0, ge=0)
    memory_requests_burst: int = Field(0, ge=0)
    max_messages: int = Field(2_048, ge=0)
    max_json_values: int = Field(200_000, ge=0)
    max_text_mb: float = Field(10, ge=0)
    max_memories_per_user: int = Field(250_000, ge=0)
    max_content_mb_per_user: float = Field(256, ge=0)
    max_responses_mb_per_user: float = Field(256, ge=0)
    when_full: Literal["evict", "refuse"] = "evict"


PiiPolicy = Literal["reject", "redact", "allow"]


class Privacy(Section):
    email: PiiPolicy = "allow"
    phone: PiiPolicy = "allow"
    address: PiiPolicy = "allow"
    ip_address: PiiPolicy = "allow"
    card: PiiPolicy = "reject"
    bank_account: PiiPolicy = "reject"
    national_id: PiiPolicy = "reject"
    passport: PiiPolicy = "reject"
    quarantine: bool = True


class MemorySettings(Section):
    enabled: bool = True
    auto_store: bool = True
    deadline_ms: float = Field(150, gt=0)
    default_retrieval_limit: int = Field(10, ge=1, le=100)
    default_similarity_threshold: float | None = Field(None, ge=0, le=1)
    budget_tokens: int = Field(600, ge=50)
    profile_tokens: int = Field(150, ge=0)
    placement: Literal["auto", "before_last_user", "after_system", "merge_system", "in_user"] = "auto"
    extraction: Literal["llm", "verbatim", "off"] = "llm"
    conversational_forget: bool = True
    llm_timeout_seconds: float = Field(120, gt=0)
    extraction_batch_size: int = Field(5, ge=1, le=50)
    personal_idle_seconds: float = Field(15, ge=0)
    idle_seconds: float = Field(600, ge=0)
    min_confidence: float = Field(0.6, ge=0, le=1)
    extraction_concurrency: int = Field(2, ge=1, le=32)
    extraction_peak: int = Field(24, ge=0, le=128)
    extraction_calls_per_hour: int = Field(0, ge=0)
    ttl_days: dict[str, float] = {}
    timezone: str = timezones.DEFAULT
    session_summaries: bool = True
    compress: bool = False
    compress_threshold_tokens: int = Field(4_000, ge=0)
    compress_keep_turns: int = Field(5, ge=1)
    compress_step_turns: int = Field(5, ge=1)

    @field_validator("timezone")
    @classmethod
    def is_a_zone(cls, name: str) -> str:
        return timezones.canonical(name)

    @field_validator("ttl_days")
    @classmethod
    def of_known_types(cls, days: dict[str, float]) -> dict[str, float]:
        if unknown := set(days) - set(KINDS):
            raise ValueError(f"unknown memory type {min(unknown)!r}; known: {', '.join(sorted(KINDS))}")
        if not all(0 < value <= A_CENTURY for value in days.values()):
            raise ValueError(f"days must be above 0, up to {A_CENTURY}; leave a type out to keep it for good")
        return days


class Retrieval(Section):
    dense: bool = True
    lexical: bool = True
    fusion: Literal["linear", "rrf"] = "linear"
    dense_weight: float | None = Field(None, ge=0, le=1)
    recency_depth: float = Field(0.03, ge=0, le=0.5)
    half_life_days: float = Field(90, gt=0)
    hyde: bool = False
    rerank: str = "none"
    skip_first_turn: bool = False
    min_query_chars: int = Field(0, ge=0, le=1_000)


class Embedding(Section):
    model: str = "memory-e5-small-v2"
    dimension: int = Field(384, ge=1)
    path: Path | None = None
    allow_download: bool = False

    @field_validator("path", mode="before")
    @classmethod
    def names_a_directory(cls, path: object) -> object:
        return directory(path) if isinstance(path, str) else path


class ExternalModel(Section):
    model_role: Literal[
        "memory_extraction", "memory_rewrite", "memory_plan", "memory_summary", "memory_state"
    ]
    llm_endpoint: str
    llm_model_name: str
    llm_api_key: SecretStr | None = None
    llm_timeout_seconds: float = Field(30, gt=0)
    max_tokens: int = Field(1024, ge=1)
    temperature: float = Field(0.0, ge=0, le=2)

    @field_validator("llm_endpoint")
    @classmethod
    def is_a_base_url(cls, url: str) -> str:
        return api_base(url)

    @field_validator("llm_api_key")
    @classmethod
    def goes_into_a_header(cls, key: SecretStr | None) -> SecretStr | None:
        return header_key(key)


class Logging(Section):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["console", "json"] = "console"


class Tracing(Section):
    endpoint: str | None = None
    sample: float = Field(1.0, ge=0, le=1)
    service: str = "memory-proxy"

    @field_validator("endpoint")
    @classmethod
    def can_be_sent_to(cls, url: str | None) -> str | None:
        return None if url is None else http_url(url)


class Settings(Section):
    """All settings of one process."""

    server: Server = Server()
    upstream: UpstreamSettings = UpstreamSettings()
    storage: Storage = Storage()
    cache: CacheSettings = CacheSettings()
    qdrant: QdrantSettings = QdrantSettings()
    identity: Identity = Identity()
    limits: LimitSettings = LimitSettings()
    privacy: Privacy = Privacy()
    memory: MemorySettings = MemorySettings()
    retrieval: Retrieval = Retrieval()
    embedding: Embedding = Embedding()
    external_models: tuple[ExternalModel, ...] = ()
    logging: Logging = Logging()
    tracing: Tracing = Tracing()

    @field_validator("external_models")
    @classmethod
    def one_row_a_role(cls, rows: tuple[ExternalModel, ...]) -> tuple[ExternalModel, ...]:
        roles = [row.model_role for row in rows]
        if twice := [role for role in roles if roles.count(role) > 1]:
            raise ValueError(f"two rows have model_role: {twice[0]}; one model does it, leave one of them")
        return rows

    @model_validator(mode="after")
    def whatever_is_set_does_something(self) -> "Settings":
        if self.retrieval.hyde and all(m.model_role != "memory_rewrite" for m in self.external_models):
            raise ValueError("retrieval.hyde needs a row of external_models with model_role: memory_rewrite")
        return self

    @property
    def data_dir(self) -> Path:
        return self.storage.data_dir or Path(platformdirs.user_data_dir("memory-proxy"))


def load(
    file: Path | None, environ: Mapping[str, str], overrides: Mapping[str, Mapping[str, Any]] | None = None
) -> Settings:
    """Return the settings of `file`, overridden by `environ`, overridden by `overrides` (command line).

    Raises ConfigError naming the key, the file or variable that sets it, and the remedy.
    """
    sources: list[Source] = [(f"in {file}", _read(file))] if file else []
    sources += [*_from_environment(environ), ("on the command line", overrides or {})]
    values: dict[str, Any] = {}
    for _, source in sources:
        for section, keys in source.items():
            if isinstance(keys, Mapping):
                present = values.get(section)
                values[section] = {**(present if isinstance(present, Mapping) else {}), **keys}
            else:
                values[section] = keys
    try:
        return Settings.model_validate(values)
    except ValidationError as e:
        problems = [cast(dict[str, Any], problem) for problem in e.errors()]
        raise ConfigError(
            "\n".join(_explain(one) + _set_by(one["loc"], sources) for one in problems)
        ) from None


def overlooked(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the variables that were a setting with two underscores in the right places, and the setting's.
    No others: Kubernetes makes variables that begin so for a service of our name, `tcp://…` some of them."""
    meant = {
        f"memory_proxy_{section}_{key}": f"{PREFIX}{section}__{key}".upper()
        for section, holder in Settings.model_fields.items()
        for key in getattr(holder.annotation, "model_fields", {})
    }
    found = [
        (name, re.sub("_+", "_", name.lower())) for name, value in environ.items() if value[:6] != "tcp://"
    ]
    return sorted((name, meant[one]) for name, one in found if one in meant and not name.startswith(PREFIX))


def _read(file: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(file.read_text("utf-8"))
    except OSError as e:
        raise ConfigError(f"cannot read the configuration {file}: {e.strerror}") from e
    except (yaml.YAMLError, ValueError) as e:  # also what is no UTF-8, and days that no month has
        raise ConfigError(f"{file} is not valid YAML: {str(e).splitlines()[0]}") from e
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{file} must hold sections such as `server:` and `memory:`")
    # A section whose keys are all commented out reads as null: that means its defaults.
    return {section: keys for section, keys in values.items() if keys is not None}


def _from_environment(environ: Mapping[str, str]) -> list[Source]:
    """Return what each variable sets; one of a whole section before those of its keys, which win."""
    found = list[Source]()
    whole: dict[str, str] = {}  # the variables of sections that can have no key of their own
    for name in sorted((name for name in environ if name.startswith(PREFIX)), key=str.lower):
        section, _, key = name[len(PREFIX) :].lower().partition("__")
        text = environ[name]
        # Pydantic reads numbers and booleans out of strings; only lists and null need a parser.
        value: Any = _parsed(name, text) if text[:1] in "[{" or text in ("null", "") else text
        if key and section in whole:
            raise ConfigError(f"{name} sets a key of what {whole[section]} sets as a whole: leave out one")
        if not key and not isinstance(value, Mapping):
            whole[section] = name
        found.append((name, {section: {key: value} if key else value}))
    return found


def _parsed(name: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):  # which quote the value: it may be a secret
        raise ConfigError(f"{name} is no valid YAML list or mapping, though it begins like one") from None


def _set_by(path: Sequence[int | str], sources: Sequence[Source]) -> str:
    """Return where the setting stands that counts, in brackets; "" where no place is wrong by itself."""
    for name, values in reversed(sources):
        if path and path[0] in values:
            keys = values[path[0]]
            if len(path) == 1 or not isinstance(keys, Mapping) or path[1] in keys:
                return f" ({name})"
    return ""


def _explain(problem: dict[str, Any]) -> str:
    path = [str(part) for part in problem["loc"]]
    key = ".".join(path)
    if problem["type"] != "extra_forbidden":
        said: str = problem["msg"].removeprefix("Value error, ")
        return f"{key}: {said}" if key else said
    if path == ["redis"]:
        return f"unknown setting redis: Redis no longer stores memories: {_OUT_OF_REDIS}"
    near = difflib.get_close_matches(path[-1], _names_beside(path), n=1, cutoff=0.5)
    return f"unknown setting {key}" + (f": did you mean {'.'.join([*path[:-1], near[0]])}?" if near else "")


def _names_beside(path: list[str]) -> list[str]:
    model: Any = Settings
    for part in path[:-1]:
        if part.isdigit():
            model = ExternalModel
        elif part in model.model_fields and part != "external_models":
            model = model.model_fields[part].annotation
    return list(model.model_fields)


def config_file(given: Path | None, environ: Mapping[str, str]) -> Path | None:
    """Return the file to read: the one that is given, else the one that the environment names, if any."""
    named = environ.get(CONFIG_FILE)
    return given or (Path(named) if named else None)


def from_process(file: Path | None, overrides: Mapping[str, Mapping[str, Any]] | None = None) -> Settings:
    """Return `load` with this process's environment."""
    return load(file, os.environ, overrides)
