"""Say whether memories answer a question: by their vectors where these leave no doubt, else by reading.

A cosine says that two texts are about the same thing: "when does Joan's flight leave?" and "what does Joan's
flight cost?" are equally near to the memory of its departure. A small network over the vectors (`head`) costs
0.2 ms and is sure of most questions that have an answer. Where it is not, the best memories are read
together with the question (`reader`), some 3 ms each, on a thread of their own: the first that answers ends
it.
"""

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import takewhile
from pathlib import Path

from proxy.errors import EmbeddingFailed
from proxy.observe import Seldom
from proxy.ports import Told
from proxy.stores.models.head import AnswerabilityHead, head_of
from proxy.stores.models.manner import manner_of
from proxy.stores.models.reader import AnswerReader, Pair, load_reader
from proxy.stores.threads import step_back

# Log-odds of the vectors above their bar. Of users that nothing was trained on, three fifths of the questions
# with an answer are above, and an eighth of those without: most of these pass when they are read, too.
SURE = 3.5
SAY = 0.25  # of the vectors where a question is read: it knows what several memories say together
READ = 4  # memories at most: the answer is seldom behind them
WAIT_SHARE = 0.25  # of memory's deadline, for the reader; then the vectors have the last word
AT_ONCE = 2  # questions that are read or wait for it: in a burst the vectors have to do


class AnswerabilityModels:
    """Implements ports.Answerability. Without a `reader` the vectors alone decide; `note` says why there is
    none. `deadline_s`: for all memory work of a request."""

    def __init__(
        self,
        head: AnswerabilityHead,
        reader: AnswerReader | None,
        *,
        note: str = "",
        deadline_s: float = 0.15,
    ) -> None:
        self.note = note
        self._head, self._reader, self._wait_s = head, reader, WAIT_SHARE * deadline_s
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="read", initializer=step_back)
        self._waiting = 0
        self._seldom = Seldom()

    async def log_odds(
        self, question: str, vector: bytes, memories: Sequence[Told], *, glossed: bool
    ) -> float:
        """See ports.Answerability."""
        seen = self._head.see(vector, memories)
        manner = manner_of([memory.content for memory in memories], glossed=glossed)
        by_vectors = seen.total - self._head.bar(manner)
        if self._reader is None or not memories or by_vectors > SURE or self._waiting >= AT_ONCE:
            return by_vectors
        pairs = [
            Pair(memory.content, float(cosine), memory.terms, memory.weight)
            for memory, cosine in zip(memories[:READ], seen.cosines, strict=False)
        ]
        wanting = self._reader.bar(manner) - SAY * by_vectors
        read = await self._read(self._reader, question, pairs, enough=wanting)
        return by_vectors if read is None else read - wanting

    async def _read(
        self, reader: AnswerReader, question: str, pairs: Sequence[Pair], *, enough: float
    ) -> float | None:
        """Return what the reader says; None where it says nothing, fails or is late."""
        over = threading.Event()  # nobody waits any longer: the thread is for the next
        wanted = takewhile(lambda _: not over.is_set(), pairs)
        read, loop = partial(reader.log_odds, question, wanted, enough=enough), asyncio.get_running_loop()
        self._waiting += 1
        try:
            async with asyncio.timeout(self._wait_s):
                return await loop.run_in_executor(self._pool, read)
        except (TimeoutError, EmbeddingFailed, RuntimeError) as e:  # the last: the pool was shut down
            self._seldom.warning("memory.not_read", error=type(e).__name__)
            return None
        finally:
            over.set()
            self._waiting -= 1

    def close(self) -> None:
        """End the thread, after the step already handed to it."""
        self._pool.shutdown(wait=True)


def load_answerability(
    models_dir: Path, model: str, path: Path | None = None, *, deadline_s: float = 0.15
) -> AnswerabilityModels | None:
    """Return what tells by the vectors of this model (of questions those of question.py) whether memories
    answer; None where it was trained for others. `models_dir`, `path`: see `load_embedder`. Blocks, see
    `load_reader`."""
    head = head_of(model)
    if head is None:
        return None
    try:
        return AnswerabilityModels(head, load_reader(models_dir, path), deadline_s=deadline_s)
    except EmbeddingFailed as error:
        return AnswerabilityModels(head, None, note=str(error))
