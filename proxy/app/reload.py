"""Configuration reload: which changed settings take effect while the proxy runs, and which do not."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, SecretStr

from proxy.config import PREFIX, Settings

# What the process is built around: its socket, its neighbours, its stores, what it records spans with.
_FIXED = frozenset(
    (
        "server.host",
        "server.port",
        "server.workers",
        "server.head_timeout_seconds",
        "server.body_timeout_seconds",
        "server.max_connections",
        "server.max_connections_per_peer",
        "server.shutdown_seconds",
        "server.leave_seconds",
        "storage.backend",
        "storage.data_dir",
        "storage.postgres_url",
        "storage.postgres_connections",
        "storage.vectors",
    )
)
_FIXED_SECTIONS = frozenset(("cache", "qdrant", "tracing"))


@dataclass(frozen=True, slots=True)
class Reload:
    """What becomes of a new configuration."""

    settings: Settings  # to serve with: the new ones, but for what has to stay
    changed: tuple[str, ...]  # keys that differ, and count from now on
    needs_restart: tuple[str, ...]  # keys that differ, and do not count until a restart


def planned(current: Settings, wanted: Settings) -> Reload:
    """Return what can be changed of `current` towards `wanted`."""
    differing = [key for key, value in _values(wanted).items() if value != _values(current)[key]]
    kept = [key for key in differing if is_fixed(key)]
    settings = wanted
    for key in kept:
        section, _, name = key.partition(".")
        values = {name: getattr(getattr(current, section), name)}
        changed = getattr(settings, section).model_copy(update=values)
        settings = settings.model_copy(update={section: changed})
    return Reload(settings, tuple(key for key in differing if key not in kept), tuple(kept))


def is_fixed(key: str) -> bool:
    """True if the setting holds until a restart."""
    return key in _FIXED or key.partition(".")[0] in _FIXED_SECTIONS


def pinned(settings: Settings) -> Mapping[str, str]:
    """Return an environment that holds worker processes, also those that are started later in place of one
    that died, to what must not differ between them."""
    values = _values(settings) | {"storage.data_dir": settings.data_dir}
    keys = {f"{PREFIX}{key.upper().replace('.', '__')}": _as_text(values[key]) for key in _FIXED}
    sections = {f"{PREFIX}{name.upper()}": _as_json(getattr(settings, name)) for name in _FIXED_SECTIONS}
    return keys | sections


def _as_text(value: object) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return "" if value is None else str(value)


def _values(settings: Settings) -> dict[str, Any]:
    return dict(_flat(settings))


def _flat(settings: Settings) -> Iterator[tuple[str, Any]]:
    for section in type(settings).model_fields:
        values = getattr(settings, section)
        if not isinstance(values, BaseModel):
            yield section, values
            continue
        for name in type(values).model_fields:
            yield f"{section}.{name}", getattr(values, name)


def _as_json(section: BaseModel) -> str:
    values = {name: getattr(section, name) for name in type(section).model_fields}
    return json.dumps(
        {
            name: value.get_secret_value() if isinstance(value, SecretStr) else value
            for name, value in values.items()
        },
        default=str,
    )
