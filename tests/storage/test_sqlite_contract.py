from tests.storage.contract_changes import ChangesContract
from tests.storage.contract_keys import KeyContract
from tests.storage.contract_memories import MemoryContract
from tests.storage.contract_sessions import ConversationContract


class TestSqliteMemories(MemoryContract):
    """MemoryStore over SQLite."""


class TestSqliteChanges(ChangesContract):
    """What apply does with edits, quarantine and quotas over SQLite."""


class TestSqliteKeys(KeyContract):
    """KeyStore over SQLite."""


class TestSqliteConversations(ConversationContract):
    """SessionStore and JobQueue over SQLite."""
