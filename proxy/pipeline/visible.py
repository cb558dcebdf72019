"""Leave out memories that the conversation already shows."""

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.domain import Memory, Message, Ranked
from proxy.overlap import holds, restates, saying, searchable
from proxy.sentences import goes_on

SHARE = 0.8  # of a memory's words in one message: it has been said
AT_LEAST = 3  # words; fewer are found in too much
SPAN_CHARS = 8  # a shorter evidence span ("yes") proves nothing
LOOK_BACK_CHARS = 16_000  # of the conversation's end, at most
MOST_STOPS = 300  # judged in it, 10 µs each: "z. B. z. B. …" has 5,000


def unseen(ranked: Sequence[Ranked], messages: Sequence[Message]) -> list[Ranked]:
    """Return the memories that no message of the conversation says: neither literally, nor by the words
    that it was learnt from, nor by most of its words.

    A question says nothing: "is my budget still $7,500?" must not hide the budget.
    """
    said = _statements(messages)
    if not said:
        return list(ranked)
    everything = "\n".join(said)
    return [r for r in ranked if not _is_said(r.memory, said, everything)]


def _is_said(memory: Memory, said: Sequence[str], everything: str) -> bool:
    wanted = saying(memory.content)
    if _in_one_line(wanted.folded) in everything:
        return True
    spans = (_spaced(e.span) for e in memory.evidence)
    if any(_length(span) >= SPAN_CHARS and span in everything for span in spans):
        return True
    if not holds(everything, wanted, SHARE):
        return False
    return any(restates(text, wanted, share=SHARE, at_least=AT_LEAST) for text in said)


def _statements(messages: Sequence[Message]) -> list[str]:
    """Return what the messages state, newest first, in searchable form, questions left out."""
    said: list[str] = []
    left = LOOK_BACK_CHARS
    stops = _Stops()
    for message in reversed(messages):
        if left <= 0:
            break
        text = message.text[-left:]
        left -= len(text)
        if stated := _without_questions(_spaced(text), stops):
            said.append(stated)
    return said


def _spaced(text: str) -> str:
    return _in_one_line(searchable(text, 2 * LOOK_BACK_CHARS))


def _in_one_line(folded: str) -> str:
    return " ".join(folded.split()).rstrip(" .!。")


@dataclass(slots=True)
class _Stops:
    """Which full stops end a sentence, as far as there is time to judge."""

    left: int = MOST_STOPS

    def last(self, text: str) -> int:
        """Return where the sentence before the last one ends, -1 if there is none."""
        surely = max(map(text.rfind, ("! ", "。", ": ")))
        full = text.rfind(". ", surely + 1)
        while full >= 0 and self._goes_on(text, full):
            full = text.rfind(". ", surely + 1, full)
        return max(full, surely)

    def _goes_on(self, text: str, at: int) -> bool:
        self.left -= 1
        # Taken for a question, a statement shows its memory once more; the contrary would hide one.
        return self.left < 0 or goes_on(text, at)


def _without_questions(text: str, stops: _Stops) -> str:
    if "?" not in text:
        return text
    *asked, rest = text.split("?")
    return " ".join(filter(None, [*(chunk[: stops.last(chunk) + 1] for chunk in asked), rest]))


def _length(text: str) -> int:
    """Return the length in letters; a character of a script without spaces counts as two."""
    return len(text) + sum(1 for c in text if c > "\u2e7f")
