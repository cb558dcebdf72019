"""Split the text of a user's message into what the user typed and what was put around it.

Clients put retrieved passages, file contents, environment details and reminders into user messages. That is
context: it is forwarded unchanged, but it is not searched with, nothing is extracted from it, and it sets no
standing instruction. It is known by its structure, in every language alike:

- paired tags of any name but HTML's inline ones (`<source id="1">…</source>`, `[CONTEXT]…[/CONTEXT]`), and
  such tags alone on a line that are never closed, or never opened;
- pairs of delimiter lines (`--- BEGIN FILE ---` … `--- END FILE ---`);
- fenced blocks, quoted lines, triple quotes, what a colon and a ruled line announce, JSON objects, pasted
  pages, forwarded and answered mails, chat exports;
- fixed templates, one row each in `templates`.

A tag that holds the user's own words (`<user_query>`) is opened, and what stands outside it is the client's.
It is opened only outside of any other tag: a page that was retrieved cannot speak for the user.

Every step is linear in the length of the text. Where a text has more marks than a person would type, what
follows them is taken for context.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from proxy.wire import templates as table

_MOST_MARKS = 4_000  # of one text
_MOST_SIGNS = 20_000  # that may open a mark
_MOST_MISSES = 64  # searches to the end of the text that found nothing
_MOST_DELIMITERS = 50
_HEAD_CHARS = 400  # in which a template shows itself
_DEPTH = 3  # of tags for the user's words inside one another


@dataclass(frozen=True, slots=True)
class Authorship:
    """What is left of a message as the user's own words, and what was taken out of it."""

    typed: str
    pasted: bool = False  # something that people paste: a fence, quoted lines, JSON, a page, a mail
    wrapped: bool = False  # something that only clients write: tags, a template

    @property
    def is_clients(self) -> bool:
        """True if a client wrote the whole message."""
        return self.wrapped and not self.pasted and not self.typed


def split(text: str) -> Authorship:
    """Return the user's own words in the text; `text` itself where nothing was put around them."""
    template = _template(text)
    if template is not None and template is not _CHANGED:
        return _of_template(text, template)
    asked = to_complete(text)
    asked = under_context(text) if asked is None else asked
    if asked is None and template is _CHANGED:
        asked = beside_passages(text)
    if asked is not None:
        found = _of_structure(asked, _DEPTH)
        return Authorship(found.typed, found.pasted, wrapped=True)
    if not _signs(text).search(text) and not may_hold_mail(text):
        return Authorship(text)
    return _of_structure(text, _DEPTH)


def may_be_clients(text: str) -> bool:
    """False if a look at the first characters shows that the user wrote some of the text."""
    begins = text[:_BEGINS_IN].lstrip()[:_BEGINNING].lower()
    return begins.startswith(_BEGINNINGS) or begins[:1] in _WRAPPING


def _of_structure(text: str, depth: int) -> Authorship:
    """Return the user's words by structure alone."""
    if (asked := _asked_in_json(text)) is not None:
        return Authorship(asked, wrapped=True)
    followed, cut = _without_appendix(text)
    inner, bounded = _without_delimited(followed)
    bounded = bounded or cut
    scan = _Scan(inner, depth)
    scan.run()
    typed, mailed = without_mail(scan.typed())
    typed, chatted = without_chat(typed)
    pasted = scan.pasted or mailed or chatted
    if not (bounded or pasted or scan.wrapped):
        return Authorship(text)
    return Authorship(_tidied(typed), pasted, scan.wrapped or bounded)


# ---------------------------------------------------------------- templates
_SPACE = re.compile(r"\s+")
_WRAPPING = ("<", "-", "=", "*", "~", "#", "{", "")


