"""Find what must never be remembered: credentials, and numbers that identify a person or an account.

One row per shape. A row that could catch innocent text carries a check (Luhn, mod 97, what a password
looks like), so that versions, dates, short hashes, hosts and prices survive. Repetition in the patterns
is bounded: the cost is linear in the text.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_WORDS_AFTER_PASSWORD = frozenset(
    "a an the in on at to for of is was are not no never too very also again still only just now then"
    " required wrong expired invalid incorrect correct empty weak strong stored reset changed protected"
    " missing set same different my your his her their our manager policy field hash hashes rotation and"
    " or but with from that this it which prompt login lost known safe secure optional case-sensitive"
    " hint generator database file needed shared".split()
)


@dataclass(frozen=True, slots=True)
class Detector:
    """One shape. The group named `value`, or the whole match, is what is removed."""

    kind: str  # "secret" | "pii"
    pattern: re.Pattern[str]
    check: Callable[[str], bool] = bool
    hints: tuple[str, ...] = ()  # lower case; where none is in the text, the pattern need not be tried


def _digits(text: str) -> str:
    return "".join(c for c in text if c.isdecimal())


def _luhn(text: str) -> bool:
    digits = [int(d) for d in _digits(text)]
    if not 13 <= len(digits) <= 19 or digits[0] not in (2, 3, 4, 5, 6) or len(set(digits)) < 2:
        return False
    doubled = (d * 2 - 9 if d > 4 else d * 2 for d in digits[-2::-2])
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _iban(text: str) -> bool:
    compact = "".join(text.split()).upper()
    if not 15 <= len(compact) <= 34:
        return False
    return int("".join(str(int(c, 36)) for c in compact[4:] + compact[:4])) % 97 == 1


def _chinese_id(text: str) -> bool:
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    total = sum(w * int(d) for w, d in zip(weights, text[:17], strict=True))
    return "10X98765432"[total % 11] == text[17].upper()


def _is_password(value: str) -> bool:
    """True for what follows "password is": anything but the words of an ordinary sentence."""
    word = value.strip("\"'`“”.,;!?()").lower()
    return len(word) >= 3 and word not in _WORDS_AFTER_PASSWORD


def _is_mixed(value: str) -> bool:
    """True for a token with digits among letters or symbols, as no ordinary word has."""
    word = value.strip("\"'`“”.,;!?()")
    kinds = sum(bool(re.search(p, word)) for p in (r"[a-z]", r"[A-Z]", r"\d", r"[^\w\s]"))
    return len(word) >= 6 and kinds >= 2 and bool(re.search(r"[\d!@#$%^&*]", word))


def _is_random(value: str) -> bool:
    """True for a long token as random as base64: all three classes, over 4.2 bits a character."""
    if not all(re.search(p, value) for p in (r"[a-z]", r"[A-Z]", r"\d")):
        return False
    entropy = -sum(n / len(value) * math.log2(n / len(value)) for n in Counter(value).values())
    return entropy > 4.2


def _looks_secret(value: str) -> bool:
    return _is_mixed(value) or (len(value) >= 20 and value.isalnum())


def _is_credential(value: str) -> bool:
    """True for what follows "Bearer", unless it is a plain word ("bearer authentication")."""
    return not (value.isalpha() and value.islower())


def _rx(pattern: str, flags: int = 0) -> re.Pattern[str]:
    return re.compile(pattern, flags)


_PASSWORD = (
    r"(?:pass(?:word|wort|phrase|code|wd)|\bpwd|\bkennwort|contrase(?:ñ|n)a|mot de passe|\bsenha"
    r"|密码|密碼|口令|パスワード|비밀번호|пароль)"
)
_PASSWORD_HINTS = tuple("pass pwd kennwort contrase senha 密码 密碼 口令 パスワード 비밀번호 пароль".split())
_KEYWORD = (
    r"(?:pass(?:word|wd|phrase)?|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential"
    r"|auth[_-]?(?:token|key|secret))"
)
_IS = r"(?:[\"'`]?\s{0,3}(?:=>|[:=\uff1a]|\b(?:is|was|ist|est|es|è)\b|是|为|は)\s{0,3}(?:now |jetzt )?)"
_VALUE = r"[^\s,;\uff0c\u3002\uff1b]"
_NUMBERED = (
    r"(?:nhs|ssn|social security|national insurance|national id|passport|driver'?s licen[sc]e|tax id"
    r"|steuer-?id|aadhaar|cpf|dni|nino|personalausweis\w{0,8}|reisepass\w{0,8})"
)

DETECTORS = (
    Detector(
        "secret",
        _rx(
            r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?:[A-Za-z0-9+/=\s:,.\\]|-(?!----))*"
            r"(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?"
        ),
        hints=("-----begin",),
    ),
    Detector("secret", _rx(r"\bsk-[A-Za-z0-9_-]{16,300}"), hints=("sk-",)),
    Detector(
        "secret",
        _rx(r"\b[a-z]{2,10}_(?:live|test|prod|secret|key)_[A-Za-z0-9_-]{12,200}"),
        hints=("_live_", "_test_", "_prod_", "_secret_", "_key_"),
    ),
    Detector(
        "secret",
        _rx(r"\b(?:gh[pousr]_[A-Za-z0-9]{20,255}|github_pat_\w{20,255}|glpat-[\w-]{16,64})"),
        hints=("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-"),
    ),
    Detector("secret", _rx(r"\b(?:AKIA|ASIA|AIDA|AROA|AGPA|ANPA)[A-Z0-9]{12,20}\b")),
    Detector(
        "secret",
        _rx(r"\bxox[abeoprs]-[\w-]{10,200}|\bhooks\.slack\.com/services/[\w/]{20,100}"),
        hints=("xox", "hooks.slack"),
    ),
    Detector("secret", _rx(r"\bAIza[\w-]{30,40}|\bya29\.[\w-]{20,300}"), hints=("aiza", "ya29.")),
    Detector(
        "secret",
        _rx(r"\b(?:hf|npm|dop_v1|shpat|sq0atp|lin_api)_[A-Za-z0-9]{20,200}"),
        hints=("hf_", "npm_", "dop_v1_", "shpat_", "sq0atp_", "lin_api_"),
    ),
    Detector(
        "secret",
        _rx(r"\bpypi-[\w-]{30,300}|\bSG\.[\w-]{16,64}\.[\w-]{16,64}"),
        hints=("pypi-", "sg."),
    ),
    Detector("secret", _rx(r"\beyJ[\w-]{8,4000}\.[\w-]{8,8000}(?:\.[\w-]{0,2000})?"), hints=("eyj",)),
    Detector(
        "secret",
        _rx(
            r"(?:\bbearer|\bauthorization\W{1,4}\w{3,10})\s{1,3}(?P<value>[\w.~+/=-]{12,4000})", re.IGNORECASE
        ),
        _is_credential,
        hints=("bearer", "authorization"),
    ),
    Detector("secret", _rx(r"://[^\s:/@]{0,100}:(?P<value>[^\s@/]{3,200})@"), hints=("://",)),
    Detector(  # password: x, "password is x", 密码是x
        "secret",
        _rx(rf"{_PASSWORD}s?(?: code| number)?{_IS}(?P<value>{_VALUE}{{3,200}})", re.IGNORECASE),
        _is_password,
        hints=_PASSWORD_HINTS,
    ),
    Detector(  # "user wren_h, password Heron!Mud88"
        "secret",
        _rx(rf"{_PASSWORD}\s{{1,3}}[\"'`]?(?P<value>{_VALUE}{{6,200}})", re.IGNORECASE),
        _is_mixed,
        hints=_PASSWORD_HINTS,
    ),
    Detector(  # API_TOKEN=…, "client_secret": "…", the api key is …
        "secret",
        _rx(
            rf"\b[\w-]{{0,40}}{_KEYWORD}[\w-]{{0,20}}{_IS}[\"'`]?(?P<value>(?![\"'`]){_VALUE}{{6,4000}})",
            re.IGNORECASE,
        ),
        _looks_secret,
        hints=("pass", "pwd", "secret", "token", "key", "credential"),
    ),
    Detector(
        "secret",
        _rx(
            rf"\b(?:api|access|secret|private)[ _-]key{_IS}?\s{{0,3}}(?P<value>[\w./+=-]{{8,400}})",
            re.IGNORECASE,
        ),
        _looks_secret,
        hints=("key",),
    ),
    Detector(
        "secret",
        _rx(
            r"\b(?:pin|cvv|cvc|otp|tan)\b(?: code| number| nummer)?(?:\s{0,3}[:=]|\s+is)?\s{0,3}"
            r"(?P<value>\d{3,8})\b",
            re.IGNORECASE,
        ),
        hints=("pin", "cvv", "cvc", "otp", "tan"),
    ),
    Detector("secret", _rx(r"(?<![\w/+.-])(?P<value>[A-Za-z0-9+/_-]{40,512}={0,2})(?![\w/+-])"), _is_random),
    Detector("pii", _rx(r"(?<![\d.-])\d(?:[ -]?\d){12,18}(?![\d-])"), _luhn),
    Detector("pii", _rx(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b"), _iban),
    Detector("pii", _rx(r"(?<![\d-])\d{3}-\d{2}-\d{4}(?![\d-])")),
    Detector("pii", _rx(r"(?<![\dA-Za-z])[1-9]\d{16}[\dXx](?![\dA-Za-z])"), _chinese_id),
    Detector(
        "pii",
        _rx(
            rf"\b{_NUMBERED}(?:\W{{1,3}}(?:number|no|nr|num)\b\.?)?(?:\s{{0,3}}[:#=]|\s+is)?\s{{0,3}}"
            r"(?P<value>(?-i:[A-Z0-9](?:[ .-]?[A-Z0-9]){5,18}))(?![\w-])",
            re.IGNORECASE,
        ),
        lambda v: len(_digits(v)) >= 5 and not re.match(r"\d{4}-\d\d-\d\d", v),
        hints=tuple("nhs ssn social national pass licen tax steuer aadhaar cpf dni nino ausweis".split()),
    ),
    Detector(
        "pii",
        _rx(
            r"(?:身份证|护照|社保|驾驶证|银行卡)(?:号码?|卡号)?[是为:\uff1a\s]{0,3}(?P<value>[A-Za-z0-9]{8,20})"
        ),
        lambda v: len(_digits(v)) >= 6,
        hints=("身份证", "护照", "社保", "驾驶证", "银行卡"),
    ),
)


def find(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield kind, start and end of each secret or identifying number; they may overlap."""
    lowered = text.lower()
    for detector in DETECTORS:
        if detector.hints and not any(hint in lowered for hint in detector.hints):
            continue
        group = "value" if "value" in detector.pattern.groupindex else 0
        for match in detector.pattern.finditer(text):
            if detector.check(match.group(group)):
                yield detector.kind, match.start(group), match.end(group)
