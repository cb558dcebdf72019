"""Separate the user's own words from what surrounds them in a message, by structure, in every language alike.

What is left out:

- paired tags of any name but HTML's inline ones (`<source id="1">…</source>`, `[CONTEXT]…[/CONTEXT]`), and
  such tags alone on a line that are never closed, or never opened;
- pairs of delimiter lines (`--- BEGIN FILE ---` … `--- END FILE ---`);
- fenced blocks, quoted lines, triple quotes, what a colon and a ruled line announce, JSON objects, pasted
  pages, forwarded and answered mails, chat exports.

A tag that holds the user's own words (`<user_query>`) is opened, and what is outside of it is the client's.
It is opened only outside of any other tag: a page that was retrieved cannot speak for the user.

Every step is linear in the length of the text. Where a text has more marks than a person would type, what
follows them is taken for context.
"""

import json
import re
import tomllib
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

TABLE: dict[str, Any] = tomllib.loads((resources.files(__package__) / "client_templates.toml").read_text())
"""How clients wrap what a user typed."""

_TAGS = {name: frozenset(names) for name, names in TABLE["tags"].items()}
PHRASING, OWN_TAGS, REPLIES = _TAGS["phrasing"], _TAGS["own"], _TAGS["replies"]
_RICH_TEXT, _COMMON, _FRAMES, _WRAPPERS = (_TAGS[n] for n in ("rich_text", "common", "frames", "wrappers"))

_MAX_MARKS = 4_000  # of one text
_MAX_SIGNS = 20_000  # that may open a mark
_MAX_MISSES = 64  # searches to the end of the text that found nothing
_MAX_DEPTH = 3  # of tags for the user's words inside one another


@dataclass(frozen=True, slots=True)
class Authorship:
    """The user's own words in a message, and what kind of text was taken out of it."""

    typed: str
    pasted: bool = False  # something that people paste: a fence, quoted lines, JSON, a page, a mail
    wrapped: bool = False  # something that only clients write: tags, a template

    @property
    def is_clients(self) -> bool:
        """True if a client wrote the whole message."""
        return self.wrapped and not self.pasted and not self.typed


def unwrapped(text: str, depth: int = _MAX_DEPTH) -> Authorship:
    """Return the user's words; `text` itself if nothing was put around them."""
    if (asked := _asked_in_json(text)) is not None:
        return Authorship(asked, wrapped=True)
    # Up to what a client adds after the user's words.
    starts = [found for addition in TABLE["additions"]["appended"] if (found := text.find(addition)) >= 0]
    starts = [found for found in starts if not found or text[found - 1] == "\n"]
    inner, bounded = _without_delimited(text[: min(starts, default=len(text))])
    scan = _Scan(inner, depth)
    scan.run()
    typed, mailed = _without_mail(scan.typed())
    exported = list(_SAID_LINE.finditer(typed)) if "\n" in typed else []
    if chatted := len(exported) >= _MIN_SAID_LINES:  # a chat export, from its first message to its last
        typed = typed[: exported[0].start()] + "\n" + typed[exported[-1].end() :]
    pasted, wrapped = scan.pasted or mailed or chatted, scan.wrapped or bounded or bool(starts)
    return Authorship(_tidied(typed), pasted, wrapped) if pasted or wrapped else Authorship(text)


def replies_in(text: str) -> str:
    """Return what the user replied in a message that a client wrote for its tools."""
    scan = _Scan(text, _MAX_DEPTH, own=REPLIES, wrapped=True)
    scan.run()
    return _tidied("\n\n".join(scan.owned))


def _asked_in_json(text: str) -> str | None:
    """Return what a message that is one JSON object names as the user's question."""
    stripped = text.strip()
    if not (stripped.startswith("{") and stripped.endswith("}")):
        return None
    try:
        value = json.loads(stripped)
    except (ValueError, RecursionError):
        return None
    asked = [said for key, said in value.items() if isinstance(said, str) and folded(key) in _OWN_KEYS]
    return "\n\n".join(asked) if asked else None


