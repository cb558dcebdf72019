from tests.stores.contract_memories import MemoryContract
from tests.stores.contract_sessions import ConversationContract


class TestSqliteMemories(MemoryContract):
    """MemoryStore over SQLite."""


class TestSqliteConversations(ConversationContract):
    """SessionStore and JobQueue over SQLite."""
