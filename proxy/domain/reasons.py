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
    NOT_JSON = "not_json", "the body is not a JSON object; it is forwarded unchanged"
    OTHER_PATH = (
        "other_path",
        "memory works on /v1/chat/completions and /v1/responses; this path is forwarded",
    )
    FOREIGN_ORIGIN = "foreign_origin", "sent by a web page of another origin (`identity.allowed_origins`)"
    FOREIGN_HOST = "foreign_host", "refused: unknown host name (`identity.allowed_hosts`)"
    DISABLED = "disabled", "the request or the settings disable reading and storing"
    NO_USER = "no_user", "the request names no user"
    UNFILLED_USER = "unfilled_user", "the user is an unfilled placeholder, such as `{{USER_ID}}`"
    HOUSEKEEPING = "housekeeping", "a chat program's own request: a title, tags, a search query, a summary"
    COMPACTION = "compaction", "the conversation is being compacted (`compaction_trigger`)"
    READ_OFF = "read_off", "the request disables reading (`X-Memory-Mode: write`)"
    # Nothing is searched for: status skipped.
    TOOL_FORCED = "tool_forced", "`tool_choice` forces a tool call"
    NO_QUERY = "no_query", "the last user message contains no words of the user (an image, a reminder)"
    GREETING = "greeting", "small talk: a greeting, thanks, an acknowledgement"
    SELF_CONTAINED = "self_contained", "a task that includes all it needs: translate, calculate, rewrite …"
    TOOL_ANSWERS = "tool_answers", "live data or a task for a tool: the weather, a price, the time in a city"
    GENERAL_FACT = "general_fact", "a question of general knowledge"
    SHORT_QUERY = "short_query", "the message is shorter than `retrieval.min_query_chars`"
    FIRST_TURN = "first_turn", "the first message of a conversation (`retrieval.skip_first_turn`)"
    PLAN = "plan", "the model of `memory_plan` cancelled the search"
    # Searched for, and nothing to show: status none.
    NO_MEMORIES = "no_memories", "the user has no memories"
    BELOW_THRESHOLD = "below_threshold", "no memory is near enough to the question"
    DOUBTED = "doubted", "only uncertain preferences were found; they are shown once the user repeats them"
    UNANSWERED = "unanswered", "the memories that were found do not help with the message"
    ALREADY_VISIBLE = "already_visible", "the conversation already shows all that was found"
    FORGOTTEN = "forgotten", "the message asks to forget all that was found; it is hidden and deleted"
    OVER_BUDGET = "over_budget", "no memory fits into `memory.budget_tokens`"
    NO_PLACE = "no_place", "the request has no user message of a known form to insert memory at"
    REFUSED = "refused", "the upstream refused the request with memory and accepted it without"
    # Injected all the same.
    PROFILE = "profile", "the block holds only what applies to every conversation: standing rules, traits"
    SESSION = "session", "the block holds only the session's notes"
    # Memory failed, the request did not: status degraded.
    DEADLINE = "deadline", "memory was not ready within `memory.deadline_ms`"
    BUSY = "busy", "too many concurrent searches for this process within `memory.deadline_ms`"
    STORE_UNAVAILABLE = "store_unavailable", "the store is unavailable"
    EMBEDDING_FAILED = "embedding_failed", "the embedding model failed"
    ERROR = "error", "an operation that memory needs timed out"
    MEMORY_ERROR = "memory_error", "any other failure; the log names it"
