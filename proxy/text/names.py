"""Names in a memory, by their form: who and what it is about. No list of names, in no language.

A name is a text in quotes, or a run of words that begin with a capital, except at the start of a sentence. A
word there may be a name: it is `unsure`, and counts once another memory has it in a sure place. Words of the
calendar ("Monday", "März") are none. In languages that capitalise every noun, things are names too. Scripts
without capitals have only quoted names, unless the extraction model names them.

A tag "person:Anna" (or place, project, thing) says what a name is, and "person:Anna=Annie" that both names
are of one person.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from proxy.text.dates import names_calendar
from proxy.text.words import fold

KINDS = ("person", "place", "project", "thing")
UNKNOWN = "name"  # the kind of a name that only its form shows
MOST = 12  # names of one memory
_SUBJECT = "user"  # how extracted facts name the user, whatever their language
_LONGEST = 60
_QUOTED = re.compile(
    r"\"([^\"\n]+)\"|“([^”\n]+)”|„([^“”\n]+)[“”]|«([^»\n]+)»|「([^」\n]+)」|《([^》\n]+)》|『([^』\n]+)』"
)
_WORD = re.compile(r"[^\W\d_](?:[\w&]|[-’'.](?=[^\W_]))*")
_POSSESSIVE = re.compile(r"[’']s?$")
_STARTS = re.compile(r"(?:^|[.!?…:;(\[。！？\n]\s*)[\s\"'“„«(\[¿¡-]*$")
_QUOTED_WORDS = 5  # more are a sentence


@dataclass(frozen=True, slots=True)
class Name:
    """One name of a memory. `key` is equal for all its spellings; `also`: other names of the same."""

    name: str
    kind: str = UNKNOWN
    unsure: bool = False
    also: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return key_of(self.name)


def key_of(name: str) -> str:
    """Return what all spellings of the name have in common."""
    return " ".join(fold(name).split())


def names(content: str, tags: Sequence[str] = ()) -> list[Name]:
    """Return the names in the content, each once, MOST at most; those that the tags name first."""
    found: dict[str, Name] = {}
    for one in (*_tagged(content, tags), *_quoted(content), *_capitalised(content)):
        known = found.get(one.key)
        if known is None:
            found[one.key] = one
        elif known.unsure and not one.unsure:
            found[one.key] = replace(known, unsure=False)
    return list(found.values())[:MOST]


def _tagged(content: str, tags: Iterable[str]) -> Iterable[Name]:
    """Yield what the tags name and the content has."""
    held = f" {key_of(content)} "
    for tag in tags:
        kind, colon, rest = tag.partition(":")
        name, *also = (" ".join(part.split()) for part in rest.split("="))
        if colon and kind in KINDS and name and key_of(name) in held:
            yield Name(name, kind, also=tuple(one for one in also if one))


def _quoted(content: str) -> Iterable[Name]:
    for match in _QUOTED.finditer(content):
        quoted = next(group for group in match.groups() if group is not None).strip()
        if len(quoted) <= _LONGEST and len(quoted.split()) <= _QUOTED_WORDS and key_of(quoted):
            yield Name(quoted)


def _capitalised(content: str) -> Iterable[Name]:
    run: list[str] = []
    begins, end = False, 0
    for match in _WORD.finditer(content):
        word = _POSSESSIVE.sub("", match[0])
        is_name = len(word) > 1 and word[0].isupper() and word.casefold() != _SUBJECT
        is_name = is_name and not names_calendar(word)
        gap = content[end : match.start()] if end >= 0 else ""
        joined = run and (gap == " " or (gap == ". " and len(run[-1]) < 4))  # "Dr. Meier"
        if run and not (is_name and joined):
            yield from _ended(run, begins=begins)
            run = []
        if is_name:
            begins = bool(_STARTS.search(content[: match.start()])) if not run else begins
            run.append(word)
        # "Anna's Golf": two names
        end = match.end() if word == match[0] else -1
    if run:
        yield from _ended(run, begins=begins)


def _ended(run: list[str], *, begins: bool) -> Iterable[Name]:
    """Yield the run as a name; at the start of a sentence its first word may belong to it or not."""
    if not begins:
        yield Name(" ".join(run))
    elif len(run) == 1:
        yield Name(run[0], unsure=len(run[0]) < 2 or not run[0].isupper())
    else:
        yield Name(" ".join(run), unsure=True)
        yield Name(" ".join(run[1:]))
