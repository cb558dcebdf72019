"""Which web pages may make requests, by headers that only browsers write."""

import pytest

from proxy.domain.errors import Forbidden
from proxy.http.auth.browsers import Browsers, Visitor
from tests.http.auth.asking import scope_of

OPEN = Browsers.of(["https://app.example"], ["memory.lan"], check_host=True)
BEHIND = Browsers.of([], [], check_host=False)


def visitor(rules: Browsers, *headers: tuple[str, str]) -> Visitor:
    return rules.visit(scope_of(*headers)).visitor


def test_programs_and_our_own_page_are_ours():
    for host in (
        "127.0.0.1:8080",
        "localhost:8080",
        "[::1]:8080",
        "memory.lan",
        "proxy.localhost",
        "10.1.2.3:80",
    ):
        assert visitor(OPEN, ("Host", host)) is Visitor.OURS
        assert visitor(OPEN, ("Host", host), ("Origin", f"http://{host}")) is Visitor.OURS
    assert visitor(OPEN, ("Host", "memory-proxy:8080")) is Visitor.OURS, "a program in a container network"
    assert visitor(OPEN, ("Host", "LOCALHOST"), ("Origin", "http://localhost:80")) is Visitor.OURS
    same = ("Sec-Fetch-Site", "same-origin")
    assert visitor(OPEN, ("Host", "localhost"), ("Origin", "http://localhost"), same) is Visitor.OURS
    assert visitor(OPEN, ("Host", "localhost"), ("Sec-Fetch-Site", "none")) is Visitor.OURS


@pytest.mark.parametrize(
    "headers",
    [
        [("Origin", "https://evil.example")], [("Origin", "null")], [("Origin", "")], [("Origin", "file://")],
        [("Origin", "http://localhost:3000")], [("Origin", "http://localhost:8080.evil.example")],
        [("Origin", "http://evil.example/localhost:8080")], [("Origin", "http://x@localhost:8080")],
        [("Origin", "https://app.example.evil")], [("Origin", "http://app.example")],
        [("Origin", "http://localhost:8080"), ("Origin", "https://evil.example")],
        [("Origin", "https://app.example"), ("Origin", "https://evil.example")],
        [("Sec-Fetch-Site", "cross-site")], [("Sec-Fetch-Site", "Cross-Site")],
        [("Origin", "http://localhost:8080"), ("Sec-Fetch-Site", "cross-site")],
        [("Origin", "http://localhost:8080"), ("Host", "evil.example")],
    ],
)  # fmt: skip
def test_a_page_of_another_origin_is_foreign(headers):
    assert visitor(OPEN, ("Host", "localhost:8080"), *headers) is Visitor.FOREIGN


def test_a_page_whose_name_resolves_to_the_proxy_is_foreign():
    rebound = (("Host", "evil.example:8080"), ("Origin", "http://evil.example:8080"))
    assert visitor(OPEN, *rebound) is Visitor.FOREIGN
    assert visitor(BEHIND, *rebound) is Visitor.OURS, "behind a proxy every name may be ours"


def test_an_allowed_origin_is_allowed_also_across_sites():
    page = ("Origin", "https://app.example")
    assert visitor(OPEN, ("Host", "localhost"), page) is Visitor.ALLOWED
    assert visitor(OPEN, ("Host", "localhost"), page, ("Sec-Fetch-Site", "cross-site")) is Visitor.ALLOWED


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "evillocalhost",
        "memory.lan.evil", "", "localhost@evil.example", "evil.example@localhost", "evil.example#localhost",
        "localhost/evil", "localhost\\evil", "[::1", "localhost:x", "127.1", "0x7f.0.0.1", "2130706433x",
    ],
)  # fmt: skip
def test_a_host_name_that_others_can_point_to_the_proxy_is_refused(host):
    with pytest.raises(Forbidden) as refused:
        OPEN.visit(scope_of(("Host", host))).require_host()
    assert refused.value.code == "host_not_allowed"
    BEHIND.visit(scope_of(("Host", host))).require_host()


def test_two_host_headers_are_refused():
    for headers in (
        [("Host", "localhost"), ("Host", "localhost")],
        [("Host", "localhost"), ("Host", "evil")],
    ):
        with pytest.raises(Forbidden):
            OPEN.visit(scope_of(*headers)).require_host()


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:1", "a.localhost", "127.0.0.1", "[::1]:80", "8.8.8.8", "Memory.LAN:9"]
)
def test_loopback_addresses_and_allowed_hosts_are_accepted(host):
    OPEN.visit(scope_of(("Host", host))).require_host()


PATTERNS = ["https://*.example.com", "http://localhost:*", "app://*", "vscode-webview://*", "file://", "null"]


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("https://a.example.com", True), ("https://a.b.example.com", True), ("https://example.com", False),
        ("http://a.example.com", False), ("https://a.example.com:8443", False),
        ("https://evil.com/.example.com", False), ("https://evil@a.example.com", False),
        ("https://a.example.com.evil.com", False), ("https://aexample.com", False),
        ("http://localhost", True), ("http://localhost:5173", True), ("https://localhost:5173", False),
        ("http://localhost:x", False), ("http://localhost.evil:1", False), ("app://obsidian.md", True),
        ("app://.", True), ("xapp://obsidian.md", False), ("vscode-webview://1a2b-3c", True),
        ("file://", True), ("null", True), ("", False), ("chrome-extension://abc", False),
    ],
)  # fmt: skip
def test_patterns_allow_what_they_name_and_nothing_else(origin, allowed):
    rules = Browsers.of(PATTERNS, [], check_host=True)
    seen = visitor(rules, ("Host", "localhost"), ("Origin", origin))
    assert seen is (Visitor.ALLOWED if allowed else Visitor.FOREIGN)


def test_a_star_allows_every_page_without_cookies():
    rules = Browsers.of(["*"], [], check_host=False)
    for origin in ("https://evil.example", "null"):
        assert visitor(rules, ("Host", "localhost"), ("Origin", origin)) is Visitor.ALLOWED
