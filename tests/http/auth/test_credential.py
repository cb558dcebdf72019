"""Which credential a request carries, and what is left of it for the upstream."""

import pytest

from proxy.domain.errors import Unauthorized
from proxy.http.auth.identity import MAX_CREDENTIAL_CHARS, is_sendable, presented, replaced


@pytest.mark.parametrize(
    "headers",
    [
        [(b"authorization", b"Bearer mp-1")],
        [(b"authorization", b"bearer  mp-1 ")],
        [(b"api-key", b"mp-1")],
        [(b"x-api-key", b" mp-1")],
        [(b"authorization", b"Bearer mp-1"), (b"api-key", b"mp-1"), (b"authorization", b"BEARER mp-1")],
    ],
)
def test_a_key_is_found_wherever_openai_and_azure_clients_put_it(headers: list[tuple[bytes, bytes]]) -> None:
    assert presented(headers) == "mp-1"


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"cookie", b"mp-1")],
        [(b"authorization", b"")],
        [(b"authorization", b"mp-1")],
        [(b"authorization", b"Bearer")],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", b"Basic mp-1")],
        [(b"authorization", b"Bearer mp-1, Bearer mp-2")],
        [(b"authorization", b"Bearer mp-1 mp-2")],
        [(b"authorization", b"Bearer mp-\xff")],
        [(b"authorization", b"Bearer mp-\x00")],
        [(b"authorization", b"Bearer " + b"m" * (MAX_CREDENTIAL_CHARS + 1))],
        [(b"api-key", b" ")],
        [(b"authorization", b"Bearer mp-1"), (b"authorization", b"Bearer mp-2")],
        [(b"authorization", b"Bearer mp-1"), (b"x-api-key", b"sk-2")],
        [(b"api-key", b"mp-1"), (b"x-api-key", b"")],
        [(b"authorization", b"Basic eA=="), (b"api-key", b"mp-1")],
    ],
)
def test_none_two_or_a_malformed_one_is_unauthorized(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(Unauthorized) as refused:
        presented(headers)
    assert "mp-" not in refused.value.message


def test_the_upstream_sees_its_own_key_and_nothing_of_ours_in_any_header() -> None:
    headers = [
        (b"authorization", b"Bearer mp-1"),
        (b"api-key", b"mp-1"),
        (b"x-api-key", b"mp-1"),
        (b"cookie", b"session=mp-1; a=b"),
        (b"user-agent", b"test"),
    ]
    kept = [(b"user-agent", b"test")]
    assert replaced(headers, "mp-1", None) == kept
    assert replaced(headers, "mp-1", "sk-up") == [*kept, (b"authorization", b"Bearer sk-up")]


def test_only_what_fits_a_header_is_an_upstream_key() -> None:
    assert is_sendable("sk-Ab_1")
    for key in ("", "a b", "a\r\nx: y", "ключ", "a\x00", "m" * (MAX_CREDENTIAL_CHARS + 1)):
        assert not is_sendable(key)
