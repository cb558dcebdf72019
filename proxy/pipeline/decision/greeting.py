"""Recognise a message that is only a greeting, by a small grammar: words of greeting, wishes, praise, and
whom one speaks to.

A message is cut at punctuation and emojis; every piece must be a greeting, a wish, a word of praise or
thanks, or small talk that asks nothing of the user's life ("back again", "did you sleep well"), as a whole.
So "hope you're well" passes in any wording, and one piece that says or asks anything else ends it. The words
stand in `words/greetings.txt` and `words/courtesies.txt`: a language is added there, and in the forms below.
"""

import re
from collections.abc import Iterable, Iterator

from proxy.terms import plain
from proxy.wordlists import alternatives, sections, whole_words
from proxy.writing_systems import UNSPACED

LONGEST = 120  # characters; a longer message is not only a greeting


def _of(section: str) -> str:
    return _either(sections("courtesies")[section])


def _either(lines: Iterable[str]) -> str:
    """Return the pattern of any of the alternatives, the longest that fits and no other.

    "哈哈哈" is told in four ways as 哈, 哈哈 and 哈哈哈, a message of twenty in a million, and backtracking
    would try them all."""
    return f"(?>{alternatives(sorted(lines, key=len, reverse=True))})"


# A wish that asks: "hope you remember the boat".
_NO_ASKING = rf"(?!.*\b{_of('asking')}\b)"
_ZH_NO_ASKING = rf"(?!.*{_of('zh asking')})"
# Wishes, wishes of good days, praise: forms with places for words.
_FORMS = (
    # English
    r"(?:i |we |just )?(?:hope|hoping|wish|wishing|trust) (?:that )?(?:you|your|all|everything|things|life"
    rf"|the|to) ?{_NO_ASKING}.*",
    rf"(?:and |so )?(?:have|enjoy) (?:yourself|(?:a|an|the|your)(?: \w+){{0,4}} {_of('en day')})"
    r"(?: \w+){0,3}",
    rf"(?:a )?(?:very )?(?:(?:happy|merry|good|blessed|joyful) {_of('en day')}"
    rf"|(?:happy|merry|blessed) {_of('en feast')})(?: {_of('en to whom')})*",
    r"(?:that|this|it|you|they)(?:'s| is| was|'re| are| were|'ve been| have been)"
    rf"(?: {_of('en very')})* {_of('en fine')}(?: \w+){{0,3}}",
    # Spanish
    rf"(?:y )?(?:espero|deseo|ojala) (?:que )?(?:todo|estes?|hayas?|te|le|tengas?|pases?|os|tu|usted|la"
    rf"|el) ?{_NO_ASKING}.*",
    rf"(?:y )?que (?:tengas?|te vaya|le vaya|vaya|pases?|estes?|descanses?|disfrutes?|duermas?|todo"
    rf"|os vaya) ?{_NO_ASKING}.*",
    rf"(?:feliz|felices|buen[oa]?s?) (?:y )?{_of('es day')}(?: {_of('es to whom')})*",
    rf"(?:eres|esta|estuvo|es|fue|era)(?: {_of('es very')})* {_of('es fine')}",
    # German
    rf"(?:ich |wir )?(?:hoffe|hoffen|wunsche?n?)(?: dass)?(?: (?:du|dir|es|alles|ihnen|sie|euch|ihr"
    rf"|geht's|dein|deine)) ?{_NO_ASKING}.*",
    rf"(?:dass )?(?:du|dir geht|dir geht's|es geht|es dir|dir) {_NO_ASKING}"
    r"(?:.*(?:gut|geschlafen|schon|prima|super|bestens).*)",
    r"(?:(?:ich )?wunsche?(?: (?:dir|euch|ihnen))? )?(?:noch )?(?:einen? |ein )?(?:schon|gut|frohlich|froh"
    rf"|angenehm|erholsam)e?[nrs]? {_of('de day')}(?: {_of('de to whom')})*",
    rf"(?:das|es|du) (?:hat|hast|war|ist|bist)(?: {_of('de very')})* {_of('de fine')}",
    # French
    rf"(?:et )?(?:j'espere|je te souhaite|je vous souhaite|en esperant)(?: que)?(?: (?:tu|vous|tout|ta"
    rf"|votre|une|un|la|le|ca)) ?{_NO_ASKING}.*",
    rf"que (?:tout|ta|votre|tu|vous) {_NO_ASKING}.*",
    r"passez? une? (?:tres )?(?:bonne?|belle?|excellente?|agreable) \w+",
    r"(?:une? )?(?:tres )?(?:bon|bonne|belle|beau|joyeux|joyeuses|excellente?|heureuse?)"
    rf" {_of('fr day')}(?: {_of('fr to whom')})*",
    r"(?:ca|cela|c'|tu|vous)(?: ?(?:m'a|m'as|est|etait|es|etes|a|t'es))"
    rf"(?: {_of('fr very')})* {_of('fr fine')}(?: (?:merci|aide))?",
)
_ZH_FORMS = (
    rf"(?:愿|祝福?|祝愿|希望|但愿)(?:你|您|大家|一切|今天|各位|我们|周末|新的|身体|万事|学习|工作"
    rf"|早日){_ZH_NO_ASKING}.{{0,14}}",
    r"(?:你|您|这|这个|那|回答|讲得|解释得|今天|你们)?(?:也)?(?:真|真的|太|很|好|非常|挺|特别|超|超级|十分"
    rf"|可)?(?:有)?(?:是)?{_of('zh fine')}(?:了|啦|极了|呀|啊|哦|的)*",
)