# `message`: Letta's, {"type": "user_message", "message": "…", "time": "…"}.
_OWN_KEYS = OWN_TAGS - {"task", "feedback", "answer", "instruction"} | {"message"}
_JOINS = str.maketrans("", "", "_-.: ")


def folded(name: str) -> str:
    """Return the name of a tag without case and marks between words."""
    return name.lower().translate(_JOINS)


# ---------------------------------------------------------------- marks
SIGNS = re.compile(r"[<>\[{`~]")  # a mark begins with one; a set alone is searched for fastest
# Quotation marks and ruled lines are searched for only if there are any.
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
_DECODER = json.JSONDecoder()
_COMMENT_ENDS = "<!-- END "
_IN_JSON = {"{": ('"', "}"), "[": ("{", "[", '"')}
_CLOSES = {"{": "}", "[": "]"}
_SEVERAL = re.compile(r"\w[_.:-]\w")
_CONTINUES = re.compile(r"[\w.:-]")
_NO_SPACE = re.compile(r"\S|\Z")
_GAPS = re.compile(r"\n[ \t]*(?:\n[ \t]*)+\n")


@dataclass(slots=True)
class _Scan:
    """One pass over a text, from mark to mark. What is left out is never looked into."""

    text: str
    depth: int
    own: frozenset[str] = OWN_TAGS
    at: int = 0
    pieces: list[str] = field(default_factory=list)  # of the user's
    owned: list[str] = field(default_factory=list)  # what tags for the user's words hold
    rich: list[str] = field(default_factory=list)  # what HTML paragraphs hold
    pasted: bool = False
    wrapped: bool = False
    misses: int = 0
    unclosed: set[str] = field(default_factory=set)  # closings that do not come any more
    json_left: int = 0  # characters that may be parsed without a result

    def run(self) -> None:
        """Read the text to its end."""
        self.json_left = 4 * len(self.text) + 1_000
        more = any(sign in self.text for sign in ('"""', "'''", ":\n", "：\n"))
        signs = _MORE_SIGNS if more else SIGNS
        looked, seen, sign = 0, 0, signs.search(self.text)
        while sign is not None:
            start, end, looked = sign.start(), None, looked + 1
            if (mark := _MARKS.match(self.text, start)) is not None:
                seen += 1
                end = self._read(mark)
            if seen > _MAX_MARKS or looked > _MAX_SIGNS or self.misses > _MAX_MISSES:
                self._leave_out(max(start, self.at), len(self.text), pasted=True)
                break
            sign = signs.search(self.text, start + 1 if end is None else max(end, start + 1))
        self.pieces.append(self.text[self.at :])

    def typed(self) -> str:
        """Return what is the user's."""
        if self.owned:
            self.wrapped = True
            return "\n\n".join(self.owned)
        typed = "".join(self.pieces)
        if self.rich and not typed.strip():
            return "\n".join(self.rich)
        self.pasted = self.pasted or bool(self.rich)
        return typed

    def _read(self, mark: re.Match[str]) -> int | None:
        """Return where to continue after what the mark opens, None if it opens nothing."""
        if mark["tag"]:
            return self._stray(mark) if mark["close"] else self._tag(mark)
        start, after = mark.start(), mark.end()
        if mark["bracket"]:
            name = mark["bracket"]
            end = None if mark["shut"] else self._closing(f"[{name}", f"[/{name}", after)
            if end is None:
                return None
            end = self.text.find("]", end) + 1 or len(self.text)
            return self._leave_out(start, end, pasted=name.lower() in ("quote", "code"))
        if mark["fence"]:
            return self._fence(mark) if self._begins_line(start) else None
        if mark["cited"]:  # up to the same marks
            closing = ">>>" if mark["cited"] == "<<<" else mark["cited"]
            found = self._find(closing, after)
            return None if found is None else self._leave_out(start, found + len(closing), pasted=True)
        if mark["rule"]:  # what a colon announces: up to the next ruled line, else all of it
            end = self.text.find("\n" + mark["sign"] * 3, after)
            end = len(self.text) if end < 0 else _line_end(self.text, end + 1)
            return self._leave_out(start + 1, end, pasted=True)
        if mark["quote"]:
            following = self.text[after : after + 1]
            begins = following.isalnum() or following in " \t>\n\"'“«"
            if not begins or not self._begins_line(start, indent=3):
                return None
            return self._leave_out(start, _line_end(self.text, start), pasted=True)
        return self._json(start) if mark["json"] else self._comment(start)

    def _leave_out(self, start: int, end: int, *, pasted: bool) -> int:
        before = self.text[self.at : start]
        if pasted and (bare := before.rstrip()).endswith((":", "：")):
            before = bare[:-1]  # without its text, it would announce what the user says next
        self.pieces += before, "\n"
        self.at = end
        self.pasted, self.wrapped = self.pasted or pasted, self.wrapped or not pasted
        return end

    def _find(self, closing: str, at: int) -> int | None:
        """Return the next place of the closing mark, or tag. A search that found nothing is not repeated."""
        if closing in self.unclosed:
            return None
        found = self._find_name(closing, at) if closing[1:2] == "/" else self.text.find(closing, at)
        if found is None or found < 0:
            self.unclosed.add(closing)
            self.misses += 1
            return None
        return found

    # ------------------------------------------------------------ tags
    def _tag(self, mark: re.Match[str]) -> int | None:
        name, start = mark["tag"], mark.start()
        lowered = name.lower()
        if lowered in PHRASING:
            return None
        if mark.group().endswith("/>"):
            return None if lowered in _RICH_TEXT else self._leave_out(start, mark.end(), pasted=False)
        end = self._closing(f"<{name}", f"</{name}", mark.end())
        if end is None:
            return self._unclosed_tag(mark)
        after = self.text.find(">", end) + 1 or len(self.text)
        inner = self.text[mark.end() : end]
        is_frame = folded(name) in _FRAMES and not (self.text[:start].strip() or self.text[after:].strip())
        if self.depth and (folded(name) in self.own or is_frame):
            return self._own(folded(name), inner, start, after)
        if lowered in _RICH_TEXT:
            self.rich.append(unwrapped(inner, self.depth - 1).typed if self.depth else inner)
            self.pieces.append(self.text[self.at : start])
            self.at = after
            return after
        return self._leave_out(start, after, pasted=lowered in _PAGE)

    def _own(self, name: str, inner: str, start: int, after: int) -> int:
        """Take the words in a tag for the user's: nothing else is, if the tag has lines to itself. A tag of a
        common name may be in what the user wrote: then all is the user's."""
        said = unwrapped(inner, self.depth - 1)
        self.pasted = self.pasted or said.pasted
        has_words = bool(self.text[self.at : start].strip()) or any(piece.strip() for piece in self.pieces)
        if self._begins_line(start) and not (name in _COMMON and not self.wrapped and has_words):
            self.owned.append(said.typed.strip())
            return self._leave_out(start, after, pasted=False)
        self.pieces.append(f"{self.text[self.at : start]} {said.typed.strip()} ")
        self.at, self.wrapped = after, True
        return after

    def _unclosed_tag(self, mark: re.Match[str]) -> int | None:
        """Leave out all after a tag that is not closed, if it opens a wrapper and is not a placeholder."""
        text, start, end = self.text, mark.start(), mark.end()
        if not self._begins_line(start) or not text[end:].strip():
            return None
        several = bool(_SEVERAL.search(mark["tag"]))
        known = several or mark["more"] or folded(mark["tag"]) in _WRAPPERS
        alone = text[end : end + 1] in ("\n", "\r", "")
        glued = several and not text[end : end + 1].isspace()
        if not known or not (alone or glued or mark["more"]):
            return None
        following = _MARKS.match(text, _skip_space(text, end))
        if following is not None and following["tag"] and not following["close"]:
            return None  # one of several placeholders
        return self._leave_out(start, len(text), pasted=False)

    def _stray(self, mark: re.Match[str]) -> int | None:
        """Leave out all before a closing tag that nothing opened: the client cut its wrapping."""
        if not (folded(mark["tag"]) in _WRAPPERS or _SEVERAL.search(mark["tag"])):
            return None
        if self.text[mark.end() : mark.end() + 1] not in ("\n", "\r", "") or self.owned:
            return None
        self.pieces.clear()
        self.at, self.wrapped = mark.end(), True
        return mark.end()

    def _closing(self, opening: str, closing: str, at: int) -> int | None:
        """Return where the closing tag begins that belongs to a tag opened before `at`, or the last one."""
        level, last = 1, None
        if (found := self._find(closing, at)) is None:
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
        while (found := self.text.find(opening, at)) >= 0:
            at = found + len(opening)
            if not _CONTINUES.match(self.text, at):
                return found
        return None

    # ------------------------------------------------------------ what people paste
    def _fence(self, mark: re.Match[str]) -> int:
        fence, at = mark["fence"], mark.end()
        while (found := self.text.find(fence, at)) >= 0:
            if self._begins_line(found):
                return self._leave_out(mark.start(), _line_end(self.text, found), pasted=True)
            at = found + len(fence)
        return self._leave_out(mark.start(), len(self.text), pasted=True)

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
        line = text[start:end].strip()
        if len(line) > 1:
            whole = line.endswith(("}", "]")) and ":" in line and line[1:].lstrip()[:1] in "'{["
            return self._leave_out(start, end, pasted=True) if whole else None
        found = self._find("\n" + _CLOSES[text[start]], end)
        return None if found is None else self._leave_out(start, _line_end(text, found + 1), pasted=True)

    def _comment(self, start: int) -> int:
        """Leave out a comment, or all from one to the comment that says that it ends."""
        text = self.text
        end = text.find("-->", start)
        if end < 0:
            return self._leave_out(start, len(text), pasted=True)
        if (closing := self._find(_COMMENT_ENDS, end)) is not None:
            shut = text.find("-->", closing)
            named = text[closing + len(_COMMENT_ENDS) : shut].strip().lower()
            if named and shut > 0 and named in text[start + 4 : end].lower():
                return self._leave_out(start, shut + 3, pasted=False)
        return self._leave_out(start, end + 3, pasted=False)

    def _begins_line(self, at: int, *, indent: int = 12) -> bool:
        """True if only white space, or the end of another tag, precedes the place in its line."""
        before = self.text[max(0, at - indent) : at].rstrip(" \t")
        if not before:
            return at <= indent or self.text[at - indent - 1] == "\n"
        return before[-1] == "\n" or (before[-1] == ">" and self.at >= at - indent)


