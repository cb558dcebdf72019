"""Personal data by class, under each policy."""

import time

import pytest

from proxy.admit.safety import DEFAULT, DEFAULT_PII, PII, REDACTED, SafetyPolicy, cleaned, redact, reject
from proxy.config import PrivacySettings
from proxy.domain.core import Candidate
from tests.admit.corpus import PERSONAL

CONTACTS = (
    ("email", "write to bo.li+x@mail.example.org, please", "bo.li+x@mail.example.org"),
    ("email", "bo (at) example.org", "bo (at) example.org"),
    ("phone", "call +49 170 1234567 after six", "+49 170 1234567"),
    ("phone", "my number is (555) 010-4477.", "(555) 010-4477"),
    ("phone", "07700 900123 is my mobile", "07700 900123"),
    ("address", "I live at 12 Harbour Street, Cork", "12 Harbour Street"),
    ("address", "Lindenstraße 14a, 10969 Berlin", "Lindenstraße 14a"),
    ("address", "住在杭州市西湖区文三路12号", "文三路12号"),
    ("ip_address", "the box is 203.0.113.7 now", "203.0.113.7"),
    ("ip_address", "2001:db8::8a2e:370:7334 answers", "2001:db8::8a2e:370:7334"),
)


def policy(**pii: str) -> SafetyPolicy:
    return SafetyPolicy(pii={**DEFAULT_PII, **pii})


def memory(content: str) -> Candidate:
    return Candidate(type="semantic", content=content)


def test_an_identifying_number_is_redacted_and_no_memory_is_made_of_it():
    for text, number in PERSONAL:
        assert number in text, "the row names its number"
        assert number not in redact(text), text
        assert reject(memory(f"User said: {text}")) in ("pii", "secret"), text


@pytest.mark.parametrize(("kind", "text", "value"), CONTACTS)
def test_contact_data_follows_its_policy(kind, text, value):
    assert redact(text) == text, "allowed by default"
    assert reject(memory(text)) is None
    masked = policy(**{kind: "redact"})
    redacted = redact(text, masked)
    assert value not in redacted
    assert f"[redacted {PII[kind]}]" in redacted
    assert redact(redacted, masked) == redacted
    assert reject(memory(text), masked) is reject(memory(redacted), masked) is None
    strict = policy(**{kind: "reject"})
    assert value not in redact(text, strict)
    assert REDACTED in redact(text, strict)
    assert reject(memory(text), strict) == "pii"


def test_a_card_that_is_allowed_is_stored_and_a_secret_next_to_it_is_not():
    lax = policy(card="allow")
    assert redact("Visa 4111 1111 1111 1111", lax) == "Visa 4111 1111 1111 1111"
    assert redact("Visa 4111 1111 1111 1111, CVV 739", lax) == "Visa 4111 1111 1111 1111, CVV [redacted]"


def test_the_strictest_policy_decides_for_overlapping_finds():
    redacted = redact("password: bo@example.org", policy(email="redact"))
    assert "bo@example" not in redacted
    assert REDACTED in redacted


def test_strict_policies_leave_what_only_looks_alike():
    strict = SafetyPolicy(pii=dict.fromkeys(PII, "reject"))
    texts = (
        *("127.0.0.1 is the loopback", "version 10.4.2.1-beta", "room 12 at the end of the Way to go"),
        *("a ratio of 16:9 and 4:3", "at 10:30:15 sharp", "call me at 9", "@decorator.name here", "3.14.15"),
        *("from 2026-05-09 to 2026-05-20", "order 1234567890123", "the road is 12 km", "2 way street"),
    )
    assert [text for text in texts if redact(text, strict) != text] == []


def test_the_default_policy_is_that_of_the_settings():
    settings = PrivacySettings()
    assert {name: getattr(settings, name) for name in PII} == DEFAULT.pii
    assert DEFAULT.quarantine == settings.quarantine


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


def test_a_number_with_a_right_check_digit_is_found_next_to_its_name():
    for number, sentences in LABELLED.items():
        for sentence in sentences:
            assert redact(sentence.format(number)) == sentence.format("[redacted]")


def test_a_number_with_a_wrong_check_digit_or_of_something_else_stays():
    texts = ("A pan for 12345678 yen", "flight LH1234567", "the SIN of pride, 123456789", "IRD 26858241")
    assert [text for text in texts if redact(text) != text] == []


@pytest.mark.parametrize("sign", ["区", "市中"])
def test_searching_addresses_takes_linear_time(sign):
    strict, text = SafetyPolicy(pii={"address": "redact"}), sign * (50_000 // len(sign))
    began = time.process_time()
    assert cleaned(text, strict) == text
    assert time.process_time() - began < 1.5
    assert redact("我住在北京市朝阳区建国路88号5单元", strict) == "[redacted address]"