def is_greeting(text: str) -> bool:
    """True if the text is only greetings, wishes, thanks, praise, farewells or acknowledgements."""
    if len(text) > LONGEST:
        return False
    folded = _STRETCHED.sub(r"\1", plain(text))
    if _ONLY_GREETING.fullmatch(folded):
        return bool(_GREETING.search(folded))
    pieces = [piece.strip(" '\"-") for piece in _CUT.split(folded)]
    said = [piece for piece in pieces if _SAYS.search(piece)]
    if not said:
        return bool(_EMOJI.search(text))
    if not all(_PIECE.fullmatch(piece) or _ONLY_GREETING.fullmatch(piece) for piece in said):
        return False
    return any(_PIECE.fullmatch(piece) or _GREETING.search(piece) for piece in said)


def _listed() -> Iterator[str]:
    """Yield the pieces of `words/courtesies.txt`: whole ones, and those that words of a section follow."""
    for name in sections("courtesies"):
        start, _, times = name.partition(", then ")
        if times:
            yield f"{_of(start)}(?: {_of(name)}){_TIMES[times]}"
        elif name.endswith(" pieces") and name != _ZH_PIECES:
            yield _of(name)


def _small_talk() -> Iterator[str]:
    """Yield the small talk, of languages with spaces: not atomic, since its forms begin alike."""
    for name, lines in sections("courtesies").items():
        if name.endswith(_SMALL_TALK) and name != _ZH_SMALL_TALK:
            yield rf"(?:{'|'.join(lines)})(?!\S)"


_SMALL_TALK, _ZH_SMALL_TALK = " small talk", "zh small talk"
_TIMES = {"any of": "*", "some of": "+"}
_ZH_PIECES = "zh pieces"
_STRETCHED = re.compile(r"([a-z])\1{2,}")
_SAYS = re.compile(r"\w")
_CUT = re.compile(r"[^\w\s'’-]+|\n|(?<=[a-z0-9])\s*(?=[\u3400-\u9fff])|(?<=[\u3400-\u9fff])\s+")
_EMOJI = re.compile("[\u2600-\u27bf\U0001f300-\U0001faff]")
_GREETING = re.compile(whole_words("greetings", "greetings"))
_LISTED = [*sections("greetings")["greetings"], *sections("greetings")["fillers"]]
_WORDS = (
    rf"(?>\b{_either(word for word in _LISTED if not UNSPACED.search(word))}\b"
    rf"|{_either(filter(UNSPACED.search, _LISTED))})"
)
_ONLY_GREETING = re.compile(rf"[\W_]*+(?:{_WORDS}[\W_]*+)++")
_PIECE = re.compile(
    rf"(?:{_WORDS}\s+){{0,3}}(?:{'|'.join((*_FORMS, *_listed(), *_small_talk()))})(?:\s+{_WORDS}){{0,3}}"
    rf"|{'|'.join((*_ZH_FORMS, _of(_ZH_PIECES), *sections('courtesies')[_ZH_SMALL_TALK]))}"
)
