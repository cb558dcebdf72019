"""Recognise a message that brings along everything it asks about ("Put these in capitals: …", "anagram of
"listen""), which needs no memory.

An order that points at what follows it ("this", 下面这句) is about that text, whatever its verb is; so is a
short order that names an operation on texts. The text that follows stands in quotes, behind a colon, an
arrow or a line break, or is a row of numbers. The rule does not cover what depends on who asks: to answer a
letter, to check a plan, to save a number (`words/brought.txt`, [life]); nor a message that names a person,
or a thing that both sides know.
"""

import re

from proxy.pipeline.decision.facts import names_known_thing
from proxy.pipeline.decision.own import is_personal
from proxy.pipeline.decision.payload import asks, is_agreed, is_quoted, split_payload
from proxy.pipeline.decision.world import names_stranger
from proxy.pipeline.roles import names_their_thing, of_somebody
from proxy.terms import plain
from proxy.wordlists import any_of, whole_words, words
from proxy.writing_systems import HAN

_KNOWN_NAMES = words("world", "known names")
_LONGEST = 110  # characters of an order; a longer one tells a story
_FEW = 9  # words of an order that points at nothing
_SHORT = 40  # characters of a sentence that is only an order
_LEAST = 3  # characters that may follow

_POINTS, _LIFE = (re.compile(whole_words("brought", name)) for name in ("points", "life"))
_WORKS = re.compile(whole_words("brought", "works"))
_WORKS_ON_IT = re.compile(whole_words("brought", "works on what is pointed at"))
_ASKS_OF_IT = re.compile(whole_words("brought", "asks of a quotation"))
_ASKS_OF_CODE = re.compile(whole_words("brought", "asks of code"))
_WITH_NUMBERS = re.compile(whole_words("brought", "numbers"))
_TEXT = re.compile(rf"\b{any_of('brought', 'text')}\b")
_OF_THE_TEXT = re.compile(
    rf"\b(?:the|el|la|los|las|del|al|der|die|das|den|dem|im|am|vom|zum|ins|le|les|l'|du|des|aux?) ?"
    rf"(?:\w{{1,15}} )?{any_of('brought', 'text')}\b"
)
# "Explain it like I'm five", "rephrase it for me": said by whoever asks.
_FOR_ME = re.compile(
    r"\b(?:like|as if) i(?:'m| am| was| were) (?:\d+|a|five|six|ten)\b(?: \w+)?|\b(?:for|to) me\b"
    r"|^\W*(?:bitte |please )?\w{3,15}[ -](?:me|mir|moi|nous|uns)\b|\b(?:fur|para|pour) (?:mich|mi|moi)\b"
    r"|给我|帮我"
)
_POLITE = re.compile(
    r"^\W*(?:please |pls |can you |could you |would you |kindly |por favor |puedes |podrias |bitte "
    r"|kannst du |konnten sie |konntest du |s'il te plait |peux-tu |pourriez-vous |tu peux |now |just "
    r"|hey )+"
)
# An order begins with its verb, and soon points.
_ORDER = re.compile(
    rf"\W*(?!{any_of('brought', 'no order')}\b)[^\W\d]{{2,20}}(?:[ -][^\W\d]{{1,15}}){{0,2}}[ -]"
    r"(?:this|these|those|the following|esto|est[ae]s?|lo siguiente|dies\w*|das|folgende\w*|ceci|cela"
    r"|ca|cet"
    r"|cette|ces|ce qui suit)\b|\W*(?:请|把|将|给|帮|对|按|用)"
)
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_A_HEADING = 2  # words before a colon, and a question behind it
_A_TEXT = 3  # words in quotes; fewer may be a name ("Blue Door")
_HAN_A_WORD = 2  # characters that make one, in Chinese

# What parts an order from what follows besides quotes, colons and blank lines.
_PARTED = re.compile(r"(?:->|=>|→|⇒|-{2,}|—|–|\n)\s*")
# So does the end of a sentence; of one that points at what follows, also a question mark, a gap in Chinese.
_SENTENCE = re.compile(r"(?<=[^\W\d_])[.!]\s+(?=\S)")
_GAP = re.compile(r"[?？。]\s*(?=\S)|(?<=[\u4e00-\u9fff]) +(?=[\u4e00-\u9fff\w])")
_NUMBERS = re.compile(r"(?<![\d.,+-])(?:[-+]?\d[\d.,]*+[\s,;、和y]++){2,}[-+]?\d[\d.,]*+\W?$")
# A line of code, the message of an error.
_CODE = re.compile(
    r"\w[(\[{]|[{};]|\w ?[=<>]=? ?\w|\w ?\* ?\w|::|\b[A-Z]\w*(?:Error|Exception)\b|\b(?:def|import|SELECT) "
)
_OF_A_WORD = re.compile(
    r"\W*(?:(?:give me|dame|gib mir|nenne|donne|donne-moi|what(?:'s| is)|cual es|was ist|quel est) )?"
    r"(?:(?:an?|the|un|ein|das|die|el|la|le|les|[a-z]{3,6}|\d+) )?"
    r"(?:(?:synonyme?|antonyme?|sinonimo|antonimo|rhyme|rima|reim|anagrama?|anagramme|plural|pluriel"
    r"|opposite|contrario|contraire|gegenteil|mehrzahl|past tense|participle|superlative"
    r"|preterito|prateritum)[sne]*"
    r" (?:for|of|de|d'|del|du|para|con|fur|zu|von|pour|auf|with)"
    r"|conjug(?:ate|a|ue|uer|ar)(?: the verb| el verbo| le verbe)?"
    r"|konjugiere(?: das verb)?) ?[\"'“„«]?\w+[\"'”»]?(?: (?:in|en|im|au|a l') ?\w+(?: \w+)?)?\W*"
)

