"""Find credentials by their format, by the words next to them and by their randomness, also when disguised.

Formats are the rules of secrets.toml, gitleaks' rules, and the shape that keys of newer vendors share.
gitleaks.toml is that project's own file (MIT, see gitleaks.LICENSE); to take a newer one, replace it. Its
rules are made for source code. Here a value may also be followed by the end of a sentence, and rules that
prose matches are left out. They are read with the first text that is searched: 0.1 s that no start needs.

Passwords are also found if speech or layout announces them, without a verb such as "is" before the value: a
word such as "password" and, in the same sentence, a token as passwords are made ("the new one for the bank
is set, Redshank12!"), a table with a password column, a command with a password among its options.

Not caught, since no pattern could without taking innocent words: a password that nothing calls one ("use
swordfish"), a secret in pieces over several messages, one encoded in a cipher or an image.
"""

import math
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import cache, partial
from importlib import resources
from itertools import pairwise

from mnemonic import Mnemonic

from proxy.admit.detection import Detector, DetectorTable, Finding, decoded, load_rules, offsets_of, run
from proxy.text.words import is_inner_stop

# ---------------------------------------------------------------- appearance of a value
_TRIM = "\"'`“”.,;!?()[]{}<>"
_PARTICIPLE = re.compile(r"[a-z]{2,20}(?:ed|ing|able|ible|ably|ally|isch|iert)")


def trimmed(value: str) -> str:
    """Return the value without the punctuation around it."""
    return value.strip(_TRIM)


def is_placeholder(value: str) -> bool:
    """True for what replaces a secret: ${TOKEN}, <your key>, process.env.KEY, ****."""
    return bool(_PATTERNS["placeholder"].fullmatch(value.strip("\"'`,;")))


def is_password(value: str) -> bool:
    """True for what follows "password is": anything but the words of an ordinary sentence."""
    word = trimmed(value).lower()
    if not is_labelled_password(value) or _PATTERNS["not_chinese_password"].match(word):
        return False
    return not (_PARTICIPLE.fullmatch(word) or (not word.isascii() and word.isalpha() and len(word) > 8))


def is_labelled_password(value: str) -> bool:
    """True for what follows "password:" or "PASS=": as is_password, a participle included."""
    word = trimmed(value).lower()
    return len(word) >= 3 and word not in _NO_PASSWORDS and not is_placeholder(value)


def is_passphrase(value: str) -> bool:
    """True for three words or more that are not those of a sentence about passphrases."""
    words = value.lower().split()
    ordinary = sum(word in _NO_PASSWORDS for word in words)
    return 3 <= len(words) <= 26 and ordinary * 2 < len(words) and words[0] not in ("a", "the", "not", "in")


def is_mixed(value: str) -> bool:
    """True for a token with digits among letters or symbols, as no ordinary word has."""
    word = trimmed(value)
    kinds = sum(bool(re.search(p, word)) for p in (r"[a-z]", r"[A-Z]", r"\d", r"[^\w\s]"))
    is_made_up = len(word) >= 6 and kinds >= 2 and bool(re.search(r"[\d!@#$%^&*]", word))
    return is_made_up and not is_placeholder(value)


def is_mixed_or_digits(value: str) -> bool:
    """True for a number of four digits or more, or what is_mixed takes."""
    return bool(re.fullmatch(r"\d{4,12}", trimmed(value))) or is_mixed(value)


def is_key(value: str) -> bool:
    """True for what may be the value of a variable named key, token or secret."""
    word = trimmed(value)
    is_amount_or_date = _AMOUNT_OR_DATE.fullmatch(word) and not re.fullmatch(r"\d{12,}", word)
    if is_placeholder(value) or is_amount_or_date:
        return False
    return is_mixed(value) or (len(value) >= 20 and value.isalnum() and not value.isalpha())


