"""Lists of words, and the patterns made of them."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import proxy.wordlists
from proxy.terms import fold
from proxy.wordlists import alternatives, any_of, sections, whole_words, words

AS_TYPED = {"things"}  # looked for in text with its accents, too
PACKAGE = Path(proxy.wordlists.__file__).parent
FILES = sorted((PACKAGE / "words").glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_line_is_a_pattern_and_stands_once_in_its_section(file: Path) -> None:
    assert sections(file.stem)
    for name, lines in sections(file.stem).items():
        assert lines, name
        assert len(lines) == len(set(lines)), name
        for line in lines:
            re.compile(line)
            assert line == line.strip(), line


@pytest.mark.parametrize("name", sorted({file.stem for file in FILES} - AS_TYPED))
def test_what_is_looked_for_in_folded_text_is_folded(name: str) -> None:
    for lines in sections(name).values():
        for line in lines:
            letters = "".join(re.findall(r"(?<!\\)[^\W\d_]", line))
            assert fold(letters) == letters, line


def test_words_of_japanese_and_korean_match_wherever_they_stand_too() -> None:
    greeting = re.compile(whole_words("greetings", "greetings"))
    assert greeting.search("田中さんこんにちは")
    assert greeting.search("여러분안녕하세요")
    assert not greeting.search("a hitch")  # "hi" is a word of its own


def test_words_are_whole_lines_without_comments() -> None:
    kinds = words("world", "kinds")
    assert {"cat", "katze", "gato", "chat"} <= kinds
    assert not any(word.startswith("#") or " " in word for word in kinds)


def test_any_of_is_one_group() -> None:
    either = any_of("personal", "requests")
    assert re.fullmatch(f"(?:x{either}y)?", "")


@pytest.mark.parametrize("read", [any_of, whole_words, words])
def test_an_unknown_section_is_an_error(read: Callable[[str, str], object]) -> None:
    with pytest.raises(KeyError):
        read("personal", "no such section")


@pytest.mark.parametrize("name", ["world", "world_zh"])
def test_words_that_are_looked_up_are_one_word_a_line(name: str) -> None:
    for section, lines in sections(name).items():
        other = r"[^\w' -]" if section == "works" else r"[^\w'-]"  # titles are looked up whole
        assert not [line for line in lines if re.search(other, line)], section


def test_what_follows_a_courtesy_has_a_beginning_to_follow() -> None:
    names = sections("courtesies").keys()
    for name in names:
        start, _, times = name.partition(", then ")
        assert start in names, name
        assert times in ("", "any of", "some of"), name


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_section_is_named_in_the_code_or_found_by_its_family(file: Path) -> None:
    code = "".join(path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
    named = set(re.findall(r"""["']([\w -]+)["']""", code))
    # Read by greeting and anchor_table.
    families = re.compile(r"\w\w .+, then .+|\w\w (?:pieces|small talk)|languages \w\w")
    names = sections(file.stem).keys()
    assert file.stem in named
    begun = {name.partition(", then ")[0] for name in names if ", then " in name}
    assert not [name for name in names if name not in named | begun and not families.fullmatch(name)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_alternatives_find_what_the_lines_one_by_one_would_find(file: Path) -> None:
    for name, lines in sections(file.stem).items():
        one_by_one, together = re.compile("|".join(lines)), re.compile(alternatives(lines))
        text = f"{' '.join(lines)} {''.join(lines[:100])} say {name} today"
        found = [(m.start(), m[0]) for m in one_by_one.finditer(text)]
        assert [(m.start(), m[0]) for m in together.finditer(text)] == found, name


def test_alternatives_that_begin_alike_keep_their_order() -> None:
    assert re.match(alternatives(["hi", "hi there"]), "hi there")[0] == "hi"  # type: ignore[index]
    assert re.match(alternatives(["hi there", "who", "hi"]), "hi there")[0] == "hi there"  # type: ignore[index]
    assert re.match(alternatives(["h.", "hi", "hey"]), "hey")[0] == "he"  # type: ignore[index]


@pytest.mark.parametrize("line", ["a?b", "a*b", "a+b", "a{2}b", "x|b", r"\bb|b", "(?:a|c)b", "[a-c]b"])
def test_what_is_no_letter_by_itself_is_left_as_it_is(line: str) -> None:
    together = re.compile(alternatives([line, "ax", "b", r"\bq"]))
    for text in ("b", "ab", "aab", "cb", "x", "ax", "q", "xq", "axb"):
        assert [m[0] for m in together.finditer(text)] == re.findall(rf"(?:{line}|ax|b|\bq)", text), text


def test_a_line_costs_nothing_where_no_word_begins_as_it_does() -> None:
    assert alternatives([r"\bone\b", r"\btwo\b", "was", "will"]) == r"\b(?:one\b|two\b)|w(?:as|ill)"
