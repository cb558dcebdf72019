"""Forgets over SQLite: at once and in portions, and nothing left in any file."""

import pytest

from tests.storage.contract_chains import ForgetChainsContract
from tests.storage.contract_forget_later import (
    ForgetBesidesContract,
    ForgetInConversationsContract,
    ForgetLaterContract,
)
from tests.storage.contract_forgetting import ForgettingContract
from tests.storage.contract_memories import ForgetContract
from tests.storage.contract_sessions import ForgetConversationsContract


@pytest.fixture
def commits(stores):
    async def count():
        return stores.commits

    return count


class TestForgetting(ForgettingContract):
    """What a forget takes."""


class TestForgettingWhatCameLater(ForgetLaterContract):
    """What a forget takes of what came after."""


class TestForgettingWhatTellsIt(ForgetBesidesContract):
    """What a forget takes that tells the same."""


class TestForgettingInConversations(ForgetInConversationsContract):
    """What a forget takes of conversations that several sessions have a part in."""


@pytest.mark.usefixtures("in_portions")
class TestForgetsInPortions(ForgetContract, ForgetConversationsContract, ForgetChainsContract):
    """What every forget does, it does in portions, too."""
