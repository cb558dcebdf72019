"""The memory API under /v1/memory: see, add, correct, move and forget what is remembered.

OpenAI's conventions. Reads and writes stay inside the caller's scope. A parameter that we do not know is
refused rather than ignored: `DELETE /v1/memory?user_id=u&project=x` must not delete more than was meant.
"""

from proxy.http.memory_api.app import MemoryApi
from proxy.http.memory_api.wiring import ByHand, Recall, Recalled, Tools

__all__ = ["ByHand", "MemoryApi", "Recall", "Recalled", "Tools"]
