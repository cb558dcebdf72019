"""When the same words in a session without history are the same request, sent again."""

from proxy.domain import NewExchange

WITHIN_S = 60.0  # a client's own retries come sooner
UNFINISHED_WITHIN_S = 3600.0  # a person's, of what was never wholly answered


def is_retry(new: NewExchange, *, key: str, whole: bool, at: float) -> bool:
    """True if the exchange repeats the session's last one: `key`, `whole` and `at` as that was stored.

    The key may have a suffix, which tells it from the same words said before."""
    within_s = WITHIN_S if whole else UNFINISHED_WITHIN_S
    return key.partition(":")[0] == new.key and new.at - at < within_s
