"""Settings: one YAML file, overridden by the environment, checked once, frozen.

`load` is the only reader of files and environment. Unknown keys are refused with the nearest valid name; a
wrong value is reported with its full key and the file or variable that sets it. config/default.yaml shows
every key and its default.
"""

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, cast
from urllib.parse import parse_qsl, urlsplit

import platformdirs
import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from proxy.domain.base_url import parse_base_url
from proxy.domain.core import DEFAULT_TIMEZONE, KINDS
from proxy.domain.errors import ConfigError
from proxy.text.dates import canonical

PREFIX = "MEMORY_PROXY__"
CONFIG_FILE = "MEMORY_PROXY_CONFIG"  # names the file if the command line does not
A_CENTURY = 36_500  # days; a longer retention would end after the year 9999, which has no date

_OUT_OF_REDIS = (
    "choose another storage.backend, copy what is in Redis into it with `memory-proxy migrate --from URL`,"
    " and name the Redis in cache.redis_url if replicas are to share rate limits"
)

Source = tuple[str, Mapping[Any, Any]]
"""The name of a file, variable or the command line, and the sections and keys that it sets."""


# ---------------------------------------------------------------- values
# Each function returns the value, or raises ValueError with a message that repeats nothing of a secret.
_TLS_OPTIONS = frozenset(
    "ssl_ca_certs ssl_ca_data ssl_ca_path ssl_cert_reqs ssl_certfile ssl_check_hostname ssl_ciphers"
    " ssl_keyfile ssl_password".split()
)
# The options of redis-py that this proxy does not set itself. redis-py passes any other to a constructor,
# which raises TypeError at the first request.
_REDIS_OPTIONS = frozenset("client_name db password protocol socket_keepalive username".split())
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://([^\s/?#@\\,]*)")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
_ESCAPES = "names no host and port; write / ? # @ in a password as %2F %3F %23 %40"


def _directory(path: object) -> object:
    """Expand "~". An empty path is refused: it would be the directory in which the process started."""
    if not isinstance(path, str):
        return path
    if not path.strip() or "\0" in path:
        raise ValueError("names no directory; leave it out, or say null, for the user's own")
    return os.path.expanduser(path)


def _http_url(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"must start with http:// or https://, not {url[:20]!r}")
    parts = urlsplit(url)
    if not parts.hostname or parts.port == 0:  # a port that is not a number is a ValueError of urlsplit
        raise ValueError("names no host that can be reached")
    return url


def _base_url(url: str) -> str:
    """Return the base URL of an OpenAI-compatible API without a trailing slash."""
    url = url.strip()
    parse_base_url(url)
    return url if "?" in url else url.rstrip("/")


def _origin_rule(text: str) -> str:
    """Return an origin as browsers write it, with `*` for a part of it: `https://app.example.com`,
    `https://*.example.com`, `http://localhost:*`, `vscode-webview://*`, `null`, or `*` for all."""
    rule = text.strip().lower()
    rule = rule if rule.endswith("://") else rule.rstrip("/")
    if rule in ("*", "null"):
        return rule
    found = _ORIGIN.fullmatch(rule)
    if found is None or not (found[2] or found[1] == "file"):
        raise ValueError(f"{text[:60]!r} is not an origin: scheme://host[:port] without a path, null, or *")
    scheme, authority = found.groups()
    authority = authority.removesuffix(_DEFAULT_PORTS.get(scheme, "/"))
    host, _, port = authority.partition(":") if not authority.startswith("[") else (authority, "", "")
    wild = host.startswith("*.") or (host == "*" and scheme not in ("http", "https"))
    if "*" in (host[1:] if wild else host) or (port not in ("", "*") and "*" in port):
        raise ValueError(f"{text[:60]!r}: `*` matches the first labels of a host or for the port")
    if host.startswith("*.") and "." not in host[2:] and host != "*.localhost":
        raise ValueError(f"{text[:60]!r} names the sites of every owner: name the domain, too")
    if not host.isascii():
        authority = authority.replace(host, host.encode("idna").decode())
    return f"{scheme}://{authority}"


def _host_name(text: str) -> str:
    """Return the name in a Host header, without its port."""
    name = text.strip().lower()
    if not name or re.search(r"[\s/?#@\\*,]", name):
        raise ValueError(f"{text[:60]!r} is not a host name, such as memory.example.com")
    return name if name.startswith("[") or name.count(":") > 1 else name.partition(":")[0]


