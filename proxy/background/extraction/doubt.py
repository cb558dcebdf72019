"""Decide which candidates are suspicious: attempts to steer the assistant, fiction, states that soon pass.

The same words are a preference in the user's mouth and an attack in a pasted page. So both are asked:
does the candidate steer the assistant, and whose words does it rest on?
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proxy.background.extraction.framed import is_passing, is_supposed
from proxy.background.extraction.provenance import Voice, flat, share, voice
from proxy.background.safety.policy import SafetyPolicy
from proxy.domain import Candidate, Exchange


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why a candidate is not stored, in a constant word. `review`: its owner may decide otherwise."""

    reason: str
    review: bool = True


Judge = Callable[[Candidate], Doubt | None]

# Approves, promotes, addresses the assistant, sends it somewhere.
_PUSHES = re.compile(
    r"\b(?:pre-?)?(?:approved|authori[sz]e[sd]?|permitted|whitelisted|allow-?listed|exempt(?:ed)?"
    r"|waive[sd]?|consent(?:s|ed)?|granted)\b|\bpermission\b"
    r"|\bwithout (?:asking|confirm\w*|approval|review|checking|permission)\b|\bno longer (?:needs?"
    r"|requires?|wants?)\b|\b(?:is|are) (?:now )?optional\b"
    r"|\bskip(?:s|ped)? (?:the )?(?:confirm\w*|review|check\w*|approval)|\bno (?:confirmation"
    r"|approval|review) (?:is )?(?:needed|required|necessary)"
    r"|\b(?:the|this|any|an|your) (?:ai|assistants?|chatbots?|bots?|llm|language model|ai agents?)\b"
    r"|\brecommend(?:s|ed|ing)?\b|\b(?:suggest|promote|endorse|advertise|upsell|praise)(?:s|d"
    r"|ing)?\b|\b(?:best|leading|preferred|official|trusted|number one|#1)\b[^.\n]{0,20}"
    r"\b(?:vendor|provider|partner|product|choice|solution|tool|service|supplier|platform)\b"
    r"|\b(?:chosen|decided on|committed to|signed up for|switched to)\b"
    r"|https?://|\bwww\.|\b(?:pip|npm|brew|apt|apt-get|cargo) (?:i|install)\b|\bcurl\b|\bwget\b"
    r"|\bsudo\b|\brm -rf\b|\|\s?(?:ba|z)?sh\b|\bforce[- ]push|--force\b"
    r"|\b(?:save|store|add|write|commit)\b[^.\n]{0,20}\bmemory\b|\bremember\b"
    r"|推荐|推销|首选|授权|批准|同意|免费|无需(?:确认|审批|询问)|不(?:用|必|需要)(?:确认|审批|询问)|可选的?|助手|人工智能|记住"
    r"|recomend|empf[ie]hl|recommand|consigli|autori[sz]|genehmig|freigegeben|approuv|aprobad"
    r"|разреш|рекоменд|одобр|推奨|おすすめ|承認|추천|승인",
    re.IGNORECASE,
)
# Sets a rule.
_RULES = re.compile(
    r"\b(?:always|never|must(?: not)?|from now on|going forward|henceforth|in (?:the )?future"
    r"|every time|under no circumstances|do not|don'?t)\b"
    r"|\b(?:should|shall) (?:always|never|only|not|be (?:treated|considered|answered))\b"
    r"|总是|始终|务必|必须|一律|今后|以后|从现在|永远|不得|不要"
    r"|\b(?:siempre|nunca|debe|immer|niemals|muss|ab sofort|toujours|jamais|doit|désormais|sempre"
    r"|mai|deve|всегда|никогда|должен)\b|必ず|常に|絶対|항상|절대|반드시",
    re.IGNORECASE,
)


_THE_USER = re.compile(
    r"\b(?:users?|i|my|we|our)\b|用户|我|ユーザー|사용자|пользовател|usuari|nutzer|utilisat|utente",
    re.IGNORECASE,
)
_STATED = 0.5  # of a fact's terms in a text: the text states it
_HEARD = 0.3  # of a fact's terms must be the user's, where only the assistant states it