def _skip_space(text: str, at: int) -> int:
    """Return the place of the next character that is not white space, at most a few further on."""
    found = _NO_SPACE.search(text, at, at + 200)
    return found.start() if found else at


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _tidied(text: str) -> str:
    return _GAPS.sub("\n\n", text).strip()


# ---------------------------------------------------------------- delimiter lines
_MAX_DELIMITERS = 50
_MAX_LINE_CHARS = 160  # of a delimiter, and of the line above an answered mail
_END = re.compile(r"END|End|end")
_DECORATION = "-=*~_<>[]#(){}|:/ \t"


def _without_delimited(text: str) -> tuple[str, bool]:
    """Return the text without what is between a decorated begin line and its end line."""
    pieces: list[str] = []
    at, looked = 0, 0
    for end in _END.finditer(text):
        if end.start() < at or (label := _label(text, end)) is None:
            continue
        looked += 1
        if looked > _MAX_DELIMITERS:
            break
        if (start := _opening(text, label, at, end.start())) is not None:
            pieces += text[at:start], "\n"
            at = _line_end(text, end.end())
    return ("".join(pieces) + text[at:], True) if pieces else (text, False)


def _label(text: str, end: re.Match[str]) -> str | None:
    """Return what ends, as the line says: "file" of "--- END OF FILE ---"."""
    before = text[max(0, end.start() - 40) : end.start()].rpartition("\n")[2]
    if not before.strip() or before.strip(_DECORATION) or before.lstrip()[0] == "#" or len(before) >= 40:
        return None
    line_end = text.find("\n", end.end(), end.end() + _MAX_LINE_CHARS)
    after = text[end.end() : line_end if line_end >= 0 else end.end() + _MAX_LINE_CHARS]
    if after[:1].isalnum() or (line_end < 0 and len(text) > end.end() + _MAX_LINE_CHARS):
        return None
    return after.strip(_DECORATION).lower().removeprefix("of ").removeprefix("the ") or None


