"""Split a message that asks several questions: "What's my budget, and who is my dentist?"

The vector of two questions lies between both and near neither. Each is searched by itself, beside the whole,
and each gets its best memories in. Every part costs an embedding and a search of its own. (48
messages of two or three questions, answers among the first five and in the block: with the asker's own 40
memories .90 → .95 and .97 → .98, with 345 memories of many people .73 → .82 and .77 → .84.) The two things
that one question compares are taken apart as well (see `compared`).

Where the script has spaces, a question begins after a comma, a conjunction or a full stop, with a word that
asks. Chinese and Japanese ask anywhere in a clause: there a clause with an asking word is a question.
"""

import re
from collections.abc import Sequence

from proxy.chinese import simplified
from proxy.domain import Ranked
from proxy.overlap import is_content
from proxy.pipeline.decision.decide import worth_searching
from proxy.pipeline.recall.compared import ASKING, sides
from proxy.terms import terms

MAX_PARTS = 4
MAX_CHARS = 500  # a longer message is a story
HEADS = 3  # of each list, before the rest

_PRONOUN = re.compile(
    r"\b(?:it|its|they|them|their|one|he|she|him|her|er|sie|ihn|ihm|dort|dafür|davon)\b|[它他她]|那[里儿]"
)

_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff]")
_SENTENCE = re.compile(r"(?<=[?？!。！\n])|(?<=[.;；:：])\s")
_CLAUSE = re.compile(r"[,，;；:：、?？。!！\n]|(?:还有|另外|以及|顺便|それから|あと)[,，、]?")
_ASKS_UNSPACED = re.compile(
    r"什么|啥|哪|谁|多少|几|怎么|怎样|如何|为何|为什么|多久|多长|多大|是不是|有没有|吗$|呢$|没有?$"
    r"|何|誰|どこ|いつ|どう|なぜ|いくら|か$"
)
# What a question begins with. Prepositions stand before some: "auf welche Schule", "con quién".
_PREPOSITIONS = (
    r"(?:at|by|for|from|in|of|on|since|to|until|with|a|con|de|desde|en|hasta|para|por"
    r"|ab|an|auf|aus|bei|bis|für|mit|nach|seit|um|von|vor|zu|zum|à|avec|chez|depuis|pour|jusqu'à|sur)"
)
_ASKING = rf"(?:{ASKING}|est-ce|qu'est-ce|ce (?:qu[ei]|qu(?=')|dont))"
# With one of these the first clause asks.
_VERBS = (
    r"(?:do|does|did|is|are|am|was|were|can|could|may|must|should|will|would|have|has|had"
    r"|kann|darf|soll|sollte|muss|ist|sind|hat|habe|haben|war|wird|gibt|puis-je|dois-je|peut-on|ai-je|a-t-on)"
)
_OPENER = rf"(?:{_PREPOSITIONS} )?{_ASKING}(?!\w)"
_CONJUNCTION = r"(?:and|also|plus|as well as|und|sowie|außerdem|y|e|además|también|et|aussi|puis)"
_CUT = re.compile(
    rf"(?:\s*[,;:]\s*(?:{_CONJUNCTION}\s+(?:also\s+)?)?|\s+{_CONJUNCTION}\s+)(?=[¿¡]?{_OPENER})"
)
_LEAD = re.compile(rf"^[\W_]*(?:{_CONJUNCTION}\b[\s,]*)?(?:also\b[\s,]*)?")
_BEGINS = re.compile(rf"^[\W_]*(?:{_CONJUNCTION}\b[\s,]*)?(?:{_OPENER}|{_VERBS}\b)|^\W*¿")
# "Also, are we still selling the car?": a sentence with its mark asks, whatever it begins with.
_MARKED = re.compile(r"[?？]\W*$")
_REQUEST = re.compile(r"^\W*(?:please )?(?:remind|tell|dime|recuérdame|sage?|erinnere?|dis|rappelle)\b")

