"""Grounding: what an extraction model says the exchanges state, held against what they state.

A fact that quotes evidence must quote it from the exchanges to extract, or have its words there. One that
merely copies what was said was not understood by any model: it is cut to the statements that would be kept
without one (see worth), and what the assistant said is not copied at all.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from proxy.background.extraction import cues, transcript
from proxy.background.extraction.dates import anchored, expiry
from proxy.background.extraction.doubt import steers
from proxy.background.extraction.provenance import flat, share, told
from proxy.background.extraction.verbatim import candidate as copied
from proxy.background.extraction.worth import Statement, statements
from proxy.background.safety.planted import REMOVED
from proxy.background.safety.policy import SafetyPolicy
from proxy.domain import Candidate, Evidence, Exchange, Memory
from proxy.sentences import sentences
from proxy.terms import normalise, plain, stems, terms

MIN_SUPPORT = 0.6  # share of a fact's terms that must be in the batch where its evidence is not
_UNQUOTED = 0.2  # the same where the model quotes nothing: gold facts have .22 at least
_TELLING, _UNRELATED = 3, 0.1  # evidence of fewer terms proves nothing for a fact of which less was said
# A fact without a quotation is the assistant's where one answer holds so much of its terms, and all that the
# user said less than so much: none of 1,134 gold facts.
_ANSWERED, _UNSAID = 0.6, 0.5
_HEARD = 0.3  # of the terms of what only the assistant states, the user must have said
_HEDGED, _UNCLEAR, _ASSISTANT = 0.6, 0.5, 0.7  # the highest confidence of each
_MIN_COPY = 4  # letters: less stands everywhere
_NARRATION = stems("stated set want prefer plan currently now new call name fact")
_SPOKEN = 0.34  # of a fact's terms are in the sentence that stands for the quote that a model left out
# "User I moved to Leeds", "User my sister drives": the sentence itself, with a subject put before it.
_PUT_BEFORE = re.compile(
    r"^(?:the )?user(?: (?:says?|said|states?|stated|mention(?:s|ed)|notes?|noted)(?: that)?"
    r"|'s (?:note|statement|message|words?))?\s?[:,]?\s+|^用户(?:说|表示|提到)?[:\uff1a,\uff0c]?(?=我)",
    re.IGNORECASE,
)
_IDENTIFIER = re.compile(
    r"(?=[!-/:-~]*+\d)(?=[!-@\[-`{-~]*+[A-Za-z])[A-Za-z0-9_%#@!+./=-]{8,}|\d(?:[ -]?\d){7,}"
)
_DATE_LIKE = re.compile(r"[\d./:-]+|\d+(?:st|nd|rd|th|h|am|pm)?")

_SPEAKER = re.compile(
    r"^(?:the )?(?P<who>user|human|usuari[oa]|nutzer(?:in)?|utilisateur|用户|assistant|ai|asistente"
    r"|assistent|助手)"
    r"(?:'s (?:notes?|statements?|messages?|words))?"
    r"(?:\s?(?:said|says|stated|mentioned|wrote|told \w+|dijo|sagte?|a dit|说|表示|提到))?(?: that| que"
    r"| dass)?"
    r"\s?[:\uff1a]\s?",
    re.IGNORECASE,
)
_ASSISTANTS = ("assistant", "ai", "asistente", "assistent", "助手")
# What was done in the conversation, in place of what is so.
_TALK = re.compile(
    r"^(?:the )?user (?:has |also |then |just )?(?:ask(?:s|ed)|is asking|inquir\w+|wonder(?:s|ed)"
    r"|greet(?:s|ed)"
    r"|thank(?:s|ed)|said (?:hi|hello|thanks)|want(?:s|ed) to know|request(?:s|ed) (?:help|a|an|information)"
    r"|need(?:s|ed) help|is (?:curious|interested in knowing))\b"
    r"(?! (?:to be (?:called|addressed)|not to|never|that (?:all|every|the assistant)"
    r"|the assistant (?:to|not)))"
    r"|^(?:the )?(?:assistant|ai|chatbot)\b(?!'s name)"
    r"|^用户(?:询问|问了?|想知道|打招呼|感谢|请求帮)|^(?:助手|AI)(?:建议|说|提供|解释|推荐|回答)"
    r"|^(?:el |la )?usuari[oa] (?:pregunt|salud|agradec)\w+|^(?:der |die )?nutzer(?:in)? (?:fragt"
    r"|bedankt|grusst)\w*"
    r"|^l'utilisat\w+ (?:demand|remerci|salu)\w+|^(?:el |la )?asistente\b|^der assistent\b|^l'assistant\b",
)
_LEANS = re.compile(
    r"^(?:he|she|they|it|this|that|these|those|there)\b(?! (?:user|project)\b)|^(?:他|她|它|这)(?!么|个项目)"
)
_ABOUT_USER = re.compile(
    r"^\W*(?:the )?(?:user|i|my|we)\b|^\W*(?:用户|我|ユーザー)|^(?:el |la )?usuari", re.IGNORECASE
)
_ADOPTS = re.compile(
    r"^\W*(?:(?:yes|yeah|ok(?:ay)?|great|perfect|good|nice|cool|thanks?)\W+){0,3}(?:let'?s (?:do|go|use"
    r"|take)|i'?ll (?:do|go|take|use)"
    r"|go with|sounds (?:good|great)|agreed|deal|sold|that works|works for me|do (?:it|that)"
    r"|i like (?:it|that)"
    r"|we'?ll (?:do|take|use|go)|save (?:it|that|this)|keep (?:it|that|this))\b"
    r"|^\W*(?:perfect|exactly|deal|agreed|sold|love it)\b"
    r"|^\W*(?:就这(?:样|么)|好的?,?就|同意|可以,?就|按这个|没问题|成交)|^\W*(?:そうしよう"
    r"|それで(?:いこう|お願い))"
    r"|^\W*(?:vale|perfecto|de acuerdo|hecho|trato hecho|me quedo con|lo hacemos)\b|^\W*(?:abgemacht"
    r"|so machen wir|einverstanden|passt)\b"
    r"|^\W*(?:d'accord|parfait|ca marche|on fait comme ca|adopte)\b",
)
_YES = re.compile(
    r"\W*(?:yes|yeah|yep|yup|right|correct|exactly|true|indeed|sure|i do|i am|it is|si|claro|exacto|ja|genau"
    r"|stimmt|richtig|oui|ouais|c'est (?:ca|exact)|exact)\b|\W*(?:是|对|對|嗯|没错|沒錯|はい|네)"
)
_FIRST_PERSON = re.compile(
    r"(?:and |but |so |also,? )?(?:i|i'm|i've|i'll|i'd|my|we|we're|we've|our)\b|我", re.IGNORECASE
)
_WANTS_A_PLAN = re.compile(
    r"\b(?:plan|schedule|itinerary|routine|checklist|procedure|steps|recipe|outline|draft)\b|计划|安排"
    r"|行程|步骤|清单"
    r"|\b(?:horario|itinerario|pasos|receta|zeitplan|ablauf|schritte|rezept|programme|etapes|recette)\b"
)


@dataclass(frozen=True, slots=True)
class Source:
    """One exchange to extract from, as it was shown, and in the forms in which texts are compared."""

    exchange: Exchange
    said: str
    answer: str
    flat_said: str
    flat_own: str  # of what is said, the user's own words
    flat_answer: str
    words: frozenset[str]
    sentences: frozenset[str]  # of what is said, flat, of some length
    kept: tuple[Statement, ...]
    adopted: bool  # the user takes up the answer in their next words
    confirmed: bool  # it asks, and the user says yes

    def states(self, span: str) -> bool:
        return span in self.flat_said


def sources(exchanges: Sequence[Exchange], policy: SafetyPolicy) -> list[Source]:
    """Return the exchanges as sources, in order."""
    found: list[Source] = []
    for place, exchange in enumerate(exchanges):
        said, answer = transcript.said(exchange, policy), transcript.answer(exchange, policy)
        after = exchanges[place + 1].said if place + 1 < len(exchanges) else ""
        found.append(
            Source(
                exchange=exchange,
                said=said,
                answer=answer,
                flat_said=flat(said),
                flat_own=flat(told(said)),
                flat_answer=flat(answer),
                words=frozenset(terms(said)) | frozenset(terms(answer)),
                sentences=frozenset(f for s in sentences(said) if len(f := flat(s)) >= _MIN_COPY),
                kept=tuple(statements(said)),
                adopted=bool(_ADOPTS.search(plain(after))),
                confirmed=bool(re.search(r"[?\uff1f]", answer) and _YES.match(plain(after))),
            )
        )
    return found


def ground(found: Iterable[Candidate], sources: list[Source], known: Sequence[Memory]) -> list[Candidate]:
    """Return the facts that the sources support, each once, with its origin; the others are left out."""
    grounded: dict[str, Candidate] = {}
    for candidate in found:
        for fact in _ground(candidate, sources, known):
            grounded.setdefault(normalise(fact.content), fact)
    return list(grounded.values())


def _ground(candidate: Candidate, sources: list[Source], known: Sequence[Memory]) -> Iterator[Candidate]:
    candidate, by_assistant = _unprefixed(candidate)
    if by_assistant:
        return
    candidate = _without_subject(candidate, sources)
    content, span = flat(candidate.content), flat(candidate.evidence)
    if any(s.states(content) for s in sources):
        yield from _statements_of(candidate, content, sources)
        return
    if any(content in s.flat_answer for s in sources) and not (span and any(s.states(span) for s in sources)):
        return  # the assistant's sentence, copied
    if candidate.content.rstrip().endswith(("?", "\uff1f")) or _TALK.search(plain(candidate.content)):
        return
    fact = _stated(candidate, sources, recalled=any(content == flat(m.content) for m in known))
    if fact is not None:
        yield replace(fact, replaces=_shown(fact.replaces, known))


def _unprefixed(candidate: Candidate) -> tuple[Candidate, bool]:
    """Return the candidate without "User said:", and whether it names the assistant as the speaker."""
    prefix = _SPEAKER.match(candidate.content)
    if prefix is None:
        return candidate, False
    return (
        replace(candidate, content=candidate.content[prefix.end() :]),
        prefix["who"].lower() in _ASSISTANTS,
    )


def _without_subject(candidate: Candidate, sources: list[Source]) -> Candidate:
    """Return the candidate as the sentence that it copies, if it is one with "User" put before it."""
    put = _PUT_BEFORE.match(candidate.content)
    if put is None:
        return candidate
    rest = candidate.content[put.end() :]
    if _FIRST_PERSON.match(rest) or any(flat(rest) in s.sentences for s in sources):
        return replace(candidate, content=rest)
    return candidate


# ---------------------------------------------------------------- copies
def _statements_of(candidate: Candidate, content: str, sources: list[Source]) -> Iterator[Candidate]:
    """Yield the user's statements that the copy holds or is part of, from the last exchange that has them."""
    if len(content) < _MIN_COPY:
        return
    holder = next((s for s in reversed(sources) if s.states(content)), None)
    if holder is None:
        return
    if content not in holder.flat_own and steers(candidate.content):
        fact = replace(candidate, evidence=candidate.content)
        yield replace(
            fact,
            observed_at=holder.exchange.said_at,
            timezone=holder.exchange.timezone,
            origin=_origin(fact, holder.exchange),
        )
        return  # a rule in a pasted text: its owner decides (see doubt)
    for statement in holder.kept:
        text = flat(statement.text)
        if content in text or flat(statement.content) in content:
            fact = copied(statement, holder.exchange)
            yield replace(
                fact,
                confidence=min(fact.confidence, candidate.confidence),
                tags=candidate.tags,
                source="explicit" if statement.explicit else "extracted",
            )


