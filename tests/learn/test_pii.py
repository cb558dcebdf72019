"""Personal data by class, under each policy."""

import pytest

from proxy.admit.safety import DEFAULT, DEFAULT_PII, PII, REDACTED, SafetyPolicy, redact, reject
from proxy.config import PrivacySettings
from proxy.domain.core import Candidate
from tests.learn.safety_corpus import PERSONAL

CONTACTS = (
    ("email", "write to bo.li+x@mail.example.org, please", "bo.li+x@mail.example.org"),
    ("email", "bo (at) example.org", "bo (at) example.org"),
    ("phone", "call +49 170 1234567 after six", "+49 170 1234567"),
    ("phone", "my number is (555) 010-4477.", "(555) 010-4477"),
    ("phone", "07700 900123 is my mobile", "07700 900123"),
    ("phone", "手机号 13800138000", "13800138000"),
    ("phone", "mobile: 0151 2345 6789", "0151 2345 6789"),
    ("address", "I live at 12 Harbour Street, Cork", "12 Harbour Street"),
    ("address", "Lindenstraße 14a, 10969 Berlin", "Lindenstraße 14a"),
    ("address", "vivo en calle Mayor 12", "calle Mayor 12"),
    ("address", "住在杭州市西湖区文三路12号", "文三路12号"),
    ("ip_address", "the box is 203.0.113.7 now", "203.0.113.7"),
    ("ip_address", "2001:db8::8a2e:370:7334 answers", "2001:db8::8a2e:370:7334"),
)


def policy(**pii: str) -> SafetyPolicy:
    return SafetyPolicy(pii={**DEFAULT_PII, **pii})


def memory(content: str) -> Candidate:
    return Candidate(type="semantic", content=content)


@pytest.mark.parametrize(("text", "number"), PERSONAL, ids=[text[:24] for text, _ in PERSONAL])
def test_an_identifying_number_is_redacted_and_no_memory_is_made_of_it(text: str, number: str) -> None:
    assert number in text
    assert number not in redact(text)
    assert reject(memory(f"User said: {text}")) in ("pii", "secret")


@pytest.mark.parametrize(("kind", "text", "value"), CONTACTS)
def test_contact_data_is_stored_as_said_where_it_is_allowed(kind: str, text: str, value: str) -> None:
    assert redact(text) == text
    assert reject(memory(text)) is None
    assert value in text
    assert kind in PII


@pytest.mark.parametrize(("kind", "text", "value"), CONTACTS)
def test_contact_data_to_redact_leaves_a_marker_and_the_rest(kind: str, text: str, value: str) -> None:
    redacted = redact(text, policy(**{kind: "redact"}))
    assert value not in redacted
    assert f"[redacted {PII[kind]}]" in redacted
    assert redact(redacted, policy(**{kind: "redact"})) == redacted


@pytest.mark.parametrize(("kind", "text", "value"), CONTACTS)
def test_a_statement_with_contact_data_to_redact_is_still_a_memory(kind: str, text: str, value: str) -> None:
    strict = policy(**{kind: "redact"})
    assert reject(memory(text), strict) is None
    assert reject(memory(redact(text, strict)), strict) is None


@pytest.mark.parametrize(("kind", "text", "value"), CONTACTS)
def test_contact_data_to_reject_is_removed_and_no_memory_is_made_of_it(
    kind: str, text: str, value: str
) -> None:
    strict = policy(**{kind: "reject"})
    assert value not in redact(text, strict)
    assert REDACTED in redact(text, strict)
    assert reject(memory(text), strict) == "pii"


def test_a_card_that_is_allowed_is_stored_and_a_secret_beside_it_is_not() -> None:
    lax = policy(card="allow")
    assert redact("Visa 4111 1111 1111 1111", lax) == "Visa 4111 1111 1111 1111"
    assert redact("Visa 4111 1111 1111 1111, CVV 739", lax) == "Visa 4111 1111 1111 1111, CVV [redacted]"


def test_of_overlapping_finds_the_strictest_policy_decides() -> None:
    text = "password: bo@example.org"
    assert "bo@example" not in redact(text, policy(email="redact"))
    assert REDACTED in redact(text, policy(email="redact"))


@pytest.mark.parametrize(
    "text",
    [
        *("127.0.0.1 is the loopback", "version 10.4.2.1-beta", "room 12 at the end of the Way to go"),
        *("a ratio of 16:9 and 4:3", "at 10:30:15 sharp", "call me at 9", "@decorator.name here", "3.14.15"),
        *("from 2026-05-09 to 2026-05-20", "order 1234567890123", "the road is 12 km", "2 way street"),
    ],
)
def test_strict_policies_leave_what_only_looks_alike(text: str) -> None:
    strict = SafetyPolicy(pii=dict.fromkeys(PII, "reject"))
    assert redact(text, strict) == text


def test_the_default_policy_is_that_of_the_settings() -> None:
    settings = PrivacySettings()
    assert {name: getattr(settings, name) for name in PII} == DEFAULT.pii
    assert DEFAULT.quarantine == settings.quarantine


# ---------------------------------------------------------------- next to their names
LABELLED = {
    "ABCPD1234F": ("My PAN is {}.", "PAN number: {}", "permanent account number {}"),
    "750110-1119803": ("주민번호는 {}입니다", "my Korean resident registration number is {}", "RRN {}"),
    "531941300": ("my SIN is {}", "Canadian SIN {}", "numéro d'assurance sociale {}"),
    "543561280": ("TFN {}", "my tax file number is {}"),
    "14352339786": ("IdNr. {}", "my German tax ID is {}", "Steuernummer {}"),
    "26858240": ("IRD number {}", "my IRD is {}"),
    "50030335643": ("rijksregisternummer {}", "numéro national {}", "my Belgian national number is {}"),
    "9186372448": ("ІПН {}", "РНОКПП: {}", "my Ukrainian tax number is {}"),
    "072742638": ("תעודת זהות {}", "my Israeli ID is {}"),
    "A123456(3)": ("HKID {}", "香港身份證號碼 {}", "it is {}, in Hong Kong"),
}


@pytest.mark.parametrize(("number", "sentences"), LABELLED.items())
def test_a_number_with_a_right_check_digit_is_found_beside_its_name(
    number: str, sentences: tuple[str, ...]
) -> None:
    for sentence in sentences:
        assert redact(sentence.format(number)) == sentence.format("[redacted]")


@pytest.mark.parametrize(
    "text",
    [
        "A pan for 12345678 yen",
        "flight LH1234567",
        "part A1234567",
        "the SIN of pride, 123456789",
        "IRD 26858241",
    ],
)
def test_a_number_with_a_wrong_check_digit_or_of_something_else_stays(text: str) -> None:
    assert redact(text) == text
