"""`memory-proxy memory …`: see and change what a running proxy remembers, over its HTTP API.

Exit codes: 0 done, 1 refused by the proxy or by the person, 2 wrong use, 3 the proxy does not answer.
"""

from proxy.client.api import MemoryApi, NotAnswering, Refused
from proxy.client.parser import NO_PROXY, add_memory
from proxy.client.shown import REFUSED, WRONG_USE

__all__ = [
    "NO_PROXY",
    "REFUSED",
    "WRONG_USE",
    "MemoryApi",
    "NotAnswering",
    "Refused",
    "add_memory",
]