def _redis_url(secret: SecretStr) -> SecretStr:
    url = secret.get_secret_value().strip()
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises if it is not a number
    except ValueError:
        raise ValueError(_ESCAPES) from None
    if "@" in url and "@" not in parts.netloc and parts.scheme != "unix":
        raise ValueError(_ESCAPES)
    if parts.scheme not in ("redis", "rediss", "unix"):
        raise ValueError("must start with redis://, rediss:// (for TLS) or unix://")
    number = parts.path.strip("/")
    if parts.scheme != "unix" and number and not (number.isascii() and number.isdecimal()):
        raise ValueError("must end in the number of a database, as redis://host:6379/0 does")
    known = _REDIS_OPTIONS | _TLS_OPTIONS if parts.scheme == "rediss" else _REDIS_OPTIONS
    for name, _ in parse_qsl(parts.query, keep_blank_values=True):
        if name not in known:  # not repeated: it may be the rest of a password
            near = difflib.get_close_matches(name, sorted(known), 1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(known))}"
            raise ValueError(f'has an unknown option behind the "?"; {hint}')
    return SecretStr(url)


def _postgres_url(secret: SecretStr | None) -> SecretStr | None:
    url = secret.get_secret_value().strip() if secret is not None else ""
    if not url:
        return None
    if not url.startswith(("postgresql://", "postgres://")):
        raise ValueError("must start with postgresql://, as postgresql://user:secret@host:5432/memory does")
    if url.count("@") > 1:
        raise ValueError(_ESCAPES)
    return SecretStr(url)


def _header_key(key: SecretStr) -> SecretStr:
    """Return a key that an HTTP header can carry."""
    text = key.get_secret_value().strip()
    if not text.isascii():
        raise ValueError("has a character that no key has, such as a curly quotation mark: copy it again")
    if text and not text.isprintable():
        raise ValueError("has a line break or another character that cannot be seen")
    return key


Directory = Annotated[Path, BeforeValidator(_directory)]  # before: Path("") is "."
HttpUrl = Annotated[str, AfterValidator(_http_url)]
PublicUrl = Annotated[HttpUrl, AfterValidator(lambda url: url.rstrip("/").removesuffix("/v1"))]
BaseUrlText = Annotated[str, AfterValidator(_base_url)]
HeaderKey = Annotated[SecretStr, AfterValidator(_header_key)]
Days = Annotated[float, Field(gt=0, le=A_CENTURY)]


# ---------------------------------------------------------------- sections
class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ServerSettings(Section):
    host: str = "127.0.0.1"
    port: int = Field(8080, ge=0, le=65535)
    workers: int = Field(1, ge=1, le=64)
    allow_open: bool = False
    public_url: PublicUrl | None = None
    max_body_bytes: int = Field(104_857_600, ge=1024)
    head_timeout_seconds: float = Field(20, ge=0)
    body_timeout_seconds: float = Field(60, ge=0)
    max_connections: int = Field(0, ge=0)
    max_connections_per_peer: int = Field(0, ge=0)
    shutdown_seconds: float = Field(10, ge=0)
    leave_seconds: float = Field(3, ge=0)


class UpstreamSettings(Section):
    base_url: BaseUrlText | None = None
    api_key: HeaderKey | None = None
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


class StorageSettings(Section):
    backend: Literal["sqlite", "postgres"] = "sqlite"
    postgres_url: Annotated[SecretStr | None, AfterValidator(_postgres_url)] = None
    postgres_connections: int = Field(8, ge=2, le=200)
    data_dir: Directory | None = None
    allow_network_filesystem: bool = False
    index_cache_mb: int = Field(256, ge=1)
    vectors: Literal["exact", "qdrant"] = "exact"
    exchange_ttl_days: Days = 30
    response_ttl_days: Days = 30
    conversation_ttl_days: Days = 365

    @field_validator("backend", mode="before")
    @classmethod
    def refuse_redis(cls, backend: object) -> object:
        if backend in ("redis", "redis+qdrant"):
            raise ValueError(f"{backend} no longer stores memories: {_OUT_OF_REDIS}")
        return backend

    @model_validator(mode="after")
    def require_url_of_postgres(self) -> "StorageSettings":
        if self.backend == "postgres" and self.postgres_url is None:
            needed = "storage.postgres_url, or MEMORY_PROXY__STORAGE__POSTGRES_URL"
            raise ValueError(f"backend postgres needs {needed}")
        return self


class CacheSettings(Section):
    redis_url: Annotated[SecretStr, AfterValidator(_redis_url)] | None = None
    prefix: str = "memory-proxy:"
    timeout_seconds: float = Field(0.25, gt=0, le=5)


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


