"""Which of the user's own sentences are worth keeping as they stand, without a model that understands them.

Asked where nobody has judged before: in `verbatim` mode, and of an extraction model that copies sentences
instead of stating facts. Kept are assertions in the first person, rules, numbered steps, and assertions
about the user's world that name something; not questions, requests, reactions, fiction, passing states,
other people's private matters, nor anything pasted or quoted.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from proxy.background.extraction import cues
from proxy.background.extraction.framed import is_passing
from proxy.background.extraction.provenance import told
from proxy.background.safety.planted import REMOVED
from proxy.terms import fold, plain, terms

MAX_CHARACTERS, _MAX_STEPS, _MIN_CHARACTERS = 500, 1_000, 6
_TELLING_TERMS = 5  # so many words say something even if they name nobody
_CJK_TERMS = 9  # characters and pairs of them count

_LEAD_IN = re.compile(
    r"^\s*(?:(?:ok(?:ay)?|please|also|and|so|hi|hello|hey|btw|by the way|fyi)[,:\s]+)*"
    r"(?:(?:remember|note|keep in mind|bear in mind|don'?t forget|do not forget|memori[sz]e)(?: that)?[:,\s]+"
    r"|请?(?:帮我)?(?:记住|记得|记一下)[:,\uff1a\uff0c\s]*"
    r"|(?:recuerda|ten en cuenta|no (?:te )?olvides)(?: que)?[:,\s]+|merk(?:e)? dir[:,\s]+(?:dass )?"
    r"|(?:souviens-toi|n'oublie pas|retiens)(?: que)?[:,\s]+)?",
    re.IGNORECASE,
)
_STEP = re.compile(r"\s*(?:\d{1,2}[.):\uff09、]|[-*•]|[①-⑳])\s*(?=\S)")
_INLINE_STEPS = re.compile(
    r"(?:^|[\s:\uff1a;,])\(?1[.)\uff09].{3,400}?[\s;,\uff0c\uff1b]\(?2[.)\uff09]", re.DOTALL
)
# Something a stranger could not have said: a number, a name inside the sentence, an identifier.
_NAMES = re.compile(
    r"\d|(?<=[^\W\d_][\s,(])[A-Z\u00c0-\u00de][\w'-]+|(?<![a-z])[a-z]++[-_./][\w./-]+\w|`[^`]+`|[A-Z]{2,}"
)
_LEANS = re.compile(  # on the sentence before it: who, what?
    r"^\W*(?:(?:and|but|also|so)\s+)?(?:(?:he|she|they|it|both)(?:'s|'re|'ll|'d)?|her|his|their|its"
    r"|(?:this|that|these|those)(?:'s| is| are| was| were| means)|ella|ellos|ellas|eso|esto|es|er|sie|dies"
    r"|elle|ils|elles|ca|c'est)\b"
    r"|^\W*(?:他|她|它|他们|她们|这|那)(?!么|样的?话|边)",
)
_FIRST = re.compile(r"^\W*(?:(?:and|but|also|so|well)[, ]+)?(?:i|we|ich|wir|je|nous)\b")
_PASSING_PLAN = re.compile(
    r"^\W*(?:(?:ok|then|and|so)[, ]+)?(?:i'll|i will|we'll|let me|ich werde|ahora|voy a|je vais)\b"
    r"|^\W*(?:那|好)?[,，]?我?(?:回头|去(?:提|看|问|查|试)|待会|一会|等会|稍后|先(?:下|去|走))"
)
# Asks for something now, wherever in the sentence; and what makes a rule of it.
_REQUEST = re.compile(
    r"\b(?:please|i need you to|i want you to|explain like|can you|could you|would you|por favor|bitte"
    r"|kannst du|konntest du|s'il (?:te|vous) plait|peux-tu|per favore)\b|(?:^"
    r"|[,;\s\uff0c\u3002、请能])帮我|给我(?:列|写|做|讲|来|看)"
    r"|科普|看看|看下|看眼|麻烦你|发我"
    r"|ください|해 ?줘|주세요|пожалуйста"
)
_RULE = re.compile(
    r"\b(?:always|never|every time|whenever|when i (?:ask|say|write)|must|no \w+ (?:ever|please)|siempre"
    r"|nunca|immer|nie"
    r"|niemals|toujours|jamais|sempre|mai)\b|一律|永远|每次|必须|总是|不要|别|必ず|いつも|항상|всегда|никогда"
)
_LABELLED = re.compile(r"\W*[^\W\d_][\w /&'.-]{1,30}[:\uff1a]\s*\S")
_PREFIX = re.compile(r"^[^,.:;!?\uff1a]{1,24}[:\uff1a,]\s+")


@dataclass(frozen=True, slots=True)
class Statement:
    """Own words worth keeping. `steps`: a procedure, in order."""

    text: str
    content: str  # without the ask to remember
    explicit: bool = False
    hedged: bool = False
    steps: bool = False


def statements(said: str) -> list[Statement]:
    """Return the statements of a (cleaned) user's text that are worth keeping, in order."""
    own = _without_forms(told(said))
    procedures = list(_procedures(own))
    found: list[Statement] = []
    for paragraph in cues.paragraphs(own):
        before = ""
        real = cues.meant(paragraph)
        for sentence in real:
            holder = next((p for p in procedures if sentence in p.text), None)
            if holder is not None:
                found += [holder] if holder not in found else []
            else:
                found += _kept(sentence, before)
            before = sentence
    return found


