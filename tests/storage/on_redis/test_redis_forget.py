"""Forgets over Redis: complete, counted beforehand, with a receipt, hidden at once from every replica."""

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
from tests.storage.making import ANNA, BEN


@pytest.fixture
def commits(stores):
    async def count():
        return [(await stores.units.glance(scope, revision)) for scope in (ANNA, BEN)]

    return count


async def revision(unit):
    return unit.revision


class TestForgetting(ForgettingContract):
    """What a forget takes."""


class TestForgettingWhatCameLater(ForgetLaterContract):
    """What a forget takes of what came after."""


class TestForgettingWhatTellsIt(ForgetBesidesContract):
    """What a forget takes that tells the same."""


class TestForgettingInConversations(ForgetInConversationsContract):
    """What a forget takes of conversations that several sessions have a part in."""


class TestForgets(ForgetContract, ForgetConversationsContract, ForgetChainsContract):
    """What every forget does."""


@pytest.mark.usefixtures("in_portions")
class TestForgetsInPortions(ForgetContract, ForgetConversationsContract, ForgetChainsContract):
    """What every forget does, it does in portions, too."""
