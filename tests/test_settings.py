"""Settings: one file, one environment, clear refusals."""

import re
from pathlib import Path
from typing import get_args

import pytest
import yaml

from proxy.config import PREFIX, ExternalModel, Settings, load, misspelt_variables
from proxy.domain.errors import ConfigError
from proxy.models.load import KNOWN_MODELS
from proxy.storage.redis_cache import RedisCache
from proxy.upstream.client import Upstream

DEFAULTS = Path(__file__).parent.parent / "config" / "default.yaml"
DOCS, README = DEFAULTS.parent.parent / "docs", DEFAULTS.parent.parent / "README.md"
SOURCES = "".join(p.read_text("utf-8") for p in (DEFAULTS.parent.parent / "proxy").rglob("*.py"))
ROW = '{"model_role": "memory_state", "llm_endpoint": "http://127.0.0.1:1/v1", "llm_model_name": "tiny"}'


def test_the_shipped_file_has_every_setting_with_its_default_and_a_comment():
    """Compared one by one: a failure names the setting."""
    text = DEFAULTS.read_text("utf-8")
    written, read = yaml.safe_load(text), load(DEFAULTS, {})
    assert read == Settings()
    wrong = []
    for name, default in _settings().items():
        section, key = name.split(".")
        if key not in written[section] or getattr(getattr(read, section), key) != default:
            wrong.append(f"{name}: {written[section].get(key)!r}, not {default!r}")
    bare = [line for line in text.splitlines() if re.match(r"  \w+:", line) and "# " not in line]
    assert (wrong, bare) == ([], [])


def test_the_shipped_file_gives_the_dense_weights_of_the_models():
    comment = DEFAULTS.read_text("utf-8").partition("dense_weight:")[2].partition("recency_depth:")[0]
    given = {name: float(weight) for weight, name in re.findall(r"(\.\d+) of ((?:\w+-){2,}\w+)", comment)}
    assert given == {name: KNOWN_MODELS[name].model.dense_weight for name in given}
    assert len(given) == 2


def _settings() -> dict[str, object]:
    return {
        f"{section}.{key}": setting.get_default(call_default_factory=True)
        for section, holder in Settings.model_fields.items()
        for key, setting in getattr(holder.annotation, "model_fields", {}).items()
    }


@pytest.mark.parametrize("file", [README, *sorted(DOCS.glob("*.md"))], ids=lambda file: file.name)
def test_the_documents_name_settings_that_exist(file):
    """`section.key` in them is a setting, an event of the log, a field of /health or a file."""
    known, sections = _settings(), set(Settings.model_fields) - {"external_models"}
    others = {"memory.db", "memory.busy", "memory.texts", "memory.unread_texts"}
    text = re.sub(r"^```.*?^```", "", file.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"`([a-z_]+)\.([a-z_]+)[`:= ]", text)
    named = {f"{section}.{key}" for section, key in found if section in sections}
    unknown = named - known.keys() - others
    said = {n for n in unknown if f'"{n}"' in SOURCES or f'"{n.partition(".")[2]}"' in SOURCES}
    assert unknown - said == set()


def test_the_tables_of_the_documents_give_the_defaults():
    row, known = re.compile(r"^\| `([a-z_.]+)` \| `?([^|`]+?)`? \|", re.MULTILINE), _settings()
    rows = [found for file in DOCS.glob("*.md") for found in row.findall(file.read_text("utf-8"))]
    said = {name: value.replace(",", "") for name, value in rows if name in known and " " not in value}
    assert said == {name: str(known[name] or "none") for name in said}
    assert len(said) >= 4


def test_every_variable_that_is_read_is_in_the_readme():
    readme = README.read_text("utf-8")
    read = set(re.findall(r"\bMEMORY_PROXY_[A-Z][A-Z_]*", SOURCES))
    assert read >= {"MEMORY_PROXY_CONFIG", "MEMORY_PROXY_URL"}
    assert {name for name in read if f"`{name}`" not in readme} == set()


def test_every_role_of_our_own_calls_can_have_its_own_model():
    constants = re.findall(r"^[A-Z_, ]*ROLE = .*", SOURCES, re.MULTILINE)
    called = set(re.findall(r'"(memory_\w+)"', " ".join(constants)))
    assert called == set(get_args(ExternalModel.model_fields["model_role"].annotation))
    assert {role for role in called if role not in DEFAULTS.read_text("utf-8")} == set()


