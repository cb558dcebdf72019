"""Tell whose words a candidate rests on: the user's own, something they quote, the assistant's, or a
tool's.
"""

import re
from enum import StrEnum

from proxy.background.extraction.cues import own_words
from proxy.domain import Exchange
from proxy.sentences import sentences
from proxy.terms import normalise, plain, terms
from proxy.wordlists import whole_words


class Voice(StrEnum):
    """Who speaks in a passage of an exchange."""

    OWN = "own"
    QUOTED = "quoted"  # pasted or quoted by the user
    ANSWER = "answer"  # the assistant's own words
    RELAYED = "relayed"  # the assistant says what it read: a tool's output, a page, a file
    UNKNOWN = "unknown"


_TEXT = (
    r"(?:\b(?:pages?|articles?|e-?mails?|mails?|messages?|docs?|documents?|documentation|logs?"
    r"|output|(?:web)?sites?|readme|(?:blog ?)?posts?|blogs?|tweets?|threads?|stor(?:y|ies)|profiles?|bio|cv"
    r"|transcript|brief|reviews?|comments?|tickets?|responses?|results?|snippet|letters?|newsletter"
    r"|contract|file|listing|description"
    r"|seiten?|artikel|dokument|nachricht(?:en)?|beitrag|brief|página|artículo|correo|documento|mensaje|publicación"
    r"|carta|courriel|publication|lettre|pagina|articolo|messaggio)\b|网页|文章|邮件|文档|日志|输出|内容|帖子|朋友圈|微博|短信"
    r"|原文|页面|消息|メール|記事|ページ|投稿|문서|메일|게시물|письм\w|страниц\w|стать\w|пост\w?\b|сообщени\w)"
)
_TELLS = (
    r"(?:\b(?:wrote|writes|says|said|posted|posts|texted|tweeted|messaged|replied"
    r"|schreibt|schrieb|postete|gepostet|geschrieben|sagt|sagte|meinte|escribi[óo]|escribe|public[óo]|dijo|dice|puso"
    r"|écrit|écrivait|posté|publié|dit|scrive|scritto|escreveu|disse)\b|写道|写了|发了|发的|发来|发布|说了?"
    r"|написал\w?|пишет|書いた|言った|썼다|말했다)"
)
# A line that ends in a colon and names a text, or somebody's words: what follows is that text.
_INTRODUCES = re.compile(rf"(?:{_TEXT}|{_TELLS})[^\n]{{0,80}}[:\uff1a]\s*$", re.IGNORECASE)
_SOMEBODYS = (
    r"(?:['’]s|\b(?:this|these|the following|following|diese[rnms]?|folgende\w*|est[ea]s?|siguiente|cet?"
    rf"|cette|suivante?|questo|questa)|[这那下][篇条段个封则面]的?)\W{{0,3}}(?:\w{{1,20}} ){{0,2}}{_TEXT}"
)
# The same with the text behind the colon: "this post: …", "Jo wrote: …".
_INTRODUCES_IN_LINE = re.compile(
    rf"(?:{_SOMEBODYS}|{_TELLS}[^:\uff1a.!?\n]{{0,30}})\s?[:\uff1a]\s*", re.IGNORECASE
)
# A question about "this page" with a line to itself: the page follows.
_ASKS_ABOUT = re.compile(rf"{_SOMEBODYS}[^.!\n]{{0,40}}[?\uff1f]\s*$", re.IGNORECASE)
# The user's own text, and what the user says of it: "my post:", "I wrote:".
_OWN_TEXT = re.compile(
    rf"\b(?:my|our|mein\w*|unser\w*|mis?|mon|ma|mes|notre)\s(?:(?:own|new|short|eigene\w*|neue\w*)\s)?{_TEXT}"
    rf"|\b(?:i|we|ich|wir|je|j['’]ai|nous|yo|io|eu|я|мы)\s(?:(?:just|have|also|habe|avons)\s)?{_TELLS}"
    rf"|我的?(?:{_TEXT}|{_TELLS})",
    re.IGNORECASE,
)
# An order to work on the text that follows it.
_WORKS = re.compile(whole_words("questions", "transform"))
_ORDER_CHARS = 120
_HEADERS = re.compile(
    r"^(?:from|to|subject|date|von|an|betreff|de|para|asunto|发件人|主题)\s?:\s?\S", re.IGNORECASE
)
_RELAYS = re.compile(
    r"\b(?:according to|as (?:stated|shown|described|written) (?:in|on|by)|(?:the|this|that"
    r"|your) [\w' -]{0,30}?(?:page|site|website|document|file|tool|search|results?"
    r"|output|readme|article|e-?mail|log|listing|wiki|calendar|api|response|note) (?:says?|said"
    r"|states?|stated|returned|shows?|showed|mentions?|reads|reports?|contains?|lists?)"
    r"|i(?:'ve| have)? (?:read|fetched|looked up|searched|opened|retrieved|browsed|scraped|queried)"
    r"|search results?|tool (?:call|output|result|response)s?)\b"
    r"|^[^\w\n]*+(?:tool|function|observation|output|result)\b[^:\n]{0,60}:|(?:根据|据)[^。\n]{0,20}(?:网页|文档"
    r"|页面|搜索|文件|邮件)|(?:网页|文档|页面|搜索结果|工具)(?:显示|提到|写道|返回|说)"
    r"|\b(?:laut|según|selon|secondo|согласно)\b",
    re.IGNORECASE | re.MULTILINE,
)
_OWN_SHARE = 0.5  # of a statement's terms must be the user's own where its evidence is not known


