"""Find passwords that are announced by speech or layout, without a verb such as "is" before the value.

A word such as "password" and, in the same sentence, a token as passwords are made: "the new one for the bank
is set, Redshank12!". A table with a password column. A command with a password among its options.
"""

import re
from collections.abc import Generator, Iterable, Iterator

from proxy.admit.safety import looks
from proxy.admit.safety.detect import Detector, Span, places_of
from proxy.admit.safety.secret_rows import PASSWORD, PASSWORD_STARTS
from proxy.text.sentences import goes_on

_I = re.IGNORECASE
_WORD = re.compile(
    rf"{PASSWORD}|(?<=[a-z]_)pass\b|\b(?:wi-?fi|wlan|ssid)\b[^.\n]{{0,30}}\b(?:keys?|codes?|clé|clave"
    rf"|schlüssel)\b"
    r"|\bcode wi-?fi\b",
    _I,
)
_STARTS = (*PASSWORD_STARTS, "wifi", "wi-fi", "wlan", "ssid", "code wi")
_HEADS = ("pin", "secret", "token", "api")
_REACH = 80  # characters behind the word
_ALONE = r"\S{6,80}\s*(?:\n|\Z)"  # in its line: that is what the sentence before it was about
_SENTENCE_ENDS = re.compile(
    rf"[.!。！][\"')]?\s(?!(?:it'?s|it is|the new one|now it|use|here)\b|\s{{0,2}}{_ALONE})"
    rf"|\n\s*\n(?!{_ALONE})",
    _I,
)
_TOKEN = re.compile(r"(?<![^\s\"'`“(*,:=，：])[^\s\"'`“”()<>|，。、：；]{6,80}")
# A token after these is the name of what the password is for, or of an account.
_NAMES_A_THING = re.compile(
    r"(?:\b(?:for|on|in|of|at|from|via|by|with|user(?:name)?|account|login|host|server|machine|table"
    r"|column|field|file"
    r"|network|device|port|line|step|version|as user|per|than|für|bei|von|mit|de|del|para|por|pour|du"
    r"|sur|per|di"
    r"|от|для|к|на|в|с)\b(?: (?:my|our|the|an?|mein\w{0,2}|der|die|das|el|la|le|los|les))?|@)\W{0,2}$"
    r"|\b(?:promo|discount|coupon|voucher|gift|booking|order|invoice|flight|train|tracking|part|serial|ticket"
    r"|room|reference)(?: (?:code|number|no\.?|reference|id))?(?: is|:)?\W{0,2}$",
    _I,
)
_SPEAKS_ABOUT = re.compile(
    r"\b(?:hash(?:ed|es|ing)?|bcrypt|argon\w{0,3}|scrypt|algorithm|encrypt\w{0,4}|polic(?:y|ies)|field"
    r"|column|table"
    r"|endpoint|method|class|function|module|migration|ticket|issue|version|build|chapter|section"
    r"|docs?|page|guide"
    r"|manager|vault|generator|commit|branch|standard|requires?|must|error)\b",
    _I,
)
_NO_SPACES = re.compile("[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")  # scripts whose "token" may be a clause
_STRONG = re.compile(r"[!@#$%^&*~?+=]")
_TECHNICAL = re.compile(
    r"sha\d{3}-[\w+/=]{8,100}|"
    r"(?i:sha|md|bcrypt|argon|scrypt|pbkdf|utf|base|oauth|iso|rfc|nist|aes|rsa|http|windows|python"
    r"|java|linux|ubuntu|web"
    r"|office|version|v)[-_]?\d.{0,12}|\w[\w.+-]{0,60}@[\w-]{1,60}(?:\.[\w-]{1,30})+"
    r"|\w{2,10}://.{0,80}|[\w./-]{1,70}\.[a-z]{2,4}"
    r"|[$€£¥]\d[\d.,]{0,12}(?:/\w{1,12})?|\d{1,3}%-?\w{0,8}|(?i:q[1-4][-/]?\d{4}|\d{4}[-/]?q[1-4])"
    r"|\d{1,2}(?:[:.]\d\d)?[ap]m(?:[-–]\d{1,2}(?:[:.]\d\d)?[ap]m)?|\d{1,4}(?:k?m|mi)/h|mp[34]\W?\w{0,8}"
    r"|(?:0x)?[0-9a-fA-F]{16,128}|\d[\d.,:/-]{2,30}\w{0,3}|\d{1,4}-[^\W\d]{3,20}|(?:covid|top|ps|xbox"
    r"|iphone|galaxy|pixel)-?\d{1,3}|.{0,40}[/\\].{0,40}[/\\].{0,40}"
)