def is_vendor_key(value: str) -> bool:
    """True for a vendor's prefix with more after it than a word, name or hyphenation has."""
    compact = "".join(value.split())
    if len(compact) < 14:
        return False
    return bool(re.search(r"\d|[a-z][A-Z]|[A-Z]{4}", compact)) and not is_placeholder(value)


def is_credential(value: str) -> bool:
    """True for what follows "Bearer", unless it is a plain word ("bearer authentication")."""
    return not (value.isalpha() and value.islower()) and not is_placeholder(value)


_DURATION = r"(?:\d{1,9}(?:ms|s|m|min|h|d|w|kb|mb|gb|k|x|px)){1,3}"
_AMOUNT_OR_DATE = re.compile(
    rf"[\d.,:/T+Z-]{{1,30}}|v?\d{{1,4}}(?:\.\d{{1,6}}){{1,4}}[\w.-]{{0,16}}|{_DURATION}"
)


def entropy(value: str) -> float:
    """Return the Shannon entropy of the value's characters, in bits a character."""
    return -sum(n / len(value) * math.log2(n / len(value)) for n in Counter(value).values())


def is_random(value: str) -> bool:
    """True for a long token as random as base64: all three classes, over 4.2 bits a character."""
    if not all(re.search(p, value) for p in (r"[a-z]", r"[A-Z]", r"\d")):
        return False
    return entropy(value) > 4.2 and not _is_encoded_prose(value)


def _is_encoded_prose(value: str) -> bool:
    """True for base64 of words with spaces; its content is judged when it is decoded."""
    return decoded(value).count(" ") >= 2


