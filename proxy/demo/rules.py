"""Extract facts from a user's words by rules, for the scripted model: transparent, in place of understanding.

A clause is a fact if it is a plain first-person statement ("My budget for …", "I'm allergic …", "we
moved …"), a rule for the assistant ("call me …", "from now on …") or an explicit "remember that …".
Questions, requests and small talk give nothing.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from proxy.demo import phrases
from proxy.demo.clauses import clauses, sentences, spoken
from proxy.demo.grammar import third_person
from proxy.demo.slots import Known, knows_subject, replaced, with_context


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact, and the verbatim sentence that states it."""

    type: str
    content: str
    evidence: str
    confidence: float
    replaces: str | None = None


def facts(text: str, known: Sequence[Known] = ()) -> list[Fact]:
    """Return the facts in a user's own words, in their order. `known` are the memories they may replace."""
    found: list[Fact] = []
    seen = list(known)
    for sentence in sentences(spoken(text)):
        for clause in clauses(sentence):
            content = _content(clause, seen)
            if not content or any(f.content == content for f in found):
                continue
            confidence = 0.5 if phrases.HEDGE.search(clause) else 0.9
            found.append(
                Fact(_type(content), content, sentence, confidence, replaced(content, clause, known))
            )
            # A later clause may mean this one's subject, but cannot replace what has no id yet.
            seen.append(Known("", content))
    return found


def is_question(text: str) -> bool:
    """Return whether any clause of the text asks something."""
    return any(
        phrases.QUESTION.search(_opened(clause))
        for sentence in sentences(text)
        for clause in clauses(sentence)
    )


def _content(clause: str, known: Sequence[Known]) -> str | None:
    """Return the fact that the clause states, in the third person; None if it states none."""
    clause = _opened(clause)
    explicit = phrases.EXPLICIT.match(clause) or phrases.EXPLICIT_ZH.match(clause)
    if explicit:
        asked_politely = explicit[0].lower().startswith(("can you", "could you"))
        clause = _opened(clause[explicit.end() :]).rstrip("?" if asked_politely else "")
    said = phrases.TAIL.sub("", clause).rstrip(" .!。！,，;；…")
    if len(said) < 3 or phrases.QUESTION.search(said):
        return None
    content = _rule_for_assistant(said) or _statement(said) or _update(said, known)
    if not content and explicit:
        content = third_person(said)
    return with_context(content[0].upper() + content[1:], known) if content else None


def _opened(clause: str) -> str:
    """Return the clause without greetings and fillers at its beginning."""
    clause = clause.strip()
    while match := phrases.LEAD_IN.match(clause) or phrases.LEAD_IN_ZH.match(clause):
        clause = clause[match.end() :]
    return clause


def _rule_for_assistant(said: str) -> str | None:
    """Read "call me …", "from now on …", "always …"."""
    if match := phrases.CALL_ME.fullmatch(said):
        return f"User wants to be called {match['name'].strip()}"
    if match := phrases.STANDING_RULE_ZH.match(said):
        return "用户希望助手以后" + match["after"].replace("我", "用户")
    match = phrases.STANDING_RULE.match(said)
    if not match:
        return None
    rule = next(text for text in match.groups() if text)
    if phrases.PERSONAL.match(rule):
        return f"From now on, {third_person(rule)}"
    rule = re.sub(r"^(?:please\s+)?(?:can you |could you )?", "", rule, flags=re.IGNORECASE)
    rule = re.sub(r"^(?:do not|don['’]t)\b(?: ever)?", "never", rule, flags=re.IGNORECASE)
    # "User" is named before the rule, so that "me" in the rule becomes "them".
    return third_person(f"I want the assistant to {rule[0].lower()}{rule[1:]}")


def _statement(said: str) -> str | None:
    """Read a declarative clause in which users speak of themselves."""
    if phrases.SMALL_TALK.search(said):
        return None
    if phrases.SELF_ZH.match(said):
        return re.sub("我们|我", "用户", said)
    # "I do" says nothing, "I'm vegan" does.
    long_enough = len(said.split()) >= (2 if re.match(r"i['’]?m\b", said, re.IGNORECASE) else 3)
    if phrases.RELATION.match(said) or (long_enough and phrases.PERSONAL.match(said)):
        return _settled(third_person(said))
    return None


def _update(said: str, known: Sequence[Known]) -> str | None:
    """Read "the budget is now …" where a known memory tells whose budget."""
    match = phrases.UPDATE.fullmatch(said)
    if not match:
        return None
    content = _settled("User's " + match["rest"])
    return content if knows_subject(content, known) else None


def _settled(content: str) -> str:
    """Return the content without the "now" that announces a change: later it will mislead."""
    return re.sub(r"\b(is|are) now\b|,? now$", r"\1", content)


def _type(content: str) -> str:
    if phrases.PROCEDURE.search(content):
        return "procedural"
    if phrases.PREFERENCE.search(content):
        return "preference"
    if phrases.PAST_TIME.search(content) and not phrases.NEW_STATE.search(content):
        return "episodic"
    return "semantic"
