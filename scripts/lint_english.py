#!/usr/bin/env python3
"""Find turns of phrase that are hard to read, and names that no stranger would search for.

`scripts/lint_english.py [FILE ...]` checks Markdown outside of code, Python docstrings, comments, messages
and names, and comments of SQL, YAML, TOML, shell, JavaScript and CSS; without arguments every tracked file.
It prints one line per finding and exits with 1 if there is any. lint_english.toml has the table of turns.
"""

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = Path(__file__).with_suffix(".toml")
SKIPPED = re.compile(
    r"^(?:training/data|evals/(?:handbooks|personas|changes|everyday|statements))/|^LICENSE$|^scripts/lint_english"
)
Text = tuple[int, str]  # line number, text of one line


def main(arguments: list[str] | None = None) -> int:
    """Print the findings of the given files, or of all tracked ones. Returns 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path)
    files = parser.parse_args(arguments).files or tracked()
    found = [f"{shown(path)}:{finding}" for path in files for finding in findings(path)]
    print("\n".join(found) or "Plain English: no findings")
    return 1 if found else 0


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [
        ROOT / name for name in listed.splitlines() if not SKIPPED.search(name) and (ROOT / name).is_file()
    ]


def shown(path: Path) -> Path:
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def findings(path: Path) -> Iterator[str]:
    """Yield "line: message" for each turn and each name in the file."""
    source = path.read_text(encoding="utf-8", errors="ignore")
    for line, text in texts(path, source):
        yield from turns(line, text)
    if path.suffix == ".py":
        for line, name in defined(ast.parse(source)):
            words = name.split("_")
            if words[0] == "test":  # a sentence
                yield from turns(line, " ".join(words))
            elif mannered := NAMES.intersection(map(str.lower, words)):
                yield f"{line}: name `{name}`: use the field's word instead of “{min(mannered)}”"


def turns(line: int, text: str) -> Iterator[str]:
    for pattern, say in TURNS:
        if match := pattern.search(text):
            yield f"{line}: “{match[0].strip()}”: say {say}"


def texts(path: Path, source: str) -> Iterator[Text]:
    """Yield the lines of the file that are read by people."""
    match path.suffix:
        case ".py":
            yield from python_texts(source)
        case ".md":
            yield from markdown_texts(source)
        case ".yaml" | ".yml":
            yield from enumerate(source.splitlines(), 1)
        case ".sql":
            yield from comments(source, r"--(.*)")
        case ".js" | ".css":
            yield from comments(source, r"(?:^|\s)//(.*)|/\*(.*)\*/")
        case ".html":
            yield from comments(source, r"(?:^|>)([^<>]+)")
        case ".toml":
            yield from comments(source, r"(?:^|\s)#(.*)")
        case "" if source.startswith("#!") or path.name == "Dockerfile":
            yield from comments(source, r"(?:^|\s)#(.*)")


def python_texts(source: str) -> Iterator[Text]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    tree = ast.parse(source)
    for text in [*docstrings(tree), *messages(tree)]:
        for offset, line in enumerate(text.value.splitlines()):
            yield text.lineno + offset, line


def docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield strings that are statements: docstrings, and the string behind an attribute."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.value


def messages(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield the strings of raised errors and of parameters that are shown to people."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) or (
            isinstance(node, ast.keyword) and node.arg in {"help", "description", "message", "title", "hint"}
        ):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part


def defined(tree: ast.AST) -> Iterator[Text]:
    """Yield the names that a module defines: functions, classes, parameters, fields and variables."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                yield node.lineno, name


def markdown_texts(source: str) -> Iterator[Text]:
    fenced = False
    for number, line in enumerate(source.splitlines(), 1):
        if re.match(r"\s*(?:```|~~~)", line):
            fenced = not fenced
        elif not fenced:
            yield number, re.sub(r"`[^`]*`|\]\([^)]*\)", "", line)


def comments(source: str, pattern: str) -> Iterator[Text]:
    for number, line in enumerate(source.splitlines(), 1):
        for match in re.finditer(pattern, line):
            yield number, next(filter(None, match.groups()), "")


_TABLE = tomllib.loads(TABLE.read_text("utf-8"))
TURNS = [(re.compile(row["pattern"], re.IGNORECASE), row["say"]) for row in _TABLE["turn"]]
NAMES = frozenset(_TABLE["names"])

if __name__ == "__main__":
    sys.exit(main())
