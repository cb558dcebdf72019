"""Recognise a question about something public that changes by the hour ("Is the Snake Pass open at the
moment?").

The rule decides word by word. Something public must be named (`words/public.txt`): a feed, a road and its
state, a team and how it plays. Every other word must ask, count or say when, or name a place: by standing
behind a preposition or beside the public thing. One word that does neither may belong to the user's life,
and the question is searched. Whether the question says "my" is checked in `decide`.
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from functools import cached_property

from proxy.gloss import language
from proxy.pipeline.roles import is_role, of_somebody, speaks_of_role
from proxy.terms import fold, plain
from proxy.wordlists import any_of, sections, whole_words, words
from proxy.writing_systems import HAN

_LONGEST = 140  # characters; a longer question tells a story
_LONGEST_NAME = 3  # words of a place's name


class _Kind(StrEnum):
    """What a word says, named as its section."""

    FEED = "feeds"
    FEED_OF_PLACE = "feeds of places"
    WEATHER = "weather verbs"
    RUNS = "runs"
    RIDE = "rides"
    HOW = "how it runs"
    IS = "how it is"
    LEAVES = "leaves"
    SIGHT = "sights"
    BUILDING = "buildings"
    SHOWS = "shows"
    TEAM = "teams"
    PLAYS = "plays"
    PROVIDER = "providers"
    DOWN = "services down"
    NOW = "this moment"


_WORD = re.compile(r"[^\W_]+(?:[-'’.:/&][^\W_]+)*['’]?")
_ELIDED = re.compile(r"(?:l|d|qu|n|s|c|j|m|t)['’](?=\w{2})")
_SPELT = re.compile(r"[^\W\d_]+(?: [^\W\d_]+)*")
_STEM = 3  # letters by which a kind's phrases are looked for at all


class _Table:
    """The words and phrases of a kind."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.words = frozenset(line for line in lines if _SPELT.fullmatch(line) and " " not in line)
        phrases = sorted((line for line in lines if line not in self.words), key=len, reverse=True)
        self.phrases = re.compile(rf"(?<!\S)(?:{'|'.join(phrases)})(?!\S)") if phrases else None
        # What a text must hold, or none of the phrases is in it.
        self.stems = frozenset(found[:_STEM] for found in re.findall(r"[a-z]{3,}", " ".join(phrases)))


_TABLES = {kind: _Table(sections("public")[kind]) for kind in _Kind}
_SERVICES = frozenset(sections("live")["services"])
_GLUE, _NO_PLACE = words("public", "glue"), words("public", "own places")
_LIVED, _KNOWN_NAMES = words("world", "lived"), words("world", "known names")
_CITIES = _KNOWN_NAMES | words("knowledge", "cities") | words("knowledge", "places")
OWN = re.compile(whole_words("public", "own"))
_AT = frozenset(
    "in at near from to around over between into towards on outside en a por desde hasta hacia cerca"
    " direccion nach ab bis uber richtung"
    " durch vor um zwischen aus auf sur vers depuis pres direction and y und et or ou o em no na".split()
)
_TOWARDS = frozenset("to nach bis a hasta hacia vers".split())
# Behind these may stand whose it is.
_OF = frozenset("of de d for para fur pour von bei l".split())
_WITH_ARTICLE = frozenset("del du des au aux al im am vom zum zur do da".split())
_NETWORKS = frozenset("metro subway tube underground tram tranvia u-bahn s-bahn cercanias".split())
_OF_THE = frozenset("del du des".split())
_ARTICLES = frozenset("the la le les el los las l der die das den dem".split())
_CONTRACTED = re.compile(
    r"\b(how|what|where|when|who|long|much|many|that|there|here|it)['’]s\b", re.IGNORECASE
)
# A flight, a train, a road: it has a number of its own.
_CODE = re.compile(r"[a-z]{1,3}-?\d{1,4}")
_NUMBER = re.compile(
    r"\d+(?:[.:,h]\d+)*(?:am|pm|h|st|nd|rd|th|e|o)?|[a-z0-9-]+\.(?:com?|net|org|io|dev|de|fr|es|uk|ai|app)"
)
_YEAR = re.compile(r"(?<!\w)(?:1[5-9]|20)\d\d(?!\w)")  # what was then stands in books
_FLIGHT = re.compile(r"\b([A-Z]{2}|[A-Z]\d) (\d{2,4})\b")
_STREET = re.compile(r"\w{3,}(?:strasse|str|platz|allee|gasse|ufer)")
# "… or is it just me": of an outage. What it says of the user is nothing.
_OR_ONLY_ME = re.compile(
    r"[,;]? (?:(?:or|oder|o|ou) (?:is it |it's |its |liegt'?s? |liegt es |ist das |es |sera |c'est )?"
    r"(?:que |just |only |nur |solo |sólo |juste |seulement )?(?:me|my end|an mir|bei mir|chez moi|moi"
    r"|cosa m[ií]a|yo)"
    r"|can'?t tell if it'?s (?:them|me))"
    r"(?:,? (?:regarde|check|schau mal|mira(?: si hay \w+)?|look))?\W*$",
    re.IGNORECASE,
)
_ZH_REQUEST = re.compile("帮我|替我|给我|麻烦|告诉我|我想(?:知道|查|问)|请问?|幫我|給我")