def find(text: str, lowered: str) -> Iterator[Span]:
    """Yield what a sentence or a table calls a password; `lowered` is the text in lower case."""
    places = places_of(_STARTS, lowered)
    yield from _in_sentences(text, places)
    yield from _in_tables(text, sorted({*places, *places_of(_HEADS, lowered)}))


def _in_sentences(text: str, places: Iterable[int]) -> Iterator[Span]:
    """Yield the tokens made like passwords in a sentence after a word for one."""
    for place in places:
        word = _WORD.match(text, place)
        if word is None:
            continue
        limit = min(len(text), word.end() + _REACH)
        limit = _end_of_sentence(text, word.end(), limit)
        for token in _TOKEN.finditer(text, word.end(), limit):
            made = token.group().rstrip(".,;:*_")
            if not _may_be_made_up(made):
                continue
            before = text[word.end() : token.start()]
            if _SPEAKS_ABOUT.search(before):
                break
            if _is_made_up(made, before):
                yield Span("secret", token.start(), _to_the_blank(text, token))


def _end_of_sentence(text: str, at: int, limit: int) -> int:
    """Return where the sentence ends, at most `limit`."""
    # What stands alone in its paragraph is seen only with that paragraph's end.
    for end in _SENTENCE_ENDS.finditer(text, at, limit + 2 * _REACH):
        if end.start() >= limit:
            break
        if not goes_on(text, end.start()):
            return end.start() + 1
    return limit


def _to_the_blank(text: str, token: re.Match[str]) -> int:
    """Return the end of the token, which the reach may have cut."""
    whole = _TOKEN.match(text, token.start())
    return whole.end() if whole else token.end()


def _may_be_made_up(token: str) -> bool:
    """False for words alone: most tokens, of which "password password …" shows each to many words."""
    return any(map(str.isdigit, token)) or _STRONG.search(token, 0, max(0, len(token) - 1)) is not None


def _is_made_up(token: str, before: str) -> bool:
    """True for letters with digits or symbols among them as in a password: Kiebitz!83, Mirlo2023."""
    value = token.rstrip("!?") or token
    if (
        len(value) < 6
        or _NO_SPACES.search(value)
        or looks.is_placeholder(token)
        or _TECHNICAL.fullmatch(value)
    ):
        return False
    letters, digits = sum(map(str.isalpha, token)), sum(map(str.isdigit, token))
    if _STRONG.search(token[:-1]) or (token[-1] in "!#$" and digits):
        return letters >= 3 and (digits >= 1 or bool(re.search(r"[#$%^&*@!]\w", token)))
    spelled = bool(re.fullmatch(r"\w(?:-\w){4,40}", value)) and digits >= 1
    if _NAMES_A_THING.search(before):
        return False
    mixed = letters >= 4 and digits >= 1 and bool(re.search(r"[^\W\d]{2,}[._-]?\d|\d[^\W\d]|[_-]\d", value))
    plain_word = re.fullmatch(r"[A-Z]?[a-z]{2,4}\d", value)
    return spelled or (mixed and not plain_word)


_MARKS = "|\t;,"  # between the cells of a table
_MOST_ROWS = 200


def _in_tables(text: str, places: Iterable[int]) -> Iterator[Span]:
    """Yield what stands below a head such as "password" in a table: Markdown, CSV or tabs."""
    done = 0
    read: dict[tuple[int, str], int] = {}  # how far, of a column: a row may look like a head
    for place in places:
        start = text.rfind("\n", 0, place) + 1
        if start < done:
            continue
        done = _line_end(text, place)
        if head := _password_column(text[start:done]):
            read[head] = yield from _below(text, max(done, read.get(head, 0)), *head)


