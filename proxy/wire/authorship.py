"""Split the text of a user's message into what the user typed and what a client put around it.

Clients put retrieved passages, file contents, environment details and reminders into user messages. That is
context: it is forwarded unchanged, but it is not searched with, nothing is extracted from it, and it sets no
standing instruction. It is known by its structure (see `wrapping`), or by a fixed template
(`client_templates.toml`). Every step is linear in the length of the text.
"""

import re
from dataclasses import dataclass
from itertools import islice

from proxy.wire.wrapping import (
    OWN_TAGS,
    PHRASING,
    TABLE,
    Authorship,
    folded,
    may_be_wrapped,
    replies_in,
    unwrapped,
)


def split(text: str) -> Authorship:
    """Return the user's own words in the text; `text` itself if nothing was put around them."""
    template = _template(text)
    if template is not None and template is not _CHANGED:
        return _of_template(text, template)
    asked = _to_complete(text)
    asked = _under_context(text) if asked is None else asked
    if asked is None and template is _CHANGED:
        asked = _next_to_passages(text)
    if asked is not None:
        found = unwrapped(asked)
        return Authorship(found.typed, found.pasted, wrapped=True)
    return unwrapped(text) if may_be_wrapped(text) else Authorship(text)


def may_be_clients(text: str) -> bool:
    """False if a look at the first characters shows that the user wrote some of the text."""
    begins = text[:_BEGINS_IN].lstrip()[:_BEGINNING_CHARS].lower()
    return begins.startswith(_BEGINNINGS) or begins[:1] in ("<", "-", "=", "*", "~", "#", "{", "")


# ---------------------------------------------------------------- templates
@dataclass(frozen=True, slots=True)
class _Template:
    """A row of the table."""

    opens: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()


_TEMPLATES = tuple(
    _Template(*(tuple(row.get(name, ())) for name in ("opens", "asks", "ends"))) for row in TABLE["template"]
)
_OPENINGS = tuple(opening for row in _TEMPLATES for opening in row.opens)
_CHANGED = _Template(("a template that was changed: it asks nothing in the way of the original",))
_HEAD_CHARS = 400  # in which a template shows itself
_BEGINNING_CHARS = 7  # by which nearly all other texts are distinguished from templates
_BEGINS_IN = 64
_BEGINNINGS = ("[", *{opening[:_BEGINNING_CHARS] for opening in _OPENINGS})
# Cline and its descendants, where the model calls tools in its text: "[read_file for 'a.ts'] Result:".
_TOOL_RESULT = re.compile(
    r"\[[a-z]{1,40}(?:_[a-z]{1,40}){0,5}(?: (?:for|in|completed)\b.{0,3000}?)?\] result:", re.DOTALL
)
_RESULT_CHARS = 3_000
_REPLIES = ("<feedback", "<answer", "<user_message", "<userMessage")
_SPACE = re.compile(r"\s+")


def _template(text: str) -> _Template | None:
    """Return the template that the text follows, `_CHANGED` if it only begins like one."""
    begins = text[:_BEGINS_IN].lstrip()[:_BEGINNING_CHARS].lower()
    if not begins.startswith(_BEGINNINGS):
        return None
    if _TOOL_RESULT.match(text[:_RESULT_CHARS].lstrip().lower()):
        return _Template()
    head = _SPACE.sub(" ", text[:_HEAD_CHARS].strip().lower())
    if not head.startswith(_OPENINGS):
        return None
    lowered = text.lower()
    matching = (row for row in _TEMPLATES if head.startswith(row.opens))
    return next((row for row in matching if not row.asks or any(a in lowered for a in row.asks)), _CHANGED)


def _of_template(text: str, row: _Template) -> Authorship:
    if not row.asks:
        replied = replies_in(text) if any(tag in text for tag in _REPLIES) else ""
        return Authorship(replied, wrapped=True)
    lowered = text.lower()
    if len(lowered) != len(text):  # some letter is longer in lower case: compare as it is
        lowered = text
    start = max((found + len(ask) for ask in row.asks if (found := lowered.rfind(ask)) >= 0), default=0)
    ends = [found for end in row.ends if (found := lowered.find(end, start)) >= 0]
    said = text[start : min(ends, default=len(text))]
    if not said.strip() or _is_instruction(said.strip()):  # the question is elsewhere in a changed template
        said = _next_to_passages(text) or said
    asked = unwrapped(said)
    return Authorship(asked.typed.strip(), asked.pasted, wrapped=True)