_HEX = re.compile(r"(?i:0x)?[0-9a-fA-F]{16,128}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_GROUPS = re.compile(r"[A-Za-z0-9]{4,8}(?:-[A-Za-z0-9]{4,8}){1,9}")
_VERSION = re.compile(
    rf"[vV]?\d{{1,4}}(?:\.\d{{1,6}}){{1,4}}[\w.+-]{{0,24}}|.{{0,24}}\d{{4}}-\d\d-\d\d.{{0,16}}|{_DURATION}"
)


def _switches(value: str) -> int:
    """Return how often letters give way to digits or capitals to small letters, and back."""
    classes = ["d" if c.isdigit() else "u" if c.isupper() else "l" for c in value if c.isalnum()]
    # A capital that begins a word is how names are written.
    return sum(1 for a, b in pairwise(classes) if a != b and (a, b) != ("u", "l"))


def is_opaque(value: str) -> bool:
    """True for hex, a UUID, grouped codes, or letters mixed with digits. Alone it may be any id; near the
    word "token" it is a secret."""
    if _UUID.fullmatch(value) or (_HEX.fullmatch(value) and re.search(r"[a-fA-F]", value)):
        return True
    if _VERSION.fullmatch(value) or value.count("/") > 2:
        return False
    if (
        _GROUPS.fullmatch(value)
        and len({len(group) for group in value.split("-")}) == 1
        and any(c.isdigit() for c in value)
        and any(c.isalpha() for c in value)
    ):
        return True
    return len(value) >= 8 and _switches(value) >= 3 and bool(re.search(r"\d", value))


def is_blatantly_random(value: str) -> bool:
    """True for a token so mixed of digits and capitals that it is a key in any context."""
    return (
        _switches(value) >= 8
        and sum(c.isdigit() for c in value) >= 3
        and bool(re.search(r"[a-z]", value) and re.search(r"[A-Z]", value))
        and not _VERSION.fullmatch(value)
        and not _is_encoded_prose(value)
    )


# ---------------------------------------------------------------- formats
def is_no_placeholder(value: str) -> bool:
    """True for what may be a secret itself."""
    return not is_placeholder(value)


def is_mixed_and_no_path(value: str) -> bool:
    """True for what is_mixed accepts, unless it is a path."""
    return is_mixed(value) and not re.fullmatch(r"\w+(?:/[\w-]+)+", value)


def is_session_id(value: str) -> bool:
    """True for a value with at least two digits, unless it is a placeholder."""
    return sum(map(str.isdecimal, value)) > 1 and not is_placeholder(value)


_CHECKS: dict[str, Callable[[str], bool]] = {
    check.__name__: check
    for check in (
        *(is_blatantly_random, is_credential, is_key, is_labelled_password, is_mixed, is_mixed_and_no_path),
        *(is_no_placeholder, is_opaque, is_passphrase, is_password, is_random, is_session_id, is_vendor_key),
    )
}
_RULES = load_rules("secrets", lambda rule: _CHECKS[rule["check"]] if "check" in rule else bool)
_PASSWORD_STARTS, _PATTERNS = _RULES.words("password_starts"), _RULES.patterns
_NO_PASSWORDS = frozenset(_RULES.words("no_passwords"))

_LEFT_OUT = frozenset(_RULES.words("left_out"))
_ANYTHING_BEFORE = re.compile(r"\(\?i\)\[\\w\.-\]\{0,50\}\?")
_END = r"""(?:[\x60'"\s;]|\\[nr]|$)"""
_NO_MORE = r"(?![\w-])"
# An escaped character, a class of characters, or a bracket of a group.
_GROUP_PART = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|[()]", re.DOTALL)


@cache
def vendor_keys() -> tuple[Detector, ...]:
    """Return the detectors. The first call reads the rules; it may be made in any thread."""
    text = resources.files(__package__).joinpath("gitleaks.toml").read_text("utf-8")
    found = list[Detector]()

    def is_secret(least_entropy: float, value: str) -> bool:
        return entropy(value) >= least_entropy and not is_placeholder(value)

    for rule in tomllib.loads(text)["rules"]:
        if rule["id"] in _LEFT_OUT or "path" in rule or "regex" not in rule:
            continue
        keywords, check = tuple(rule["keywords"]), partial(is_secret, rule.get("entropy", 0.0))
        source, is_label = _ANYTHING_BEFORE.subn("(?i)", rule["regex"], count=1)
        pattern = re.compile(_in_python(source))
        if is_label and rule["regex"].startswith("(?i)"):  # a vendor's name, and a value assigned to it
            found.append(Detector("secret", pattern, check, starts=keywords))
        else:
            found.append(Detector("secret", pattern, check, hints=keywords, pieces=True))
    return (*found, _PREFIXED)


def _in_python(source: str) -> str:
    """Return the pattern of Go's RE2 as Python writes it."""
    source = source.replace("[:alnum:]", "A-Za-z0-9").replace(r"\z", r"\Z").replace(_END, _NO_MORE)
    while (at := source.find("(?i)", 1)) > 0:  # a flag that holds to the end of its group
        end, depth = at + 4, 0
        for part in _GROUP_PART.finditer(source, end):
            end, depth = part.start(), depth + {"(": 1, ")": -1}.get(part.group(), 0)
            if depth < 0:
                break
        else:
            end = len(source)
        source = f"{source[:at]}(?i:{source[at + 4 : end]}){source[end:]}"
    return source


# ---------------------------------------------------------------- newer vendors
# Short lower-case names before a random part: m0-…, lsv2_pt_…, jina_…, dp.st.prd.…
_VENDOR_TOKEN = re.compile(
    r"(?<![\w./@+=-])[a-z][a-z0-9]{0,11}[-_.](?=[A-Za-z0-9_.-]{0,40}\d)[A-Za-z0-9_-]{1,200}(?:\.[A-Za-z0-9_-]{2,200}){0,3}"
    r"(?![\w-])"
)
_UUID_AT_END = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_SECRET_NAMES = ("sk", "key", "token", "secret", "pat", "pk")
_IDS = frozenset(_RULES.words("ids"))
_LEAST_RANDOM = 20


def _is_prefixed(value: str) -> bool:
    """True for a vendor's prefix before a random part."""
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


_PREFIXED = Detector("secret", _VENDOR_TOKEN, _is_prefixed, pieces=True)


# ---------------------------------------------------------------- announced passwords
_STARTS = (*_PASSWORD_STARTS, "wifi", "wi-fi", "wlan", "ssid", "code wi")
_HEADS = ("pin", "secret", "token", "api")
_REACH = 80  # characters after the word
_TOKEN = re.compile(r"(?<![^\s\"'`“(*,:=，：])[^\s\"'`“”()<>|，。、：；]{6,80}")
_NO_SPACES = re.compile("[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")  # scripts whose "token" may be a clause
_STRONG = re.compile(r"[!@#$%^&*~?+=]")


def _in_sentence(text: str, at: int) -> Iterator[Finding]:
    """Yield the tokens made like passwords in the rest of a sentence, after a word for one."""
    reach = min(len(text), at + _REACH)
    # A token alone in its paragraph is seen only with that paragraph's end.
    ends = (end.start() for end in _PATTERNS["sentence_ends"].finditer(text, at, reach + 2 * _REACH))
    limit = next((end + 1 for end in ends if end >= reach or not is_inner_stop(text, end)), reach)
    for token in _TOKEN.finditer(text, at, min(limit, reach)):
        made = token.group().rstrip(".,;:*_")
        # Words alone are most tokens, of which "password password …" shows each to many words.
        if not any(map(str.isdigit, made)) and not _STRONG.search(made, 0, max(0, len(made) - 1)):
            continue
        before = text[at : token.start()]
        if _PATTERNS["speaks_about"].search(before):
            break
        if _is_made_up(made, before):
            whole = _TOKEN.match(text, token.start())  # which the reach may have cut
            yield Finding("secret", token.start(), whole.end() if whole else token.end())


def _is_made_up(token: str, before: str) -> bool:
    """True for letters with digits or symbols among them as in a password: Kiebitz!83, Mirlo2023."""
    value = token.rstrip("!?") or token
    if (
        len(value) < 6
        or _NO_SPACES.search(value)
        or is_placeholder(token)
        or _PATTERNS["technical"].fullmatch(value)
    ):
        return False
    letters, digits = sum(map(str.isalpha, token)), sum(map(str.isdigit, token))
    if _STRONG.search(token[:-1]) or (token[-1] in "!#$" and digits):
        return letters >= 3 and (digits >= 1 or bool(re.search(r"[#$%^&*@!]\w", token)))
    spelled = bool(re.fullmatch(r"\w(?:-\w){4,40}", value)) and digits >= 1
    if _PATTERNS["names_a_thing"].search(before):
        return False
    mixed = letters >= 4 and digits >= 1 and bool(re.search(r"[^\W\d]{2,}[._-]?\d|\d[^\W\d]|[_-]\d", value))
    plain_word = re.fullmatch(r"[A-Z]?[a-z]{2,4}\d", value)
    return spelled or (mixed and not plain_word)


_MARKS = "|\t;,"  # between the cells of a table
_MOST_ROWS = 200


def _in_tables(text: str, offsets: Iterable[int]) -> Iterator[Finding]:
    """Yield the cells below a head such as "password" in a table: Markdown, CSV or tabs."""
    done = 0
    read: dict[tuple[int, str], int] = {}  # how far, of a column: a row may look like a head
    for place in offsets:
        start = text.rfind("\n", 0, place) + 1
        if start < done:
            continue
        done = _line_end(text, place)
        if head := _password_column(text[start:done]):
            read[head] = yield from _below(text, max(done, read.get(head, 0)), *head)


def _below(text: str, at: int, column: int, mark: str) -> Generator[Finding, None, int]:
    """Yield the column's cells in the lines from `at` on, as long as they are rows of the table; return
    where these end."""
    for _ in range(_MOST_ROWS):
        end = _line_end(text, at)
        cells = text[at:end].split(mark)
        if len(cells) < 2:
            return at
        if column < len(cells):
            start = at + sum(len(cell) + 1 for cell in cells[:column])
            value = cells[column].strip()
            if is_labelled_password(value.strip("-: ")):
                start += cells[column].index(value)
                yield Finding("secret", start, start + len(value))
        at = end
    return at


def _line_end(text: str, at: int) -> int:
    """Return where the next line begins."""
    return (text.find("\n", at) + 1) or len(text)


def _password_column(line: str) -> tuple[int, str] | None:
    """Return the column whose head names passwords, and the mark between cells."""
    for mark in _MARKS:
        parts = line.split(mark)
        if len(parts) < 2:
            continue
        for column, part in enumerate(parts):
            if _PATTERNS["password_head"].fullmatch(part):
                return column, mark
    return None


# ---------------------------------------------------------------- all credentials
_HINTS = (*_RULES.words("hints"), *_PASSWORD_STARTS)
_OPAQUE = re.compile(
    r"(?<![\w/@.+-])(?!sha\d{3}-)(?=[^\s\d]{0,128}\d)([A-Za-z0-9][A-Za-z0-9+/_=~-]{7,511})(?![\w@])"
)
_BEFORE, _AFTER = 48, 40  # characters within which a word refers to a token
_IS_MINE = re.compile(r"^\W{0,4}(?:is|was|ist|es|est|è|是|=)\W", re.IGNORECASE)
_NAMING = re.compile(
    r"\b(?:that'?s|is|was) (?:my|the|our) (?:[\w-]{1,20} ){0,2}(?:pin|pass(?:word|code))\b"
    r"(?! (?:manager|policy|hint|vault|field|reset))"
)
_LONGEST_HEADING = 200
_CODE = re.compile(r"\s*(?:async|class|def|elif|else|except|for|if|try|while|with)\b")
_LONGEST_NAMED = 64
_LIST_GAP = 12  # characters between the items of a list of codes
_BASE64 = re.compile(r"(?<![\w+/=-])([A-Za-z0-9+/_-]{16,2000}={0,2})(?![\w+/=-])")


@cache
def shapes() -> tuple[Detector, ...]:
    """Return the detectors of vendors' keys, whose shape alone is proof."""
    return (*(row for row in _RULES.detectors if row.check is is_vendor_key), *vendor_keys())


@cache
def _rows() -> DetectorTable:
    return DetectorTable((*_RULES.detectors, *vendor_keys()))


def find(text: str, lowered: str) -> Iterator[Finding]:
    """Yield each credential of a view of a text; spans may overlap."""
    yield from run(_rows(), text, lowered)
    yield from _seed_phrases(text, lowered)
    for match in _BASE64.finditer(text):  # base64 and hexadecimal whose plain text holds a secret
        token = match.group(1)
        plain = decoded(token) or (decoded(token, is_hex=True) if token.isalnum() else "")
        if plain and any(True for _ in run(_rows(), plain, plain.lower())):
            yield Finding("secret", *match.span(1))
    if any(hint in lowered for hint in _HINTS):
        yield from _next_to_a_word(text)
        yield from _named_afterwards(text, lowered)
        offsets = offsets_of(_STARTS, lowered)
        for place in offsets:
            if word := _PATTERNS["word"].match(text, place):
                yield from _in_sentence(text, word.end())
        yield from _in_tables(text, sorted({*offsets, *offsets_of(_HEADS, lowered)}))


def _next_to_a_word(text: str) -> Iterator[Finding]:
    """Yield opaque tokens near a word such as "token", and those that continue a list of them."""
    last = Finding("", -1, -1)
    for match in _OPAQUE.finditer(text):
        start, end = match.span(1)
        value = match.group(1)
        if not is_opaque(value) or is_placeholder(value):
            continue
        listed = last.end >= 0 and start - last.end <= _LIST_GAP and end - start == last.end - last.start
        if listed or _spoken_of(text, start, end):
            last = Finding("secret", start, end)
            yield last


def _named_afterwards(text: str, lowered: str) -> Iterator[Finding]:
    """Yield what a sentence calls a password or PIN after it: "2580, that's my PIN"."""
    for naming in _NAMING.finditer(lowered):
        before = text[max(0, naming.start() - _LONGEST_NAMED) : naming.start()]
        said = before.rstrip(" ,")
        if said.endswith((".", "!", "?")) and not lowered.startswith("that", naming.start()):
            continue  # the next sentence asks about a password: "We met in 2024. Is my password safe?"
        value = said.rpartition(" ")[2].rpartition("\n")[2]
        if is_mixed_or_digits(value):
            start = naming.start() - len(before) + before.rindex(value)
            yield Finding("secret", start, start + len(value))


def _spoken_of(text: str, start: int, end: int) -> bool:
    before = text[max(0, start - _BEFORE) : start]
    _, blank, paragraph = before.rpartition("\n\n")
    if blank:
        # A line above that ends in a colon, and is not code, announces what is below it.
        above = start - len(paragraph)
        line = text[max(0, above - _LONGEST_HEADING) : above].rstrip().rpartition("\n")[2]
        if not line.endswith((":", "\uff1a")) or _CODE.match(line):
            before = paragraph
    words = list(_PATTERNS["secret_word"].finditer(before))
    if words:
        return not _PATTERNS["innocent"].search(before, words[-1].end())
    after = text[end : end + _AFTER].split("\n", 1)[0]
    return bool(_IS_MINE.match(after) and _PATTERNS["secret_word"].search(after))


# ---------------------------------------------------------------- seed phrases
# Twelve or more words in a row, all of the BIP-39 list, which holds no article, no "and", "of", "to", "is": a
# sentence does not stay inside it for twelve words. Other wallets have other lists (Monero, Electrum): what
# is called a seed phrase is one if no such word is in it.
_SHORTEST = 12
_RUN = b"\x01" * _SHORTEST
_ALL_WORDS = re.compile("[a-z]+")
_WORDS = re.compile(r"(?<![A-Za-z])(?:[a-z]{3,8}|[A-Z][a-z]{2,7}|[A-Z]{3,8})(?![A-Za-z])")
_OF_SENTENCES = frozenset(_RULES.words("of_sentences"))
_GAP = re.compile(r"[\s,;.:)|/\"'*-]{1,6}(?:\d{1,2}[\s.:)]{1,3})?")  # also a numbered list


@cache
def _word_list() -> frozenset[str]:
    return frozenset(Mnemonic("english").wordlist)


def _seed_phrases(text: str, lowered: str) -> Iterator[Finding]:
    """Yield the seed phrases of a text. Capitals end one that is in small letters: a sentence begins.

    `lowered` is the text in lower case; nearly every text is done with after a look at it.
    """
    if any(word in lowered for word in ("seed", "mnemonic", "phrase", "wallet", "monero", "electrum")):
        for found in _PATTERNS["called_a_phrase"].finditer(lowered):
            if _OF_SENTENCES.isdisjoint(re.findall("[a-z]+", found[1])):
                yield Finding("secret", *found.span(1))
    words = _word_list()
    if _RUN not in bytes(map(words.__contains__, _ALL_WORDS.findall(lowered))):
        return
    count, first, last, case = 0, 0, -1, ""
    for match in _WORDS.finditer(text):
        word = match.group()
        if word.lower() not in words:
            continue
        case_of = "small" if word.islower() else "large" if word.isupper() else "title"
        if count and case_of == case and _GAP.fullmatch(text, last, match.start()):
            count, last = count + 1, match.end()
            continue
        if count >= _SHORTEST:
            yield Finding("secret", first, last)
        count, first, last, case = 1, match.start(), match.end(), case_of
    if count >= _SHORTEST:
        yield Finding("secret", first, last)
