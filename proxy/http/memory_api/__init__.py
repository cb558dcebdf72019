"""The memory API under /v1/memory: see, add, correct, move and forget what is remembered.

OpenAI's conventions. Reads and writes stay inside the caller's scope. An unknown parameter is refused, not
ignored: `DELETE /v1/memory?user_id=u&project=x` must not delete more than was meant.
"""
