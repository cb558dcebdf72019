"""Shapes of vendors' keys: gitleaks' rules, and the shape that keys of newer vendors share.

gitleaks.toml is that project's own file (MIT, see gitleaks.LICENSE); to take a newer one, replace it. Its
rules are made for source code. Here a value may also be followed by the end of a sentence, and rules that
prose matches are left out. They are read with the first text that is looked at: 0.1 s that no start needs.
"""

import re
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from importlib import resources
from typing import Any

from proxy.admit.safety.detect import Detector
from proxy.admit.safety.looks import entropy, is_placeholder, is_vendor_key

# Found by other detectors (JWT, private keys), no secrets, or patterns that take quadratic time.
_LEFT_OUT = frozenset(
    "aws-amazon-bedrock-api-key-short-lived curl-auth-header curl-auth-user facebook-access-token"
    " flutterwave-public-key generic-api-key jwt jwt-base64 kubernetes-secret-yaml nuget-config-password"
    " private-key".split()
)
# Keys that gitleaks reports only next to the vendor's name.
_UNLABELLED = tuple(
    Detector("secret", re.compile(pattern), is_vendor_key, (hint,), pieces=True)
    for pattern, hint in (
        (r"(?<!\d)\d{8,10}:AA[\w-]{32,36}(?![\w-])", ":aa"),  # a Telegram bot's
        (r"(?<![\w-])[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,38}(?![\w-])", "."),  # a Discord bot's
        (r"(?<!\w)[0-9a-z]{32}-us\d{1,2}(?!\w)", "-us"),  # Mailchimp
        (r"sq0csp-[\w-]{43}", "sq0csp-"),
        (r"AccountKey=([A-Za-z0-9+/=]{88})", "accountkey="),  # Azure storage
    )
)
_ANYTHING_BEFORE = re.compile(r"\(\?i\)\[\\w\.-\]\{0,50\}\?")
_END = r"""(?:[\x60'"\s;]|\\[nr]|$)"""
_NO_MORE = r"(?![\w-])"


@cache
def rows() -> tuple[Detector, ...]:
    """Return the detectors. The first call reads the rules; it may be made in any thread."""
    text = resources.files(__package__).joinpath("gitleaks.toml").read_text("utf-8")
    return (*_of_gitleaks(tomllib.loads(text)["rules"]), *_UNLABELLED, _PREFIXED)


def _of_gitleaks(rules: list[dict[str, Any]]) -> Iterator[Detector]:
    for rule in rules:
        if rule["id"] in _LEFT_OUT or "path" in rule or "regex" not in rule:
            continue
        keywords, check = tuple(rule["keywords"]), _checked(rule.get("entropy", 0.0))
        source, is_label = _ANYTHING_BEFORE.subn("(?i)", rule["regex"], count=1)
        pattern = re.compile(_in_python(source))
        if is_label and rule["regex"].startswith("(?i)"):  # a vendor's name, and a value assigned to it
            yield Detector("secret", pattern, check, starts=keywords)
        else:
            yield Detector("secret", pattern, check, hints=keywords, pieces=True)


def _in_python(source: str) -> str:
    """Return the pattern of Go's RE2 as Python writes it."""
    source = source.replace("[:alnum:]", "A-Za-z0-9").replace(r"\z", r"\Z").replace(_END, _NO_MORE)
    while (at := source.find("(?i)", 1)) > 0:  # a flag that holds to the end of its group
        end = _end_of_group(source, at + 4)
        source = f"{source[:at]}(?i:{source[at + 4 : end]}){source[end:]}"
    return source


def _end_of_group(source: str, at: int) -> int:
    depth, in_class = 0, False
    while at < len(source):
        char = source[at]
        if char == "\\":
            at += 1
        elif in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
        elif char == "(":
            depth += 1
        elif char == ")":
            if not depth:
                return at
            depth -= 1
        at += 1
    return at


def _checked(least_entropy: float) -> Callable[[str], bool]:
    return lambda value: entropy(value) >= least_entropy and not is_placeholder(value)


# ---------------------------------------------------------------- newer vendors
# Short names in small letters, and something random behind them: m0-…, lsv2_pt_…, jina_…, dp.st.prd.…
_TOKEN = re.compile(
    r"(?<![\w./@+=-])[a-z][a-z0-9]{0,11}[-_.](?=[A-Za-z0-9_.-]{0,40}\d)[A-Za-z0-9_-]{1,200}(?:\.[A-Za-z0-9_-]{2,200}){0,3}"
    r"(?![\w-])"
)
_UUID_AT_END = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_SECRET_NAMES = ("sk", "key", "token", "secret", "pat", "pk")
# Names of what has an id and is no secret: files, builds, objects of common APIs.
_IDS = frozenset(
    "acct ami app asst batch branch build bundle call cart cfg ch chat chatcmpl chunk cluster cmpl commit"
    " conv cus dataset doc docker evt ex file fix font ft gen git hash head i id img image in index inv"
    " issue item job log main mem md5 merge model msg node obj ord order org page pi pkg pod post pr price"
    " prod proj ref rel release req resp rev rs run sess session sg sha sha1 sha256 sha384 sha512 si snap"
    " spec step style sub subnet tag task test thread tmp toolu trace tx txt type url user uuid v vendor"
    " ver vol vpc vs www".split()
)
_LEAST_RANDOM = 20


def _is_prefixed(value: str) -> bool:
    """True for a vendor's prefix with something random behind it."""
    names = re.split(r"[-_.]", value)
    if names[0].rstrip("0123456789") in _IDS or names[0] in _IDS:
        return False
    if _UUID_AT_END.search(value):
        return names[0].endswith(_SECRET_NAMES)
    longest = max(range(len(names)), key=lambda n: len(names[n]))
    core, before = names[longest], names[:longest]
    if not before or len(core) < _LEAST_RANDOM or not set(before).isdisjoint(_IDS):
        return False
    digits = sum(c.isdigit() for c in core)
    if digits < 3 or len(core) - digits < 3 or entropy(core) < 3.0:
        return False
    if re.search("[a-z]", core) and re.search("[A-Z]", core):
        return True
    return core.isalnum() and (len(before) > 1 or len(before[0]) <= 4 or before[0].endswith(_SECRET_NAMES))


_PREFIXED = Detector("secret", _TOKEN, _is_prefixed, pieces=True)
