"""What the scripted model answers: it repeats what memory gave it, takes note of statements, and says
honestly that it knows nothing else.

There is no understanding here. Which remembered line belongs to a question is decided by shared words
and by a small table of topics.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from proxy.demo.grammar import second_person
from proxy.demo.rules import facts, is_question
from proxy.text.block import CLOSE, OPEN, strip_blocks
from proxy.text.terms import terms

MODEL = "scripted-demo"
_LINE = re.compile(r"^(?:- )?\[(?P<label>[^\]\n]+)\] (?P<content>.+)$", re.MULTILINE)
_BLOCK = re.compile(rf"^{re.escape(OPEN)}\n(.*?)(?:{re.escape(CLOSE)}|\Z)", re.DOTALL | re.MULTILINE)
_GREETING = re.compile(
    r"(?:hi|hello|hey|hiya|good (?:morning|afternoon|evening)|你好|您好|嗨)\b", re.IGNORECASE
)
_ABOUT_ME = re.compile(
    r"\babout me\b|\bremember of me\b|\bwho am i\b|\bknow me\b|关于我|我是谁|记得我", re.IGNORECASE
)
_AT_MOST = 3
_SCRIPTED = "I am a scripted demo model, not an AI"

# Words of one line belong together: a question with one finds a memory with another.
_TOPICS = tuple(
    frozenset(terms(line))
    for line in """
        budget cost price spend money afford expensive cheap dollar euro pay much rent salary 预算 花 钱
        eat food snack meal dinner lunch breakfast cook recipe restaurant menu dish vegan vegetarian diet\
 serve allergy allergic peanut nut gluten pork meat 过敏 吃
        live home city town moved house address based place flat neighborhood 住 搬
        trip travel vacation holiday flight fly island beach hotel Hawaii Portugal abroad leave pack
        seat window aisle plane row sit flight book
        wife husband partner daughter son kid child children mother father sister brother family turning
        birthday born age old turn gift present celebrate
        dog cat pet puppy kitten vet animal walk
        work job employer company boss team office engineer colleague project living 工作
        name call called address 名字 叫
        language answer reply respond speak German French Chinese English 语言 回答
        code editor programming framework database python rust stack
        hobby sport weekend run hike tennis evening fun 喜欢
        music instrument play practise learning lesson cello guitar piano violin flute drums
        drink coffee tea morning beverage
        car drive vehicle bike commute
        color colour paint favorite favourite shade
        date when deadline schedule meeting calendar appointment
    """.strip().splitlines()
)


@dataclass(frozen=True, slots=True)
class Said:
    """One message of the conversation, as plain text."""

    role: str
    text: str


def answer(messages: Sequence[Said]) -> str:
    """Return the answer to the last user message."""
    asked_at = max((i for i, m in enumerate(messages) if m.role == "user"), default=-1)
    asked = strip_blocks(messages[asked_at].text).strip() if asked_at >= 0 else ""
    stated = [second_person(fact.content) for fact in facts(asked)]
    parts = [f"Noted: {'; '.join(stated)}."] if stated else []
    if is_question(asked) or not parts:
        parts.append(_recall(asked, _remembered(messages), _told(messages[:asked_at])))
    return " ".join(parts)


def _remembered(messages: Sequence[Said]) -> list[str]:
    """Return the contents of the remembered lines, in their order."""
    return [
        line["content"]
        for message in messages
        for block in _BLOCK.findall(message.text)
        for line in _LINE.finditer(block)
    ]


def _told(messages: Sequence[Said]) -> list[str]:
    """Return what the user said earlier in this very conversation."""
    return [f.content for m in messages if m.role == "user" for f in facts(strip_blocks(m.text))]


def _recall(asked: str, remembered: Sequence[str], told: Sequence[str]) -> str:
    everything = bool(_ABOUT_ME.search(asked))
    if here := _matching(asked, told, everything):
        return f"Earlier in this conversation you said: {_listed(here)}."
    if known := _matching(asked, remembered, everything):
        return f"From what I remember: {_listed(known)}."
    if remembered and is_question(asked):
        nearest = _listed(remembered[:1])
        return f"I do not know. The nearest that I remember: {nearest}. ({_SCRIPTED}: I only match words.)"
    if _GREETING.match(asked) and not is_question(asked):
        return f"Hello! {_SCRIPTED}. Tell me something about yourself, then ask me in a new session."
    return f"I do not know: nothing that I remember answers this. ({_SCRIPTED}: I know no more than that.)"


def _matching(asked: str, contents: Sequence[str], everything: bool) -> list[str]:
    """Return the contents that share words or a topic with the question, the best first."""
    if everything:
        return list(contents[: 2 * _AT_MOST])
    scored = [(_affinity(asked, content), content) for content in contents]
    best = max((score for score, _ in scored), default=0)
    # The sort is stable: what memory put first stays first among equals.
    near = sorted((s for s in scored if s[0] * 2 > best), key=lambda s: -s[0])
    return [content for _, content in near[:_AT_MOST]]


def _affinity(asked: str, content: str) -> int:
    question, fact = set(terms(asked)), set(terms(content))
    shared_topics = sum(1 for topic in _TOPICS if topic & question and topic & fact)
    return 2 * shared_topics + 3 * len(question & fact)


def _listed(contents: Sequence[str]) -> str:
    return "; ".join(_uncapitalised(second_person(c).rstrip(" .。")) for c in contents)


def _uncapitalised(text: str) -> str:
    """Lower the first letter of an ordinary opening word, never of a name."""
    opening = re.match(
        r"(?:The|For|On|In|At|When|Whenever|From|Yesterday|Last|This|Every|Before|After)\b", text
    )
    return text[0].lower() + text[1:] if opening else text