def judge_of(policy: SafetyPolicy, exchanges: Sequence[Exchange]) -> Judge:
    """Return the judgement of candidates that were extracted from these exchanges."""
    by_id = {exchange.id: exchange for exchange in exchanges}

    def judge(candidate: Candidate) -> Doubt | None:
        exchange = by_id.get(candidate.origin.exchange_id) if candidate.origin else None
        if exchange is None:
            return None
        speaker = voice(candidate.content, candidate.evidence, exchange)
        if reason := _steering(speaker, f"{candidate.content}\n{candidate.evidence}", policy):
            return Doubt(reason)
        reason = _not_meant(speaker, candidate, exchange)
        return Doubt(reason, review=False) if reason else None

    return judge


def no_doubt(candidate: Candidate) -> None:
    """Doubt no candidate: it comes from its owner's own hand."""


def steers(text: str) -> bool:
    """True if the text sets a rule or pushes something: in another's mouth, a case for review."""
    return bool(_PUSHES.search(text) or _RULES.search(text))


def _steering(speaker: Voice, text: str, policy: SafetyPolicy) -> str | None:
    pushes = bool(_PUSHES.search(text))
    if speaker is Voice.RELAYED and (pushes or not policy.tool_output):
        return "tool_output"
    if speaker is Voice.QUOTED and (pushes or _RULES.search(text)):
        return "quoted_instruction"
    if speaker is Voice.ANSWER and pushes:
        return "assistant_instruction"
    if speaker is Voice.UNKNOWN and pushes and _RULES.search(text):
        return "unsourced_instruction"
    return None


_QUOTATION = re.compile(
    r"\"[^\"\n]{4,800}+\"|“[^”\n]{4,800}+”|„[^“”\n]{4,800}+[“”]|「[^」\n]{4,800}+」|『[^』\n]{4,800}+』"
    r"|«[^»\n]{4,800}+»|»[^«\n]{4,800}+«|‘[^’\n]{4,800}+’(?!\w)"
)
_FIRST_PERSON = re.compile(
    r"\b(?:i|i'm|i've|my|ich|mein|je|j'ai|mon|yo|mi|eu|io|я|мой)\b|我|私|나는|저는", re.IGNORECASE
)
_THE_USER_DOES = re.compile(
    r"^\W*(?:the )?user\b(?!'s)|^\W*(?:i|i'm|i've|my)\b|^\W*(?:用户(?!的)|我)"
    r"|^\W*(?:der |die |el |la |l['’]|o |a |de |il )?(?:(?:be)?nutzer(?:in)?|usuari[oa]|utilisat\w+|utente"
    r"|utilizador\w?|gebruiker|пользовател\w+)\b|^\W*(?:ユーザー(?!の)|사용자(?!의))",
    re.IGNORECASE,
)


def _speaks_for_itself(speaker: Voice, candidate: Candidate, said: str) -> bool:
    """True if what somebody else says of themselves became a statement about the user: in quotation marks, or
    in a text that the user introduces."""
    if not _THE_USER_DOES.search(candidate.content):
        return False
    content, span = flat(candidate.content), flat(candidate.evidence)
    quotes = [q for q in map(re.Match.group, _QUOTATION.finditer(said)) if flat(q) not in content]
    if any(span and span in flat(quote) for quote in quotes):
        return True
    if quotes and share(candidate.content, said) >= _STATED > share(
        candidate.content, _QUOTATION.sub(" ", said)
    ):
        return True
    return speaker is Voice.QUOTED and bool(_FIRST_PERSON.search(candidate.evidence))


def _not_meant(speaker: Voice, candidate: Candidate, exchange: Exchange) -> str | None:
    if is_supposed(candidate.evidence, exchange.said):
        return "hypothetical"
    if _speaks_for_itself(speaker, candidate, exchange.said):
        return "quoted_speech"
    if is_passing(candidate.evidence) and len(candidate.evidence) < 2 * len(candidate.content):
        return "transient"
    spoken = speaker is Voice.ANSWER and not _THE_USER.search(candidate.content)
    if spoken and share(candidate.content, exchange.said) < _HEARD:
        return "general_knowledge"
    return None