def _opening(text: str, label: str, at: int, end: int) -> int | None:
    """Return where the decorated line begins that names what ends."""
    window = text[at:end].lower()
    found = window.find(label)
    for _ in range(_MAX_DELIMITERS):
        if found < 0:
            return None
        start = window.rfind("\n", 0, found) + 1
        line = window[start : _line_end(window, found)].strip()
        if len(line) <= _MAX_LINE_CHARS and line[:1] in "-=*~_<[" and line[-1:] in "-=*~_>]:":
            return at + start
        found = window.find(label, found + len(label))
    return None


# ---------------------------------------------------------------- mails and chat exports
_MAIL = {name: tuple(words) for name, words in TABLE["mail"].items()}
_MAIL_CHARS = 16_000  # from the beginning, in which a mail is looked for
_ADDRESS = re.compile(r"\S@\S")
_TIME = re.compile(r"\d[:.h]\d\d")
# "[28.11.26, 09:12] Ann: Hello", "28/11/2026, 09:12 - Ann: Hello": a line of a chat export.
_SAID_LINE = re.compile(
    r"^[ \t]{0,4}\[?\d{1,4}[./-]\d{1,2}[./-]\d{1,4}[,T ]{1,2}\d{1,2}:\d\d(?::\d\d)?(?: ?[AaPp][Mm])?"
    r"(?:\] ?| - )[^:\n]{1,60}: [^\n]*(?:\n|\Z)",
    re.MULTILINE,
)
_MIN_SAID_LINES = 2  # such lines that are taken for an export


