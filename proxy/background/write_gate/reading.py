"""One statement, parsed for comparison: what it is about, which values it gives, what it says has changed."""

import re
from dataclasses import dataclass
from functools import lru_cache

from proxy.background.write_gate.change_words import BESIDE, KIN, PATTERNS, PLANNED, REASON, Cue
from proxy.embedtext import without_note
from proxy.sentences import without_inner_stops
from proxy.terms import fold, plain, stems, terms
from proxy.writing_systems import IDEOGRAPH

_MONTH = (
    r"(?:jan(?:uary|uar|vier)?|ene(?:ro)?|feb(?:ruary|ruar|rero)?|fevrier|mar(?:ch|zo|s)|marz|apr(?:il)?"
    r"|abril|avril"
    r"|may|mayo|mai|june?|juni|junio|juin|july?|juli|julio|juillet|aug(?:ust)?|agosto|aout|sept?(?:ember)?"
    r"|septiembre|septembre|oct(?:ober|ubre|obre)?|okt(?:ober)?|nov(?:ember|iembre|embre)?|dec(?:ember"
    r"|embre)?"
    r"|dez(?:ember)?|dic(?:iembre)?)"
)
WEEKDAY = (
    r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days?|lunes|martes|miercoles|jueves|viernes|sabados?"
    r"|domingos?"
    r"|(?:mon|diens|donners|frei|sams|sonn)tags?|mittwochs?|lundis?|mardis?|mercredis?|jeudis?"
    r"|vendredis?|samedis?"
    r"|dimanches?|weekdays?|weekends?)"
)
_COUNT = (
    r"(?:one|two|three|four|five|six|seven|eight|nine|ten|twelve|twice|once"
    r"|second|third|fourth|fifth|half|\d+)"
)
_HOUR = r"(?:una|dos|tres|cuatro|cinco|seis|siete|ocho|nueve|diez)"
_PERIOD = rf"(?:day|week|month|year|morning|evening|night|{WEEKDAY})"
_CJK_NUMBER = r"[零一二两三四五六七八九十百千半\d]++"
# Kinds of values, the most telling first: what one has taken, the next ones do not see.
VALUE_KINDS = {
    "money": (
        r"[£$€¥]\s?\d[\d.,]*\s?k?"
        r"|\d[\d.,]*+\s?(?:[£$€¥]|dollars?|euros?|eur|usd|pounds?|k\b|万元|万|元|块)"
    ),
    "time": rf"\b\d{{1,2}}:\d\d\b|\b\d{{1,2}}\s?(?:am|pm|uhr|h)\b|\blas {_HOUR}\b|{_CJK_NUMBER}\s?点半?",
    "weekday": rf"\b{WEEKDAY}\b|[周星期]{{1,2}}[一二三四五六日天末](?!次)",
    "every": (
        rf"\b(?:every|each|per|jede\w*|cada|chaque|toutes?) (?:other |{_COUNT} |\w+nd |\w+rd "
        rf"|\w+th )?{_PERIOD}s?\b"
        rf"|\b{_COUNT} (?:times )?an? {_PERIOD}\b|\b(?:daily|weekly|monthly|yearly)\b"
        r"|每[天周月年日晚早]|一[天周]"
    ),
    "date": (
        r"\b\d{4}-\d\d-\d\d\b"
        rf"|\b(?:\d{{1,2}}(?:st|nd|rd|th)?\.? (?:de )?{_MONTH}|{_MONTH} \d{{1,2}}"
        rf"|{_MONTH})\b(?:,? (?:de )?\d{{4}}\b)?"
        rf"|(?:\d{{4}} ?年 ?)?{_CJK_NUMBER} ?月(?: ?{_CJK_NUMBER} ?[日号])?|{_CJK_NUMBER} ?[日号]"
    ),
    "version": r"\b[a-z]+ \d+(?:\.\d+)+\b",
    "year": r"\b(?:19|20)\d\d\b",
    "count": (
        rf"\b\d[\d.,]*+\s?%|\b\d[\d.,]*+\s?[a-z]+\b|\b{_COUNT}\b"
        rf"|{_CJK_NUMBER}\s?[次杯个只条台家口人岁分章名张泡瓶碗盒包袋支根片颗斤克里米层遍趟回圈件套辆]"
    ),
    "number": r"\d[\d.,:/-]*",
}
_VALUE_PATTERNS = tuple((kind, re.compile(pattern)) for kind, pattern in VALUE_KINDS.items())
_NO_NAME = re.compile(rf"(?:{_MONTH}|{WEEKDAY})$|(?:users?|usuari[oa]s?|nutzer\w*|utilisat\w+)\b")
_NAME = re.compile(
    r"(?<![.!?;:]\s)(?<=[\w,'\")]\s)[A-Z][\w&+.-]*|\b\w*[a-z][A-Z]\w*|\b[A-Za-z]+-?\d[\w.-]*"
    r"|(?<=['’])[A-Z]\w+"
)
_NAME_BY_CJK = re.compile(r"[A-Za-z][\w.+-]+|《[^》]+》|“[^”]+”")
_THE_USERS = re.compile(r"^[^,;]{2,40} (?:is|are) (?:the )?user's ")  # "Olga is the user's manager"
_ASIDES = re.compile(r"\s?\([^()]{0,80}\)")  # "(formerly Undertow)" names a thing, it is not what is said
_SENTENCE = re.compile(r"[.;:!?]\s+")
_LEADING = re.compile(
    r"^(?:The |El |La |Los |Las |Le |Les |L['’]|Der |Die |Das )?"
    r"(?!(?:The|Der|Die|Das|El|La|Los|Las|Le|Les|L|On|In|At|Since|From|To)\b)([A-Z][\w-]+(?: [A-Z][\w-]+)*)"
    r"(?=['’]s\b|(?:, [^,]{2,60},)?"
    r" (?:is|was|has|will|\w{3,}s|\w+ed|took|left|went|now|es|fue|ya|se|est|a|trae|tiene|vive)\b)"
)
# Where every noun has a capital, a capital names nobody.
_GERMAN = re.compile(
    r"\b(?:der|die|das|des|dem|den|ist|und|wird|wurde|hat|bei|nutzer\w*|jetzt|nicht|ein|eine|betragt|kostet"
    r"|liegt|steht)\b"
)
_USER = re.compile(
    r"^(?:the |el |la |l['’]|der |die |des )?(?:users?|usuari[oa]s?|nutzer\w*|benutzer\w*|utilisat\w+)\b"
    r"|^用户|^我"
)
_FRENCH = re.compile(r"\b(?:est|une?|les?|du|aux?|utilisat\w+)\b")
_ENDING = re.compile(r"(?:es|[es])$")
_VERB = re.compile(r"[;,]| (?:is|are|was|has|had|ist|hat|es|est|a) ")
_ASIDE = re.compile(r"\bwegen (?:de[rs] )?\w+ ")  # before the verb, where the reason does not end the clause
_AROUND = re.compile(r"(?:ne |n'|kein\w* )(.+) (?:plus|pas|mehr)$")
_TO = re.compile(r"\b(?:to|into|auf|zu|nach|al?|en)\b|到|成|为")
_WITH = re.compile(r"\b(?:with|by|as|to|for|because|durch|por|para|par|como|als|comme)\b")
_SINCE = re.compile(r"^(?:since|seit|desde|depuis|from|starting|a partir|as of|ab )|起")
_CLAUSE = re.compile(
    r"\s*(?:[;；：。]|:(?!\d))\s*|[,，](?!\d|\s?(?:to|au|al|auf)\b)\s*|\s(?:and|but|y|und|et)\s(?!\w+['’]s\b)"
)


