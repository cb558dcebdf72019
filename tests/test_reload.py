"""Which settings a running proxy can change, and what holds its processes together meanwhile."""

from pathlib import Path

from proxy.app.reloadable import is_fixed, pinned, planned
from proxy.config import Settings, load


def test_what_can_change_changes_and_what_cannot_is_named() -> None:
    current = load(None, {}, {"server": {"port": 1}, "memory": {"budget_tokens": 100}})
    wanted = load(
        None,
        {},
        {
            "server": {"port": 2, "max_body_bytes": 5_000},
            "storage": {"data_dir": "/elsewhere"},
            "cache": {"prefix": "other:"},
            "memory": {"budget_tokens": 200},
            "upstream": {"api_key": "sk-new"},
            "external_models": [
                {"model_role": "memory_extraction", "llm_endpoint": "http://h/v1", "llm_model_name": "m"}
            ],
        },
    )
    plan = planned(current, wanted)
    assert set(plan.needs_restart) == {"server.port", "storage.data_dir", "cache.prefix"}
    assert set(plan.changed) == {
        "server.max_body_bytes", "memory.budget_tokens", "upstream.api_key", "external_models",
    }  # fmt: skip
    assert plan.settings.server.port == 1
    assert plan.settings.server.max_body_bytes == 5_000
    assert plan.settings.storage.data_dir is None
    assert plan.settings.cache == current.cache
    assert plan.settings.memory.budget_tokens == 200
    assert plan.settings.upstream.api_key is not None
    assert plan.settings.upstream.api_key.get_secret_value() == "sk-new"


def test_the_same_configuration_changes_nothing() -> None:
    settings = load(None, {}, {"upstream": {"api_key": "sk-1"}})
    plan = planned(settings, load(None, {}, {"upstream": {"api_key": "sk-1"}}))
    assert (plan.changed, plan.needs_restart, plan.settings) == ((), (), settings)


def test_a_worker_is_held_to_its_parents_stores_whatever_the_file_says(tmp_path: Path) -> None:
    settings = load(
        None,
        {},
        {
            "storage": {
                "data_dir": tmp_path,
                "backend": "postgres",
                "postgres_url": "postgresql://u:secret@h/m",
            },
            "cache": {"redis_url": "redis://u:secret@h/1"},
            "memory": {"budget_tokens": 100},
        },
    )
    file = tmp_path / "c.yaml"
    file.write_text(
        "storage: {data_dir: /elsewhere}\ncache: {redis_url: redis://x}\nmemory: {budget_tokens: 300}"
    )
    held = load(file, pinned(settings))
    assert (held.storage, held.cache) == (settings.storage, settings.cache)
    assert held.cache.redis_url is not None
    assert held.cache.redis_url.get_secret_value() == "redis://u:secret@h/1"
    assert held.memory.budget_tokens == 300


def test_every_fixed_key_is_a_setting() -> None:
    known = {
        f"{section}.{name}"
        for section, model in Settings.model_fields.items()
        for name in getattr(model.annotation, "model_fields", ())
    }
    assert {key for key in known if is_fixed(key)} >= {"server.leave_seconds", "tracing.endpoint"}
