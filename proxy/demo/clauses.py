"""Split what a user wrote into sentences, and sentences into clauses that can be judged one by one."""

import re
from collections.abc import Iterator

from proxy.text.sentences import pieces

_NOT_SAID = re.compile(r"```.*?(?:```|\Z)|^[ \t]*>.*$|^(?: {4}|\t).*$", re.DOTALL | re.MULTILINE)
_SEMICOLON = re.compile("(?<=；)")

_FIRST = r"(?:i|i['’]m|im|i['’]ve|ive|i['’]d|i['’]ll|we|we['’]re|we['’]ve|we['’]d|we['’]ll)\b"
_LINKING = (
    r"(?:is|are|was|were|has|have|had|will|can|needs?|wants?|likes?|loves?|hates?|turns?|lives?|works?"
    r"|goes|starts?|leaves|ends)"
)
_POSSESSED = rf"(?:my|our)\b[^,;]{{1,60}}?\s{_LINKING}\b"
_VERB = (
    "(?:live|work|have|like|love|prefer|hate|enjoy|play|use|drive|ride|run|eat|drink|speak|study|teach|want"
    "|need|own|am|collect|write|sing|dance|cook|bike|swim|moved|got|bought|started|joined|switched|adopted)"
)
_ASKING = (
    r"(?:what|what['’]s|which|where|where['’]s|how|who|who['’]s|whose|why|can|could|would|should|do|does"
    r"|did|is|are|will|any|tell me|please (?:tell|help|give|suggest|recommend)"
    r"|when (?:do|does|is|are|did|will|should|can))\b"
)
_BREAK = re.compile(
    rf"\s*;\s+|\s+[-–—]+\s+(?={_FIRST}|{_POSSESSED}|{_ASKING})"
    rf"|,?\s+(?:and|but|so|plus|because|since|also)\s+(?:also\s+)?(?={_FIRST}|{_POSSESSED})"
    r"|,?\s+(?:and|but|so)\s+(?=(?:please\s+)?call me\b)"
    rf"|,\s+(?={_FIRST}|{_POSSESSED}|please\b|call me\b)"
    rf"|,\s+(?:and\s+|so\s+|but\s+)?(?={_ASKING})"
    rf"|,?\s+(?:and|but)\s+(?={_VERB}\s+\w)"
    r"|[，,]\s*(?=我|以后|所以我|但是?我|而且我|另外我)",
    re.IGNORECASE,
)
# Such a beginning belongs to what follows it: "For dinner, I …", "When I deploy, I …", "If I had …, what …".
_LEADS_ON = re.compile(
    r"(?:if|when|whenever|while|before|after|until|unless|for|on|in|at|during|from|with|as|last|next|every"
    r"|this|these|right|currently|today|tomorrow|yesterday|usually|normally|sometimes|in general|generally"
    r"|whenever|most|to)\b(?!.*\b(?:is|are|was)\b)",
    re.IGNORECASE,
)
# "My wife", before "and I": one subject together.
_PAIR = re.compile(rf"(?:my|our)(?: (?!{_LINKING}\b)[\w-]+){{1,3}}", re.IGNORECASE)


def spoken(text: str) -> str:
    """Return the text without what is pasted rather than said: code, quotes, indented blocks."""
    return _NOT_SAID.sub("\n", text)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences with their closing mark, each a verbatim part of the text."""
    for piece in pieces(text):
        yield from filter(None, map(str.strip, _SEMICOLON.split(piece)))


def clauses(sentence: str) -> list[str]:
    """Return the clauses that say something of their own; only the last keeps a question mark.

    A clause that had no subject is given the one before: "I live in Rome and work at Acme".
    """
    found: list[str] = []
    start = 0
    for match in _BREAK.finditer(sentence):
        part = sentence[start : match.start()]
        if not part.strip() or _LEADS_ON.match(part.strip()) or _PAIR.fullmatch(part.strip()):
            continue
        found.append(_with_subject(part.strip(), found))
        start = match.end()
    found.append(_with_subject(sentence[start:].strip(), found))
    return found


def _with_subject(clause: str, before: list[str]) -> str:
    headless = re.match(rf"{_VERB}\s+\w", clause, re.IGNORECASE)
    if headless and before and re.search(r"\b(?:i|we)(?:['’]|\b)", before[-1], re.IGNORECASE):
        return "I " + clause
    return clause