# Words that carry a fact's form, not its matter.
FORM = stems(
    "befor ago ete name call now curren set own every day each t s doesn doesn't don don't isn"
    " isn't won won't can't"
    " usuario usuaria nutzer nutzerin utilisateur utilisatrice"
    " por para con al sus lo fue esta ha ya desde entre"
    " im um auf bei zu zur zum vom von mit den dem wird wurd werden hat sich als fur gegen nach seit"
    " noch nur"
    " au aux par sur pour avec dans qui son sa ses d l n ne"
    " some any all more most new long sinc until till onc still instead both also only"
    " once nouveau nuevo nuevamente erneut wieder 再次 再 次 又"
    " ce cet cette ces il elle ils elles leur"
    " 现 在 现在 目 前 目前 已 经 已经 叫"
)
# Words that many facts share: alone they show no common topic. Names of values among them.
COMMON = stems(
    "abgab termin frist datum preis kost fecha plazo precio cost prix delai"
    " plan want have tak tok go goe went work liv pay paid cost run get make mad prefer lik need"
    " com mov start"
    " dose pric amount dat tim deadlin due plac number valu total limit chang switch rais stop quit decid"
    " euro eur dollar pound year month week hour minut morn project trip meet dr mr ms mrs"
    " paga pag cuesta kostet zahlt bezahlt cout coute pai va geht macht hace fait benutzt costar"
    " use using tiene usa vive trabaja prefiere benutzt arbeitet habite travaille"
    " travel journey flight holiday viaje reise voyage vacances rendez-vous 旅行"
)
_SYNONYM = {
    **dict.fromkeys(("resid", "wohnt", "lebt", "vive", "viv", "habit", "vit", "hom"), "liv"),
    "wak": "get",
    "favorit": "favourit",
    "color": "colour",
    "lov": "lik",
    "prefer": "want",
    "bought": "buy",
    "sold": "sell",
}


