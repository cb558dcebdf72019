"""Recall from memories that are told of people by their names: "Nora: I moved to Lyon", "Nora moved to Lyon".

Our own extraction says "User"; imported talks, and the facts that other systems made of them, do not. There
the name that a question asks about stands in half of all memories and tells little, while to a small
embedding model it is the loudest word of a short question: "What pet does Nora have?" comes close to whatever
is said of Nora. So such a question is searched as she herself would ask it ("my pet"), and a memory that
begins with her name is worth more than one that ends with it. (Two public conversations, recall@5 and @10: as
facts .75 → .77 and .80 → .81 of 183 questions, as turns .59 → .65 and .67 → .79 of 111. Five sets of users
whose memories say "User", 1,375 questions: not one answer moved.)

What is told of another and says nothing of her cannot answer: "What did Nora paint?" comes nearest to Sam's
"I painted the fence". (Of questions about somebody by name in the training's talks and notes: so told is what
answers 24 of 3,022, and what tempts in 961 of the 2,110 that nothing answers.)
"""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from proxy.gloss import language
from proxy.terms import STOP_WORDS

# Of the nearest memories: so many begin with the name, and so few speak of the user.
BEGIN_SHARE = 0.2
USER_SHARE = 0.1
PERSON_SHARE = 0.1  # of the nearest memories begin with the name of another of whom they are told
_OWN_SHARE = 0.7  # of the question in the first person in the vector that is searched with

_NAME = re.compile(r"(?<![\w'’-])[A-ZÀ-ÖØ-Þ][^\W\d_]+(?:-[^\W\d_]+)*")
_BEGINS = re.compile(rf"\W*({_NAME.pattern})")
_OF_USER = re.compile(r"\b[Uu]sers?\b|^(?:I|My|We|Our)\b")  # other clients write as the user speaks
_YOU = re.compile(r"\b(?:you|your|yours|yourself|u|ur)\b", re.IGNORECASE)
_NOBODY = STOP_WORDS | {"user", "users"}


def told_of(question: str, contents: Sequence[str]) -> tuple[str, ...]:
    """Return the names in the question of which these memories, the nearest to it, are told; () where they
    are told of the user, or the question is in another language than English."""
    names = [n for n in dict.fromkeys(_NAME.findall(question)) if n.lower() not in _NOBODY]
    least = BEGIN_SHARE * len(contents)
    # Looking for a name is quicker than the pattern, and few contents hold most of them.
    names = [name for name in names if sum(name in content for content in contents) >= least]
    if not names or not contents or language(question) is not None:
        return ()
    firsts = [beginning(content) for content in contents]
    told = tuple(name for name in names if firsts.count(name) >= least)
    if told and sum(bool(_OF_USER.search(content)) for content in contents) > USER_SHARE * len(contents):
        return ()
    return told


def told_of_others(names: Sequence[str], contents: Sequence[str]) -> list[bool]:
    """Return which of the contents are told of other people, and say nothing of those named: they begin with
    another's name, as others do, and neither name one of these nor speak to anybody."""
    firsts = [beginning(content) for content in contents]
    often = max(2.0, PERSON_SHARE * len(contents))
    times = Counter(first for first in firsts if first and first.lower() not in _NOBODY)
    people = {first for first, count in times.items() if count >= often}.difference(names)
    named = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, names))})(?!\w)")
    return [
        first in people and not named.search(content) and not _YOU.search(content)
        for first, content in zip(firsts, contents, strict=True)
    ]


def beginning(content: str) -> str:
    """Return the name, or other capitalised word, with which the content begins; "" where there is none."""
    found = _BEGINS.match(content)
    return found[1] if found else ""


def as_asked_by(names: Sequence[str], question: str) -> str:
    """Return the question as the one who is named would ask it, verbs aside: to the model "does I" is as good
    as "do I"."""
    for name in names:
        question = re.sub(rf"\b{name}['’]s?(?!\w)", "my", question)
        question = re.sub(rf"\b{name}\b", "I", question)
    return question


def leaning(question: bytes, own: bytes) -> bytes:
    """Return the unit vector between the question's and that of its form in the first person, nearer to the
    latter: the name still counts for something."""
    named, told = np.frombuffer(question, np.float32), np.frombuffer(own, np.float32)
    mixed = (1 - _OWN_SHARE) * named + _OWN_SHARE * told
    whole: NDArray[np.float32] = mixed / np.linalg.norm(mixed)
    return whole.astype(np.float32).tobytes()