# ---------------------------------------------------------------- stated facts
def _stated(candidate: Candidate, sources: list[Source], *, recalled: bool) -> Candidate | None:
    """Return the fact with its origin, its confidence as its words allow; None if it is not supported.

    `recalled`: it is one of our memories, and news only if the user says it."""
    span = flat(candidate.evidence)
    source = next((s for s in reversed(sources) if span and s.states(span)), None)
    spoken = next((s for s in reversed(sources) if span and span in s.flat_answer), None)
    if source is None and spoken is not None:
        return None if recalled else _from_answer(candidate, spoken, sources)
    if source is None and (answered := _only_answered(candidate.content, sources)) is not None:
        return None if recalled else _from_answer(candidate, answered, sources)
    if source is None:
        support, source = _best_source(candidate.content, sources)
        quotes = span or _FIRST_PERSON.match(candidate.content)  # or says "I", which is a quotation too
        if support < (MIN_SUPPORT if quotes else _UNQUOTED) or _invents(candidate.content, sources):
            return None
        if recalled and share(candidate.content, source.said) < MIN_SUPPORT:
            return None
        candidate, span = replace(candidate, evidence=_sentence_for(candidate.content, source.said)), ""
    elif (
        len(terms(candidate.evidence)) < _TELLING and _best_source(candidate.content, sources)[0] < _UNRELATED
    ):
        return None  # "thanks" was said, and proves nothing
    return _placed(candidate, source, asked=_is_asked_for(span, source.said))