@dataclass(frozen=True, slots=True)
class Claim:
    """A clause that says of itself that something changed."""

    cue: Cue
    before: frozenset[str]  # words before the cue, its values left out
    after: frozenset[str]
    owner: frozenset[str]  # the first words before the cue, where no spaces part them
    head: frozenset[str]  # the last ones: what has changed
    changed: frozenset[str]  # words between the cue and "to": what was changed, where nothing stands before
    names_before: frozenset[str]
    kinds: tuple[str, ...]  # of the values that it gives, in order


@dataclass(frozen=True, slots=True)
class Statement:
    """What comparison needs to know of one text."""

    text: str  # folded, without the note of its date
    words: frozenset[str]  # what it is about; numbers and dates are values
    names: frozenset[str]  # folded
    values: tuple[tuple[str, str], ...]  # (kind, text)
    holder: str  # "user", a leading name, or "": whose fact it is
    kin: frozenset[str]  # whose fact it is among the user's people
    clauses: tuple[str, ...]
    claims: tuple[Claim, ...]
    beside: bool  # says that it holds beside others
    planned: bool
    denied: bool
    is_cjk: bool
    is_german: bool

    def of_kind(self, kind: str) -> frozenset[str]:
        """Return the values of one kind."""
        return frozenset(v for k, v in self.values if k == kind)


@lru_cache(maxsize=256)
def read(text: str) -> Statement:
    """Return the statement read."""
    said = without_note(text).strip()
    folded = plain(said).replace("on call", "on-call").replace("every other", "every second")
    rest, values = _values(folded)
    names = _names(without_inner_stops(said))
    heads = [c for c in _CLAUSE.split(_head(folded)) if c]
    clauses = tuple(c for c in _CLAUSE.split(_ASIDES.sub("", folded)) if c)
    return Statement(
        text=folded,
        words=_words(rest),
        names=names,
        values=values,
        holder=_holder(said, folded),
        kin=_kin(folded),
        clauses=clauses,
        claims=tuple(claim for c in clauses for claim in _claims(c, names)),
        beside=bool(BESIDE.search(heads[0] if heads else folded)),
        planned=bool(PLANNED.search(folded)),
        denied=any(PATTERNS[c].search(folded) for c in (Cue.DENIED, Cue.ENDED)),
        is_cjk=len(IDEOGRAPH.findall(folded)) * 3 > len(folded),
        is_german=len(_GERMAN.findall(folded)) > 1 and "\u2019" not in said,
    )


def _head(text: str) -> str:
    """Return the text up to its reason."""
    reason = REASON.search(text)
    return text[: reason.start()] if reason and reason.start() > 8 else text