def flat(text: str) -> str:
    """Return the text as spans are compared: no case, quotes, spacing or markup."""
    return "".join(c for c in normalise(text) if c.isalnum())


def voice(content: str, evidence: str, exchange: Exchange) -> Voice:
    """Return whose words the evidence is; without evidence, whose words the content is made of."""
    own = told(exchange.said)
    span = flat(evidence)
    if span and span in flat(exchange.said):
        return Voice.OWN if _is_own(evidence, span, own) else Voice.QUOTED
    if span and span in flat(exchange.answer) and _is_relayed(span, exchange.answer):
        return Voice.RELAYED
    if share(content, own) >= _OWN_SHARE:
        return Voice.OWN  # also where the assistant restates what the user said
    if span and span in flat(exchange.answer):
        return Voice.ANSWER
    return Voice.QUOTED if share(content, exchange.said) >= _OWN_SHARE else Voice.UNKNOWN


def share(content: str, text: str) -> float:
    """Return the share of the content's terms that the text holds."""
    words = frozenset(terms(content))
    return len(words & frozenset(terms(text))) / len(words) if words else 0.0


def told(said: str) -> str:
    """Return what the user tells in their own words: no quotations, code, markup, introduced texts."""
    lines: list[str] = []
    for line in own_words(said).split("\n"):
        if _HEADERS.match(line):
            break
        introduced = _introduced(line)
        lines.append(line[:introduced])
        if introduced is not None:
            break
    return "\n".join(lines)


def _introduced(line: str) -> int | None:
    """Return where a text of somebody else's begins that the line introduces; None where it does not."""
    if not _POINTS.search(line) or _OWN_TEXT.search(line):
        return None
    found = _INTRODUCES.search(line) or _INTRODUCES_IN_LINE.search(line) or _ASKS_ABOUT.search(line)
    if found is not None:
        return found.end()
    colon = _COLON.search(line, 0, _ORDER_CHARS)
    return colon.end() if colon and _WORKS.search(plain(line[: colon.start()])) else None


_COLON = re.compile(r"[:\uff1a]")
_POINTS = re.compile(r"[:\uff1a?\uff1f]")


def _is_own(evidence: str, span: str, own: str) -> bool:
    """True if the passage, or nearly all of its sentences, is in the user's own words."""
    everything = flat(own)
    if span in everything:
        return True
    parts = [flat(s) for s in sentences(evidence)]
    mine = sum(len(p) for p in parts if p and p in everything)
    return mine >= 0.8 * len(span)


def _is_relayed(span: str, answer: str) -> bool:
    """True if the passage's paragraph says that it comes from elsewhere, or is a block of output."""
    for paragraph in re.split(r"\n\s*\n", answer):
        if span in flat(paragraph):
            return bool(_RELAYS.search(paragraph)) or "```" in paragraph
    return bool(_RELAYS.search(answer)) or "```" in answer
