"""The house's walls: who may import whom, and which folder owns which library."""

import ast
import re
from pathlib import Path

import pytest

PROXY = Path(__file__).parent.parent / "proxy"
ROOT = {
    "addresses",
    "domain",
    "endpoint",
    "kinds",
    "notes",
    "note_store",
    "chain_store",
    "judging",
    "kept",
    "oversight",
    "own_ids",
    "documents",
    "errors",
    "lanes",
    "ports",
    "terms",
    "block",
    "build",
    "chinese",
    "observe",
    "prompts",
    "rates",
    "reasons",
    "sentences",
    "tcp",
    "calls",
    "thoughts",
    "timezones",
    "tracing",
}
MAY_IMPORT = {
    "kinds": set(),
    "notes": set(),
    "note_store": {"domain", "notes"},
    "domain": {"kinds", "notes", "reasons", "timezones"},
    "timezones": set(),
    "lanes": {"domain"},
    "reasons": set(),
    "errors": set(),
    "endpoint": set(),
    "observe": {"tracing"},
    "tracing": {"errors"},
    "thoughts": set(),
    "sentences": set(),
    "prompts": set(),
    "judging": set(),
    "kept": {"domain"},
    "oversight": {"domain"},
    "own_ids": {"domain"},
    "documents": {"domain"},
    "build": set(),
    "rates": set(),
    "tcp": set(),
    "calls": set(),
    "ports": {"domain", "oversight", "rates"},
    "chain_store": {"domain", "kept"},
    "storage": {"ports", "chain_store", "note_store", "documents", "calls"},
    "block": {"domain"},
    "chinese": set(),
    "terms": {"chinese"},
    "clock": {"observe"},
    "settings": {"domain", "errors", "timezones", "values"},
    "values": {"endpoint"},
    "wire": ROOT,
    "pipeline": ROOT,
    "background": ROOT,
    "stores": ROOT,
    "upstream": ROOT | {"wire"},
    "edge": ROOT | {"wire", "pipeline", "upstream"},
    "demo": ROOT | {"client_cli"},
    "client_cli": ROOT,
}
OWNER = {
    "aiohappyeyeballs": {"upstream"},
    "httpx": {"upstream", "stores"},
    "httptools": {"upstream", "edge"},
    "starlette": {"edge", "demo"},
    "sqlite3": {"stores"},
    "redis": {"stores"},
    "qdrant_client": {"stores"},
    "onnxruntime": {"stores"},
    "tokenizers": {"stores"},
    "tiktoken": {"stores"},
    "structlog": {"observe"},
    "opentelemetry": {"tracing"},
    "prometheus_client": {"observe"},
    "openai": {"demo"},
    "jwt": {"edge"},
    "cryptography": {"edge"},
}
# These see everything.
COMPOSITION = {
    "admission",
    "app",
    "cli",
    "commands",
    "open_stores",
    "reload",
    "screen",
    "serve",
    "served",
    "__init__",
}

# A store knows no other store. What several have in common is in `exact`, or beside the folders.
STORES = {"sqlite", "redis", "qdrant"}
MAY_SEE_STORES = {
    "migrate": {"sqlite", "redis"},  # moves from the one into the other
    "redis/stores.py": {"qdrant"},  # puts a fleet's stores together
}

# What a folder inside a room may see of the others; what lies beside the folders is common to all.
INSIDE = {
    "background": {
        "safety": set(),
        "extraction": {"safety"},
        "write_gate": {"safety", "extraction"},
        "session": {"safety", "extraction"},
    },
}

_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
MODULES = sorted(PROXY.rglob("*.py"))


def _room(path: Path) -> str:
    return path.relative_to(PROXY).parts[0].removesuffix(".py")


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PROXY)))
def test_a_module_imports_only_what_its_room_may(path: Path) -> None:
    room = _room(path)
    ours = {name.split(".")[1] for name in _imports(path) if name.startswith("proxy.")}
    if room in COMPOSITION:
        return
    allowed = MAY_IMPORT[room] | {room, "__version__"}
    assert ours <= allowed, f"{room} imports {ours - allowed}"


def test_nobody_imports_the_command_line() -> None:
    """What a command decides that others need, too, is no part of it."""
    of_cli = [p for p in MODULES if any(name.startswith("proxy.cli.") for name in _imports(p))]
    assert not [str(p.relative_to(PROXY)) for p in of_cli]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PROXY)))
def test_a_library_is_imported_only_by_its_owner(path: Path) -> None:
    room = _room(path)
    for library in {name.split(".")[0] for name in _imports(path)} & set(OWNER):
        assert room in OWNER[library] | COMPOSITION, (
            f"{room} imports {library}, which belongs to {OWNER[library]}"
        )


@pytest.mark.parametrize(
    "path", sorted((PROXY / "stores").rglob("*.py")), ids=lambda p: str(p.relative_to(PROXY / "stores"))
)
def test_a_store_imports_no_other_store(path: Path) -> None:
    inside = path.relative_to(PROXY / "stores")
    seen = {name.split(".")[2] for name in _imports(path) if name.startswith("proxy.stores.")} & STORES
    allowed = MAY_SEE_STORES.get(inside.parts[0], set()) | MAY_SEE_STORES.get(str(inside), set())
    assert seen <= allowed | {inside.parts[0]}, f"{inside} imports {seen - allowed}"


@pytest.mark.parametrize(("room", "folder"), [(room, each) for room in INSIDE for each in INSIDE[room]])
def test_a_folder_inside_a_room_imports_only_what_it_may(room: str, folder: str) -> None:
    files = sorted((PROXY / room / folder).glob("*.py"))
    assert files
    for path in files:
        names = [name.split(".") for name in _imports(path) if name.startswith(f"proxy.{room}.")]
        seen = {parts[2] for parts in names} & set(INSIDE[room])
        assert seen <= INSIDE[room][folder] | {folder}, f"{path.name} imports {seen}"


def test_files_stay_short() -> None:
    long = {p.name: n for p in MODULES if (n := len(p.read_text("utf-8").splitlines())) > 600}
    assert not long


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PROXY)))
def test_no_docstring_cites_what_lies_outside_the_repository(path: Path) -> None:
    said = [
        ast.get_docstring(node) or ""
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, _WITH_DOCSTRING)
    ]
    assert not [
        text for text in said if re.search(r"\(?requirements? [A-Z]\d|\([A-Z]\d(?:, [A-Z]\d)*\)", text)
    ]
