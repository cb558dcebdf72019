"""Estimate from a question's wording how likely it is that memory holds the answer (the first half of the
gate).

"When do we fly?" expects memory, "write a haiku about fog" does not. A form is looked for in the text and in
its English gloss (see proxy.gloss), so that one table serves the languages that the lexicon knows.
"""

import re
from enum import IntEnum

from proxy.gloss import question_gloss
from proxy.pipeline.decision.facts import names_known_thing
from proxy.pipeline.decision.live import Live, live
from proxy.pipeline.decision.own import is_personal, points_back
from proxy.pipeline.decision.paste import own_words
from proxy.pipeline.decision.payload import (
    asks,
    brings_code,
    is_quoted,
    means_the_text,
    split_payload,
    without_dummies,
)
from proxy.pipeline.decision.world import worldly
from proxy.pipeline.decision.worldly import Worldly
from proxy.terms import fold
from proxy.writing_systems import UNSPACED


class Expectation(IntEnum):
    """What the form promises."""

    NONE = 0  # a request that anybody could make of anything
    UNSAID = 1  # the form says nothing either way: "dinner for six on Friday, no fuss"
    SOME = 2  # it speaks of "the pages" as of something known, or asks where pronouns are left out
    STRONG = 3  # it is about the user, or about what was said before


_INSPECTED_CHARS = 600
_LOOKED_CHARS = 2_000  # of a paste: whether it asks, or is code
_SHORT_CHARS = 240
_PASTE_CHARS = 40  # a payload of this length is what "this" means
_HERE = re.compile(r"\b(?:here|there|now|these days|lately)\b")
# "How do I centre a div": "I" is anybody.
_ANYBODY = re.compile(
    r"\bhow (?:do|can|could|would|should) (?:i|we|you|one)\b(?!.*\b(?:my|our|me|us)\b)"
    r"|\b(?:wie kann ich|como puedo|comment (?:puis-je|je peux))\b"
)
# "Write me", "tell me": the "me" of a request, which its gloss would take for the user.
_FOR_ME = re.compile("(?:帮|幫|给|給|替|教)我(?!们|們|的|家)|(?:告诉|告訴)我")
# What is made from nothing, and what is told to anybody.
_GENERIC = re.compile(
    r"^\W*(?:please |can you |could you )?(?:write|compose|invent|create|make|generate|suggest|propose"
    r"|list|name|explain|describe|define|give (?:me )?(?:an?|some|two|three|four|five|six|ten)\b"
    r"|use \w+ write|for (?:an?|one) .* (?:name|title))\b"
    r"|\b(?:differences?|unterschied|diferencia|difference) (?:between|entre|zwischen)\b|有什么(?:区别|不同)"
    r"|^为什么|^什么是|出自哪|怎么(?:做|查看|写|用|读)|[写给讲编作].{0,8}[首个则篇].{0,12}(?:诗|词|绝句"
    r"|故事|笑话|名字|函数)"
    r"|解释一下.*(?:是什么|原理)"
    r"|^(?:请|[帮幫给給]我)?(?:想|推荐|推薦|起)[一二两三四五六七八九十几幾0-9][个個本首部道句]"
    r"|^(?:请|帮我)?(?:写[一个首条行篇段则]|讲[个一]|列出|举[一个]|给出|说出|解释(?:一下)?[这下]|修复|重构"
    r"|找出|判断|数一下|补全|用[“\"].{1,8}[”\"]造句)"
    r"|^(?:escrib|dame|propon|explica|haz un|schreib|erklar|ecris|propose|explique|donne)\w*\b"
)
# What is worked on comes with it, behind a colon.
_WORKS = re.compile(
    r"^\W*(?:please |can you |could you )?(?:identify|find|complete|continue|sort|arrange|order|unscramble"
    r"|count|classify|extract|remove|compare"
    r"|rank|format|solve|calculate|convert|decode|encode|proofread|translate|rewrite|rephrase|paraphrase"
    r"|correct|fix|edit|improve|polish|shorten"
    r"|explain|capitali[sz]e|group|categori[sz]e|turn|put|make|reverse|parse|simplify|summari[sz]e)\b"
    r"|^(?:ordena|corrige|completa|clasifica|explica|resuelve|convierte|pon|extrae|encuentra|resume"
    r"|traduce)\b"
    r"|^(?:ordne|sortiere|korrigiere|erganze|bestimme|erklare|lose|wandle|finde|setze|fasse|ubersetze"
    r"|formuliere)\b"
    r"|^(?:trie|corrige|complete|classe|explique|resous|convertis|mets|trouve|resume|traduis|reecris)\b"
    r"|^(?:请|帮我)?(?:找出|补全|给|把|将|排序|分类|修复|改|换|去掉|提取|解|计算|数|校对|翻译|总结|概括"
    r"|判断|解释)"
)
# "提测应该找谁?" is about us without saying so.
_ASKS_UNSPACED = re.compile(
    r"[?？]\s*$|[吗嗎呢哪几幾谁誰怎啥咋]|什么|什麼|多少|多[大高重久长長远遠]|来着|來著|何|誰|どこ|いつ"
    r"|か[。?？]?\s*$|뭐|누구|언제|어디|까[?？]?\s*$"
)


def expectation(text: str) -> Expectation:
    """Return what the form of the text promises."""
    own = own_words(text)
    is_long, text = len(text) > _INSPECTED_CHARS, text[:_LOOKED_CHARS]
    instruction, payload = (own, text) if own else split_payload(text[:_INSPECTED_CHARS])
    works = bool(payload and not asks(payload) and _WORKS.search(fold(instruction)))
    if payload and len(text) <= _SHORT_CHARS and not is_quoted(payload):
        instruction, payload = text, ""  # a colon before questions: "the basics: when do we leave, …"
    said = question_gloss(_FOR_ME.sub("", instruction)).text
    wordings = dict.fromkeys((instruction, said))  # one in English
    mine = {wording: _ANYBODY.sub(" ", fold(wording)) for wording in wordings}
    if any(map(is_personal, mine.values())):
        return Expectation.STRONG
    brings_its_own = len(payload) >= _PASTE_CHARS or is_long
    brings_its_own |= works or brings_code(text) or bool(payload and means_the_text(instruction))
    if not brings_its_own and not payload and points_back(without_dummies(instruction)):
        return Expectation.STRONG
    if brings_its_own or _GENERIC.search(fold(instruction)):
        return Expectation.NONE
    if live(instruction) is not Live.NO:
        return Expectation.NONE
    if worldly(instruction) is not Worldly.NO and not names_known_thing(instruction):
        return Expectation.NONE  # most likely nobody's
    if any(map(names_known_thing, wordings)) or _HERE.search(fold(said)):
        return Expectation.SOME
    if any(rest != fold(wording) for wording, rest in mine.items()):
        return Expectation.SOME  # it may be a way of doing things that was told
    unspaced = UNSPACED.search(instruction) and _ASKS_UNSPACED.search(instruction)
    return Expectation.SOME if unspaced else Expectation.UNSAID
