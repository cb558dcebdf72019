"""gitleaks' rules as this code reads them, and the shape of newer vendors' keys."""

import subprocess
import sys
import time
import tomllib
from importlib import resources

import pytest

from proxy.admit.safety import redact
from proxy.admit.secrets import vendor_keys

HEX = "3f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c"
MIXED = "9fK2mQ7xW4tB8vLzR3nY6cH1aB2c"
UUID = "3f9a8b7c-6d5e-4f3a-2b1c-0d9e8f7a6b5c"
KEYS = (
    f"key-{HEX}",
    f"lsv2_pt_{HEX}_a1b2c3d4e5",
    f"dp.st.prd.{MIXED}{MIXED[:15]}",
    f"esecret_{MIXED}",
    f"{HEX[:14]}.atlasv1.{MIXED}{MIXED}{MIXED[:8]}",
    f"pcsk_4abcD_{MIXED}{MIXED}",
    f"m0-{MIXED}xyz1",
    f"hsk-{HEX}",
    f"brv_{MIXED}",
    f"jina_{HEX}{MIXED}",
    f"fc-{HEX}",
    f"ctx7sk-{UUID}",
    f"gsk_{MIXED}{MIXED[:24]}",
    f"tvly-dev-{MIXED}",
    f"pul-{HEX}3f9a8b7c",
    f"rubygems_{HEX}{HEX[:16]}",
)
NO_KEYS = (
    f"commit {HEX}1d2e3f4a",
    "main.3f9a8b7c6d5e4f3a2b1c.js",
    "msg_01XFDUDYJgAACzvnptvVoYEL",
    "web-7d9f8b6c5d-x2x4q",
    "order-2024-000123",
    "IMG-20240101-WA0001",
    "claude-3-5-sonnet-20241022",
    "meta-llama-3.1-8b-instruct",
    "my-super-long-branch-name-2024-fix-the-thing-123",
    "anna.schmidt1987@example.com",
    "www.example.com/a-b-c-1234567890abcdef",
    f"file {UUID}.pdf",
)


def test_a_start_does_not_wait_for_the_rules() -> None:
    loaded = (
        "import proxy.app.http; from proxy.admit.secrets import vendor_keys;"
        "print(vendor_keys.cache_info().currsize)"
    )
    told = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["0"]


def test_nearly_all_rules_of_gitleaks_are_read() -> None:
    text = resources.files("proxy.admit").joinpath("gitleaks.toml").read_text("utf-8")
    rules = tomllib.loads(text)["rules"]
    assert len(vendor_keys()) > len(rules) - 15 > 200


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key[:12])
def test_a_key_is_found_alone_and_in_a_sentence(key: str) -> None:
    for text in (key, f"Use {key}.", f"Here it is: {key}, thanks", f'export X="{key}"'):
        assert key not in redact(text)
        assert "[redacted]" in redact(text)


@pytest.mark.parametrize("text", NO_KEYS)
def test_what_has_an_id_and_is_no_key_stays(text: str) -> None:
    assert redact(f"See {text} for that") == f"See {text} for that"


def test_texts_full_of_vendors_names_take_time_in_proportion() -> None:
    names = " ".join(word for row in vendor_keys() for word in (*row.starts, *row.hints))
    texts = (f"{names} " * 6, "zendesk" * 2_500, "a-" * 10_000, "a.1" * 6_000, "key-1" * 4_000)
    for text in texts:
        began = time.process_time()
        redact(text[:20_000])
        assert time.process_time() - began < 1


MONERO = (
    "nibs acidic lamb pebbles imbalance oust tarnished knuckle gypsy vials atlas jukebox sabotage tidy kiwi"
    " afloat ugly gang cuisine orphans wiggle dormant ankle upbeat vials"
)


@pytest.mark.parametrize(
    "called", ["My Monero seed: {}", "my electrum seed phrase is {}", "wallet words = {}"]
)
def test_a_seed_phrase_of_another_list_is_found_by_its_name(called: str) -> None:
    assert redact(called.format(MONERO)) == called.format("[redacted]")
    said = "My seed phrase is written on a sheet of paper that lies in the drawer under the bed at home"
    assert redact(said) == said