def _template(text: str) -> table.Template | None:
    """Return the template that the text follows, `_CHANGED` if it only begins like one."""
    begins = text[:_BEGINS_IN].lstrip()[:_BEGINNING].lower()
    if not begins.startswith(_BEGINNINGS):
        return None
    if _TOOL_RESULT.match(text[:_RESULT_CHARS].lstrip().lower()):
        return _OF_TOOLS
    head = _SPACE.sub(" ", text[:_HEAD_CHARS].strip().lower())
    if not head.startswith(table.OPENINGS):
        return None
    lowered = text.lower()
    return next(
        (
            row
            for row in table.TEMPLATES
            if head.startswith(row.opens) and (not row.asks or any(ask in lowered for ask in row.asks))
        ),
        _CHANGED,
    )


_BEGINNING = 7  # characters by which nearly all other texts are distinguished from templates
_BEGINS_IN = 64
_BEGINNINGS = ("[", *{opening[:_BEGINNING] for opening in table.OPENINGS})
# Cline and its descendants, where the model calls tools in its text: "[read_file for 'a.ts'] Result:".
_TOOL_RESULT = re.compile(
    r"\[[a-z]{1,40}(?:_[a-z]{1,40}){0,5}(?: (?:for|in|completed)\b.{0,3000}?)?\] result:", re.DOTALL
)
_RESULT_CHARS = 3_000
_REPLIES = ("<feedback", "<answer", "<user_message", "<userMessage")
_CHANGED = table.Template("a template that was changed: it asks nothing in the way of the original", "", ())
_OF_TOOLS = table.Template("Cline", "cline/cline: src/core/task/ToolExecutor.ts", ())


def _of_template(text: str, row: table.Template) -> Authorship:
    if not row.asks:
        if not any(tag in text for tag in _REPLIES):
            return Authorship("", wrapped=True)
        scan = _Scan(text, _DEPTH, own=table.REPLIES, wrapped=True)
        scan.run()
        return Authorship(_tidied("\n\n".join(scan.owned)), wrapped=True)
    lowered = text.lower()
    if len(lowered) != len(text):  # some letter is longer in lower case: compare as it is
        lowered = text
    places = [found + len(ask) for ask in row.asks if (found := lowered.rfind(ask)) >= 0]
    start = max(places, default=0)
    ends = [found for end in row.ends if (found := lowered.find(end, start)) >= 0]
    said = text[start : min(ends, default=len(text))]
    if not said.strip() or is_instruction(said.strip()):  # the question is elsewhere in a changed template
        said = beside_passages(text) or said
    asked = _of_structure(said, _DEPTH)
    return Authorship(asked.typed.strip(), asked.pasted, wrapped=True)


def _without_appendix(text: str) -> tuple[str, bool]:
    """Return the text up to what a client adds behind the user's words."""
    places = [found for addition in table.APPENDED if (found := text.find(addition)) >= 0]
    places = [found for found in places if not found or text[found - 1] == "\n"]
    return (text[: min(places)], True) if places else (text, False)


# ---------------------------------------------------------------- structure
_SIGNS = re.compile(r"[<>\[{`~]")  # a mark begins with one; a set alone is searched for fastest
# Quotation marks and ruled lines are searched for only where there are any.
_MORE_SIGNS = re.compile(r"[<>\[{`~]|\"\"\"|'''|[:：][ \t]*\n")
_MARKS = re.compile(
    r"<!--"
    r"|<(?P<close>/?)(?P<tag>[^\W\d_][\w.:-]{0,80}+)(?P<more>\s[^<>]{0,2000}+)?+/?+>"
    r"|\[(?P<shut>/?)(?P<bracket>[A-Za-z][\w-]{1,40}+)(?:[ =:][^\[\]\n]{0,80}+)?+\](?!\()"
    r"|(?P<fence>`{3,}+|~{3,}+)"
    r"|(?P<cited>\"{3,}+|'{3,}+|<<<)"
    r"|(?P<rule>[:：]\s{1,20}?[ \t]{0,3}(?P<sign>[-=*_#+])(?P=sign){2,}+[ \t]*+(?=\n|\Z))"
    r"|(?P<quote>>)"
    r"|(?P<json>[{\[])"
)
_PAGE = frozenset(
    "html head body script style table thead tbody tr td th svg pre blockquote iframe form nav".split()
)
_RICH = table.RICH_TEXT
_DECODER = json.JSONDecoder()


