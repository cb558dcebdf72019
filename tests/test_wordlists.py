"""Lists of words, and the patterns made of them."""

import re
from pathlib import Path

import pytest

import proxy.wordlists
from proxy.terms import fold
from proxy.wordlists import any_of, sections, whole_words

FILES = sorted((Path(proxy.wordlists.__file__).parent / "words").glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_line_is_a_pattern_and_stands_once_in_its_section(file: Path) -> None:
    assert sections(file.stem)
    for name, lines in sections(file.stem).items():
        assert lines, name
        assert len(lines) == len(set(lines)), name
        for line in lines:
            re.compile(line)
            assert line == line.strip(), line


@pytest.mark.parametrize("name", ["answers", "change"])
def test_what_is_looked_for_in_folded_text_is_folded(name: str) -> None:
    for lines in sections(name).values():
        for line in lines:
            letters = "".join(re.findall(r"(?<!\\)[^\W\d_]", line))
            assert fold(letters) == letters, line


def test_words_match_whole_and_chinese_wherever_it_stands() -> None:
    moved = re.compile(whole_words("change", "moved"))
    assert moved.search("the meeting was postponed")
    assert not moved.search("an unmovedness")
    assert moved.search("会议改到周五")


def test_any_of_is_one_group() -> None:
    assert re.fullmatch(f"speak {any_of('answers', 'languages')}!", "speak german!")


def test_an_unknown_section_is_an_error() -> None:
    with pytest.raises(KeyError):
        any_of("answers", "no such section")
