"""How our keys are made and what of them is stored."""

import pytest

from proxy.http.auth.keys import BrokenSeal, digest_of, is_key, new_id, new_key, seal, unseal


def test_keys_are_long_random_and_fit_a_header() -> None:
    made = {new_key() for _ in range(1_000)}
    assert len(made) == 1_000
    assert all(is_key(key) and len(key) >= 43 and key.startswith("mp-") for key in made)
    assert len({new_id() for _ in range(1_000)}) == 1_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mp-",
        "mp-short",
        "sk-" + "a" * 43,
        "mp-" + "a" * 39,
        "mp-" + "a" * 43 + "\n",
        "mp-" + "a" * 200,
        "mp-" + "é" * 43,
        "MP-" + "a" * 43,
    ],
)
def test_what_is_no_key_of_ours_is_told_by_its_shape(text: str) -> None:
    assert not is_key(text)


def test_only_the_key_itself_opens_what_was_sealed_with_it() -> None:
    key, other = new_key(), new_key()
    sealed = seal(key, "sk-upstream")
    assert unseal(key, sealed) == "sk-upstream"
    assert b"sk-upstream" not in sealed
    assert sealed != seal(key, "sk-upstream"), "a nonce is used once"
    changed = sealed[:-1] + bytes([sealed[-1] ^ 1])
    for broken in (sealed[:-1], sealed[1:], b"", sealed[:5], b"\x02" + sealed[1:], changed):
        with pytest.raises(BrokenSeal):
            unseal(key, broken)
    with pytest.raises(BrokenSeal):
        unseal(other, sealed)


def test_what_is_stored_tells_nothing_of_the_key() -> None:
    key = new_key()
    stored = digest_of(key) + seal(key, "sk-upstream")
    assert key[3:].encode() not in stored
    assert digest_of(key) == digest_of(key) != digest_of(new_key())
    with pytest.raises(BrokenSeal):
        unseal(digest_of(key).hex(), seal(key, "sk-upstream"))
