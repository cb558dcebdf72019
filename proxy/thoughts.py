"""Separate what reasoning models think before they answer from the answer."""

import re

_THOUGHTS = re.compile(
    r"<(think|thinking|reasoning|thought|thoughts|analysis|reflection|scratchpad|seed:think)>.*?(?:</\1>|\Z)"
    r"|\[THINK\].*?(?:\[/THINK\]|\Z)|◁think▷.*?(?:◁/think▷|\Z)"
    r"|<\|begin_of_thought\|>.*?(?:<\|end_of_thought\|>|\Z)"
    r"|<\|channel\|>(?:analysis|commentary)\b.*?(?:<\|end\|>|(?=<\|channel\|>final)|\Z)",
    re.DOTALL | re.IGNORECASE,
)
# Templates that begin the answer within the thoughts leave only their end.
_THOUGHT_BEFORE = re.compile(r"\A.*</(?:think|thinking|reasoning|seed:think)>", re.DOTALL | re.IGNORECASE)
_INVISIBLE = str.maketrans("", "", "\ufeff\u200b")


def without_thoughts(answer: str) -> str:
    """Return the answer without thoughts in any common notation, those included that do not end, and without
    characters of no width. Takes time in proportion to the text."""
    text = _THOUGHTS.sub(" ", answer).translate(_INVISIBLE)
    return _THOUGHT_BEFORE.sub("", text)


def behind_thoughts(text: str) -> str:
    """Return the answer without what a server that has no reasoning parser left in front of it.

    Some templates open the thoughts in the prompt, so that only their end is in the answer.
    """
    head, end, answer = text.partition("</think>")
    opened = head.lstrip().startswith("<think>")
    if end and (opened or "<think>" not in head):
        return answer.lstrip()
    return "" if opened else text
