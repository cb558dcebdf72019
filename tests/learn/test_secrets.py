"""Credentials: found in every shape, innocents left alone, at a cost that grows with the text's length."""

import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.admit.safety import REDACTED, redact, reject, safe_id
from proxy.domain.core import Candidate
from tests.learn.safety_corpus import INNOCENT, OWN_RULES, PERSONAL, SECRETS

PIECE = 6  # characters of a secret that would be of use to somebody


@pytest.mark.parametrize(("text", "secret"), SECRETS, ids=[text[:24] for text, _ in SECRETS])
def test_a_secret_is_redacted_in_every_shape(text: str, secret: str) -> None:
    assert secret in text
    assert secret not in redact(text)
    assert REDACTED in redact(text)


@pytest.mark.parametrize(("text", "secret"), SECRETS, ids=[text[:24] for text, _ in SECRETS])
def test_a_secret_is_redacted_in_the_middle_of_a_talk(text: str, secret: str) -> None:
    redacted = redact(f"Good morning, I live in Ghent.\n{text}\nWhat is wrong with it?")
    assert secret not in redacted
    assert redacted.startswith("Good morning, I live in Ghent.\n")
    assert redacted.endswith("\nWhat is wrong with it?")


@pytest.mark.parametrize(("text", "secret"), SECRETS, ids=[text[:24] for text, _ in SECRETS])
def test_no_memory_is_made_of_a_secret(text: str, secret: str) -> None:
    assert reject(Candidate(type="semantic", content=f"User said: {text}")) == "secret"
    assert reject(Candidate(type="semantic", content="User has a thing", tags=(text,))) == "secret"
    assert secret  # the row names what it is about


