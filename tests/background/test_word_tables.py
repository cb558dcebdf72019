"""Words that are looked up among the terms of a text stand in their table in a form that terms have.

"Morning" is "morn" among terms: a table that says "morning" alone is never met, and nobody is told.
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

import proxy
from proxy.background.extraction import ground
from proxy.terms import stems, terms

PACKAGE = Path(proxy.__file__).parent


Table = Iterable[str]
Lookup = Callable[[str], Iterable[str]]
# The table as it was made, and the form in which words are looked up in it.
TABLES: dict[str, tuple[Table, Lookup]] = {
    "extraction/ground._NARRATION": (ground._NARRATION, terms),
}
# Sets in the same modules that are looked up otherwise, as they were written: reasons, and words of a
# question with case and ending.
AS_WRITTEN = {
    "background/remember._JUDGED_HARMLESS",
    "recall/wording._FIRST_PERSON",
    "pipeline/roles.ARTICLES",
    "pipeline/roles._INDEFINITE",
    "pipeline/roles._NO_OWNER",
    "pipeline/roles._ROLES_OF_ALL",
    "pipeline/roles._SMALL",
    "pipeline/roles._THEIRS",
}


def _modules() -> Mapping[str, ast.Module]:
    """Return the modules that look terms up, by folder and name."""
    trees = {
        f"{path.parent.name}/{path.stem}": ast.parse(path.read_text("utf-8"))
        for path in PACKAGE.rglob("*.py")
    }
    return {name: tree for name, tree in trees.items() if _imports_terms(tree)}


def _imports_terms(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == "proxy.terms"
        and {"terms", "stems"} & {alias.name for alias in node.names}
        for node in tree.body
    )


def _tables() -> Iterator[tuple[str, ast.expr]]:
    for module, tree in _modules().items():
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                yield f"{module}.{node.targets[0].id}", node.value


def _keys(value: ast.expr) -> ast.expr:
    """Return what is looked up of a table: of a dict its keys."""
    if not isinstance(value, ast.Dict):
        return value
    made = [v.args[0] for v in value.values if isinstance(v, ast.Call)]  # **dict.fromkeys(keys, …)
    return ast.Tuple([*(key for key in value.keys if key), *made])


WRITTEN = {
    name: [
        word
        for node in ast.walk(_keys(value))
        if isinstance(node, ast.Constant)
        for word in str(node.value).split()
    ]
    for name, value in _tables()
    if name in TABLES
}


@pytest.mark.parametrize("name", TABLES)
def test_every_word_of_a_table_is_met_by_itself(name: str) -> None:
    table, lookup = TABLES[name]
    assert WRITTEN[name]
    assert not sorted({word for word in WRITTEN[name] if not set(lookup(word)) & set(table)})


def test_no_table_of_a_module_that_looks_terms_up_is_left_out() -> None:
    found = {name for name, value in _tables() if _is_set_of_words(value)}
    assert "extraction/ground._NARRATION" in found
    assert not sorted(found - set(TABLES) - AS_WRITTEN)


def test_a_table_holds_no_pieces_of_its_words() -> None:
    assert stems("mornings apres-midi 早上") == {"mornings", "morning", "apres-midi", "早上"}


def _is_set_of_words(value: ast.expr) -> bool:
    """True for what is made by `frozenset("…")` or `stems("…")`, joined or not, and not by `terms` itself."""
    if isinstance(value, ast.BinOp):
        return _is_set_of_words(value.left) or _is_set_of_words(value.right)
    if not (isinstance(value, ast.Call) and isinstance(value.func, ast.Name)):
        return False
    made = value.func.id in ("frozenset", "stems")
    text = ast.unparse(value)
    return made and "terms(" not in text and "sections(" not in text
