"""Split a message into an instruction and its payload, the text to be worked on, and recognise what is to
be done with it.

Each is a table of patterns, on folded text unless said otherwise. What needs no text at all (a throw of dice,
a word in another language) stands here, too.
"""

import re

from proxy.gloss import question_gloss
from proxy.terms import fold, plain
from proxy.wordlists import either, whole_words

# ---------------------------------------------------------------- instruction and payload
_QUOTED = re.compile(
    either(
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
    either(
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