@dataclass(slots=True)
class _Scan:
    """One pass over a text, from mark to mark. What is left out is never looked into."""

    text: str
    depth: int
    own: frozenset[str] = table.OWN_TAGS
    at: int = 0
    kept: list[str] = field(default_factory=list)
    owned: list[str] = field(default_factory=list)  # what tags for the user's words hold
    rich: list[str] = field(default_factory=list)  # what HTML paragraphs hold
    pasted: bool = False
    wrapped: bool = False
    misses: int = 0
    unclosed: set[str] = field(default_factory=set)  # closings that do not come any more
    json_left: int = 0  # characters that may be read in vain

    def run(self) -> None:
        """Read the text to its end."""
        self.json_left = 4 * len(self.text) + 1_000
        signs = _signs(self.text)
        looked, seen, sign = 0, 0, signs.search(self.text)
        while sign is not None:
            start, end, looked = sign.start(), None, looked + 1
            if (mark := _MARKS.match(self.text, start)) is not None:
                seen += 1
                end = self._read(mark)
            if seen > _MOST_MARKS or looked > _MOST_SIGNS or self.misses > _MOST_MISSES:
                self._leave_out(max(start, self.at), len(self.text), pasted=True)
                break
            sign = signs.search(self.text, start + 1 if end is None else max(end, start + 1))
        self.kept.append(self.text[self.at :])

    def typed(self) -> str:
        """Return what is the user's."""
        if self.owned:
            self.wrapped = True
            return "\n\n".join(self.owned)
        typed = "".join(self.kept)
        if self.rich and not typed.strip():
            return "\n".join(self.rich)
        self.pasted = self.pasted or bool(self.rich)
        return typed

    def _read(self, mark: re.Match[str]) -> int | None:
        """Return where to go on behind what the mark opens, None where it opens nothing."""
        if mark["tag"]:
            return self._stray(mark) if mark["close"] else self._tag(mark)
        if mark["bracket"]:
            return None if mark["shut"] else self._bracket(mark)
        if mark["fence"]:
            return self._fence(mark) if self._begins_line(mark.start()) else None
        if mark["cited"]:
            return self._cited(mark)
        if mark["rule"]:
            return self._ruled(mark)
        if mark["quote"]:
            return self._quote(mark.start())
        if mark["json"]:
            return self._json(mark.start())
        return self._comment(mark.start())

    def _leave_out(self, start: int, end: int, *, pasted: bool) -> int:
        before = self.text[self.at : start]
        if pasted and (bare := before.rstrip()).endswith((":", "：")):
            before = bare[:-1]  # without its text, it would announce what the user says next
        self.kept.append(before)
        self.kept.append("\n")
        self.at = end
        self.pasted, self.wrapped = self.pasted or pasted, self.wrapped or not pasted
        return end

    # ------------------------------------------------------------ tags
    def _tag(self, mark: re.Match[str]) -> int | None:
        name, start = mark["tag"], mark.start()
        lowered = name.lower()
        if lowered in table.PHRASING:
            return None
        if mark.group().endswith("/>"):
            return None if lowered in _RICH else self._leave_out(start, mark.end(), pasted=False)
        end = self._closing(f"<{name}", f"</{name}", mark.end())
        if end is None:
            return self._unclosed_tag(mark)
        inner, after = self.text[mark.end() : end], self._past(end)
        if self._is_own(_folded(name), start, after):
            return self._own(_folded(name), inner, start, after)
        if lowered in _RICH:
            self.rich.append(_of_structure(inner, self.depth - 1).typed if self.depth else inner)
            self.kept.append(self.text[self.at : start])
            self.at = after
            return after
        return self._leave_out(start, after, pasted=lowered in _PAGE)

    def _is_own(self, folded: str, start: int, after: int) -> bool:
        if not self.depth:
            return False
        if folded in self.own:
            return True
        return folded in table.FRAMES and not (self.text[:start].strip() or self.text[after:].strip())

    def _own(self, name: str, inner: str, start: int, after: int) -> int:
        """Take the words in a tag for the user's: nothing else is, if the tag has lines to itself. A tag of a
        common name may be in what the user wrote: then all is the user's."""
        said = _of_structure(inner, self.depth - 1)
        self.pasted = self.pasted or said.pasted
        written = name in table.COMMON_TAGS and not self.wrapped and self._has_words(start)
        if self._begins_line(start) and not written:
            self.owned.append(said.typed.strip())
            return self._leave_out(start, after, pasted=False)
        self.kept.append(f"{self.text[self.at : start]} {said.typed.strip()} ")
        self.at, self.wrapped = after, True
        return after

    def _has_words(self, end: int) -> bool:
        return bool(self.text[self.at : end].strip() or any(piece.strip() for piece in self.kept))

    def _unclosed_tag(self, mark: re.Match[str]) -> int | None:
        """Leave out all behind a tag that is not closed, if it opens a wrapping and is no placeholder."""
        text, start, end = self.text, mark.start(), mark.end()
        if not self._begins_line(start):
            return None
        alone = text[end : end + 1] in ("\n", "\r", "")
        several = bool(_SEVERAL.search(mark["tag"]))
        known = several or mark["more"] or _folded(mark["tag"]) in table.WRAPPERS
        glued = several and not text[end : end + 1].isspace()
        if not known or not (alone or glued or mark["more"]):
            return None
        following = _MARKS.match(text, _skip_space(text, end))
        if following is not None and following["tag"] and not following["close"]:
            return None  # one of several placeholders
        if not text[end:].strip():
            return None
        return self._leave_out(start, len(text), pasted=False)

    def _stray(self, mark: re.Match[str]) -> int | None:
        """Leave out all before a closing tag that nothing opened: the client cut its wrapping."""
        folded = _folded(mark["tag"])
        if not (folded in table.WRAPPERS or _SEVERAL.search(mark["tag"])):
            return None
        if self.text[mark.end() : mark.end() + 1] not in ("\n", "\r", "") or self.owned:
            return None
        self.kept.clear()
        self.at, self.wrapped = mark.end(), True
        return mark.end()

    def _bracket(self, mark: re.Match[str]) -> int | None:
        name = mark["bracket"]
        end = self._closing(f"[{name}", f"[/{name}", mark.end())
        if end is None:
            return None
        after = self.text.find("]", end) + 1 or len(self.text)
        return self._leave_out(mark.start(), after, pasted=name.lower() in ("quote", "code"))

    def _closing(self, opening: str, closing: str, at: int) -> int | None:
        """Return where the closing tag begins that belongs to a tag opened before `at`, or the last one."""
        if closing in self.unclosed:
            return None
        level, last = 1, None
        found = self._find_name(closing, at)
        if found is None:
            self.unclosed.add(closing)
            self.misses += 1
            return None
        opened = self._find_name(opening, at)
        while found is not None:
            while opened is not None and opened < found:
                level += 1
                opened = self._find_name(opening, opened + 1)
            last, level = found, level - 1
            if not level:
                return last
            found = self._find_name(closing, found + 1)
        return last

    def _find_name(self, opening: str, at: int) -> int | None:
        """Return the next place of the tag, not of one with a longer name."""
        text, size = self.text, len(opening)
        while (found := text.find(opening, at)) >= 0:
            if not _GOES_ON.match(text, found + size):
                return found
            at = found + size
        return None

    def _past(self, at: int) -> int:
        end = self.text.find(">", at)
        return len(self.text) if end < 0 else end + 1

    # ------------------------------------------------------------ what people paste
    def _fence(self, mark: re.Match[str]) -> int:
        fence = mark["fence"]
        at = mark.end()
        while (found := self.text.find(fence, at)) >= 0:
            if self._begins_line(found):
                return self._leave_out(mark.start(), _line_end(self.text, found), pasted=True)
            at = found + len(fence)
        return self._leave_out(mark.start(), len(self.text), pasted=True)

    def _cited(self, mark: re.Match[str]) -> int | None:
        """Leave out what is between triple quotation marks."""
        opening = mark["cited"]
        closing = ">>>" if opening == "<<<" else opening
        if closing in self.unclosed or (found := self.text.find(closing, mark.end())) < 0:
            self.misses += closing not in self.unclosed
            self.unclosed.add(closing)
            return None
        return self._leave_out(mark.start(), found + len(closing), pasted=True)

    def _ruled(self, mark: re.Match[str]) -> int:
        """Leave out what a colon announces behind a ruled line: up to the next such line, else all of it."""
        end = self.text.find("\n" + mark["sign"] * 3, mark.end())
        after = len(self.text) if end < 0 else _line_end(self.text, end + 1)
        return self._leave_out(mark.start() + 1, after, pasted=True)

    def _quote(self, start: int) -> int | None:
        following = self.text[start + 1 : start + 2]
        if not self._begins_line(start, indent=3) or not (following.isalnum() or following in " \t>\n\"'“«"):
            return None
        return self._leave_out(start, _line_end(self.text, start), pasted=True)

    def _json(self, start: int) -> int | None:
        """Leave out a JSON object, an array of them, or any array with a line to itself."""
        text, first = self.text, _skip_space(self.text, start + 1)
        begins, opened = self._begins_line(start), text[start]
        if text[first : first + 1] not in _IN_JSON[opened]:
            return self._braces(start) if begins else None
        if self.json_left < 0 or not (begins or opened == "{" or text[first] == "{"):
            return None
        try:
            value, end = _DECODER.raw_decode(text, start)
        except json.JSONDecodeError as error:
            self.json_left -= max(error.pos - start, 0) + 100
            return self._braces(start) if begins else None
        except RecursionError:
            return self._leave_out(start, len(text), pasted=True)
        return self._leave_out(start, end, pasted=True) if value else None

    def _braces(self, start: int) -> int | None:
        """Leave out what looks like JSON: from a bracket alone on its line to the one that closes it."""
        text, end = self.text, _line_end(self.text, start)
        line, closing = text[start:end].strip(), "\n" + _CLOSES[text[start]]
        if len(line) > 1:
            whole = line.endswith(("}", "]")) and ":" in line and line[1:].lstrip()[:1] in "'{["
            return self._leave_out(start, end, pasted=True) if whole else None
        if closing in self.unclosed or (found := text.find(closing, end)) < 0:
            self.misses += closing not in self.unclosed
            self.unclosed.add(closing)
            return None
        return self._leave_out(start, _line_end(self.text, found + 1), pasted=True)

    def _comment(self, start: int) -> int:
        """Leave out a comment, or all from one to the comment that says that it ends."""
        text = self.text
        end = text.find("-->", start)
        if end < 0:
            return self._leave_out(start, len(text), pasted=True)
        label = text[start + 4 : end].strip()
        closing = -1 if _COMMENT_ENDS in self.unclosed else text.find(_COMMENT_ENDS, end)
        if closing < 0:
            self.unclosed.add(_COMMENT_ENDS)
        else:
            shut = text.find("-->", closing)
            named = text[closing + 9 : shut].strip()
            if named and shut > 0 and named.lower() in label.lower():
                return self._leave_out(start, shut + 3, pasted=False)
        return self._leave_out(start, end + 3, pasted=False)

    # ------------------------------------------------------------ lines
    def _begins_line(self, at: int, *, indent: int = 12) -> bool:
        """True if only white space, or the end of another tag, precedes the place in its line."""
        before = self.text[max(0, at - indent) : at].rstrip(" \t")
        if not before:
            return at <= indent or self.text[at - indent - 1] == "\n"
        return before[-1] == "\n" or (before[-1] == ">" and self.at >= at - indent)


