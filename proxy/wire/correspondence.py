"""Find mails and chat exports that a user pasted into a message: what they say is other people's."""

import re

from proxy.wire import templates as table

_MAIL_CHARS = 16_000  # from the beginning, in which a mail is looked for
_LINE_CHARS = 160  # of the line above an answered mail


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
    if len(line) > _LINE_CHARS or not line.endswith((":", "：")) or not _ADDRESS.search(line):
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
