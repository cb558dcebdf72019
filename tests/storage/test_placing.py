"""Who comes after what is erased."""

import pytest

from proxy.storage.sql.changes import heir_of


@pytest.mark.parametrize(
    ("successors", "heir"),
    [
        ({"a": "b"}, "b"),
        ({"a": None}, None),
        ({"a": "b", "b": "c", "c": "d"}, "d"),
        ({"a": "b", "b": None}, None),
        ({"a": "a"}, None),
        ({"a": "b", "b": "a"}, None),
    ],
    ids=["one", "last", "line", "end of a line", "itself", "circle"],
)
def test_the_first_of_the_line_that_stays_is_the_heir(successors, heir):
    assert heir_of("a", successors) == heir