_COMMENT_ENDS = "<!-- END "
_IN_JSON = {"{": ('"', "}"), "[": ("{", "[", '"')}
_CLOSES = {"{": "}", "[": "]"}
_SEVERAL = re.compile(r"\w[_.:-]\w")
_GOES_ON = re.compile(r"[\w.:-]")
_NO_SPACE = re.compile(r"\S|\Z")
_JOINS = str.maketrans("", "", "_-.: ")


def _signs(text: str) -> re.Pattern[str]:
    """Return what a mark of this text may begin with."""
    more = '"""' in text or "'''" in text or ":\n" in text or "：\n" in text
    return _MORE_SIGNS if more else _SIGNS


def _folded(name: str) -> str:
    return name.lower().translate(_JOINS)


def _skip_space(text: str, at: int) -> int:
    """Return the place of the next character that is no white space, at most a few further on."""
    found = _NO_SPACE.search(text, at, at + 200)
    return found.start() if found else at


def _asked_in_json(text: str) -> str | None:
    """Return what a message that is one JSON object names as the user's question, None without."""
    stripped = text.strip()
    if not (stripped.startswith("{") and stripped.endswith("}")):
        return None
    try:
        value = json.loads(stripped)
    except (ValueError, RecursionError):
        return None
    asked = [said for key, said in value.items() if isinstance(said, str) and _folded(key) in _OWN_KEYS]
    return "\n\n".join(asked) if asked else None


