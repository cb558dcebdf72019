"""Translate the SQL of the rules, which SQLite runs as it is, to PostgreSQL's. Each statement once.

What differs, and all that may be used in the rules:

    ?, :name                    %s, %(name)s
    a IS ?, a IS :b, a IS b.c   a IS NOT DISTINCT FROM …; likewise IS NOT
    CROSS JOIN t ON …           JOIN t ON …: SQLite takes tables in this order, PostgreSQL has statistics
    iif(a, b, c)                CASE WHEN a THEN b ELSE c END
    max(a, b), min(a, b)        greatest, least: which ignore NULL, so neither argument may be NULL
    instr(a, b), lower(a)       strpos, and lower for ASCII only
    json_each(a) [name]         the elements of a JSON array as text, in the column `value`
    json_extract(a, '$[0]')     by position, or '$.key'
    json_array(a, b)            a JSON array
    length(CAST(a AS BLOB))     the bytes of a text
    CAST(a AS INTEGER)          as a 64-bit number
    user                        a reserved word: quoted
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

_LITERAL = re.compile(r"('(?:[^']|'')*')")
_COMMENT = re.compile(r"--[^\n]*")
_NAMED = re.compile(r"(?<![:\w]):([a-z_]\w*)")
_SAME = re.compile(r"\bIS (NOT )?(?=[:?]|[a-z_]+\.)")
_ORDERED_JOIN = re.compile(r"\bCROSS JOIN (?=\w+(?: \w+)? ON\b)")
_USER = re.compile(r'(?<![.:\w"])user(?![\w"])')
_BYTES = re.compile(r"\blength\(CAST\(([\w.]+) AS BLOB\)\)")
_CALL = re.compile(r"\b(iif|instr|lower|max|min|json_each|json_extract|json_array)\(")
_ALIAS = re.compile(r"\s+(?:AS )?(?!ON\b|JOIN\b|CROSS\b|WHERE\b|GROUP\b|ORDER\b|UNION\b|AND\b)([a-z_]+)")


@lru_cache(maxsize=4096)
def translate(sql: str, missing: frozenset[str] = frozenset()) -> bytes:
    """Return the statement in PostgreSQL's dialect, with psycopg's placeholders.

    `missing`: names of parameters that are None. NULL is written in their place: PostgreSQL asks for the type
    of a parameter in `:name IS NULL`, and plans without the condition where it is NULL."""
    if missing:
        sql = _NAMED.sub(lambda found: "NULL" if found[1] in missing else found[0], sql)
    sql = _calls(_COMMENT.sub("", sql))
    parts = _LITERAL.split(sql)
    return "".join(
        part.replace("%", "%%") if n % 2 else _plain(part) for n, part in enumerate(parts)
    ).encode()


def _plain(sql: str) -> str:
    """Translate what is outside of quotes."""
    sql = _BYTES.sub(r"octet_length(\1)", sql.replace("%", "%%"))
    sql = _ORDERED_JOIN.sub("JOIN ", sql)
    sql = _SAME.sub(lambda found: "IS DISTINCT FROM " if found[1] else "IS NOT DISTINCT FROM ", sql)
    sql = _USER.sub('"user"', sql.replace("AS INTEGER", "AS BIGINT"))
    return _NAMED.sub(r"%(\1)s", sql).replace("?", "%s")


def _calls(sql: str) -> str:
    """Translate the functions, the innermost last."""
    found = _CALL.search(sql)
    if found is None:
        return sql
    end, arguments = _arguments(sql, found.end())
    name, rest = found[1], sql[end:]
    if name == "json_each":
        alias = _ALIAS.match(rest)
        rest = rest[alias.end() :] if alias else rest
        name = alias[1] if alias else "each"
        call = f"jsonb_array_elements_text(({_calls(arguments[0])})::jsonb) AS {name}(value)"
    else:
        call = _FUNCTIONS[name]([_calls(each) for each in arguments])
    return sql[: found.start()] + call + _calls(rest)


def _extract(arguments: Sequence[str]) -> str:
    path = arguments[1].strip().strip("'")
    key = path[2:-1] if path.startswith("$[") else f"'{path[2:]}'"
    return f"(({arguments[0]})::jsonb ->> {key})"


def _or_aggregate(name: str, of_two: str) -> Callable[[Sequence[str]], str]:
    """`max(a)` is the aggregate in both dialects, `max(a, b)` the greater of two."""
    return lambda arguments: f"{name if len(arguments) == 1 else of_two}({','.join(arguments)})"


_FUNCTIONS: dict[str, Callable[[Sequence[str]], str]] = {
    "iif": lambda a: f"CASE WHEN {a[0]} THEN {a[1]} ELSE {a[2]} END",
    "instr": lambda a: f"strpos({','.join(a)})",
    "lower": lambda a: f'lower(({a[0]}) COLLATE "C")',
    "max": _or_aggregate("max", "greatest"),
    "min": _or_aggregate("min", "least"),
    "json_extract": _extract,
    "json_array": lambda a: f"jsonb_build_array({','.join(a)})",
}


def _arguments(sql: str, start: int) -> tuple[int, list[str]]:
    """Return where the call that began before `start` ends, and its arguments."""
    arguments: list[str] = []
    depth, quoted, begun = 1, False, start
    for at in range(start, len(sql)):
        sign = sql[at]
        if sign == "'":
            quoted = not quoted
        elif quoted:
            continue
        elif sign == "(":
            depth += 1
        elif sign == ")":
            depth -= 1
            if depth == 0:
                return at + 1, [*arguments, sql[begun:at]]
        elif sign == "," and depth == 1:
            arguments.append(sql[begun:at])
            begun = at + 1
    raise ValueError(f"a call without an end: {sql}")
