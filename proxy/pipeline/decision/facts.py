"""Recognise questions of general knowledge, which need no memory, by their wording.

A table of patterns on folded text, and the rules beside it (`knowledge`, `records`, `meanings`, `origins`,
`world`). They are narrow on purpose: what none of them knows is searched. Whether a question is personal or
points back is for `decide` to ask.
"""

import re

from proxy.gloss import question_gloss
from proxy.pipeline.decision.knowledge import is_knowledge
from proxy.pipeline.decision.meanings import asks_meaning, is_meaning, is_of_words
from proxy.pipeline.decision.origins import asks_origin, of_nobody
from proxy.pipeline.decision.records import is_record
from proxy.pipeline.decision.world import names_known, names_stranger, worldly
from proxy.pipeline.decision.world_zh import zh_lived, zh_of_nobody
from proxy.pipeline.decision.worldly import Worldly
from proxy.pipeline.roles import is_of_life, names_their_thing, of_somebody
from proxy.terms import fold
from proxy.wordlists import any_of, either
from proxy.writing_systems import HAN

_UNIQUE, _PLANETS = any_of("questions", "one of a kind"), any_of("questions", "planets")
_NATURE, _PLACES = any_of("questions", "nature"), any_of("questions", "parts of the world")
_ATTRIBUTE, _OF_THE_WORLD = any_of("questions", "attributes"), any_of("questions", "of the world")
# What may stand between "why" and what happens in nature; a verb in the past or a name is of one case.
_GENERALLY = (
    r"(?:(?:se|es|son|hay|l[ao]s?|el|una?|ocurren?|producen?|forman?|funcionan?|causan?|atraen|brillan?"
    r"|gatos"
    r"|ist|sind|wirk(?:t|en)|entsteh(?:t|en)|funktionier(?:t|en)|gibt|es|der|die|das|den|eine?|kommt"
    r"|kommen|zu"
    r"|bilden|sich|katzen|zum|zur"
    r"|est|sont|les?|une?|des|y a-t-il|est-ce que|se forment|fonctionnent?|agissent|chats|apparait"
    r"|ont lieu) "
    r"|l'){0,5}"
)
_SHAPE = r"\b(?:triangulo|pentagono|hexagono|octogono|triangle|pentagone|hexagone|octogone)\b"
_FACTS = re.compile(
    either(
        rf"\bwhat(?:'s| is| are| was)? the {_ATTRIBUTE} (?:of|for|in)\b",
        r"\b(?:which|what) (?:\w+ )?(?:is|was) the \w+est \w+ (?:in|on|of) ",
        r"\bwhat(?:'s| is) the \w+est \w+ (?:in|on|of) ",
        r"^define \w+",
        r"^what(?:'s| is) an? \w+(?: \w+){0,2}\W*$",
        r"^what(?:'s| is) \w+(?:sis|ism|ics|logy|metry|graphy|onomy)\W*$",
        # An indefinite subject: what is true of any process is not about the user's.
        r"\b(?:which|what|how) (?:\w+ ){0,4}(?:do|does|is|are|can) an? \w+",
        r"\bhow (?:many|much|far|long|tall|deep|high|fast|big|hot|heavy|old) .*"
        rf"\b(?:in an?|in one|{_UNIQUE}|{_PLANETS})\b",
        rf"\b(?:why|how|what) (?:is|are|do|does|makes|causes) the {_UNIQUE}\b",
        r"^how is (?!the |it |this |that |a )[a-z]+ (?:made|formed|produced|measured|refined|mined)\W*$",
        r"\bhow (?:do|are) (?:[a-z]+ )?[a-z]+s (?:form|formed|made|work|fly|sleep|breathe|reproduce)\b",
        r"\b(?:chemical|atomic) (?:symbol|formula|number|weight)\b",
        r"\bwho (?:was|is) (?:the )?(?:president|king|queen|emperor|chancellor|prime minister|pope) of\b",
        r"\bwho was the first (?:person|man|woman|human)"
        r" (?:on|in space|to (?:walk|climb|fly|reach|orbit|sail))\b",
        r"^wh(?:at|ich) (?:metal|planet|element|gas|mammal|continent)s? (?:is|has|are)\b",
        r"^wh(?:at|ich) language has the most\b",
        rf"^(?:what (?:causes|makes)|why (?:is|are|do|does|did)) (?:the )?{_NATURE}\b",
        rf"^(?:how (?:do|does|are|is)|explain how) {_NATURE}\b",
        # Spanish
        r"\b(?:cual|que) es la (?:capital|poblacion|moneda|formula) d|\bsimbolo quimico\b",
        rf"\b(?:rio|montana|pais|ciudad|lago|desierto|isla|animal) mas \w+ de(?:l| la)? {_PLACES}",
        rf"\bcuantos .*{_SHAPE}",
        r"\ba que temperatura (?:hierve|se congela|se funde)\b",
        rf"^\W*(?:por que|que causa|como) {_GENERALLY}{_NATURE}\b|\bque metal es\b",
        r"\bquien fue la primera persona en (?:la luna|el espacio)\b",
        r"^\W*(?:cuant[oa]s?|que|cual|como|por que|cada cuanto)(?: \w+){0,3} (?:es|tiene|puede|debe"
        r"|necesita|dura"
        r"|vive|pesa|tarda|come|lleva) una? \w+(?!.* (?:con|para|del|sin) )",
        # German
        r"^\W*(?:wie|wieviele?|ab wann|warum|wieso|welche[rsnm]?|was|an welche[rm])(?: \w+){0,3} (?:ist"
        r"|darf"
        r"|kann|muss|hat|braucht|bekommt|wechselt|trinkt|frisst|lebt|wiegt"
        r"|dauert) eine? \w+(?!.* (?:bei|von|fur|mit) )",
        r"\bchemische\w* (?:symbol|formel|zeichen)\b|\bwer war der erste mensch\b|^welches metall ist\b",
        rf"^(?:warum|wie|wodurch|wieso) {_GENERALLY}{_NATURE}\b",
        r"\b(?:langste|hochste|grosste|kleinste|tiefste|schnellste)[nrs]? "
        rf"(?:fluss|berg|see|land|stadt|insel|planet|tier|wuste|ozean) (?:der |in )?{_PLACES}",
        r"\bbei welcher temperatur (?:kocht|siedet|gefriert|schmilzt)\b",
        r"\bhauptstadt (?:von|der|des)\b|\b(?:siede|schmelz)punkt von\b",
        # French
        r"^\W*(?:combien|comment|pourquoi|quel\w*)(?: \w+){0,3} (?:est|a|peut|doit|dure|vit|mange"
        r"|pese) une? \w+(?!.* (?:avec|pour|chez|du) )",
        r"\bquelle est la (?:capitale|population|monnaie|formule) d|\bsymbole chimique\b"
        r"|\bquel metal est\b",
        rf"^(?:pourquoi|comment|qu'est-ce qui cause) {_GENERALLY}{_NATURE}\b|\bqui a marche le premier\b",
        rf"\b(?:fleuve|montagne|sommet|pays|ville|lac|ile|desert|animal) l[ae] plus \w+"
        rf" (?:du|d'|de) ?{_PLACES}",
        rf"\bplus \w+ (?:fleuve|montagne|sommet|pays|ville|lac|ile|desert|animal) (?:du|des|d'"
        rf"|de) ?{_PLACES}",
        r"\ba quelle temperature (?:bout|gele|fond)\b",
        rf"\bcombien de .*{_SHAPE}",
        # Portuguese, Italian
        r"\bqual e a (?:capital|populacao|moeda) d",
        r"\bqual e la (?:capitale|popolazione|valuta) d",
        # Chinese
        r"》的?(?:作者|导演|主角)是谁|》是谁(?:作曲|写|画|导演)的|的(?:国庆日|国旗|国花|官方语言)是",
        r"奥运会|世界杯|(?:化学|元素)符号|登上月球|^什么金属|最多的语言",
        rf"^{_NATURE}.{{0,8}}(?:为什么|怎么|原理)|^为什么.{{0,4}}{_NATURE}",
        r"的缩写|^什么是|是怎么(?:形成|产生)的|^(?:光速"
        r"|音速|圆周率)",
        r"(?:首都|国歌|化学式|分子式|原子序数)(?:是|有|在)?(?:什么|哪|多少|多高)",
        r"最(?:高|长|大|深|小|快)的(?:山|河|国家|动物|海|洋|湖|行星|城市|沙漠|建筑|岛)",
        # Japanese, Korean
        r"の首都|の人口|とは何|の意味|何年に|誰が(?:発明|発見|描い|書い)",
        r"의 수도|무슨 뜻|누가 (?:발명|발견)",
    )
)
# On the text as typed: names of several words, or with a number, are the world's rather than the user's.
_NAME = (
    r"(?:the )?(?:[A-Z][\w.’'-]*(?: (?:of|and|the|de|von|van|la) |\s+)(?:the )?(?:[A-Z]\w*|\d+)"
    r"|\d{4} [A-Z]\w*)"
)
_HISTORY = re.compile(
    either(
        rf"^(?:[Ii]n )?(?:[Ww]hen|[Ww](?:hat|hich) year) (?:did|was|were) {_NAME}.*\b(?:happen|end|begin"
        r"|start|fall|die|born|founded|built|signed|published|released|take place|break out)",
        r"^(?:[Ii]n )?[Ww](?:hat|hich) year (?:did|was) the [A-Z]\w+(?: [A-Z]\w+)*"
        r" (?:sink|happen|end|founded|invented)",
        rf"^[Ww]ho (?:won|directed|built|founded|designed|wrote|killed) {_NAME}",
        r"^[Ww]ho wrote [\"'“]?[A-Z][\w ]+[\"'”]?\?*$",
        rf"^[Hh]ow (?:tall|high|long|deep|old|big|far) (?:is|are|was) {_NAME}",
    )
)
_ASKED_OF_NAMES = re.compile(
    rf"\b(?:the {_ATTRIBUTE}|capital|capitale|poblacion|population|populacao|popolazione|moneda|moeda"
    rf"|valuta"
    r"|monnaie|hauptstadt|symbol|simbolo|symbole|formula|formule|president|king|queen|chancellor"
    rf"|{_PLANETS})\b"
)
_TITLED = re.compile(r"^[Ww]ho (?:wrote|directed) ")
# Counted are parts of a country, in any language: looked for in the gloss.
_OF_COUNTRY = re.compile(
    r"\bhow many (?!of )\w+(?: \w+)? (?:does|do|has|have|are there in|in)\b.{0,6}\b(?:china|japan|korea"
    r"|india"
    r"|america|usa|canada|mexico|brazil|england|britain|uk|france|germany|spain|italy|switzerland|austria"
    r"|portugal"
    r"|australia|europe|russia|poland)\W*$"
)
_THE = re.compile(r"\b[Tt]he (\S+)")
_SAFE_THE = re.compile(
    rf"(?:{_UNIQUE}|{_ATTRIBUTE}|{_OF_THE_WORLD}|\w+est|most|first|difference|\d.*|[A-Z].*)\b"
)