_PLEASE = r"(?: (?:bitte|please|pls|stp|svp|s'il (?:te|vous) plait|por favor|porfa))?"
# "del revés: …", "moins énervé stp : …", "in capitals - …": nothing else is asked.
_HEADED = re.compile(
    rf"\W*+(?:(?:please|bitte|por favor|now|und|y|et) )?{any_of('brought', 'headings')}{_PLEASE} ?"
    r"(?:[?!]? ?[:：]|[?!]? ?(?=[\"“„«「])| - | ?(?:->|=>|→|—|–|--)|\n)\s*+\S.{2}"
)
# "enlève les doublons rouge bleu rouge": what follows are no words that lead to something of the user's.
_BARELY_HEADED = re.compile(
    rf"\W*+(?:(?:please|bitte|por favor) )?{any_of('brought', 'bare headings')}"
    r"(?: (?!(?:my|our|the|of|from|in|for|to|on|mis?|nuestr\w+|las?|los|del?|en|para|mein\w*|unser\w*"
    r"|die|der|das|den|dem"
    r"|von|aus|im|fur|mes|mon|ma|nos|notre|les?|du|des|dans|sur|pour|all"
    r"|tous)\b)[^\W\d_]+[ ,]+[^\W\d_]+[ ,]+\w"
    r"|[ ,，:：]+[^我咱]\S{5})"
)
_LETTERS = (
    r"(?:[a-z](?:'?s)?|[a-z]{0,3}(?:erres|eses|eles|emes|enes|aes)|(?:letters?|vowels?|consonants?"
    r"|syllables?|letras|vocales"
    r"|silabas|buchstaben|vokale|silben|lettres|voyelles|syllabes))"
)
_COUNTS_LETTERS = re.compile(
    rf"\W*(?:how many|cuant[ao]s|wie ?viele|combien de|combien d'|number of|nombre de) ?{_LETTERS}"
    r"(?: (?:are|are there|hay|tiene|sind|hat|y a-t-il|il y a))? ?(?:in|en|dans|im)? ?"
    r"(?:(?:the word|la palabra|dem wort|le mot) )?[\"'“„«][^\"”»]{1,40}[\"'”“»]\W*"
)
_OF_AN_ERROR = re.compile(
    r"(?i:error|fehler|erreur|mean|means|heißt|heisst|bedeutet|significa|veut dire|报错|错误)[^\n]{0,20}?"
    r"\b[A-Z]\w{1,30}(?:Error|Exception)\b ?[:：]"
)
_GENERATES = re.compile(
    r"\W*(?:(?:write|give me|make|create|schreibe?|gib mir|escribe|escribeme|dame|haz|hazme|ecris"
    r"|donne-moi|fais|写|给我)"
    r"(?: (?:me|mir|moi))? )?(?:(?:an?|una?|eine?n?|une|一个) ?)?(?:simple )?"
    r"(?:(?:regex|regexp|regular expression|expresion regular|regularen? ausdruck|expression reguliere)"
    r"(?= (?:for|to|that|which|matching|para|que|fur|der|die|um|pour|qui) [^\n]{3,90}$)"
    r"|(?:json|yaml|csv|xml|table|tabla|tabelle|tableau) (?=[^\n]{0,200}\d)(?:with|con|mit|avec|of"
    r"|aus) [^\n,]{3,40}, ?[^\n,]{3,40},)"
)
_KNOWS = re.compile(
    r"\b(?:usual|same|habitual\w*|siempre|ublich\w*|immer|habituel\w*|the|el|los|den|unsere?)\b"
)


def brings_its_own(text: str) -> bool:
    """True if the text is an order to do something with what it brings, or asks about a text in it."""
    if len(text) > 20 * _LONGEST:
        return False
    folded = plain(text)
    if _HEADED.match(folded) or _BARELY_HEADED.match(folded) or _COUNTS_LETTERS.fullmatch(folded):
        return not _A_TITLE.search(text)
    if _OF_AN_ERROR.search(text[:_LONGEST]) and not is_personal(text):
        return True
    if _GENERATES.match(folded) and not is_personal(text) and not _KNOWS.search(folded):
        return True
    if any(_is_about(order, brought) for order, brought in _parts(text)):
        return True
    return _is_row(text) or bool(len(text) <= _LONGEST and _OF_A_WORD.fullmatch(plain(text)))