def test_every_shipped_configuration_is_valid():
    for file in DEFAULTS.parent.glob("*.yaml"):
        if "compose" not in file.name:
            load(file, {})


@pytest.mark.parametrize("chosen", [{}, {"REDIS_URL": "redis://redis:6379/0", "VECTORS": "qdrant"}])
def test_the_compose_file_needs_one_variable(chosen):
    compose = yaml.safe_load((DEFAULTS.parent / "compose.yaml").read_text("utf-8"))
    given = {"UPSTREAM": "http://127.0.0.1:1/v1", **chosen}

    def filled(value):
        return re.sub(r"\$\{(\w+):([-?])([^}]*)\}", lambda m: given.get(m[1], m[3]), value)

    assert set(re.findall(r"\$\{(\w+):\?", str(compose))) == {"UPSTREAM"}
    for name in ("proxy-1", "proxy-2"):
        environ = {key: filled(value) for key, value in compose["services"][name]["environment"].items()}
        settings = load(None, environ)
        assert settings.storage.backend == "postgres"
        assert settings.storage.vectors == chosen.get("VECTORS", "exact")
        assert (settings.cache.redis_url is None) is (not chosen)


def test_the_environment_overrides_the_file_and_the_command_line_both(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("memory: {extraction_batch_size: 2, budget_tokens: 300}\nserver: {port: 1}\n")
    environ = {f"{PREFIX}MEMORY__EXTRACTION_BATCH_SIZE": "1", f"{PREFIX}SERVER__PORT": "2", "OTHER": "x"}
    settings = load(file, environ, {"server": {"port": 3}})
    assert settings.memory.extraction_batch_size == 1
    assert settings.memory.budget_tokens == 300
    assert settings.server.port == 3
    section = {f"{PREFIX}SERVER__PORT": "2", f"{PREFIX}server": "{port: 1, host: h}"}
    for given in (section, dict(reversed(section.items()))):  # one of a key, and one of its section
        server = load(None, given).server
        assert (server.port, server.host) == (2, "h")


def test_values_of_the_environment_take_the_settings_types_and_no_key_is_printed():
    given = {
        "MEMORY__ENABLED": "false", "MEMORY__DEFAULT_SIMILARITY_THRESHOLD": "0.4",
        "UPSTREAM__API_KEY": "12345", "UPSTREAM__BASE_URL": "null", "EXTERNAL_MODELS": f"[{ROW}]",
    }  # fmt: skip
    settings = load(None, {PREFIX + name: value for name, value in given.items()})
    assert settings.memory.enabled is False
    assert settings.memory.default_similarity_threshold == 0.4
    assert settings.upstream.api_key is not None
    assert settings.upstream.api_key.get_secret_value() == "12345"
    assert "12345" not in repr(settings) + str(settings)
    assert settings.upstream.base_url is None
    assert settings.external_models[0].llm_model_name == "tiny"


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"MEMRY__ENABLED": "true"}, "unknown setting memry: did you mean memory?"),
        ({"MEMORY__AUTOSTORE": "true"}, "did you mean memory.auto_store?"),
        ({"MEMORY__BUDGET_TOKENS": "many"}, "memory.budget_tokens"),
        ({"UPSTREAM__BASE_URL": "https://h/v1/chat/completions"}, "leave out /chat/completions"),
        ({"UPSTREAM__BASE_URL": "127.0.0.1:9/v1"}, "try http://127.0.0.1:9/v1"),
        ({"UPSTREAM__BASE_URL": "https://api.openai.com/"}, "try https://api.openai.com/v1"),
        ({"UPSTREAM__BASE_URL": "http://h/v1/v1"}, "ends in /v1 twice"),
        ({"UPSTREAM__BASE_URL": "unix:model.sock"}, "must name the file"),
        ({"UPSTREAM__BASE_URL": "https:///v1"}, "upstream.base_url: names no host"),
        ({"SERVER__PORT": "70000"}, "server.port"),
        ({"EXTERNAL_MODELS": f"[{ROW.replace('http://', '')}]"}, "0.llm_endpoint: must start with http"),
        ({"EXTERNAL_MODELS": f"[{ROW}, {ROW}]"}, "external_models: two rows have model_role: memory_state"),
    ],
)
def test_a_wrong_setting_is_named_with_the_remedy(environ, says):
    with pytest.raises(ConfigError) as refused:
        load(None, {PREFIX + key: value for key, value in environ.items()})
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "url", ["http://u:hush@h/v1", "http://:hush@h/v1", "u:hush@h/v1", "http://h/v1#hush", "http://u:hush@h"]
)
def test_an_address_with_a_credential_or_fragment_is_refused_without_being_shown(url):
    for key, text in (("UPSTREAM__BASE_URL", url), ("EXTERNAL_MODELS", f"[{ROW}]")):
        with pytest.raises(ConfigError, match="must ") as refused:
            load(None, {PREFIX + key: text.replace("http://127.0.0.1:1/v1", url)})
        assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://h", "https://h:9/a/v1/", "http://[::1]:8080/v1", "unix:/run/m.sock",
        "http://h/v3?api-version=1",
    ],
)  # fmt: skip
async def test_whatever_address_the_settings_take_the_upstream_takes(url):
    settings = load(None, {}, {"upstream": {"base_url": url}})
    assert settings.upstream.base_url
    await Upstream(settings.upstream.base_url).aclose()