# What "a workshop" costs, the user may have set; and how long "a canary" runs now.
_CHARGED = re.compile(r"\b(?:cost|costs|charge|sprint)\b|\bnow\W*$")


_HASTY = re.compile(r"^(\W*(?:what|who|where|how|why))s\b", re.IGNORECASE)  # "whats a mutex"


def is_general_fact(text: str) -> bool:
    """True if the text asks for what an encyclopedia knows."""
    text = _HASTY.sub(r"\1's", text)
    folded = fold(text).strip()
    if _CHARGED.search(folded):
        return False
    if (
        is_knowledge(text)
        or is_record(text)
        or is_of_words(text)
        or _OF_COUNTRY.search(fold(question_gloss(text).text))
    ):
        return True
    if HAN.search(text):
        known = zh_of_nobody(text) or (bool(_FACTS.search(folded)) and not zh_lived(text))
    elif meaning := asks_meaning(text, folded):
        # No other form may take "what does a yellow tag mean?" for a question about any tag.
        return is_meaning(text, meaning)
    elif asks_origin(folded):
        return of_nobody(text)
    else:
        known = of_nobody(text) or _is_history(text)
        known = known or (bool(_FACTS.search(folded)) and not _is_somebodys(text, folded))
    return (known or worldly(text) is Worldly.SURE) and not names_known_thing(text)


def _is_somebodys(text: str, folded: str) -> bool:
    """True if something in a question of a general form is not the world's: a role, a thing, a name."""
    if names_their_thing(text) or of_somebody(text):
        return True
    # Of a country or a city, known or not, the capital is asked, and the mayor.
    return is_of_life(text) or (names_stranger(text) and not _ASKED_OF_NAMES.search(folded))


def _is_history(text: str) -> bool:
    """True for who wrote or won something, or when it was, if it has a title or a name known to all: a friend
    has a surname, too, and a project may have two words."""
    asked = _HISTORY.search(text)
    return bool(asked) and not of_somebody(text) and bool(_TITLED.search(text) or names_known(text))


def names_known_thing(text: str) -> bool:
    """True if the text speaks of "the dog" or "the old apartment" as of something that both sides know."""
    return not all(_SAFE_THE.match(text[m.start(1) :]) for m in _THE.finditer(text))
