"""The contracts of the stores, over PostgreSQL."""

import pytest

from proxy.storage.sql import quota
from proxy.storage.sql.shared_state import SqlForms
from tests.storage.contract_chains import StoredResponsesContract
from tests.storage.contract_changes import ChangesContract
from tests.storage.contract_documents import MODEL, DocumentsContract
from tests.storage.contract_forms import FormsContract
from tests.storage.contract_keys import KeyContract
from tests.storage.contract_memories import MemoryContract
from tests.storage.contract_notes import AnchorContract, ClosingContract, LineContract, StateContract
from tests.storage.contract_quota import QuotaContract
from tests.storage.contract_reembed import ReembedContract
from tests.storage.contract_sessions import ConversationContract


class TestPostgresMemories(MemoryContract):
    """MemoryStore."""


class TestPostgresChanges(ChangesContract):
    """What apply does with edits, quarantine and quotas."""


class TestPostgresKeys(KeyContract):
    """KeyStore."""


class TestPostgresConversations(ConversationContract):
    """SessionStore and JobQueue."""


class TestPostgresDocuments(DocumentsContract):
    """DocumentStore and PassageIndex."""

    @pytest.fixture
    def embedding(self):
        return MODEL


class TestPostgresResponses(StoredResponsesContract):
    """ChainStore and ConversationStore."""


class TestPostgresForms(FormsContract):
    """FormStore of two replicas."""

    @pytest.fixture
    def forms(self, stores, second):
        return SqlForms(stores.database), SqlForms(second.database)


class TestPostgresAnchors(AnchorContract):
    """NoteStore: standing instructions."""


class TestPostgresLines(LineContract):
    """NoteStore: what was said."""


class TestPostgresStates(StateContract):
    """NoteStore: states."""


class TestPostgresClosing(ClosingContract):
    """NoteStore: ends of sessions."""


class TestPostgresQuota(QuotaContract):
    """What is evicted or refused."""

    MODULE = quota

    @pytest.fixture
    def agrees(self):
        """The counters in `scopes` are what a recount says."""

        def read(tx):
            said = tx.execute("SELECT user, memories, content_bytes FROM scopes").fetchall()
            counted = tx.execute(
                "SELECT max(s.user), count(m.seq), coalesce(sum(length(CAST(m.content AS BLOB))), 0)"
                " FROM scopes s LEFT JOIN memories m ON m.owner = s.id GROUP BY s.id"
            ).fetchall()
            return sorted(said, key=str), sorted(counted, key=str)

        async def check(stores):
            said, counted = await stores.database.read(read)
            assert said == counted

        return check


class TestPostgresReembed(ReembedContract):
    """Vectors of another model."""
