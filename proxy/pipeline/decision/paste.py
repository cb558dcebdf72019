"""Find the user's own words around a long paste: the line before it, or the lines after it.

A paste says "I" without meaning the user, and asks questions that nobody wants answered. What is looked for
is the user's own line: short, at either end, outside a fence, and asking or telling to do something.

(66 questions of eleven personas around 50,000 characters of prose, logs, code, mail and Chinese: answers
among the first five .58 → .77 with the question behind the paste, .42 → .78 before it, without any paste .85;
memories beside "summarise this" behind the paste .37 → .01.)
"""

import re

from proxy.gloss import language
from proxy.sentences import pieces, sentences

LONG_CHARS = 600  # a shorter message is read whole
_LOOK_CHARS = 1200  # at each end
_LINE_CHARS = 300  # a longer one is a paragraph of the paste
_LAST_LINES = 3  # "thanks!" may follow

_FENCE = re.compile(r"^\s*(?:```|~~~)")
_QUESTION = re.compile(r"[?？][\s\"'”»)]*$")
_TELLS = re.compile(
    r"\W*(?:"
    r"(?:please|can|could|would|help|summari[sz]e|explain|translate|rewrite|rephrase|fix|check|review|compare|write"
    r"|draft|tell|remind|list|find|give|make|turn|convert|describe|analy[sz]e|proofread|shorten|extract|answer"
    r"|reply|use|what|which|when|where|who|whose|how|why"
    r"|bitte|fasse?|erkläre?|übersetze?|schreibe?|prüfe?|vergleiche?|korrigiere?|kürze?|sage?|gib|hilf|mache?"
    r"|was|wann|wer|wo|wie|welche[rsnm]?|warum"
    r"|resume|explica|traduce|escribe|revisa|compara|corrige|dime|haz|dame|ayúdame|por favor|qué|cuál|cuándo"
    r"|résume|explique|traduis|écris|vérifie|corrige|dis|fais|donne|aide|quel(?:le)?s?|quand|comment|pourquoi)\b"
    r"|请|帮|把|给|总结|翻译|解释|概括|写|检查|比较|改)",
    re.IGNORECASE,
)

_THE_PASTE = re.compile(
    r"\b(?:this|these|the following|here|below|above|dies\w*|folgende\w*|hier|unten|est[ea]s?|siguiente"
    r"|aquí|abajo|ce|cet|cette|ces|ici|suivante?|ci-dessous)\b|下面|以下|上面|这[段个份篇里些]|本文",
    re.IGNORECASE,
)
_NAME = re.compile(r"(?<=[\w,;] )[A-ZÀ-Þ]\w")
_IDENTIFIER = re.compile(r"[A-Za-z]\d|\w_\w|[\"'“„«「]")


def own_words(text: str) -> str:
    """Return what the user asks before or after the paste; "" where the text is short, or nothing at its ends
    asks."""
    text = text.strip()  # or its ends may hold no line at all
    if len(text) <= LONG_CHARS:
        return ""
    beginning, end = text[:_LOOK_CHARS], text[-_LOOK_CHARS:]
    lines = " ".join(filter(None, (_line_before(beginning), _lines_after(end))))
    return lines or _first_sentence(beginning) or _last_sentence(end)


def beside_the_paste(own: str) -> str:
    """Return the user's own words without those that mean the paste ("this", "below"), if there are any."""
    return _THE_PASTE.sub(" ", own)


def names_something(own: str) -> bool:
    """True if the user's own words hold a name, an identifier or a quotation."""
    german = language(own) == "de"  # every noun has a capital there
    return bool(_IDENTIFIER.search(own) or (not german and _NAME.search(own)))


def _line_before(beginning: str) -> str:
    line, newline, _ = beginning.partition("\n")
    return line if newline and _asks(line) else ""


def _lines_after(end: str) -> str:
    lines = end.splitlines()[-_LAST_LINES:]
    fence = next((i for i in range(len(lines) - 1, -1, -1) if _FENCE.match(lines[i])), -1)
    return " ".join(line for line in lines[fence + 1 :] if _asks(line))


def _first_sentence(beginning: str) -> str:
    """Return the first sentence, if it asks: the paste may follow in the same line."""
    return _if_asked(next(pieces(" ".join(beginning.splitlines())), "").strip())


def _last_sentence(end: str) -> str:
    return _if_asked(sentences(end.splitlines()[-1])[-1])


def _if_asked(sentence: str) -> str:
    return sentence if len(sentence) <= _LINE_CHARS and _QUESTION.search(sentence) else ""


def _asks(line: str) -> bool:
    if not line.strip() or len(line) > _LINE_CHARS or _FENCE.match(line):
        return False
    return bool(_QUESTION.search(line) or _TELLS.match(line))
