"""The values of X-Memory-Status and X-Memory-Reason: what memory did for a request, and why. Nothing of
ours imported.
"""

from enum import StrEnum


class Status(StrEnum):
    """Value of the response header X-Memory-Status."""

    INJECTED = "injected"
    NONE = "none"
    SKIPPED = "skipped"
    OFF = "off"
    DEGRADED = "degraded"


class Reason(StrEnum):
    """Value of the response header X-Memory-Reason, and its meaning; docs/memory.md lists both."""

    meaning: str

    def __new__(cls, word: str, meaning: str) -> "Reason":
        made = str.__new__(cls, word)
        made._value_, made.meaning = word, meaning
        return made

    # The request has no memory: status off.
    NOT_JSON = "not_json", "the body is no JSON object; it is forwarded as it is"
    OTHER_PATH = (
        "other_path",
        "memory works at /v1/chat/completions and /v1/responses; this path is forwarded",
    )
    FOREIGN_ORIGIN = "foreign_origin", "a web page of another origin sent it (`identity.allowed_origins`)"
    FOREIGN_HOST = (
        "foreign_host",
        "refused: others could point this host name here (`identity.allowed_hosts`)",
    )
    DISABLED = "disabled", "the request, or the server's settings, want nothing read and nothing stored"
    NO_USER = "no_user", "the request names no user"
    UNFILLED_USER = "unfilled_user", "the user is a placeholder that was not filled in, such as `{{USER_ID}}`"
    HOUSEKEEPING = "housekeeping", "a chat program asks for itself: a title, tags, a search query, a summary"
    COMPACTION = (
        "compaction",
        "the conversation is to be compacted (`compaction_trigger`); nothing is added to it",
    )
    READ_OFF = "read_off", "the request wants nothing read (`X-Memory-Mode: write`)"
    # Nothing is searched for: status skipped.
    TOOL_FORCED = "tool_forced", "its `tool_choice` demands a tool"
    NO_QUERY = "no_query", "the last message of the user holds no words of the user (an image, a reminder)"
    GREETING = "greeting", "small talk: a greeting, thanks, an acknowledgement"
    SELF_CONTAINED = "self_contained", "a task that brings all it needs: to translate, calculate, rewrite …"
    TOOL_ANSWERS = "tool_answers", "live data, or work for a tool: the weather, a price, the time somewhere"
    GENERAL_FACT = "general_fact", "a question of general knowledge"
    SHORT_QUERY = "short_query", "it is shorter than `retrieval.min_query_chars`"
    FIRST_TURN = "first_turn", "it begins a conversation (`retrieval.skip_first_turn`)"
    PLAN = "plan", "a model that plans searches saw nothing to look for"
    # Searched for, and nothing to show: status none.
    NO_MEMORIES = "no_memories", "the user has none"
    BELOW_THRESHOLD = "below_threshold", "nothing that was found is near enough to the question"
    DOUBTED = "doubted", "all that was found are preferences stated with a doubt: shown once stated again"
    UNANSWERED = "unanswered", "what was found does not help with the message"
    ALREADY_VISIBLE = "already_visible", "the conversation already shows all that was found"
    FORGOTTEN = "forgotten", "the message asks to forget all that was found: it is hidden, and forgotten"
    OVER_BUDGET = "over_budget", "nothing that was found fits into `memory.budget_tokens`"
    NO_PLACE = "no_place", "the request has no message of the user's to put it at, or not one of a known form"
    REFUSED = "refused", "the upstream refuses the request with memory, and takes it without"
    # Injected all the same.
    PROFILE = "profile", "the block holds only what applies to every conversation: standing rules, traits"
    SESSION = "session", "the block holds what the session's notes say, and no memory"
    # Memory failed, the request did not: status degraded.
    DEADLINE = "deadline", "memory was not done within `memory.deadline_ms`"
    BUSY = "busy", "more questions at once than this process can search for within `memory.deadline_ms`"
    STORE_UNAVAILABLE = "store_unavailable", "the store cannot be used at the moment"
    EMBEDDING_FAILED = "embedding_failed", "the embedding model failed"
    ERROR = "error", "something that memory needs timed out by itself"
    MEMORY_ERROR = "memory_error", "anything else: the log names the error"