# `message`: Letta's, {"type": "user_message", "message": "…", "time": "…"}.
_OWN_KEYS = table.OWN_TAGS - {"task", "feedback", "answer", "instruction"} | {"message"}


# ---------------------------------------------------------------- delimiter lines
_END = re.compile(r"END|End|end")
_DECORATION = "-=*~_<>[]#(){}|:/ \t"
_LINE_CHARS = 160  # of a delimiter


def _without_delimited(text: str) -> tuple[str, bool]:
    """Return the text without what is between a decorated begin line and its end line."""
    pieces: list[str] = []
    at, looked = 0, 0
    for end in _END.finditer(text):
        if end.start() < at or (label := _label(text, end)) is None:
            continue
        looked += 1
        if looked > _MOST_DELIMITERS:
            break
        if (start := _opening(text, label, at, end.start())) is not None:
            pieces += text[at:start], "\n"
            at = _line_end(text, end.end())
    return ("".join(pieces) + text[at:], True) if pieces else (text, False)


def _label(text: str, end: re.Match[str]) -> str | None:
    """Return what ends, as the line says: "file" of "--- END OF FILE ---"."""
    start = max(text.rfind("\n", 0, end.start()) + 1, 0) if end.start() < 40 else end.start() - 40
    before = text[start : end.start()].rpartition("\n")[2]
    if not before.strip() or before.strip(_DECORATION) or before.lstrip()[0] == "#" or len(before) >= 40:
        return None
    line_end = text.find("\n", end.end(), end.end() + _LINE_CHARS)
    after = text[end.end() : line_end if line_end >= 0 else end.end() + _LINE_CHARS]
    if after[:1].isalnum() or (line_end < 0 and len(text) > end.end() + _LINE_CHARS):
        return None
    return after.strip(_DECORATION).lower().removeprefix("of ").removeprefix("the ") or None


