"""Find the user's question in a prompt that a client made of headings, instructions and passages.

Only for text that a client wrote, as its form shows: see `authorship`. Every step is linear.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from proxy.wire import templates as table

_HEADING_CHARS = 64  # of a line that is a heading
_NAMES = "|".join(
    sorted({re.escape(heading.rstrip(" :：")) for heading in table.QUESTION_HEADINGS}, key=len, reverse=True)
)
_QUESTION_LINE = re.compile(
    rf"^(?:[#*\[ \t]{{0,8}}(?:{_NAMES})[*\] \t]{{0,4}}[:：]"
    rf"|[ \t]{{0,3}}#{{1,6}}[ \t]{{0,3}}(?:{_NAMES})[ \t]{{0,3}}$)[* \t]{{0,4}}",
    re.MULTILINE | re.IGNORECASE,
)
_HEADING = re.compile(r"^#{1,6}[ \t]{1,3}(?P<title>[^\n]{1,64})$", re.MULTILINE)
_PARAGRAPHS = re.compile(r"\n[ \t]*\n")
_LIST = re.compile(r"[ \t]*(?:[-*•+]|\d{1,2}[.)])[ \t]")
_WORD = re.compile(r"\w+")
_TAG_LINE = re.compile(r"^[ \t]{0,8}<(?P<tag>[^\W\d_][\w.:-]{0,40})(?:\s[^<>\n]{0,500})?>", re.MULTILINE)
_MOST_TAGS = 20  # looked at


def to_complete(text: str) -> str | None:
    """Return the question of a prompt that ends with an empty heading for its answer, None of other texts."""
    last = text[-_HEADING_CHARS:].rstrip().lower()
    if not last.endswith(table.ANSWER_HEADINGS):
        return None
    end = text.rstrip().rfind("\n") + 1
    if text[end:].strip().strip("#* ").lower() not in table.ANSWER_HEADINGS:
        return None
    start = max((heading.end() for heading in _QUESTION_LINE.finditer(text, 0, end)), default=None)
    return None if start is None else text[start:end].strip()


def under_context(text: str) -> str | None:
    """Return the question of a prompt that begins with a line that is only a heading for the context, and has
    a heading for the question; None of other texts."""
    line, more, _ = text[:_HEADING_CHARS].lstrip().partition("\n")
    bare = line.strip("#*[] \t\r")
    name = bare.rstrip(":： ").lower()
    marked = line.startswith(("#", "*", "[")) or bare.endswith((":", "："))
    return _under_heading(text) if more and marked and name in table.CONTEXT_HEADINGS else None


def beside_passages(text: str) -> str | None:
    """Return the question in a client's prompt: above or below the tag that holds the passages, without the
    instructions; "" if there is none. Without such a tag, what has a heading for a question, else None."""
    for opened in _first(_TAG_LINE.finditer(text)):
        name = opened["tag"]
        folded = name.lower().replace("_", "").replace("-", "")
        if folded in table.OWN_TAGS or folded in table.PHRASING:
            continue
        closing = text.rfind(f"</{name}>", opened.end())
        if closing >= 0:
            above = _without_announcement(text[: opened.start()])
            below = text[closing + len(name) + 3 :].strip()
            rest = _without_instructions(below) if is_instruction(below) else below
            return _under_heading(below) or _under_heading(above) or rest or _without_instructions(above)
    return _under_heading(text)


def is_instruction(text: str) -> bool:
    """True if the text begins with a heading for what the client wants of the model."""
    heading = _HEADING.match(text)
    return heading is not None and _is_known(heading["title"])


def _under_heading(text: str) -> str | None:
    """Return what the last heading for a question is followed by, up to the next heading."""
    start = max((heading.end() for heading in _QUESTION_LINE.finditer(text)), default=None)
    if start is None:
        return None
    following = _HEADING.search(text, start)
    return text[start : following.start() if following else len(text)].strip() or None


@dataclass(frozen=True, slots=True)
class _Section:
    title: str
    body: str

    @property
    def is_instruction(self) -> bool:
        return not self.title or _is_known(self.title)

    @property
    def behind(self) -> str:
        """What follows the section's first paragraph and is no list."""
        paragraphs = [part for part in _PARAGRAPHS.split(self.body) if part.strip()]
        return "\n\n".join(part.strip() for part in paragraphs[1:] if not _LIST.match(part))


def _without_instructions(text: str) -> str:
    """Return the last words that are not an instruction: what a section has behind its first paragraph and
    its lists, else a section with a title that is none of an instruction."""
    sections = list(reversed(_sections(text)))
    behind = (section.behind for section in sections if section.is_instruction)
    others = (section.body.strip() for section in sections if not section.is_instruction)
    return next(filter(None, behind), "") or next(filter(None, others), "")


def _sections(text: str) -> list[_Section]:
    found, title, at = [], "", 0
    for heading in _HEADING.finditer(text):
        found.append(_Section(title, text[at : heading.start()]))
        title, at = heading["title"], heading.end()
    return [*found, _Section(title, text[at:])]


def _without_announcement(text: str) -> str:
    """Return the text without a last line that announces what follows: "Context:"."""
    text = text.rstrip()
    return text[: text.rfind("\n") + 1] if text.endswith((":", "：")) else text


def _is_known(title: str) -> bool:
    return not table.INSTRUCTION_WORDS.isdisjoint(_WORD.findall(title.lower()))


def _first(tags: Iterator[re.Match[str]]) -> Iterator[re.Match[str]]:
    return (tag for tag, _ in zip(tags, range(_MOST_TAGS), strict=False))
