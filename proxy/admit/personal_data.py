"""Find personal data by class (see safety.PII): numbers that identify a person or an account, and contact
data.

The patterns are the rules of personal_data.toml. Check digits are python-stdnum's. A number whose checksum
proves little counts only next to its name.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib import import_module
from typing import Any

from proxy.admit.detection import Detector, load_rules


# ---------------------------------------------------------------- checks
def _digits(text: str) -> str:
    return "".join(c for c in text if c.isdecimal())


@cache
def _valid(*countries: str) -> Callable[[str], bool]:
    """Return the check that a number is one of these of python-stdnum's modules."""
    modules: list[Any] = [import_module(f"stdnum.{name}") for name in countries]
    return lambda value: any(_is_valid(module, value) for module in modules)


def _is_valid(module: Any, value: str) -> bool:
    """Return `module.is_valid`, False for a region that python-stdnum (2.2) does not know: LookupError."""
    try:
        return bool(module.is_valid(value))
    except LookupError:
        return False


_ISSUERS = re.compile(
    r"4\d{15}|4\d{18}|5[1-5]\d{14}|2(?:2[2-9]|[3-6]\d|7[01])\d{13}|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}"
    r"|6(?:011|5\d\d|4[4-9]\d)\d{12}|35\d{14}|62\d{14,17}|(?:50|5[6-8]|63|67)\d{14}|220[0-4]\d{12}|9792\d{12}"
)


def is_card(text: str) -> bool:
    digits = _digits(text)
    return bool(_ISSUERS.fullmatch(digits)) and len(set(digits)) > 1 and _valid("luhn")(digits)


def is_iban(text: str) -> bool:
    compact = "".join(c for c in text if c.isalnum()).upper()
    if not 15 <= len(compact) <= 34 or not compact.isascii():
        return False
    return int("".join(str(int(c, 36)) for c in compact[4:] + compact[:4])) % 97 == 1


def has_digits(text: str, least: int) -> bool:
    """True for this many digits, unless they are a date."""
    is_date = re.match(r"(?:19|20)\d\d-\d\d-\d\d|\d\d[./]\d\d[./]\d{4}", text)
    return len(_digits(text)) >= least and not is_date


def is_ip_address(text: str) -> bool:
    """True for an IP address that belongs to a network: not loopback and the like."""
    try:
        address = ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified or address.is_multicast or int(address) < 2**24)


def is_chinese_id(text: str) -> bool:
    """True for 18 characters with a right check digit, even if the date or the county is invented."""
    number = re.sub("[ -]", "", text)
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    total = sum(w * int(d) for w, d in zip(weights, number[:17], strict=True))
    return "10X98765432"[total % 11] == number[17].upper()


def is_taiwanese_id(number: str) -> bool:
    """True for a Taiwanese identity number (letter, nine digits, mod 10)."""
    first = "ABCDEFGHJKLMNPQRSTUVXYWZIO".find(number[0]) + 10
    weights = (8, 7, 6, 5, 4, 3, 2, 1, 1)
    total = first // 10 + first % 10 * 9 + sum(w * int(d) for w, d in zip(weights, number[1:], strict=True))
    return total % 10 == 0


def is_hong_kong_id(number: str) -> bool:
    """True for a Hong Kong identity card's number (a letter or two, six digits, mod 11)."""
    compact = re.sub(r"[^A-Z0-9]", "", number.upper())
    letters, digits, check = compact[:-7], compact[-7:-1], compact[-1]
    if len(letters) not in (1, 2):
        return False
    values = [36] * (2 - len(letters)) + [ord(c) - 55 for c in letters] + [int(d) for d in digits]
    total = sum(weight * value for weight, value in zip(range(9, 1, -1), values, strict=True))
    return (total + (10 if check == "A" else int(check))) % 11 == 0


# ---------------------------------------------------------------- rules
_CHECKS: Mapping[str, Callable[[str], bool]] = {
    "has_5_digits": partial(has_digits, least=5),
    "has_6_digits": partial(has_digits, least=6),
    "is_card": is_card,
    "is_chinese_id": is_chinese_id,
    "is_hong_kong_id": is_hong_kong_id,
    "is_iban": is_iban,
    "is_ip_address": is_ip_address,
    "is_long_address": lambda text: len(text) > 6 and is_ip_address(text),
    "is_machine_readable": lambda text: "<<" in text,
    "is_taiwanese_id": is_taiwanese_id,
}


def _check_of(rule: Mapping[str, str]) -> Callable[[str], bool]:
    if modules := rule.get("stdnum"):
        return lambda value: _valid(*modules.split())(value.upper())
    return _CHECKS[rule["check"]] if "check" in rule else bool


_RULES = load_rules("personal_data", _check_of)


@cache
def rows(classes: frozenset[str]) -> tuple[Detector, ...]:
    """Return the detectors of the classes."""
    return tuple(row for row in _RULES.detectors if row.kind in classes)