def _opening(text: str, label: str, at: int, end: int) -> int | None:
    """Return where the decorated line begins that names what ends."""
    window = text[at:end].lower()
    found = window.find(label)
    for _ in range(_MOST_DELIMITERS):
        if found < 0:
            return None
        start = window.rfind("\n", 0, found) + 1
        line = window[start : _line_end(window, found)].strip()
        if len(line) <= _LINE_CHARS and line[:1] in "-=*~_<[" and line[-1:] in "-=*~_>]:":
            return at + start
        found = window.find(label, found + len(label))
    return None


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


_GAPS = re.compile(r"\n[ \t]*(?:\n[ \t]*)+\n")


def _tidied(text: str) -> str:
    return _GAPS.sub("\n\n", text).strip()


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


_MAIL_CHARS = 16_000  # from the beginning, in which a mail is looked for
_MAIL_LINE_CHARS = 160  # of the line above an answered mail


def may_hold_mail(text: str) -> bool:
    """False if a look shows that there is no mail and no chat export in the text."""
    return "\n" in text and (":" in text or "：" in text or "--" in text)


def without_mail(text: str) -> tuple[str, bool]:
    """Return the text up to a mail that was forwarded or pasted; of a text that begins with one, the question
    at its end."""
    start = _mail_in(text[:_MAIL_CHARS]) if may_hold_mail(text) else None
    if start is None:
        return text, False
    before = text[:start]
    if before.strip():
        return before, True
    last = text.rstrip().rpartition("\n\n")[2]
    return (last if last.rstrip().endswith(("?", "？", "؟")) else ""), True


