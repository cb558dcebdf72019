"""The calls of the last hour, over all that count them. Subclass it: `calls` are two that share a count, and
`pass_s` lets so many seconds pass for both; `now` returns their time."""

import asyncio

import pytest

from proxy.domain.limits import HOUR_S


class CallsContract:
    async def test_of_two_that_share_a_count_each_has_what_the_other_leaves(self, calls, now):
        ours, theirs = calls
        stated = [await each.spend(3, now()) for each in (ours, theirs, ours, theirs)]
        assert [each.granted for each in stated] == [True, True, True, False]
        assert [each.left for each in stated] == [2, 1, 0, 0]
        assert [each.retry_after_s for each in stated] == pytest.approx([0, 0, HOUR_S, HOUR_S], abs=5)

    async def test_at_once_they_get_no_more_than_there_are(self, calls, now):
        stated = await asyncio.gather(*(each.spend(25, now()) for each in calls for _ in range(20)))
        assert sum(each.granted for each in stated) == 25

    async def test_an_hour_is_any_sixty_minutes(self, calls, now, pass_s):
        ours, theirs = calls
        await ours.spend(2, now())
        await pass_s(1800)
        await theirs.spend(2, now())
        assert (await ours.look(2, now())).retry_after_s == pytest.approx(1800, abs=5)
        await pass_s(1790)
        assert not (await ours.spend(2, now())).granted
        await pass_s(11)
        assert (await theirs.look(2, now())).left == 1
        assert (await theirs.spend(2, now())).granted
        assert (await ours.look(2, now())).retry_after_s == pytest.approx(1799, abs=5)

    async def test_what_is_given_back_can_be_spent_once_more(self, calls, now):
        ours, theirs = calls
        first = await ours.spend(2, now())
        await theirs.spend(2, now())
        await theirs.refund(first.at)
        await theirs.refund(12345.0)  # it was not spent
        assert (await ours.look(2, now())).left == 1
        assert (await ours.spend(2, now())).granted
        assert not (await ours.spend(2, now())).granted

    async def test_a_clock_that_was_set_back_blocks_calls_for_at_most_an_hour(self, calls, now, pass_s):
        ours, theirs = calls
        await ours.spend(1, now())
        await pass_s(-100_000)
        found = await theirs.spend(1, now())
        assert not found.granted
        assert found.retry_after_s <= HOUR_S