def _below(text: str, at: int, column: int, mark: str) -> Generator[Span, None, int]:
    """Yield the column's cells in the lines from `at` on, as long as they are rows of the table; return
    where these end."""
    for _ in range(_MOST_ROWS):
        end = _line_end(text, at)
        cells = text[at:end].split(mark)
        if len(cells) < 2:
            return at
        if column < len(cells):
            start = at + sum(len(cell) + 1 for cell in cells[:column])
            value = cells[column].strip()
            if looks.is_labelled_password(value.strip("-: ")):
                start += cells[column].index(value)
                yield Span("secret", start, start + len(value))
        at = end
    return at


def _line_end(text: str, at: int) -> int:
    """Return where the next line begins."""
    return (text.find("\n", at) + 1) or len(text)


def _password_column(line: str) -> tuple[int, str] | None:
    """Return which cell of a table's head names passwords, and what stands between cells."""
    for mark in _MARKS:
        parts = line.split(mark)
        if len(parts) < 2:
            continue
        for column, part in enumerate(parts):
            if re.fullmatch(
                rf"[\s*\"`]*(?:{PASSWORD}|pass|pin|secret|token|api[ _-]?key)[\s*\"`]*", part, _I
            ):
                return column, mark
    return None


_DOORS = (
    r"\b(?:doors?|gate|alarm|lock(?:er|box)?|key ?box|safe|garage|keypad|vault|entrance|lobby|shed"
    r"|digicode|haustür|tür|tor|porte"
    r"|portail|puerta|portal|garaje|cancello|porta)\b"
)
ROWS: tuple[Detector, ...] = (
    Detector(  # the lockbox opens with 5921, the garage keypad is 2 4 6 8 0
        "secret",
        re.compile(
            rf"{_DOORS}[^.\n]{{0,40}}?\b(?:opens? with|open with|codes?|keypad|combination"
            rf"|unlocks? with|s'ouvre avec"
            r"|se abre con|öffnet mit|si apre con)\b(?:'s)?[^.\w\n]{0,3}(?:(?:is|was|est|es|ist|è"
            r"|c'est|le|la|die|der|el"
            r"|now|still|code|the|il|en)[ :]){0,3}(\d(?:[ -]?\d){2,7}#?"
            r"|[A-Z]?\d[\dA-Z]{2,6})(?![\d.,]\d|-\d)\b",
            _I,
        ),
        starts=tuple(
            "door gate alarm lock key safe garage vault entrance lobby shed digicode haustür tür tor"
            " port puerta garaje"
            " cancello".split()
        ),
    ),
    Detector(  # le code de la porte d'entrée est le 47B92
        "secret",
        re.compile(
            r"\b(?:code|código|codice)\b (?:to |for |of |de |da |del |della "
            r"|d')[^.\n]{0,40}?\b(?:porte|portail|alarme|immeuble|puerta"
            r"|portal|alarma|porta|cancello|coffre|garage|lock|door|gate|alarm"
            r"|safe)\b[^.\d\n]{0,30}?(?:(?<=\s)[A-Z])?(\d[\dA-Z]{2,7}|\d(?:-\d){2,7})(?![\d.,]\d)\b",
            _I,
        ),
        starts=("code", "código", "codice"),
    ),
    Detector(
        "secret",
        re.compile(r"\bdigicode\b[^.\d\n]{0,20}?(\d[\dA-Z]{2,7})(?![\d.,]\d)\b", _I),
        starts=("digicode",),
    ),
    Detector(  # log in with bea@example.org and Teal*2024
        "secret",
        re.compile(
            r"\blog(?:ged|ging)?[ -]?in(?:to)?\b[^.\n]{0,30}?\b(?:with|as|using)\b [^\s,]{2,60}(?: and"
            r"|,| &| /) ([^\s,;\"']{5,100})",
            _I,
        ),
        looks.is_mixed,
        starts=("log",),
    ),
    Detector(  # an address and a password, as vaults export them: bea@example.org / Kite$soar9
        "secret",
        re.compile(r"@[\w-]{1,60}(?:\.[\w-]{1,30}){1,4}\s{0,2}[/|:]\s{0,2}([^\s/|,;]{6,100})(?![^\s.,;])"),
        lambda v: looks.is_mixed(v) and not re.fullmatch(r"\d{2,5}", v),
        starts=("@",),
    ),
    Detector(  # I changed my wifi password to Nettle&Soup4; without such a verb, "to" leads to anything
        "secret",
        re.compile(
            rf"\b(?:chang|updat|re-?set|set|switch)\w{{0,4}}\b[^.\n]{{0,40}}?{PASSWORD}"
            r"(?: (?:for|of|on|at) [\w' -]{1,40}?)? (?:back |over )?to [\"'`(]?(?!be\b)([^\s,;.\"'`]{3,200})",
            _I,
        ),
        looks.is_password,
        starts=("chang", "updat", "reset", "re-set", "set", "switch"),
    ),
    Detector(  # hasło do wifi to rumianek3, salasana on kissa
        "secret",
        re.compile(
            r"(?:hasł[oa](?: do [\w' -]{1,30}?)? to|salasana(?: [\w' -]{1,30}?)? on)"
            r" [\"'`]?([^\s,;.\"'`]{3,200})",
            _I,
        ),
        looks.is_password,
        starts=("hasł", "salasana"),
    ),
    Detector(  # my security answer is bluebird
        "secret",
        re.compile(
            r"\b(?:security|secret) (?:answer|word)(?:'s)?(?: (?:for|to) [\w' -]{1,40}?)?(?: is"
            r"|:)\s{1,2}[\"']?([\w-]{3,60})",
            _I,
        ),
        looks.is_password,
        starts=("security answer", "secret answer", "security word", "secret word"),
    ),
    Detector(  # docker login -u bea -p …, redis-cli -a …
        "secret",
        re.compile(
            r"\b(?:docker|podman|helm|az|cf|redis-cli|psql|mongo(?:sh)?|ldapsearch|smbclient|htpasswd"
            r"|rsync|ftp|lftp|wget|http)\b"
            r"[^\n]{0,120}?\s(?:-p|-a|-w|--pass(?:word)?|--token|--auth)[ =][\"']?([^\s\"']{5,200})"
        ),
        looks.is_mixed,
        hints=(" -p", " -a", " -w", " --pass", " --token", " --auth"),
    ),
    Detector(  # auth=('bea', '…'), HTTPBasicAuth("bea", "…")
        "secret",
        re.compile(
            r"(?:\bauth\s{0,2}=\s{0,2}|basicauth|\blogin"
            r"|\bcredentials?\s{0,2}=\s{0,2})\(\s{0,2}[\"'][^\"'\n]{1,60}[\"'],"
            r"\s{0,3}[\"']([^\"'\n]{3,100})[\"']",
            _I,
        ),
        lambda v: not looks.is_placeholder(v),
        starts=("auth", "basicauth", "login", "credential"),
    ),
    Detector(
        "secret",
        re.compile(r"\becho\s{1,2}[\"']?([^\s\"'|]{4,80})[\"']?\s{0,2}\|\s{0,2}sudo\b"),
        starts=("echo",),
    ),
    Detector(  # <add key="DbPassword" value="…" />, name: password, value: …
        "secret",
        re.compile(
            rf"{PASSWORD}[\"']?,?\s{{1,20}}(?:\"|')?value(?:\""
            rf"|')?\s{{0,2}}[:=]\s{{0,2}}[\"']?([^\"'\n<]{{3,200}}?)(?=[\"'\n]|$)",
            _I,
        ),
        looks.is_labelled_password,
        starts=PASSWORD_STARTS,
    ),
    Detector(
        "secret",
        re.compile(
            r"\b(?:connect\.sid|j?session(?:_?id)?|sid|phpsessid|csrftoken"
            r"|remember_token)=([^\s;,\"']{8,2000})",
            _I,
        ),
        lambda v: len(re.sub(r"\D", "", v)) > 1 and not looks.is_placeholder(v),
        starts=("connect.sid", "session", "jsession", "sid", "phpsessid", "csrftoken", "remember_token"),
    ),
    Detector(  # my password is the word 'kingfisher'
        "secret",
        re.compile(
            rf"{PASSWORD} (?:is|was|:|ist|es|est|è) (?:the|my|a|das|la|le) (?:word|phrase|name|wort"
            rf"|palabra|mot) [\"'`]([^\"'`\n]{{3,80}})",
            _I,
        ),
        starts=PASSWORD_STARTS,
    ),
    Detector("secret", re.compile(r"\bpat[A-Za-z0-9]{14}\.[a-f0-9]{32,64}\b"), starts=("pat",)),
)
