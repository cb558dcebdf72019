"""Split a question that compares two things into its two sides: "How many weeks between the bid and the
final papers?", "Which came first, the new job or the move?", "Did we swap it before or after the upgrade?"

Neither side is near the vector of the whole, and each is told in a memory of its own: so each is looked up by
itself (see `several`). What joins the sides is grammar, and of that there is little in any language. (76
questions of times, of 28 users, answers among the first five: .68 without, .73 with it.)
"""

import re

_MOST_CHARS, _MOST_HAN = 300, 100  # a longer message tells a story

_UNIT = (
    r"(?:days|weeks|months|years|hours|nights|días|semanas|meses|años|noches|tage|wochen|monate|jahre|nächte"
    r"|jours|semaines|mois|ans|nuits)"
)
# How long, how many of a unit of time.
_SPAN = (
    rf"\b(?:how (?:long|soon|much time|much longer|(?:many|few) (?:\w+ ){{0,2}}?{_UNIT})"
    rf"|cuánt[oa]s? (?:tiempo|{_UNIT})|cuánto (?:pasó|falta\w*|hubo|hay)|wie ?(?:lange|viele[nr]? {_UNIT})"
    rf"|combien de (?:temps|{_UNIT}))\b"
)
# Words that ask; accents tell "cuándo" from "cuando", "où" from "ou".
ASKING = (
    r"(?:what|which|when|where|who|whose|whom|how|why"
    r"|qué|cuál(?:es)?|cuándo|a?dónde|quién(?:es)?|cómo|cuánt[oa]s?"
    r"|wer|was|wann|wo|woher|wohin|wie|wieviele?|welche[mnrs]?|warum|wieso|weshalb|wem|wen|wessen"
    r"|qui|quoi|quel(?:le)?s?|quand|où|comment|combien|pourquoi)"
)
_GAP = r"\b(?:overlap|gap|apart|compare|differ\w*|diferencia\w*|unterschied\w*|abstand|différence\w*)\b"
_WORDS = r"[^?!\n]{3,120}?"
_ONE, _OTHER = rf"(?P<one>{_WORDS})", rf"(?P<other>(?!{ASKING}\b){_WORDS})"  # what asks again is no side
_AND = r"(?:and|und|y|e|et)"
_END = rf"(?=[?.!]|$|[,;]? {_AND} (?:by|mit|um|con|de|(?:\w+ )?{ASKING})\b|, {ASKING}\b)"
_EITHER_WAY = (
    r"(?:before or after|after or before|antes o después(?: de(?: que|l)?)?|vor oder nach|avant ou après)"
)
_WHO = r"(?:i|we|you|he|she|it|they|the|my|our|his|her|their|this|that)"
_ENGLISH_VERB = rf"(?:did|do|does|was|were|is|are|am|will|would|can|could) {_WHO}\b"

_RULES = tuple(
    re.compile(rule)
    for rule in (
        # How long between the one and the other?
        rf"^(?=.*(?:{_SPAN}|{_GAP}|, {ASKING}\b)).*?\b(?:between|entre(?: que)?|zwischen) {_ONE},? {_AND}"
        rf" {_OTHER}{_END}",
        # Which was first, the one or the other?
        r"\b(?:first|earlier|sooner|later|longer|last|before|primero|antes|después|más \w+|zuerst|früher|eher"
        r"|später|länger|premier|d'abord|avant|plus (?:tôt|tard|long\w*))\s*[,:;]\s*"
        rf"{_ONE},? (?:or|oder|o|u|ou) {_OTHER}{_END}",
        # Was it before or after the one that the other?
        rf"\b(?:was it|is it|fue|war es|c'était) {_EITHER_WAY} {_ONE}"
        rf" (?:that|when|que|dass|als) {_OTHER}{_END}",
        # Did the other happen before or after the one?
        rf"^(?P<other>{_WORDS}) {_EITHER_WAY} {_ONE}{_END}",
        # How long from the one to the other?
        rf"^(?=.*{_SPAN}).*?\b(?:from|desde(?: que)?|seit|von|depuis(?: que| qu')?) {_ONE},?"
        r" (?:to|till?|until|hasta(?: que)?|bis(?: zu[mr]?)?|jusqu'(?:à|au)(?: ce que)?)"
        rf" (?P<other>{_WORDS})(?=[?.!,]|$)",
        # How long after the one did the other?
        rf"{_SPAN}[^?,]{{0,12}}? (?:after|before|since) {_ONE} (?P<other>{_ENGLISH_VERB}{_WORDS}){_END}",
        # How old was the other when the one?
        rf"(?P<other>\b(?:how old|wie alt)\b{_WORDS}),? (?:when|als) {_ONE}{_END}",
        # How long did the other before the one?
        rf"^(?P<other>[^?]{{0,80}}?{_SPAN}(?:{_WORDS})?) (?:after|before|until|till|since"
        r"|compared (?:with|to)"
        r"|después de(?: que|l)?|antes de(?: que|l)?|hasta(?: que)?|nachdem|bevor|bis|nach|vor"
        rf"|après(?: que)?|avant(?: que| de)?|jusqu'(?:à|au)) {_ONE}{_END}",
    )
)

_HAN_ONE, _HAN_OTHER = r"(?P<one>[^,，?？]{2,24}?)", r"(?P<other>[^,，?？]{2,24}?)"
_APART = r"[,，]?\s*(?:之间|中间|当中|前后|哪[个件边头样]?.{0,3}[先前早]|谁先|先后|隔|差|相差|相隔)"
_HAN_RULES = tuple(
    re.compile(rule)
    for rule in (
        r"先(?P<one>[^,，?？]{2,20})[,，]?还是先?(?P<other>[^,，?？]{2,20})",
        rf"从{_HAN_ONE}[到至]{_HAN_OTHER}{_APART}",
        rf"(?P<one>[^,，?？和跟与]{{2,24}}?)[和跟与到]{_HAN_OTHER}{_APART}",
        rf"{_HAN_ONE}(?:之后|以后|后)[,，]?(?:又|再)?(?:过了?|隔了?|等了?)(?:多少|几|多)个?"
        r"(?:[天周月年久]|星期|礼拜)[,，]?(?P<other>[^,，?？]{2,24})",
        rf"{_HAN_ONE}(?:那天|那时|的时候|时)[,，]?(?:离|距离?|到){_HAN_OTHER}(?:还|有)",
        rf"{_HAN_OTHER}是?在{_HAN_ONE}(?:之前还是之后|前还是后|之前还是以后)",
    )
)
_HAN = re.compile("[\u3400-\u9fff]")
_OF_NOTHING = re.compile(
    rf"{_SPAN}|\b(?:is|are|was|has|it|been|there|now|left|ago|passed|take|took|did|do)\b|[\W_]"
)


def sides(text: str) -> tuple[str, ...]:
    """Return the two things whose order or distance in time the text asks for, as they stand in it; () where
    it asks for none."""
    low, is_han = text.lower().replace("’", "'"), _HAN.search(text)
    if len(text) > (_MOST_HAN if is_han else _MOST_CHARS) or len(low) != len(text):  # "İ" becomes two
        return ()
    for rule in _HAN_RULES if is_han else _RULES:
        if found := rule.search(low):
            places = [found.span(side) for side in ("one", "other")]
            both = all(_OF_NOTHING.sub("", low[slice(*place)]) for place in places)
            return tuple(text[slice(*place)].strip(" ,") for place in places) if both else ()
    return ()