def _from_answer(candidate: Candidate, source: Source, sources: list[Source]) -> Candidate | None:
    """Return what the assistant stated, marked as such, if the user had said it, took it up, or had asked
    for a plan; None otherwise."""
    heard = share(candidate.content, "\n".join(s.said for s in sources)) >= _HEARD
    planned = candidate.type == "procedural" and _WANTS_A_PLAN.search(plain(source.said))
    if not (heard or source.adopted or planned):
        return None
    fact = _placed(candidate, source, asked=False)
    return fact and replace(fact, source="assistant", confidence=min(fact.confidence, _ASSISTANT))


def _only_answered(content: str, sources: list[Source]) -> Source | None:
    """Return the exchange whose answer states the fact, if the user neither said it nor confirmed it: a model
    that quotes nothing has it from there all the same."""
    words = frozenset(terms(content)) - _NARRATION
    in_answer = {s.exchange.id: len(words & frozenset(terms(s.answer))) for s in sources}
    best = max(sources, key=lambda s: in_answer[s.exchange.id])
    said = frozenset[str]().union(*(terms(s.said) for s in sources))
    if in_answer[best.exchange.id] < _ANSWERED * len(words) or len(words & said) >= _UNSAID * len(words):
        return None
    return None if best.confirmed else best


def _placed(candidate: Candidate, source: Source, *, asked: bool) -> Candidate | None:
    exchange = source.exchange
    sentence = _around(candidate.evidence, source.said)
    private = cues.is_confidential(sentence) and cues.is_confidential(candidate.content)
    if private and not _ABOUT_USER.search(candidate.content):
        return None
    return replace(
        candidate,
        content=anchored(candidate.content, candidate.type, exchange.local),
        confidence=_confidence(candidate, sentence),
        source="explicit" if asked else candidate.source,
        importance=0.8 if asked else 0.6 if candidate.type == "preference" else candidate.importance,
        observed_at=exchange.said_at,
        timezone=exchange.timezone,
        expires_at=candidate.expires_at or expiry(candidate.content, candidate.type, exchange.timezone),
        origin=_origin(candidate, exchange),
    )


