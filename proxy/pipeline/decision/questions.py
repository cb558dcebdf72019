"""Forms of questions that need no memory: general facts, live data, sums, texts to transform.

Each is a table of patterns, on folded text unless said otherwise. They are narrow on purpose: what none
of them knows is searched. Whether a question is personal or points back is for `decide` to ask.
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
from proxy.terms import fold, plain
from proxy.wordlists import any_of, whole_words


def _any(*patterns: str) -> str:
    """Return one pattern for any of the rows."""
    return f"(?:{'|'.join(patterns)})"


# ---------------------------------------------------------------- instruction and payload
_QUOTED = re.compile(
    _any(
        r"```.*?(?:```|\Z)",
        r"[\"“„«「『].+?[\"”“»」』]",
        r"(?<!\w)['‘].+?['’](?!\w)",
        r"\{.*\}",
        r"<\w.*>",
    ),
    re.DOTALL,
)
_COLON = re.compile(r"[:：]\s*(?=\S)|\n\s*\n")


def split_payload(text: str) -> tuple[str, str]:
    """Return the instruction and the text it is about: what is quoted or fenced, else what follows a
    colon or blank line, else ""."""
    quoted = _QUOTED.search(text)
    if quoted:
        return (text[: quoted.start()] + " " + text[quoted.end() :]).strip(), quoted.group()
    colon = _COLON.search(text)
    if colon and len(text) - colon.end() >= 3:
        return text[: colon.start()].strip(), text[colon.end() :]
    return text, ""


# "It" and "they" that stand for nothing.
_DUMMY = re.compile(
    r"\bis it (?:legal|illegal|possible|safe|true|raining|snowing|sunny|windy|foggy|dangerous|healthy|ok to"
    r"|okay to|normal|hot|cold)\b"
    r"|\bhow (?:hot|cold|warm|windy|humid) is it\b|\bwhat (?:time|day) is it\b|\b(?:does|will|did"
    r"|can) it (?:take|rain|snow|cost to|be)\b"
    r"|\b(?:do|did) they (?:speak|use|call|eat|celebrate)\b|\bone (?:hundred|thousand|million|year|day|hour"
    r"|pound|dollar|euro|mile|inch)\b"
    r"|\bin one\b|\bone-\w+|\bone of the\b|\ben ce moment\b|\bce (?:soir|matin|week-end)\b"
    r"|\bbefore christ\b"
    r"|\best-ce que?\b|\bqu'est-ce que?\b|\bc'est quoi\b|\best-(?:il|elle|ce)\b"
    r"|\bwas it (?:that|who)\b|\b(?:c'est|ca (?:veut|signifie)) (?:dire )?quoi\b"
)


# "This sentence: …": it stands in the message.
_TEXT = re.compile(
    r"\b(?:this|these|the following) (?:\w+ )?(?:sentences?|text|paragraph|numbers?|words?|phrase|lists?"
    r"|fractions?|date|string|title|passage)\b"
    r"|\best[aeo]s? (?:frases?|textos?|parrafo|numeros|palabras|lista|fecha|titulo)\b"
    r"|\bel siguiente texto\b"
    r"|\bdiese[nrsm]? (?:satz|text|absatz|zahlen|worter|liste|datum|titel|begriffe)\b"
    r"|\bden folgenden (?:satz|text)\b"
    r"|\bce(?:tte|t|s)? (?:phrases?|textes?|paragraphe|nombres|mots|liste|date|titre)\b"
    r"|\ble texte suivant\b"
    r"|(?:这|下面|以下)(?:的)?(?:一)?[句段个些行篇则首]?(?:的)?(?:话|文字|文本|句子|段落|数字|数|词语?|单词"
    r"|列表|标题|日期|分数|字符串|短文)"
    r"|\bthe (?:string|word|sentence|numbers|letters|phrase|sequence|fraction|words) |把每个单词|换一种说法"
    r"|^(?:改正语法|校对|翻译|排序|解码)"
)
_CODE = re.compile(
    r"\b(?:this|these|the following|my) (?:\w+ )?(?:lines?|code|function|snippet|script|query|regex|errors?"
    r"|loop|class|program|output|base64|json|yaml"
    r"|xml|sql|table|equation|expression|email addresses)\b|^\W*(?:find|spot) the bug\b"
    r"|\best[aeo]s? (?:codigo|funcion|error|linea|consulta)\b|\bdiese[nrsm]? (?:code|funktion|fehler|zeile"
    r"|abfrage)\b"
    r"|\bce(?:tte|t|s)? (?:code|fonction|erreur|ligne|requete)\b"
    r"|(?:这|下面|以下)(?:的)?[个段行些条]?(?:的)?(?:代码|函数|报错|错误|脚本|语句|表格|列表|方程|json|yaml"
    r"|base64|sql)"
)
_AFTER_COLON = re.compile(r"[:：]\s*\S")
_CODE_SIGNS = re.compile(r"[(){}\[\];=<>]|\w\.\w|::|\n")
_NEEDS_NOTHING = re.compile(
    r"^\W*(?:please )?(?:roll (?:a|two|\d+) (?:die|dice)|(?:flip|toss) a coin|(?:pick|choose|say"
    r"|give me) (?:a|any) (?:random )?number"
    r"|generate an? (?:random |secure |strong )*(?:password|number|uuid|string|guid|hex|name)"
    r"|generate (?:a )?uuid)\b"
    r"|^\W*(?:lanza|tira) (?:un dado|una moneda)|^\W*(?:di|dame|elige) un numero\b"
    r"|^\W*genera una? (?:contrasena|numero|uuid)\b"
    r"|^\W*(?:wurfle|wirf eine munze)|^\W*(?:nenne?|wahle?) eine (?:zufallige )?zahl\b|^\W*(?:erzeuge"
    r"|generiere) (?:ein|eine)\w* (?:zufallig\w* )?(?:passwort|zahl|uuid)"
    r"|^\W*lance (?:un de|une piece)|^\W*(?:donne|choisis)(?:-moi)? un (?:nombre|chiffre)\b"
    r"|^\W*genere une? (?:mot de passe|nombre|uuid)"
    r"|用\S{1,4}[语文话]怎么[说写念拼讲]|\bhow (?:do|would) you (?:say|spell|write"
    r"|pronounce) .{1,40}(?:\bin [a-z]+)?\W*$"
    r"|\bcomo se (?:dice|escribe) .{1,40} en \w+\W*$|\bwie (?:sagt|schreibt) man .{1,40}|\bcomment (?:dit"
    r"|ecrit)-on .{1,40}"
    r"|^(?:请|帮我)?(?:[掷抛扔丢](?:一?[个枚])?(?:骰子|硬币)|从\d+到\d+.{0,4}(?:选|挑)"
    r"|(?:随机)?生成一?[个串].{0,6}(?:密码|UUID|uuid|随机数|数字))"
)


def means_the_text(instruction: str) -> bool:
    """True if the instruction speaks of "this sentence", "these numbers": of the text that comes with it."""
    return bool(_TEXT.search(plain(instruction))) and not is_agreed(instruction)


def brings_code(text: str) -> bool:
    """True if the text speaks of "this function", "this sentence", and code or a colon follows."""
    said = plain(text)
    found = _CODE.search(said) or _TEXT.search(said)
    rest = text[found.end() :] if found else ""
    return bool(_CODE_SIGNS.search(rest) or _AFTER_COLON.search(rest))


def needs_nothing(text: str) -> bool:
    """True if the text asks for a throw of dice, a random number, a word in another language."""
    return bool(_NEEDS_NOTHING.search(plain(text).strip()))


def without_dummies(text: str) -> str:
    """Return the folded text without pronouns that point at nothing ("is it legal to …")."""
    return _DUMMY.sub(" ", plain(text))


def is_quoted(payload: str) -> bool:
    """True for a payload that stood in quotes, a fence, braces or a tag."""
    return bool(_QUOTED.fullmatch(payload))


# ---------------------------------------------------------------- what the message itself holds
_TRANSFORM = re.compile(rf"{whole_words('questions', 'transform')}|^\W*sort (?:these|this|the following)\b")
# What is translated may well be a question.
_TRANSLATE = re.compile(whole_words("questions", "translate"))
# A transformation to a standard that was agreed earlier needs that standard.
_AGREED_FORM = re.compile(
    _any(
        r"\b(?:usual|same|house style|style guide|like before|last time|template|format)\b",
        r"平时|老样子|规矩",
    )
)
_ASKS = re.compile(r"\W*(?:what|which|when|where|who|whose|how|why)\b")


def is_transformation(instruction: str) -> bool:
    """True if the instruction asks to translate, shorten, correct … the text that comes with it."""
    return bool(_TRANSFORM.search(fold(instruction))) and not is_agreed(instruction)


def is_translation(instruction: str) -> bool:
    """True if the instruction asks to translate."""
    return bool(_TRANSLATE.search(fold(instruction)))


def is_agreed(instruction: str) -> bool:
    """True if the instruction asks for a form that was agreed on ("the usual way")."""
    return bool(_AGREED_FORM.search(fold(instruction)))


def asks(payload: str) -> bool:
    """True if what follows a colon is no text but questions: "resume el encargo: cuánto, para cuándo"."""
    return bool(not is_quoted(payload) and _ASKS.match(fold(question_gloss(payload).text)))


# ---------------------------------------------------------------- what everybody could know
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
    _any(
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
    _any(
        rf"^(?:[Ii]n )?(?:[Ww]hen|[Ww](?:hat|hich) year) (?:did|was|were) {_NAME}.*\b(?:happen|end|begin"
        r"|start|fall|die|born|founded|built|signed|published|released|take place|break out)",
        r"^(?:[Ii]n )?[Ww](?:hat|hich) year (?:did|was) the [A-Z]\w+(?: [A-Z]\w+)*"
        r" (?:sink|happen|end|founded|invented)",
        rf"^[Ww]ho (?:won|directed|built|founded|designed|wrote|killed) {_NAME}",
        r"^[Ww]ho wrote [\"'“]?[A-Z][\w ]+[\"'”]?\?*$",
        rf"^[Hh]ow (?:tall|high|long|deep|old|big|far) (?:is|are|was) {_NAME}",
    )
)
_HAN = re.compile("[\u3400-\u9fff]")
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
    if _HAN.search(text):
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