class IdentitySettings(Section):
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
    allowed_origins: tuple[Annotated[str, AfterValidator(_origin_rule)], ...] = ()
    allowed_hosts: tuple[Annotated[str, AfterValidator(_host_name)], ...] = ()


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


class PrivacySettings(Section):
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
    timezone: Annotated[str, AfterValidator(canonical)] = DEFAULT_TIMEZONE
    session_summaries: bool = True
    compress: bool = False
    compress_threshold_tokens: int = Field(4_000, ge=0)
    compress_keep_turns: int = Field(5, ge=1)
    compress_step_turns: int = Field(5, ge=1)

    @field_validator("ttl_days")
    @classmethod
    def check_types_and_days(cls, days: dict[str, float]) -> dict[str, float]:
        _refuse_unknown_types(days)
        if not all(0 < value <= A_CENTURY for value in days.values()):
            raise ValueError(f"days must be above 0, up to {A_CENTURY}; leave a type out to keep it for good")
        return days


class EvolutionSettings(Section):
    enabled: bool = True
    use: bool = True
    decay: bool = True
    consolidate: bool = True
    consolidate_from: int = Field(3, ge=2, le=8)
    reflect: bool = True
    contradictions: bool = True
    calls_per_user_hour: int = Field(6, ge=1, le=1_000)
    links: bool = False
    use_gain: float = Field(0.5, ge=0, le=10)
    unused_loss: float = Field(0.3, ge=0, le=10)
    archive_below: float = Field(0.3, ge=0, le=1)
    core_above: float = Field(5.0, ge=1, le=100)
    half_life_days: float = Field(90, ge=0, le=A_CENTURY)
    half_life_days_by_type: dict[str, Annotated[float, Field(ge=0, le=A_CENTURY)]] = {"episodic": 30}
    grace_days: float = Field(30, ge=0, le=A_CENTURY)
    forget_below: float = Field(0.1, ge=0, le=1)
    exempt_types: tuple[str, ...] = ("preference",)

    @field_validator("half_life_days_by_type", "exempt_types")
    @classmethod
    def check_types(cls, types: Any) -> Any:
        _refuse_unknown_types(types)
        return types


def _refuse_unknown_types(types: Iterable[str]) -> None:
    if unknown := set(types) - set(KINDS):
        raise ValueError(f"unknown memory type {min(unknown)!r}; known: {', '.join(sorted(KINDS))}")


class RetrievalSettings(Section):
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


class EmbeddingSettings(Section):
    model: str = "memory-e5-small-v2"
    dimension: int = Field(384, ge=1)
    path: Directory | None = None
    allow_download: bool = False


class ExternalModel(Section):
    model_role: Literal[
        "memory_extraction", "memory_rewrite", "memory_plan", "memory_summary", "memory_state",
        "memory_consolidation", "memory_reflection",
    ]  # fmt: skip
    llm_endpoint: BaseUrlText
    llm_model_name: str
    llm_api_key: HeaderKey | None = None
    llm_timeout_seconds: float = Field(30, gt=0)
    max_tokens: int = Field(1024, ge=1)
    temperature: float = Field(0.0, ge=0, le=2)


class LoggingSettings(Section):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["console", "json"] = "console"


class TracingSettings(Section):
    endpoint: HttpUrl | None = None
    sample: float = Field(1.0, ge=0, le=1)
    service: str = "memory-proxy"


class Settings(Section):
    server: ServerSettings = ServerSettings()
    upstream: UpstreamSettings = UpstreamSettings()
    storage: StorageSettings = StorageSettings()
    cache: CacheSettings = CacheSettings()
    qdrant: QdrantSettings = QdrantSettings()
    identity: IdentitySettings = IdentitySettings()
    limits: LimitSettings = LimitSettings()
    privacy: PrivacySettings = PrivacySettings()
    memory: MemorySettings = MemorySettings()
    evolution: EvolutionSettings = EvolutionSettings()
    retrieval: RetrievalSettings = RetrievalSettings()
    embedding: EmbeddingSettings = EmbeddingSettings()
    external_models: tuple[ExternalModel, ...] = ()
    logging: LoggingSettings = LoggingSettings()
    tracing: TracingSettings = TracingSettings()

    @field_validator("external_models")
    @classmethod
    def refuse_two_rows_of_a_role(cls, rows: tuple[ExternalModel, ...]) -> tuple[ExternalModel, ...]:
        roles = [row.model_role for row in rows]
        if twice := [role for role in roles if roles.count(role) > 1]:
            raise ValueError(f"two rows have model_role: {twice[0]}; one model does it, leave one of them")
        return rows

    @model_validator(mode="after")
    def refuse_hyde_without_its_model(self) -> "Settings":
        if self.retrieval.hyde and all(m.model_role != "memory_rewrite" for m in self.external_models):
            raise ValueError("retrieval.hyde needs a row of external_models with model_role: memory_rewrite")
        return self

    @property
    def data_dir(self) -> Path:
        return self.storage.data_dir or Path(platformdirs.user_data_dir("memory-proxy"))


