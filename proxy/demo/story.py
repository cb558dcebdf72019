"""The script of the demo. No question shares a word that matters with the fact that answers it."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Question:
    """A question of session B, and how to recognise the memory that answers it."""

    text: str
    answered_by: re.Pattern[str]


def _shows(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


STATEMENTS = (
    "Hi! My budget for the Hawaii trip is $10,000 and I'm allergic to peanuts.",
    "We moved to Madison last month, and I'm learning the cello.",
    "I prefer window seats. Thanks!",
)
QUESTIONS = (
    Question("How much can we spend on the islands?", _shows(r"\b10[,.]?000\b|\b10k\b")),
    Question("Which snacks should I keep away from?", _shows(r"peanut")),
    Question("Where do I live these days?", _shows(r"madison")),
    Question("Which instrument do I play?", _shows(r"cello")),
    Question("Where on the plane should I sit?", _shows(r"window")),
)
BUDGET, ALLERGY = QUESTIONS[0], QUESTIONS[1]
CHANGE = "Actually, my budget for the Hawaii trip is now $12,000."
NEW_BUDGET = Question(BUDGET.text, _shows(r"\b12[,.]?000\b|\b12k\b"))