def _followed(by: int, *names: str) -> str:
    """Return the pattern of a word of the first section, and of the second within so many characters."""
    first, second = (any_of("public", name) for name in names)
    return rf"{first}.{{0,{by}}}{second}"


_ZH_LIVE = re.compile(
    "|".join(
        (
            any_of("public", "zh feeds"),
            _followed(10, "zh rides", "zh how rides run"),
            _followed(10, "zh roads", "zh how roads are"),
            _followed(10, "zh sights", "zh how sights are"),
            _followed(14, "zh look up", "zh looked up"),
            _followed(6, "zh looked up", "zh look up"),
        )
    )
)
_ZH_OWN = re.compile(any_of("public", "zh own"))


def without_doubt(text: str) -> str:
    """Return the text without "or is it just me" at its end, which makes it no question about the user."""
    return _OR_ONLY_ME.sub("", text) if len(text) <= _LONGEST else text


def is_public(text: str) -> bool:
    """True if only what is public and changes by the hour is asked for."""
    if len(text) > _LONGEST or _YEAR.search(text):
        return False
    if HAN.search(text):
        return _is_public_zh(text)
    text = _FLIGHT.sub(r"\1\2", _CONTRACTED.sub(r"\1", text))  # or "how long's" were somebody's
    said = _Said(text)
    return said.is_live() and not OWN.search(said.folded) and not of_somebody(text)


def _is_public_zh(text: str) -> bool:
    # "帮我查一下": the "me" of a request.
    said = _ZH_REQUEST.sub(" ", fold(text))
    if not _ZH_LIVE.search(said) or _ZH_OWN.search(said):
        return False
    return not speaks_of_role(said, "zh", frozenset(("船", "大夫")))