_MY = r"(?:my|our|mi|mis|nuestr[oa]s?|mein\w{0,2}|unser\w{0,2}|mon|ma|mes|notre|nos)"
_MINE = re.compile(rf"\b{_MY} (?:(?!(?:and|und|y|et|{_MY})\b)[\w'’-]+ ?){{1,5}}", re.IGNORECASE)
_AND_MINE = re.compile(rf"(?:,|,? (?:and|und|y|et))\s+(?={_MY} )", re.IGNORECASE)
_MINE_UNSPACED = re.compile(r"(我[^，,、和跟。?？]{2,12})[和跟、](我[^，,、和跟。?？]{2,})")


def questions_of(text: str) -> tuple[str, ...]:
    """Return the questions that the text asks, as they stand in it (Chinese in simplified signs), at most
    MAX_PARTS; () where it asks one thing, or none. Those that need no memory are left out."""
    if len(text) > MAX_CHARS:
        return ()
    text = simplified(text)
    if both := sides(text):
        return tuple(part for part in both if worth_searching(part))
    cut = _unspaced(text) if _UNSPACED.search(text) else _spaced(text)
    found = [part for part in dict.fromkeys(cut) if any(map(is_content, terms(part)))]
    if len(found) < 2:
        found = _things(text)
    if len(found) < 2:
        return ()
    asked = zip(["", *found], found[:MAX_PARTS], strict=False)
    return tuple(_clear(part, before) for before, part in asked if worth_searching(part))


def merged(whole: Sequence[Ranked], parts: Sequence[Sequence[Ranked]], limit: int) -> list[Ranked]:
    """Return the best three of the whole's, fewer where the limit would leave a part without a place, the
    best three of the parts' in turn, then the rest of the whole's: each memory once, and at most `limit`."""
    first = max(1, min(HEADS, limit - len(parts)))
    best = (one[place] for place in range(HEADS) for one in parts if place < len(one))
    taken: dict[str, Ranked] = {}
    for ranked in (*whole[:first], *best, *whole[first:]):
        taken.setdefault(ranked.memory.id, ranked)
    return list(taken.values())[:limit]


def _clear(part: str, before: str) -> str:
    """Return the part, after the one before it if it leans on that: "and what did we pay them?" """
    return f"{before}\n{part}" if before and _PRONOUN.search(part.lower()) else part


def _things(text: str) -> list[str]:
    """Return the things of the user's that one question asks for: "my budget and my departure date"."""
    if found := _MINE_UNSPACED.search(text):
        return [found[1], found[2]]
    return [m.group().strip() for m in _MINE.finditer(text)] if _AND_MINE.search(text) else []


def _spaced(text: str) -> list[str]:
    parts: list[str] = []
    for sentence in _SENTENCE.split(text):
        folded = _aligned(sentence)
        at = 0
        clauses = []
        for cut in _CUT.finditer(folded):
            clauses.append((sentence[at : cut.start()], folded[at : cut.start()]))
            at = cut.end()
        clauses.append((sentence[at:], folded[at:]))
        marked = bool(_MARKED.search(sentence))
        parts += [c.strip(" ,;") for c, f in clauses if _asks(f, marked and (c, f) == clauses[-1])]
    return [_LEAD.sub("", part) if part else part for part in parts]


def _asks(folded: str, marked: bool) -> bool:
    return bool(_BEGINS.search(folded) or marked or _REQUEST.search(folded))


def _aligned(text: str) -> str:
    """Return the text in lower case, sign by sign, so that places in it are places in the text."""
    low = text.lower()
    if len(low) != len(text):  # "İ" becomes two
        low = "".join(low if len(low := c.lower()) == 1 else c for c in text)
    return low.replace("’", "'")


def _unspaced(text: str) -> list[str]:
    """Return the clauses that ask, with what was said before them since the last one that asked."""
    parts: list[str] = []
    lead = ""
    for clause in _CLAUSE.split(text):
        said = f"{lead},{clause}" if lead else clause
        if _ASKS_UNSPACED.search(clause.strip()):
            parts.append(said.strip())
            lead = ""
        else:
            lead = said.strip(" ,")
    return parts