def _values(folded: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the text without its values, and the values by kind."""
    found: list[tuple[int, str, str]] = []
    for kind, pattern in _VALUE_PATTERNS:
        for match in pattern.finditer(folded):
            text = " ".join(match.group().replace(",", "").split())
            found.append((match.start(), _kind_of(kind, text), text))
        folded = pattern.sub(_blank, folded)
    return folded, tuple((kind, text) for _, kind, text in sorted(found))


def _kind_of(kind: str, value: str) -> str:
    """Return the kind of a value; counts are told apart by what they count."""
    if kind != "count":
        return kind
    unit = re.sub(r"[\d.,\s零一二两三四五六七八九十百千半]+", "", value)
    return f"count:{unit}" if unit and unit not in _COUNT else "count"


def _blank(match: re.Match[str]) -> str:
    # As long as what it stood for: later patterns tell where they matched.
    return " " * len(match.group()) if IDEOGRAPH.search(match.group()) is None else "，" * len(match.group())


def _names(said: str) -> frozenset[str]:
    pattern = _NAME_BY_CJK if IDEOGRAPH.search(said) else _NAME
    found = {m.group() for m in pattern.finditer(said)}
    for sentence in _SENTENCE.split(said):
        leading = _LEADING.match(sentence)
        if leading and not _USER.match(fold(sentence)) and not IDEOGRAPH.search(said):
            found.update(leading.group(1).split())
    plain = (fold(n).removesuffix("'s").removesuffix(".") for n in found)
    kept = (n for n in plain if len(n) > 1 and not n[0].isdigit() and not _NO_NAME.match(n))
    return frozenset(t for n in kept for t in terms(n))  # in the form that the words have


def _holder(said: str, folded: str) -> str:
    if _USER.match(folded) or _THE_USERS.search(folded):
        return "user"
    leading = _LEADING.match(said)
    return fold(leading.group(1)).removesuffix("'s") if leading else ""


def _kin(folded: str) -> frozenset[str]:
    """Return the people of the user's that the statement begins with: it is theirs."""
    start = folded[:6] if IDEOGRAPH.search(folded[:4]) else _VERB.split(folded[:32])[0]
    found = {m.group() for m in KIN.finditer(start)}
    if _FRENCH.search(folded):
        found.discard("son")  # "passe son permis"
    return frozenset(_ENDING.sub("", kin) for kin in found)


def _claims(clause: str, names: frozenset[str]) -> list[Claim]:
    """Return what a clause says has changed, at most one claim for each cue."""
    clause = _head(_ASIDE.sub("", clause))
    claims = []
    for cue, pattern in PATTERNS.items():
        match = pattern.search(clause)
        if match is None:
            continue
        start, end = clause[: match.start()], clause[match.end() :]
        held = frozenset(n for n in names if len(n) > 1 and re.search(rf"(?<!\w){re.escape(n)}", start))
        inside = _AROUND.match(match.group())  # "ne court plus"
        end = f"{inside[1]} {end}" if inside else end
        before, after = _words(_values(start)[0]), _words(_values(end)[0])
        until = _WITH if cue is Cue.INSTEAD else _TO
        changed = _words(_values(until.split(end)[0])[0])
        pieces = _PIECES.findall(_values(start.removeprefix("用户"))[0]) or [""]
        owner = _words(pieces[0])
        head = _words(next((p for p in reversed(pieces) if len(p.strip("，, ")) > 1), ""))
        claims.append(
            Claim(cue, before, after, owner, head, changed, held, _kinds(cue, match.group(), clause, end))
        )
    return claims


def _kinds(cue: Cue, found: str, clause: str, end: str) -> tuple[str, ...]:
    """Return the kinds of the values that a claim gives, in order. Since when it holds is none of them."""
    if cue is not Cue.NOW:
        return tuple(kind for kind, _ in _values(end)[1] or _values(clause)[1])  # the verb may come last
    since = _SINCE.search(found) is not None
    return tuple(k for k, _ in _values(clause)[1] if not (since and k in ("date", "year")))


def _words(text: str) -> frozenset[str]:
    """Return the words of a text that carry its matter; in Chinese, bigrams between function characters."""
    found: set[str] = set()
    for piece in _PIECES.findall(_ELISION.sub("", text)):
        if not IDEOGRAPH.match(piece):
            found.update(_SYNONYM.get(t, t) for t in terms(piece) if t not in FORM)
        elif len(piece) == 1:
            found.add(piece)
        else:
            found.update(piece[i : i + 2] for i in range(len(piece) - 1))
    return frozenset(w for w in found if w)


_ELISION = re.compile(r"\b(?:[cdjlmnst]|qu)'(?=[^\W\d_]{2})")
_FUNCTION = "用户我的在了和与从把被将已是有每等也都就对为由因到至个要一这那他她它们只会于及后时"
_PIECES = re.compile(f"(?:(?![{_FUNCTION}])[\u3400-\u4dbf\u4e00-\u9fff])+|[^\u3400-\u4dbf\u4e00-\u9fff]+")


def has_matter(words: frozenset[str]) -> bool:
    """True if there is a word among them that few facts share."""
    return bool(words - COMMON)