@pytest.mark.parametrize("text", [*INNOCENT, *OWN_RULES])
def test_innocent_text_is_returned_unchanged(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("text", [text for text, _ in SECRETS + PERSONAL])
def test_redacting_twice_is_redacting_once(text: str) -> None:
    assert redact(redact(text)) == redact(text)


# What may stand around a secret in real life: prose, punctuation, code, other writing systems.
_AROUND = st.text(
    st.one_of(
        st.sampled_from(list(" \n\t.,;:!?()[]{}<>\"'`=/-_#@&%")),
        st.characters(codec="utf-8", exclude_categories=("Cs",)),
    ),
    max_size=40,
)
CUSTOMER = "cus_NffrFeUfNV2Hib is the customer's id"
INTEGRITY = "sha384-oqVuAfXRKap7fdgcCY5uykM6R9GqQ8KuxyrxHNQlGYl1kPzQho1wx4JwY8wC"
_KNOWN = (
    "sk-¦proj-FAKE0000aaaa1111bbbb2222",
    "gh¦p_FAKEa1B2c3D4e5F6g7H8i9J0k1L2m3N4",
    "gl¦pat-FAKEx7Yz9Kq2Wv4Lm6Np8",
)


@given(before=_AROUND, after=_AROUND, secret=st.sampled_from([key.replace("¦", "") for key in _KNOWN]))
def test_of_a_known_key_no_piece_is_left_whatever_stands_around_it(
    before: str, after: str, secret: str
) -> None:
    redacted = redact(f"{before} {secret} {after}")
    around = f"{before} {after}"
    for at in range(len(secret) - PIECE + 1):
        piece = secret[at : at + PIECE]
        assert piece not in redacted or piece in around


@given(
    before=_AROUND, after=_AROUND, password=st.from_regex(r"[A-Za-z]{3,8}[-!&+][0-9]{3,6}", fullmatch=True)
)
def test_of_a_password_that_is_called_one_no_piece_is_left(before: str, after: str, password: str) -> None:
    redacted = redact(f"{before}\nmy password is {password} {after}")
    for at in range(len(password) - PIECE + 1):
        piece = password[at : at + PIECE]
        assert piece not in redacted or piece in f"{before}\nmy password is  {after}"


@given(st.lists(st.one_of(_AROUND, st.sampled_from([text for text, _ in SECRETS + PERSONAL])), max_size=5))
def test_redaction_is_idempotent(parts: list[str]) -> None:
    once = redact("\n".join(parts))
    assert redact(once) == once


@example(["the password is required and the token is expired", INTEGRITY])
@example(["my password manager is 1Password", "on 2026-05-09 at 14:30 UTC"])
@example(["def get_token(user_id: int) -> str:", "git revert 9fceb02d0ae598e95dc970b74767f19372d61af8"])
@example(["password=****", "arn:aws:iam::123456789012:role/deploy", *["password=****", CUSTOMER] * 2])
@example(["login at 9:30, logout 17:00", "/usr/local/lib/python3.11/site-packages/foo2/bar3.py"])
@example(["SSN is short for social security number", "192.168.1.1 is the router"])
@given(st.lists(st.sampled_from(INNOCENT), max_size=20))
def test_clean_text_is_returned_unchanged(lines: list[str]) -> None:
    text = "\n\n".join(lines)
    assert redact(text) == text


NEXT = """
on 2026-05-09 we leave
2026-05-09 at 14:30
12/04/1988 is the day
at 18:05 sharp, or at 7:12pm
3pm-5pm
version 3.11.4 is out
v2.13.0-rc.1
$10,000 for twelve nights
$19.99/month
1,250.00 EUR
50%-off
2025Q3
order A-2024-00917 arrived broken
Order 5105-AB shipped
to Maria, at number 12B
flight LH1234 on 14.05., seat 22A
my promo code is SAVE20
my booking reference is QX7PLM
""".strip().splitlines()


@pytest.mark.parametrize("line", [line for line in INNOCENT if re.search("pass|pwd|密码|contra", line, re.I)])
def test_a_line_about_passwords_says_nothing_of_the_next_paragraph(line: str) -> None:
    text = "\n\n".join(f"{line}\n\n{following}" for following in NEXT)
    assert redact(text) == text


@pytest.mark.parametrize("line", ["I forgot my password again", "I changed my password to something longer"])
@pytest.mark.parametrize("following", NEXT)
def test_a_line_about_passwords_says_nothing_of_the_next_sentence_or_line(line: str, following: str) -> None:
    assert redact(f"{line}. {following}") == f"{line}. {following}"
    assert redact(f"{line}\n{following}") == f"{line}\n{following}"


@pytest.mark.parametrize("secret", _KNOWN)
def test_an_id_that_is_a_key_is_kept_as_a_digest(secret: str) -> None:
    secret = secret.replace("¦", "")
    assert secret not in safe_id(secret)
    assert safe_id(secret) == safe_id(secret)
    assert safe_id(safe_id(secret)) == safe_id(secret)


@pytest.mark.parametrize(
    "given",
    ["s-1", "550e8400-e29b-41d4-a716-446655440000", "Tq7mZx9LpV0aB4cD8kQ2w", "conv_3f2a9bc1d4e5f60718293a4b"],
)
def test_an_ordinary_id_stays_as_it_is(given: str) -> None:
    assert safe_id(given) == given


HOSTILE = (
    *(
        "a",
        "a1",
        "1 2 3 4 ",
        "1",
        "a b c ",
        "token=token=secret: ",
        "password is ",
        "password is a b ",
        "pass pass ",
    ),
    *(
        "sk-",
        "sk-a1 a1 ",
        "://a:",
        "://a:b@",
        "-----BEGIN PRIVATE KEY----- ",
        "eyJaaaaaaaa.",
        "abandon ",
        "xoxb-1-",
    ),
    *(
        "AbC1",
        "key key 12345678 ",
        "\u200b",
        "р1a",
        "card 4111 ",
        "passport A1 ",
        "12345678901234567 ",
        "=",
        "<password>",
    ),
    *("2fa AAAA ", "curl -u ", "https://a.b?token=", '"sk-a" +\n', "1234-", "1.2.3.4.", "@a.b", "bearer a"),
)


@pytest.mark.parametrize("piece", HOSTILE)
def test_the_cost_is_linear_in_hostile_text(piece: str) -> None:
    def seconds(length: int) -> float:
        text = piece * (length // len(piece))
        best = float("inf")
        for _ in range(3):
            started = time.process_time()
            redact(text)
            best = min(best, time.process_time() - started)
        return best

    short, long = seconds(6_000), seconds(48_000)
    assert long < 8 * short * 3 + 0.05, f"{short * 1e3:.1f} ms, then {long * 1e3:.1f} ms for 8 times as much"


@pytest.mark.parametrize("before", ["at St. Mary's", "of Dr. Ohm's shop", "for z. B. Wein", "at 6 p.m."])
def test_a_password_is_found_behind_an_abbreviation(before: str) -> None:
    assert "Kiebitz" not in redact(f"The password {before} became Kiebitz!83 again.")