def _is_asked_for(span: str, said: str) -> bool:
    """True if the paragraph of the evidence asks to remember it."""
    return bool(span) and any(span in flat(p) and cues.is_explicit(p) for p in cues.paragraphs(said))


def _origin(candidate: Candidate, exchange: Exchange) -> Evidence:
    return Evidence(exchange.session_id, exchange.id, candidate.evidence[:500].replace(REMOVED, ""))


def _confidence(candidate: Candidate, sentence: str) -> float:
    highest = 1.0
    if cues.is_hedged(candidate.content):
        highest = _HEDGED
    if _LEANS.search(plain(candidate.content)):
        highest = _UNCLEAR  # nobody will know whom or what it is about
    return min(candidate.confidence, highest)


def _around(evidence: str, said: str) -> str:
    """Return the sentences that the evidence stands in, itself where it is not found."""
    span = flat(evidence)
    if not span:
        return ""
    return (
        " ".join(s for s in sentences(said) if flat(s) and (span in flat(s) or flat(s) in span)) or evidence
    )


def _best_source(content: str, sources: list[Source]) -> tuple[float, Source]:
    """Return the share of the content's terms that the batch holds, and the exchange with the most.

    Equal shares go to the later exchange: facts are restated as they are settled."""
    words = frozenset(terms(content)) - _NARRATION
    everything = frozenset[str]().union(*(s.words for s in sources))
    support = len(words & everything) / len(words) if words else 1.0
    return support, max(sources, key=lambda s: (len(words & s.words), s.exchange.seq))


def _sentence_for(content: str, said: str) -> str:
    """Return the user's sentence that has most in common with the fact, "" where none has a third of it."""
    words = frozenset(terms(content))
    shared = ((len(words & frozenset(terms(s))), s) for s in sentences(said))
    most, best = max(shared, key=itemgetter(0), default=(0, ""))
    return best if words and most / len(words) >= _SPOKEN else ""


def _invents(content: str, sources: list[Source]) -> bool:
    """True if the fact holds a code or a long number that nobody gave. Where something was redacted, it may
    be that: the gate knows a secret when it sees one."""
    if any("[redacted" in s.said for s in sources):
        return False
    said = [t for s in sources for t in (s.flat_said, s.flat_answer)]
    codes = (m.group() for m in _IDENTIFIER.finditer(content) if not _DATE_LIKE.fullmatch(m.group()))
    return any(all(flat(code) not in text for text in said) for code in codes)


def _shown(given: str | None, known: Sequence[Memory]) -> str | None:
    """Return the id that the model means: one that it was shown, whole or shortened; None otherwise."""
    if given is None or len(given) < 6:
        return None
    bare = given.removeprefix("mem_")
    found = [m.id for m in known if m.id == given or m.id.removeprefix("mem_").startswith(bare)]
    return found[0] if len(found) == 1 else None