class _Said:
    """A question's words, and what each of them says."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.spelt = _WORD.findall(text)
        self.words = [plain(word).strip("'") for word in self.spelt]
        self.bare = [_ELIDED.sub("", word) for word in self.words]
        self.said = frozenset(self.words).union(self.bare)
        self.folded = " ".join(self.words)
        self.kinds: list[set[_Kind]] = [set() for _ in self.words]
        self.held: set[_Kind] = set()
        # Who begins with a capital writes names with one.
        self.careful = text.strip(" ¿¡\"'").strip()[:1].isupper()
        stems = {word[:_STEM] for word in self.words} | {
            part[:_STEM] for word in self.words if "-" in word for part in word.split("-")
        }
        stems |= {bare[:_STEM] for bare in self.bare}
        for kind, table in _TABLES.items():
            self._mark(kind, table, stems)

    @cached_property
    def german(self) -> bool:
        """True if every noun has a capital. Few questions get so far that it matters."""
        return language(self.text) == "de"

    def _mark(self, kind: _Kind, table: _Table, stems: set[str]) -> None:
        if not self.said.isdisjoint(table.words):
            self.held.add(kind)
            for i, (word, bare) in enumerate(zip(self.words, self.bare, strict=True)):
                if word in table.words or bare in table.words:
                    self.kinds[i].add(kind)
        if table.phrases is None or stems.isdisjoint(table.stems):
            return
        for found in table.phrases.finditer(self.folded):
            first = self.folded.count(" ", 0, found.start())
            for said in self.kinds[first : first + found[0].count(" ") + 1]:
                said.add(kind)
            self.held.add(kind)

    def is_live(self) -> bool:
        """True if a public thing is named, and every other word asks, counts, or names a place."""
        topic = self._topic()
        if topic is None:
            return False
        placed = self._places()
        return placed is not None and (placed or not topic)

    def _topic(self) -> bool | None:
        """Return whether the public thing needs a place to be known by; None if there is none."""
        held = self.held
        if _Kind.FEED in held or {_Kind.TEAM, _Kind.PLAYS} <= held:
            return False
        if _Kind.SIGHT in held and held & {_Kind.SHOWS, _Kind.IS, _Kind.HOW}:
            return False
        if _Kind.DOWN in held and self._names_service():
            return False
        if held & {_Kind.FEED_OF_PLACE, _Kind.WEATHER}:
            return True
        if _Kind.RIDE in held and (_Kind.HOW in held or {_Kind.LEAVES, _Kind.NOW} <= held):
            return True
        if held & {_Kind.RUNS, _Kind.RIDE} and held & {_Kind.IS, _Kind.SHOWS}:
            return True
        if _Kind.BUILDING in held and held & {_Kind.SHOWS, _Kind.IS}:
            return True
        if any(_CODE.fullmatch(word) for word in self.words) and held & {_Kind.HOW, _Kind.LEAVES, _Kind.IS}:
            return True
        return None

    def _names_service(self) -> bool:
        return any(
            (_Kind.PROVIDER in kinds or word in _SERVICES) and (not i or self.words[i - 1] not in _ARTICLES)
            for i, (word, kinds) in enumerate(zip(self.words, self.kinds, strict=True))
        )

    def _places(self) -> bool | None:
        """Return whether a place is named; None if a word may be of somebody's life."""
        placed = _Kind.SIGHT in self.held
        names = after = 0
        i = 0
        while i < len(self.words):
            if not self._is_open(i):
                placed |= self._is_known_place(i)
                i += 1
                continue
            end = i + 1
            while end < len(self.words) and self._is_open(end):
                end += 1
            if end - i > _LONGEST_NAME or not self._is_name(i, end):
                return None
            if not self._is_at(i) and not self._is_before_thing(end):
                if not self._is_after_thing(i, end):
                    return None
                after += 1
            # "Cheapest flight Vienna to Porto": the second is where to.
            names += not names or self.words[i - 1] not in _TOWARDS
            i = end
        # "Pollen count Lyon" names one; of "sunset yoga in Leeds", yoga is none.
        return None if after and names > 1 else placed or names > 0

    def _is_known_place(self, i: int) -> bool:
        """True for a name that everybody knows, and for the number of a flight, a train, a road."""
        word = self.words[i]
        numbered = (word.isdigit() or len(word) == 1) and i > 0 and _Kind.RIDE in self.kinds[i - 1]
        timed = _Kind.RIDE in self.kinds[i] and word[0].isdigit()
        road = word.isdigit() and i > 0 and self.words[i - 1] == "route"
        line = "-" in word and all(part in _CITIES for part in word.split("-"))  # Paris-Lyon
        named = line or word in _KNOWN_NAMES or bool(_CODE.fullmatch(word) or _STREET.fullmatch(word))
        return named or numbered or timed or road

    def _is_open(self, i: int) -> bool:
        """True for a word that says nothing known."""
        word = self.words[i]
        if self.kinds[i] == {_Kind.TEAM} and _Kind.PLAYS not in self.held:
            return True  # Stuttgart, where nobody plays
        if (
            self.kinds[i]
            or _STREET.fullmatch(word)
            or word in _GLUE
            or word in _KNOWN_NAMES
            or word in _SERVICES
        ):
            return False
        if _ELIDED.match(word) and _ELIDED.sub("", word) in _GLUE:
            return False
        if len(word) == 1 and i and _Kind.RIDE in self.kinds[i - 1]:
            return False  # RER B
        return not (_NUMBER.fullmatch(word) or _CODE.fullmatch(word))

    def _is_name(self, start: int, end: int) -> bool:
        """True if the words may be a name, and none of them is of somebody's life."""
        for i in range(start, end):
            bare = _ELIDED.sub("", self.words[i])
            spelt = _ELIDED.sub("", self.spelt[i])
            named = self.careful and spelt[0].isupper() and not self.german
            if not named and (bare in _NO_PLACE or bare in _LIVED or is_role(bare)):
                return False
            if self.careful and not (spelt[0].isupper() or spelt[0].isdigit()):
                return False
            if bare.endswith("'s") and not (i + 1 < len(self.spelt) and self.spelt[i + 1][0].isupper()):
                return False
        return True

    def _is_at(self, start: int) -> bool:
        """True if a preposition of place stands before the words."""
        elided = _ELIDED.match(self.words[start])
        before = elided[0][:-1] if elided else self.words[start - 1] if start else ""
        if before in _AT:
            return True
        if before in _OF:
            at = start - 1 if elided else start - 2
            if at >= 0 and self.words[at] not in _NETWORKS and self.kinds[at] & {_Kind.RIDE, _Kind.WEATHER}:
                return self._goes_on(start + 1)
            return at >= 0
        if start > 1 and self.kinds[start - 2] & {_Kind.RUNS, _Kind.BUILDING} and before in _OF_THE:
            return True
        if before in _WITH_ARTICLE or before in _ARTICLES:
            behind = self.words[start - 2] if start > 1 else ""
            capital = self.spelt[start][0].isupper() and not self.german
            return capital and (before in _WITH_ARTICLE or behind in _AT)
        return False

    def _goes_on(self, start: int) -> bool:
        """True for the train "of Ulm to Augsburg": nobody's name, since it goes on to a place."""
        ends = range(start, len(self.words) - 1)
        return any(self.words[i] in _TOWARDS and self._is_open(i + 1) for i in ends)

    def _is_before_thing(self, end: int) -> bool:
        """True if the words stand before what is named after them: "the Snake Pass"."""
        return bool(self._kinds_at(end) & {_Kind.RUNS, _Kind.BUILDING})

    def _is_after_thing(self, start: int, end: int) -> bool:
        """True if the words follow what is of a place ("pollen count Lyon"), or begin the text before it."""
        if self._kinds_at(start - 1) & {_Kind.FEED_OF_PLACE, _Kind.RUNS, _Kind.BUILDING}:
            return True
        return not start and _Kind.FEED_OF_PLACE in self._kinds_at(end)

    def _kinds_at(self, i: int) -> set[_Kind]:
        return self.kinds[i] if 0 <= i < len(self.kinds) else set()