def _parts(text: str) -> list[tuple[str, str]]:
    """Return an order and what follows it, in each way in which the text may be parted."""
    found = []
    order, brought = split_payload(text)
    if brought:
        found.append((order, brought))
    for parting in (_PARTED, _SENTENCE, _GAP):
        parted = parting.search(text)
        if not parted:
            continue
        before, after = text[: parted.start()], text[parted.end() :]
        if len(before) <= _LONGEST and len(after) >= _LEAST and (parting is not _GAP or _points(before)):
            found.append((before, after))
        if parting is _PARTED and len(after) <= _SHORT and _points(after):
            found.append((after, before))
    return found


def _points(order: str) -> bool:
    return bool(_POINTS.search(plain(order)))


def _is_about(order: str, brought: str) -> bool:
    asked = _POLITE.sub("", plain(order).strip())
    said = _FOR_ME.sub(" ", asked)
    if not said or len(said) > _LONGEST:
        return False
    if _words(said) <= _FEW and _CODE.search(brought) and _ASKS_OF_CODE.search(said):
        return not is_personal(said)
    return _fits(asked, said, brought) and not (is_agreed(said) or _is_of_life(order, said) or asks(brought))


def _fits(asked: str, said: str, brought: str) -> bool:
    """True if the order is of a form that is about what follows. `said`: without "for me"."""
    points, works = _POINTS.search(said), _WORKS.search(asked)
    quoted = is_quoted(brought)
    few = _words(said) <= _A_HEADING or _words(plain(brought)) <= _A_HEADING
    if not points and not quoted and few and _A_QUESTION.search(brought):
        return False  # "title: what was it?", "class council 4B: room?"
    named = points or _TEXT.search(said)
    if not works and named:
        works = _WORKS_ON_IT.search(said)
    if not works and quoted and _words(plain(brought)) >= _A_TEXT:
        works = _ASKS_OF_IT.search(said)
    if works:
        return bool(named) or _words(said) <= _FEW
    # Whatever is done with it: but then nobody's life may be in it.
    asks_too = not quoted and "?" in brought
    return bool(points and _ORDER.match(said)) and not asks_too and not is_personal(brought)


def _is_of_life(order: str, said: str) -> bool:
    """True if the order speaks of the user, of a person, or of a thing that both sides know."""
    # "Spell check" is no check of a plan.
    if _LIFE.search(_WORKS.sub(" ", said)) or is_personal(said):
        return True
    rest = _THAT.sub(" ", _POINTS.sub(" ", _OF_THE_TEXT.sub(" ", said)))
    if of_somebody(order) or names_known_thing(rest) or names_their_thing(rest):
        return True
    return is_for_somebody(order) or names_stranger(_UPPER.sub(" ", order))


def is_for_somebody(order: str) -> bool:
    """True if the order names whom the text is for: memory knows how they are written to."""
    return any(plain(name) not in _KNOWN_NAMES for name in _TO_WHOM.findall(order))


# "title: what was it?": asks for what is agreed.
_A_TITLE = re.compile(
    r"^[^:：]{2,80}[:：] ?¿?(?:what|who|when|where|which|how|why|qu[eé]|cu[aá]l|qui[eé]n|cu[aá]ndo"
    r"|d[oó]nde|was|wer|wann"
    r"|wo|wie|welche\w?|quel\w*|quand|qui|o[uù]|comment|combien)\b",
    re.IGNORECASE,
)
_A_QUESTION = re.compile("[?？吗呢啥谁哪]\\W*$")
_TO_WHOM = re.compile(r"\b(?:an|for|para|pour|für|write to|send to) ([A-ZÀ-Þ][a-zà-ÿ]+)")
_THAT = re.compile(r"\b(?:das|la)\b")  # points, too: "klingt das höflich?"
_UPPER = re.compile(r"\b[A-Z][A-Z\d]+\b|\b(?:Python|Markdown|Excel|Bash|Java|JavaScript|Rust)\b")


def _is_row(text: str) -> bool:
    """True for a row of numbers, and what is to be done with it."""
    numbers = _NUMBERS.search(text) if text[-1:].isdigit() or text[-2:-1].isdigit() else None
    said = plain(text[: numbers.start()]) if numbers else ""
    return bool(said) and len(said) <= _SHORT and bool(_WITH_NUMBERS.search(said)) and not is_personal(said)


def _words(said: str) -> int:
    han = len(HAN.findall(said))
    return len(_WORD.findall(HAN.sub(" ", said))) + han // _HAN_A_WORD
