"""Link a question to memories of the kind it asks for, where the two share neither words nor vectors.

"Write it up my usual way" is answered by "wants reports of one page, no p-values", "whose say-so is needed?"
by "cheques take two signatures", "what was I in two minds about?" by "may leave the chapter out": neither
words nor vectors lead there. A few such aims are known (`words/aims.txt`): how a question shows one, and how
a memory shows that it is of that kind. A memory of the kind that is asked for is worth more; none is shown
for that alone. (The eight users on whom the lists were made: recall@5 .84 without, .88 with them.)
"""

import re
from dataclasses import dataclass
from functools import cache

from proxy.domain import Memory
from proxy.terms import fold, plain
from proxy.wordlists import any_of

_LOOKED_CHARS = 600  # of a question, and of a memory
_SURE = 0.7  # a memory below this confidence was told with a doubt


@dataclass(frozen=True, slots=True)
class Aim:
    """A kind of statement that questions ask for."""

    name: str
    asked: re.Pattern[str]
    told: re.Pattern[str]

    def meets(self, memory: Memory) -> bool:
        """True if the memory is such a statement."""
        if self.name == "undecided" and memory.confidence < _SURE:
            return True
        return self.told.search(fold(memory.content, _LOOKED_CHARS)) is not None


def aims_of(question: str) -> tuple[Aim, ...]:
    """Return what the question aims at; of most, nothing is known."""
    folded = plain(question[-_LOOKED_CHARS:])[-_LOOKED_CHARS:]
    return tuple(aim for aim in _aims() if aim.asked.search(folded))


@cache
def _aims() -> tuple[Aim, ...]:
    return (
        _aim("manner", "manner asked", "manner told"),
        _aim("undecided", "undecided asked", "undecided told"),
        _aim("authority", "authority asked", "authority told"),
        _aim("caution", "caution asked", "caution told"),
    )


def _aim(name: str, asked: str, told: str) -> Aim:
    return Aim(name, re.compile(any_of("aims", asked)), re.compile(any_of("aims", told)))