@pytest.mark.parametrize(
    ("key", "said"),
    [("port: 70000", "server.port: "), ("prot: 1", "unknown setting server.prot: did you mean server.port?")],
)
def test_an_error_names_the_file_or_variable_that_sets_the_key(tmp_path, key, said):
    file = tmp_path / "c.yaml"
    file.write_text(f"server: {{{key}}}\n")
    with pytest.raises(ConfigError) as refused:
        load(file, {f"{PREFIX}SERVER__HOST": "::1"}, {"server": {"workers": 1}})
    assert str(refused.value).startswith(said)
    assert str(refused.value).endswith(f" (in {file})")
    name, value = key.split(": ")
    for variable, text in ((f"{PREFIX}Server__{name}", value), (f"{PREFIX}SERVER", f"{{{key}}}")):
        with pytest.raises(ConfigError) as refused:
            load(file, {variable: text}, {"storage": {}})
        assert str(refused.value).endswith(f" ({variable})")
    with pytest.raises(ConfigError) as refused:
        load(file, {f"{PREFIX}SERVER__{name}": value}, {"server": {name: value}})
    assert str(refused.value).endswith(" (on the command line)")
    file.write_text("external_models: [{model_role: memory_state}]\n")
    with pytest.raises(ConfigError) as refused:
        load(file, {})
    missing = str(refused.value).splitlines()
    assert [line.endswith(f" (in {file})") for line in missing] == [True, True]


@pytest.mark.parametrize("whole", ["null", "[1]"])
def test_a_section_set_to_something_without_keys_conflicts_with_a_variable_of_its_key(whole):
    environ = {f"{PREFIX}CACHE__REDIS_URL": "redis://h", f"{PREFIX}CACHE": whole}
    for given in (environ, dict(reversed(environ.items()))):
        with pytest.raises(ConfigError) as refused:
            load(None, given)
        assert f"{PREFIX}CACHE__REDIS_URL" in str(refused.value)
        assert f"{PREFIX}CACHE sets" in str(refused.value)


def test_a_rule_between_settings_is_reported_without_a_key():
    with pytest.raises(ConfigError, match=r"^retrieval\.hyde needs"):
        load(None, {f"{PREFIX}RETRIEVAL__HYDE": "true"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("MEMORY__TTL_DAYS", "{hush: 90"),
        ("MEMORY__TTL_DAYS", "{hush: 2026-13-45}"),
        ("MEMORY__TTL_DAYS", "{[hush]: 90}"),
        ("EXTERNAL_MODELS", "[{llm_api_key: hush}"),
    ],
)
def test_a_malformed_variable_is_named_without_its_value(name, text):
    with pytest.raises(ConfigError) as refused:
        load(None, {PREFIX + name: text})
    assert str(refused.value).startswith(f"{PREFIX}{name} is ")
    assert "hush" not in str(refused.value)
    assert refused.value.__suppress_context__, "nor where the whole chain is printed"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "not valid YAML"),
        ("a: 2026-13-45", "not valid YAML"),
        ("- 1", "must hold sections"),
        ("memory: 3", "memory"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path, text, says):
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=says):
        load(file, {})
    with pytest.raises(ConfigError, match="cannot read"):
        load(tmp_path / "absent.yaml", {})