def _without_mail(text: str) -> tuple[str, bool]:
    """Return the text up to a mail that was forwarded or pasted; of a text that begins with one, the question
    at its end."""
    may_hold_one = "\n" in text and (":" in text or "：" in text or "--" in text)
    start = _mail_in(text[:_MAIL_CHARS]) if may_hold_one else None
    if start is None:
        return text, False
    if text[:start].strip():
        return text[:start], True
    last = text.rstrip().rpartition("\n\n")[2]
    return (last if last.rstrip().endswith(("?", "？", "؟")) else ""), True


def _mail_in(text: str) -> int | None:
    """Return where the headers of a mail begin, or the line that announces it."""
    at, headers, first, sender = 0, 0, 0, False
    for line in text.split("\n"):
        name, colon, _ = line.strip(" \t*").replace("：", ":").partition(":")
        name = name.strip(" *").lower()
        is_sender = name in _MAIL["sender"]
        if colon and (is_sender or name in _MAIL["other"]):
            first, headers, sender = first if headers else at, headers + 1, sender or is_sender
            if headers >= 2 and sender:
                return first
        elif line.strip():
            headers, sender = 0, False
            if _announces(line.strip()):
                return at
        at += len(line) + 1
    return None


def _announces(line: str) -> bool:
    """True for the line above an answered mail ("On Fri, 27 Nov 2026 at 9:12, Ann <ann@example.org> wrote:",
    in any language), or above a forwarded one."""
    if len(line) <= _MAX_LINE_CHARS and line.endswith((":", "：")) and _ADDRESS.search(line):
        return "<" in line or bool(_TIME.search(line))
    bare = line.strip("-_=*> :").lower()
    return bare in _MAIL["forwarded"] and (line[:1] in "-_=*" or line.endswith(":"))
