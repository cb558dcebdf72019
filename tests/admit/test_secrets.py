"""Credentials are found in every shape, innocent text is left alone, and the cost is linear in the text."""

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.admit.safety import REDACTED, clean, redact, reject, safe_id
from proxy.admit.secrets import vendor_keys
from proxy.domain.core import Candidate
from tests.admit.corpus import INNOCENT, OWN_RULES, PERSONAL, SECRETS
from tests.support.examples import examples

PIECE = 6  # characters of a secret that would be of use
KEYS = tuple(  # in two pieces, so that no scanner takes them for real ones
    "".join(pieces)
    for pieces in (
        ("sk-", "proj-FAKE0000aaaa1111bbbb2222"),
        ("gh", "p_FAKEa1B2c3D4e5F6g7H8i9J0k1L2m3N4"),
        ("gl", "pat-FAKEx7Yz9Kq2Wv4Lm6Np8"),
    )
)


# ---------------------------------------------------------------- the corpora
def test_a_secret_is_redacted_alone_and_in_a_conversation_and_no_memory_is_made_of_it():
    before, after = "Good morning, I live in Ghent.\n\n", "\nWhat is wrong with it?"
    for text, secret in SECRETS:
        assert secret in text, "the row names its secret"
        assert secret not in redact(text), text
        redacted = redact(f"{before}{text}{after}")
        assert secret not in redacted, text
        assert redacted.startswith(before), text
        assert redacted.endswith(after), text
        assert reject(Candidate(type="semantic", content=f"User said: {text}")) == "secret", text
    tagged = Candidate(type="semantic", content="User has a thing", tags=(SECRETS[0][0],))
    assert reject(tagged) == "secret"


def test_innocent_text_is_returned_unchanged():
    assert [text for text in (*INNOCENT, *OWN_RULES) if redact(text) != text] == []


# ---------------------------------------------------------------- properties
AROUND = st.text(
    st.one_of(
        st.sampled_from(list(" \n\t.,;:!?()[]{}<>\"'`=/-_#@&%")),
        st.characters(codec="utf-8", exclude_categories=("Cs",)),
    ),
    max_size=40,
)


def pieces_left(secret: str, redacted: str, around: str) -> list[str]:
    pieces = (secret[at : at + PIECE] for at in range(len(secret) - PIECE + 1))
    return [piece for piece in pieces if piece in redacted and piece not in around]


@settings(max_examples=examples(30))
@given(before=AROUND, after=AROUND, secret=st.sampled_from(KEYS))
def test_no_piece_of_a_known_key_is_left_in_any_surroundings(before, after, secret):
    assert pieces_left(secret, redact(f"{before} {secret} {after}"), f"{before} {after}") == []


@settings(max_examples=examples(30))
@given(before=AROUND, after=AROUND, password=st.from_regex(r"[A-Za-z]{3,8}[-!&+][0-9]{3,6}", fullmatch=True))
def test_no_piece_of_a_password_that_is_called_one_is_left(before, after, password):
    around = f"{before}\nmy password is  {after}"
    assert pieces_left(password, redact(f"{before}\nmy password is {password} {after}"), around) == []


@settings(max_examples=examples(30))
@given(st.lists(st.one_of(AROUND, st.sampled_from([text for text, _ in SECRETS + PERSONAL])), max_size=5))
def test_redaction_of_any_text_is_idempotent(parts):
    once = redact("\n".join(parts))
    assert redact(once) == once


@example(["my password manager is 1Password", "on 2026-05-09 at 14:30 UTC"])
@example(["def get_token(user_id: int) -> str:", "git revert 9fceb02d0ae598e95dc970b74767f19372d61af8"])
@example(["password=****", "arn:aws:iam::123456789012:role/deploy", "password=****", "cus_NffrFeUfNV2Hib is"])
@given(st.lists(st.sampled_from(INNOCENT), max_size=20))
def test_innocent_lines_together_are_returned_unchanged(lines):
    text = "\n\n".join(lines)
    assert redact(text) == text


# ---------------------------------------------------------------- disguises
HEAD, TAIL = "gh" + "p_Kq83nVb2Lk9Xw7T", "z5Rp1Ym4Hd6Jg8Sf0Ca"


@pytest.mark.parametrize(
    "between",
    [
        *("**", "*", "`", "``", "~~", "||", "<b>", "</b>", "<wbr>", "<span class='x'>", "\u200b", "\u00ad"),
        *("\\\n  ", "\n", "\n> ", "\r\n", " \n    ", "**\u200b*"),
    ],
)
def test_a_key_split_by_markup_or_the_end_of_a_line_is_removed_whole(between):
    assert clean(f"It is {HEAD}{between}{TAIL} for CI.") == f"It is {REDACTED} for CI."


def test_escapes_do_not_hide_a_key_and_text_between_two_split_keys_stays():
    assert clean("It is " + HEAD.replace("_", "\\_") + TAIL + " for CI.") == f"It is {REDACTED} for CI."
    text = f"First {HEAD}**{TAIL}**, then *AKIA*`{'Q7XW2N5PLT3DB6YZ'}` in the cloud."
    assert clean(text) == f"First {REDACTED}**, then *{REDACTED}` in the cloud."