def test_empty_sections_and_variables_mean_the_default_and_a_tilde_the_home(tmp_path, monkeypatch):
    file = tmp_path / "c.yaml"
    file.write_text("memory:\n  # budget_tokens: 1\n")
    empty = dict.fromkeys((f"{PREFIX}STORAGE__DATA_DIR", f"{PREFIX}TRACING__ENDPOINT"), "")
    assert load(file, empty) == Settings()
    load(None, {}, {"upstream": {"api_key": "sk-test\n"}})  # a line break at the end is not part of a key
    monkeypatch.setenv("HOME", "/home/me")
    assert load(None, {}, {"storage": {"data_dir": "~/m"}}).storage.data_dir == Path("/home/me/m")
    assert load(None, {}, {"embedding": {"path": "~/minilm"}}).embedding.path == Path("/home/me/minilm")


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("server", "shutdown_seconds", float("inf")),
        ("memory", "ttl_days", {"episodic": float("inf")}),
        ("memory", "ttl_days", {"episodic": 1e7}),
        ("storage", "response_ttl_days", 1e30),
        ("upstream", "api_key", "\u201csk-secret\u201d"),
        ("upstream", "api_key", "sk-\nsecret"),
        ("storage", "data_dir", ""),
        ("storage", "data_dir", "/var/lib\0/secret"),
        ("tracing", "endpoint", ""),  # the exporter would take its own default
        ("tracing", "endpoint", "collector:4318"),
        ("cache", "redis_url", "http://:secret@h:6379/0"),
        ("cache", "redis_url", "redis://u:12/secret@h:6379/0"),
        ("cache", "redis_url", "redis://:secret\u2100@h:6379/0"),
        ("cache", "redis_url", "redis://:p@h:secret/0"),
        ("cache", "redis_url", "redis://h:6379/0?secret=1"),
        ("cache", "redis_url", "redis://h:6379/0?socket_timeuot=1"),
        ("cache", "redis_url", "redis://h:6379/0?ssl_ca_certs=/ca"),  # without TLS: rediss://
    ],
)
def test_a_value_that_would_fail_later_is_refused_at_the_start(section, key, value):
    with pytest.raises(ConfigError, match=rf"^{section}\.{key}") as refused:
        load(None, {}, {section: {key: value}})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    ["redis://h", "redis://h:6379/3", "rediss://me:p%40ss@h:7000/2?ssl_ca_certs=/ca", "redis://:a@[::1]:7000/0/?client_name=a@b",
     "unix://:pass@/run/redis.sock?db=1"],
)  # fmt: skip
async def test_whatever_address_of_a_redis_the_settings_take_its_client_takes(url):
    cache = load(None, {}, {"cache": {"redis_url": url}}).cache
    assert cache.redis_url is not None
    await RedisCache(cache.redis_url.get_secret_value()).close()


@pytest.mark.parametrize("backend", ["redis", "redis+qdrant"])
def test_a_configuration_of_the_removed_redis_store_is_refused_with_a_remedy(backend):
    sections = {"storage": {"backend": backend}, "redis": {"url": "redis://:secret@h/0"}}
    with pytest.raises(ConfigError) as refused:
        load(None, {}, sections)
    said = str(refused.value)
    assert f"storage.backend: {backend} no longer stores memories" in said
    assert "unknown setting redis: Redis no longer stores memories" in said
    assert said.count("`memory-proxy migrate --from URL`") == 2
    assert said.count("cache.redis_url") == 2
    assert "secret" not in said


def test_variables_with_too_few_underscores_are_reported_and_those_of_kubernetes_are_not():
    environ = {
        "MEMORY_PROXY_UPSTREAM_BASE_URL": "http://127.0.0.1:1/v1", "MEMORY_PROXY_MEMORY__DEADLINE_MS": "1",
        f"{PREFIX}MEMORY__DEADLINE_MS": "1", "MEMORY_PROXY_CONFIG": "x",
        "MEMORY_PROXY_SERVER_PORT": "tcp://10.0.0.1:8080", "MEMORY_PROXY_SERVICE_HOST": "10.0.0.1",
    }  # fmt: skip
    assert misspelt_variables(environ) == [
        ("MEMORY_PROXY_MEMORY__DEADLINE_MS", f"{PREFIX}MEMORY__DEADLINE_MS"),
        ("MEMORY_PROXY_UPSTREAM_BASE_URL", f"{PREFIX}UPSTREAM__BASE_URL"),
    ]