def _without_forms(text: str) -> str:
    """Return the text without runs of "label: value" lines: pasted forms, headers, settings."""
    kept: list[str] = []
    for is_labelled, group in groupby(text.split("\n"), key=lambda line: bool(_LABELLED.match(line))):
        block = list(group)
        kept += [""] if is_labelled and len(block) > 1 else block
    return "\n".join(kept)


def _kept(sentence: str, before: str) -> Iterator[Statement]:
    """Yield what the sentence says that is worth keeping. What leans on the sentence before is kept with it:
    alone nobody could tell whom or what it is about."""
    is_question = cues.asks(sentence)
    for part in cues.asserted(sentence):
        if is_question and not cues.speaks_of_self(part):
            continue  # "Threads run in parallel, right?" asks about the world
        explicit = cues.is_explicit(part)
        text = part
        if _LEANS.search(plain(part)):
            if not _is_fit(part) or not before or not _is_worth(before):
                continue
            text = f"{before} {part}"
        elif not explicit and not _is_worth(part):
            continue
        content = _LEAD_IN.sub("", text, count=1).strip()
        if _fits(content):
            yield Statement(text, content[0].upper() + content[1:], explicit, cues.is_hedged(part))


def _is_fit(sentence: str) -> bool:
    """True for an assertion that nothing forbids to keep: no request, no question, nothing that passes."""
    folded = plain(sentence)
    if (cues.commands(sentence) or _REQUEST.search(folded)) and not _RULE.search(folded):
        return False
    if sentence.endswith((":", "\uff1a")) or REMOVED in sentence or cues.asks(_PREFIX.sub("", sentence)):
        return False
    return not (is_passing(sentence) or cues.is_fleeting(sentence) or cues.is_confidential(sentence))


def _is_worth(sentence: str) -> bool:
    if not _is_fit(sentence):
        return False
    folded, words = plain(sentence), set(terms(sentence))
    enough = _CJK_TERMS if _is_cjk(sentence) else _TELLING_TERMS
    names = bool(_NAMES.search(sentence))
    if _PASSING_PLAN.search(folded):
        return names and len(words) >= enough
    if cues.is_chatter(sentence):
        by_self = cues.speaks_of_self(sentence) and (len(words) > enough // 2 or _says_more(sentence))
        return by_self or (names and len(words) >= enough)
    if cues.speaks_of_self(sentence):
        return True
    said_by_self = names or (_FIRST.search(folded) and not cues.declines(sentence))
    return len(words) >= enough or bool(len(words) >= enough // 2 and said_by_self)


def _says_more(sentence: str) -> bool:
    """True if the user speaks of themselves after the word of reaction: "No, I'm vegan"."""
    rest = _PREFIX.sub("", sentence)
    return rest != sentence and cues.speaks_of_self(rest)


def _is_cjk(text: str) -> bool:
    return any("\u3040" <= c <= "\u9fff" or "\uac00" <= c <= "\ud7af" for c in text)


def _fits(content: str) -> bool:
    shortest = _MIN_CHARACTERS - 2 * (not content.isascii())
    return shortest <= len(content) <= MAX_CHARACTERS


def _procedures(own: str) -> Iterator[Statement]:
    """Yield the numbered lists of steps with the line that introduces them."""
    lines = own.splitlines()
    at = 0
    for is_step, group in groupby(lines, key=lambda line: bool(_STEP.match(line))):
        block = list(group)
        numbered = is_step and len(block) >= 2 and any(c.isdigit() for c in _marker(block[0]))
        intro = lines[at - 1].strip() if at else ""
        at += len(block)
        for line in () if is_step else block:
            if _INLINE_STEPS.search(line) and _fits_steps(line):
                yield Statement(line.strip(), line.strip(), steps=True)
        if not (numbered or (is_step and len(block) >= 3 and _introduces_steps(intro))):
            continue
        text = "\n".join([intro, *block] if intro.endswith((":", "\uff1a")) else block)
        if _fits_steps(text):
            yield Statement(text, text, steps=True)


def _marker(line: str) -> str:
    found = _STEP.match(line)
    return found.group() if found else ""


def _introduces_steps(line: str) -> bool:
    return bool(
        re.search(r"\bhow\b|\bsteps?\b|procedure|process|步骤|流程|pasos|schritte|ablauf|etapes", fold(line))
    )


def _fits_steps(text: str) -> bool:
    return len(text) <= _MAX_STEPS and REMOVED not in text