# ---------------------------------------------------------------- headings
_ANSWER_HEADINGS = tuple(TABLE["headings"]["answer"])
_CONTEXT_HEADINGS = frozenset(TABLE["headings"]["context"])
_INSTRUCTION_WORDS = frozenset(TABLE["headings"]["instruction_words"])
_HEADING_CHARS = 64  # of a line that is a heading
_MAX_TAGS = 20  # looked at
_NAMES = "|".join(
    sorted({re.escape(each.rstrip(" :：")) for each in TABLE["headings"]["question"]}, key=len, reverse=True)
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


def _to_complete(text: str) -> str | None:
    """Return the question of a prompt that ends with an empty heading for its answer, None of other texts."""
    if not text[-_HEADING_CHARS:].rstrip().lower().endswith(_ANSWER_HEADINGS):
        return None
    end = text.rstrip().rfind("\n") + 1
    if text[end:].strip().strip("#* ").lower() not in _ANSWER_HEADINGS:
        return None
    start = max((heading.end() for heading in _QUESTION_LINE.finditer(text, 0, end)), default=None)
    return None if start is None else text[start:end].strip()


def _under_context(text: str) -> str | None:
    """Return the question of a prompt that begins with a line that is only a heading for the context, and has
    a heading for the question; None of other texts."""
    line, more, _ = text[:_HEADING_CHARS].lstrip().partition("\n")
    bare = line.strip("#*[] \t\r")
    marked = line.startswith(("#", "*", "[")) or bare.endswith((":", "："))
    is_context = bare.rstrip(":： ").lower() in _CONTEXT_HEADINGS
    return _under_heading(text) if more and marked and is_context else None


def _next_to_passages(text: str) -> str | None:
    """Return the question in a client's prompt: above or below the tag that holds the passages, without the
    instructions; "" if there is none. Without such a tag, what has a heading for a question, else None."""
    for opened in islice(_TAG_LINE.finditer(text), _MAX_TAGS):
        name = opened["tag"]
        closing = text.rfind(f"</{name}>", opened.end())
        if folded(name) in OWN_TAGS or folded(name) in PHRASING or closing < 0:
            continue
        above = text[: opened.start()].rstrip()
        if above.endswith((":", "：")):  # a last line that announces the passages: "Context:"
            above = above[: above.rfind("\n") + 1]
        below = text[closing + len(name) + 3 :].strip()
        rest = _without_instructions(below) if _is_instruction(below) else below
        return _under_heading(below) or _under_heading(above) or rest or _without_instructions(above)
    return _under_heading(text)


def _is_instruction(text: str) -> bool:
    """True if the text begins with a heading for what the client wants of the model."""
    heading = _HEADING.match(text)
    return heading is not None and _is_instruction_title(heading["title"])


def _is_instruction_title(title: str) -> bool:
    return not _INSTRUCTION_WORDS.isdisjoint(_WORD.findall(title.lower()))


def _under_heading(text: str) -> str | None:
    """Return what the last heading for a question is followed by, up to the next heading."""
    start = max((heading.end() for heading in _QUESTION_LINE.finditer(text)), default=None)
    if start is None:
        return None
    following = _HEADING.search(text, start)
    return text[start : following.start() if following else len(text)].strip() or None


def _without_instructions(text: str) -> str:
    """Return the last words that are not an instruction: what a section has after its first paragraph and its
    lists, else a section whose title is not that of an instruction."""
    sections, title, at = list[tuple[str, str]](), "", 0
    for heading in _HEADING.finditer(text):
        sections.append((title, text[at : heading.start()]))
        title, at = heading["title"], heading.end()
    sections.append((title, text[at:]))
    behind, others = "", ""
    for title, body in reversed(sections):
        if title and not _is_instruction_title(title):
            others = others or body.strip()
            continue
        paragraphs = [part.strip() for part in _PARAGRAPHS.split(body) if part.strip()]
        behind = behind or "\n\n".join(part for part in paragraphs[1:] if not _LIST.match(part))
    return behind or others