def _mail_in(text: str) -> int | None:
    """Return where the headers of a mail begin, or the line that announces it."""
    at, headers, first, sender = 0, 0, 0, False
    for line in text.split("\n"):
        name, colon, _ = line.strip(" \t*").replace("：", ":").partition(":")
        name = name.strip(" *").lower()
        is_sender, is_other = name in table.MAIL_SENDER, name in table.MAIL_OTHER
        if colon and (is_sender or is_other):
            first, headers, sender = first if headers else at, headers + 1, sender or is_sender
            if headers >= 2 and sender:
                return first
        elif line.strip():
            headers, sender = 0, False
            if _announces(line):
                return at
        at += len(line) + 1
    return None


def _announces(line: str) -> bool:
    if _is_attribution(line):
        return True
    bare = line.strip().strip("-_=*> :").lower()
    return bare in table.FORWARDS and (line.strip()[:1] in "-_=*" or line.rstrip().endswith(":"))


# "On Fri, 27 Nov 2026 at 9:12, Ann Hill <ann@example.org> wrote:", in any language.
_ADDRESS = re.compile(r"\S@\S")
_TIME = re.compile(r"\d[:.h]\d\d")

# "[28.11.26, 09:12] Ann: Hello", "28/11/2026, 09:12 - Ann: Hello": a line of a chat export.
_SAID_LINE = re.compile(
    r"^[ \t]{0,4}\[?\d{1,4}[./-]\d{1,2}[./-]\d{1,4}[,T ]{1,2}\d{1,2}:\d\d(?::\d\d)?(?: ?[AaPp][Mm])?"
    r"(?:\] ?| - )[^:\n]{1,60}: [^\n]*(?:\n|\Z)",
    re.MULTILINE,
)
_SAID_LINES = 2  # and more are pasted


def _is_attribution(line: str) -> bool:
    """True for the line above the answered mail, which mail programs write."""
    line = line.strip()
    if len(line) > _MAIL_LINE_CHARS or not line.endswith((":", "：")) or not _ADDRESS.search(line):
        return False
    return "<" in line or bool(_TIME.search(line))


def without_chat(text: str) -> tuple[str, bool]:
    """Return the text without the messages of a chat export, from the first to the last."""
    if text.count("\n") < _SAID_LINES - 1:
        return text, False
    lines = list(_SAID_LINE.finditer(text))
    if len(lines) < _SAID_LINES:
        return text, False
    return text[: lines[0].start()] + "\n" + text[lines[-1].end() :], True