# ---------------------------------------------------------------- loading
def load(
    file: Path | None, environ: Mapping[str, str], overrides: Mapping[str, Mapping[str, Any]] | None = None
) -> Settings:
    """Return the settings of `file`, or else of the file that `environ` names, overridden by `environ`,
    overridden by `overrides` (command line).

    Raises ConfigError naming the key, the file or variable that sets it, and the remedy.
    """
    if file is None and environ.get(CONFIG_FILE):
        file = Path(environ[CONFIG_FILE])
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
        lines = (_explain(one) + _set_by(one["loc"], sources) for one in problems)
        raise ConfigError("\n".join(lines)) from None


def misspelt_variables(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return each variable that lacks an underscore of a setting's variable, with that variable.

    Other names are not reported: Kubernetes sets such ones for a service of our name, some to `tcp://…`.
    """
    meant = {
        f"memory_proxy_{section}_{key}": f"{PREFIX}{section}__{key}".upper()
        for section, holder in Settings.model_fields.items()
        for key in getattr(holder.annotation, "model_fields", {})
    }
    names = (
        name for name, value in environ.items() if not (value[:6] == "tcp://" or name.startswith(PREFIX))
    )
    found = ((name, re.sub("_+", "_", name.lower())) for name in names)
    return sorted((name, meant[one]) for name, one in found if one in meant)


def _read(file: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(file.read_text("utf-8"))
    except OSError as e:
        raise ConfigError(f"cannot read the configuration {file}: {e.strerror}") from e
    except (yaml.YAMLError, ValueError) as e:  # ValueError: no UTF-8, or a date such as 2026-13-45
        raise ConfigError(f"{file} is not valid YAML: {str(e).splitlines()[0]}") from e
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{file} must hold sections such as `server:` and `memory:`")
    # A section whose keys are all commented out reads as null: that means its defaults.
    return {section: keys for section, keys in values.items() if keys is not None}


def _from_environment(environ: Mapping[str, str]) -> list[Source]:
    """Return what each variable sets. The variable of a section comes before those of its keys, which win."""
    found = list[Source]()
    whole: dict[str, str] = {}  # variables that set a section to something without keys
    for name in sorted((name for name in environ if name.startswith(PREFIX)), key=str.lower):
        section, _, key = name[len(PREFIX) :].lower().partition("__")
        text = environ[name]
        # Pydantic reads numbers and booleans from strings; only lists, mappings and null need a parser.
        value: Any = text
        if text[:1] in "[{" or text in ("null", ""):
            try:
                value = yaml.safe_load(text)
            except (yaml.YAMLError, ValueError):  # their messages quote the value, which may be a secret
                kind = "a valid YAML list or mapping, though it begins like one"
                raise ConfigError(f"{name} is not {kind}") from None
        if key and section in whole:
            raise ConfigError(f"{name} sets a key of what {whole[section]} sets as a whole: leave out one")
        if not key and not isinstance(value, Mapping):
            whole[section] = name
        found.append((name, {section: {key: value} if key else value}))
    return found


def _set_by(path: Sequence[int | str], sources: Sequence[Source]) -> str:
    """Return the source of a setting's value in brackets, "" if no source sets it."""
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
        message: str = problem["msg"].removeprefix("Value error, ")
        return f"{key}: {message}" if key else message
    if path == ["redis"]:
        return f"unknown setting redis: Redis no longer stores memories: {_OUT_OF_REDIS}"
    section: Any = Settings  # the one that the unknown key is in
    for part in path[:-1]:
        if part.isdigit():
            section = ExternalModel
        elif part in section.model_fields and part != "external_models":
            section = section.model_fields[part].annotation
    near = difflib.get_close_matches(path[-1], list(section.model_fields), n=1, cutoff=0.5)
    return f"unknown setting {key}" + (f": did you mean {'.'.join([*path[:-1], near[0]])}?" if near else "")