@pytest.mark.parametrize("before", ["at St. Mary's", "of Dr. Ohm's shop", "for z. B. Wein", "at 6 p.m."])
def test_a_password_is_found_after_an_abbreviation(before):
    assert "Kiebitz" not in redact(f"The password {before} became Kiebitz!83 again.")


# ---------------------------------------------------------------- vendors' keys
HEX = "3f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c"
MIXED = "9fK2mQ7xW4tB8vLzR3nY6cH1aB2c"
UUID = "3f9a8b7c-6d5e-4f3a-2b1c-0d9e8f7a6b5c"
VENDOR_KEYS = (
    *(f"key-{HEX}", f"lsv2_pt_{HEX}_a1b2c3d4e5", f"dp.st.prd.{MIXED}{MIXED[:15]}", f"esecret_{MIXED}"),
    *(f"{HEX[:14]}.atlasv1.{MIXED}{MIXED}{MIXED[:8]}", f"pcsk_4abcD_{MIXED}{MIXED}", f"m0-{MIXED}xyz1"),
    *(f"hsk-{HEX}", f"brv_{MIXED}", f"jina_{HEX}{MIXED}", f"fc-{HEX}", f"ctx7sk-{UUID}", f"tvly-dev-{MIXED}"),
    *(f"gsk_{MIXED}{MIXED[:24]}", f"pul-{HEX}3f9a8b7c", f"rubygems_{HEX}{HEX[:16]}"),
)
NO_KEYS = (
    *(f"commit {HEX}1d2e3f4a", "main.3f9a8b7c6d5e4f3a2b1c.js", "msg_01XFDUDYJgAACzvnptvVoYEL"),
    *("web-7d9f8b6c5d-x2x4q", "order-2024-000123", "IMG-20240101-WA0001", "claude-3-5-sonnet-20241022"),
    *("meta-llama-3.1-8b-instruct", "my-super-long-branch-name-2024-fix-the-thing-123", f"file {UUID}.pdf"),
    *("anna.schmidt1987@example.com", "www.example.com/a-b-c-1234567890abcdef"),
)


def test_a_vendors_key_is_found_alone_and_in_a_sentence_and_ids_that_are_not_keys_stay():
    for key in VENDOR_KEYS:
        for text in (key, f"Here it is: {key}, thanks", f'export X="{key}"'):
            assert key not in redact(text), text
    texts = [f"See {text} for that" for text in NO_KEYS]
    assert [text for text in texts if redact(text) != text] == []


# ---------------------------------------------------------------- ids
@pytest.mark.parametrize("given", [*KEYS, "4111 1111 1111 1111"])
def test_an_id_that_is_a_key_or_a_number_becomes_a_digest_that_stays(given):
    safe = safe_id(given)
    assert given not in safe
    assert safe_id(safe) == safe == safe_id(given)


@pytest.mark.parametrize(
    "given",
    [
        *("s-1", "550e8400-e29b-41d4-a716-446655440000", "Tq7mZx9LpV0aB4cD8kQ2w"),
        *("conv_3f2a9bc1d4e5f60718293a4b", "mem_7e8cea5713746805319360ee", "id-4111111111111111" + 16 * "0"),
    ],
)
def test_an_ordinary_id_stays_as_it_is(given):
    assert safe_id(given) == given


# ---------------------------------------------------------------- cost
HOSTILE = (
    *("a", "a1", "1 2 3 4 ", "1", "a b c ", "token=token=secret: ", "password is ", "password is a b "),
    *("pass pass ", "sk-", "sk-a1 a1 ", "://a:", "://a:b@", "-----BEGIN PRIVATE KEY----- ", "eyJaaaaaaaa."),
    *("abandon ", "xoxb-1-", "AbC1", "key key 12345678 ", "\u200b", "р1a", "card 4111 ", "passport A1 ", "="),
    *("12345678901234567 ", "<password>", "2fa AAAA ", "curl -u ", "https://a.b?token=", '"sk-a" +\n'),
    *(
        "1234-",
        "1.2.3.4.",
        "@a.b",
        "bearer a",
        "<!-- ",
        "a.b-c_",
        "<b display:none ",
        "always must note for ",
    ),
    *("a*", "a1**b", "a1\n", "abcdefgh12345678\n", "a1<b", "a1||", "a1\\-", "zendesk", "a-", "a.1", "key-1"),
    *("password of Dr. J. R. Ohm ", "| password | a |\n"),
)


def test_no_text_takes_more_than_linear_time():
    """A quadratic pattern takes minutes for 24,000 characters, seconds for 8,000."""
    names = " ".join(word for row in vendor_keys() for word in (*row.starts, *row.hints)) + " "
    clean("Load the rules.")
    for piece in (*HOSTILE, names):
        text = piece * (8_000 // len(piece))
        began = time.process_time()
        clean(text)
        assert time.process_time() - began < 5, piece
