"""FormStore, shared by two processes."""

import json

import pytest

ENGINES = ("sqlite", "postgres")


def row(until: float, **form: object) -> str:
    return json.dumps({"until": until, "form": form})


class TestForms:
    @pytest.fixture
    def forms(self, stores, second):
        return stores.forms, second.forms

    async def test_what_one_has_saved_the_other_loads(self, forms):
        ours, theirs = forms
        assert await theirs.load() == {}
        await ours.save({"a": row(1), "b": row(2, placement="in_user")}, 10)
        await theirs.save({"a": row(3, limit="max_tokens")}, 10)
        assert await ours.load() == {"a": row(3, limit="max_tokens"), "b": row(2, placement="in_user")}

    async def test_a_row_that_cannot_be_read_is_the_first_to_go(self, forms):
        ours, theirs = forms
        await ours.save({"a": "{", "b": "[]", "c": row(1)}, 10)
        await theirs.save({"d": row(2)}, 2)
        assert sorted(await ours.load()) == ["c", "d"]

    async def test_of_too_many_those_that_end_first_go(self, forms):
        ours, theirs = forms
        for number in range(100):
            await (ours, theirs)[number % 2].save({f"m{number}": row(number)}, 7)
        assert sorted(await ours.load()) == [f"m{number}" for number in range(93, 100)]
