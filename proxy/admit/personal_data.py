"""Find personal data by class (see safety.PII): numbers that identify a person or an account, and, where
the policy asks for it, contact data.

Check digits are python-stdnum's. A number whose checksum proves little counts only next to its name.
"""

import ipaddress
import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from proxy.admit.detection import Detector, detector

_I = re.IGNORECASE


@cache
def rows(classes: frozenset[str]) -> tuple[Detector, ...]:
    """Return the detectors of the classes."""
    return tuple(row for row in ROWS if row.kind in classes)


# ---------------------------------------------------------------- checks
def _digits(text: str) -> str:
    return "".join(c for c in text if c.isdecimal())


@cache
def _valid(*countries: str) -> Callable[[str], bool]:
    """Return the check that a number is one of these of python-stdnum's modules."""
    modules: list[Any] = [import_module(f"stdnum.{name}") for name in countries]
    return lambda value: any(_is_valid(module, value) for module in modules)


def _is_valid(module: Any, value: str) -> bool:
    """`module.is_valid`, False if it fails: cn.ric raises KeyError for a right check digit in a
    province whose county python-stdnum (2.2) does not know."""
    try:
        return bool(module.is_valid(value))
    except LookupError:
        return False


_ISSUERS = re.compile(
    r"4\d{15}|4\d{18}|5[1-5]\d{14}|2(?:2[2-9]|[3-6]\d|7[01])\d{13}|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}"
    r"|6(?:011|5\d\d|4[4-9]\d)\d{12}|35\d{14}|62\d{14,17}|(?:50|5[6-8]|63|67)\d{14}|220[0-4]\d{12}|9792\d{12}"
)


def _card(text: str) -> bool:
    digits = _digits(text)
    return bool(_ISSUERS.fullmatch(digits)) and len(set(digits)) > 1 and _valid("luhn")(digits)


def _iban(text: str) -> bool:
    compact = "".join(c for c in text if c.isalnum()).upper()
    if not 15 <= len(compact) <= 34 or not compact.isascii():
        return False
    return int("".join(str(int(c, 36)) for c in compact[4:] + compact[:4])) % 97 == 1


def _has_digits(least: int) -> Callable[[str], bool]:
    """Return the check for so many digits, and that they are no date."""
    return lambda value: (
        len(_digits(value)) >= least and not re.match(r"(?:19|20)\d\d-\d\d-\d\d|\d\d[./]\d\d[./]\d{4}", value)
    )


def _address(text: str) -> bool:
    """True for an IP address that belongs to a network: not loopback and the like."""
    try:
        address = ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified or address.is_multicast or int(address) < 2**24)


def _chinese_checksum(number: str) -> bool:
    """True for 18 characters with a right check digit; the birth date may be an invented one."""
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    total = sum(w * int(d) for w, d in zip(weights, number[:17], strict=True))
    return "10X98765432"[total % 11] == number[17].upper()


def _taiwan(number: str) -> bool:
    """True for a Taiwanese identity number (letter, nine digits, mod 10)."""
    first = "ABCDEFGHJKLMNPQRSTUVXYWZIO".find(number[0]) + 10
    weights = (8, 7, 6, 5, 4, 3, 2, 1, 1)
    total = first // 10 + first % 10 * 9 + sum(w * int(d) for w, d in zip(weights, number[1:], strict=True))
    return total % 10 == 0


# ---------------------------------------------------------------- rows
_NUMBER = r"(?:\W{1,3}(?:number|no|nr|num|nummer|número|numero|numéro|номер)\b\.?|号码?|號碼?|番号|번호)?"
_IS = (
    r"(?:'s number| d[eiou]\w? (?:mi |ma |mon |meiner? |la "
    r"|el )?\w{2,20})?(?:\s{0,3}\([^()\n]{1,40}\))?(?:(?:\s{0,3}[:#=]|\s{1,3}(?:hat die nummer|is|was|ist"
    r"|lautet|es|est|è|é|to|är"
    r"|er)\b|[是为為は는은])\s{0,3}|[^\S\n]{0,3}\n?[^\S\n]{0,3})[\"']?"  # a new paragraph needs a colon
)
_CODE = r"((?-i:(?!IS[BS]N|EAN|DOI|RFC)[A-Z0-9](?:[ ./-]?[A-Z0-9]){5,20}))(?![\w-])"
_NATIONAL = (
    r"(?:\bnhs\b|\bssn\b|\bni number\b|\bn\.i\.|\bsocial(?=(?:'s|:| is) ?:? ?\d{3}[ -]?\d\d[ -]?\d{4}\b)"
    r"|\bsocial (?:security|insurance)\b|\bnational (?:insurance|id|identity)(?: card)?\b"
    r"|\blicen[sc]e number|\bsin(?= ?:? ?\d{3} ?\d{3} ?\d{3}\b)|\bdriv(?:er'?s?|ing) licen[sc]e"
    r"|\btax(?:payer)? id(?:entification)?\b|\bitin\b|\bein\b|\btfn\b|\bsin number|\bmedicare\b"
    r"|\bsteuer-?id(?:entifikationsnummer)?|\bsozialversicherungs(?:nummer|nr)|\brentenversicherungsnummer"
    r"|\bahv\b|\baadhaar\b|\bpan card\b|\bcpf\b|\bcnpj\b|\brg\b|\bdni\b|\bnie\b|\bnif\b|\bnss\b|\bcurp\b"
    r"|\brfc\b|\brut\b|\bcédula\b|\bcedula\b|\bnino\b|\bpersonalausweis\w{0,8}|\bführerschein\w{0,8}"
    r"|\bcodice fiscale|\bsécurité sociale|\bnir\b|\bbsn\b|\bburgerservicenummer|\bpesel\b|\bpersonnummer"
    r"|\bpersonnr|\bcpr\b|\bhetu\b|\bhenkilötunnus|\bfødselsnummer|\brodné číslo|\bkimlik(?: no)?"
    r"|\btc kimlik|\bинн\b|\bснилс\b|\bид номер|\bppsn?\b|\bnric\b|\bid card\b|\bidentity card\b"
    r"|\bid number\b)"
)
_CJK_NAMES = (
    *"身份证 身分證 社保 社会保障 驾驶证 驾照 居民证 通行证 军官证 健保卡".split(),
    *"マイナンバー 個人番号 免許証 주민등록 운전면허".split(),
)
_CJK_ID = f"(?:{'|'.join(_CJK_NAMES)})"
_PASSPORT = (
    r"(?:\bpassport\b|\breisepass\w{0,8}|\bpasaporte\b|\bpasseport\b|\bpassaport[eo]\b"
    r"|\bpaspoort\w{0,8}|\bpaszport\w{0,4}|\bпаспорт\w{0,3}|护照|護照|旅券|パスポート|여권)"
)
_STREET = (
    r"street|st|road|rd|avenue|ave|lane|ln|drive|dr|close|court|ct|crescent|way|place|pl"
    r"|square|sq|terrace|boulevard|blvd|highway|hwy|parkway|gardens|grove|mews|row|walk|hill"
)
_NATIONAL_STARTS = tuple(
    "nhs ssn ni n.i. social national licen driv tax itin ein tfn sin medicare steuer sozialvers"
    " rentenvers ahv aadhaar pan cpf cnpj rg dni nie nif nss curp rfc rut cédula cedula nino"
    " personalausweis führerschein codice sécurité nir bsn burger pesel personn cpr hetu henkil fødsel"
    " rodné kimlik tc инн снилс ид pps nric id".split()
)

# The names of a number, and python-stdnum's modules that check it.
_LABELLED = (
    (r"\bpan\b|\bpermanent account number", "in_.pan"),
    (r"주민(?:등록)?번호|\brrn\b|\bresident registration", "kr.rrn"),
    (r"\bsin\b|\bsocial insurance|\bassurance sociale", "ca.sin"),
    (r"\btfn\b|\btax file", "au.tfn"),
    (r"\bsteuer-?(?:id|nummer|identifikationsnummer)\w*|\bidnr\b\.?|\btax id", "de.idnr de.stnr"),
    (r"\bird\b|\binland revenue", "nz.ird"),
    (r"\brijksregister\w*|\bregistre national|\bnuméro national|\bnational number", "be.nn be.bis"),
    (r"рнокпп|\bіпн\b|ідентифікаційний (?:код|номер)|\btax number", "ua.rntrc"),
    (r"תעודת זהות|ת[\"״]ז|מספר זהות|\bteudat zehut|\bisraeli id", "il.idnr"),
    (r"\bsouth african id|\bsa id\b", "za.idnr"),
    (r"\bmykad\b|\bnric\b|\bic number", "my.nric"),
    (r"\bnik\b|\bktp\b", "id.nik"),
    (r"\bcnp\b|\bcod numeric personal", "ro.cnp"),
    (r"\bегн\b|\begn\b", "bg.egn"),
    (r"\boib\b", "hr.oib"),
    (r"\bαμκα\b|\bamka\b", "gr.amka"),
    (r"\bisikukood|\basmens kodas|\bpersonas kods", "ee.ik lt.asmens lv.pk"),
    (r"\bjmbg\b|\bјмбг\b", "si.emso"),
    (r"\bkennitala", "is_.kennitala"),
    (r"เลขประจำตัวประชาชน|\bthai id", "th.pin"),
)
_LABELLED_CODE = r"([A-Z0-9](?:[ ./-]?[A-Z0-9]){6,20})(?![\w-])"


def _labelled(label: str, modules: str) -> Detector:
    pattern = re.compile(rf"(?:{label}){_NUMBER}{_IS}{_LABELLED_CODE}", _I)
    return Detector(
        "national_id", pattern, lambda value: _valid(*modules.split())(value.upper()), hints=_hints_of(label)
    )


def _hints_of(label: str) -> tuple[str, ...]:
    """Return the first plain letters of each alternative."""
    plain = (re.match(r"(?:\\b)?(\w+)", each) for each in re.split(r"\|(?![^(]*\))", label))
    return tuple(found[1] for found in plain if found)


def _hong_kong(number: str) -> bool:
    """True for a Hong Kong identity card's number (a letter or two, six digits, mod 11)."""
    compact = re.sub(r"[^A-Z0-9]", "", number.upper())
    letters, digits, check = compact[:-7], compact[-7:-1], compact[-1]
    if len(letters) not in (1, 2):
        return False
    values = [36] * (2 - len(letters)) + [ord(c) - 55 for c in letters] + [int(d) for d in digits]
    total = sum(weight * value for weight, value in zip(range(9, 1, -1), values, strict=True))
    return (total + (10 if check == "A" else int(check))) % 11 == 0


ROWS = (
    *(_labelled(label, modules) for label, modules in _LABELLED),
    detector(
        "national_id",
        r"(?i)(?<![A-Za-z0-9])[A-Z]{1,2}\d{6} ?\([0-9A]\)"
        r"|(?:\bhkid\b|\bhong kong id|香港身[份分][證证])\D{0,24}?([A-Z]{1,2}\d{6}[0-9A])(?!\w)",
        _hong_kong,
    ),
    detector("card", r"(?<![\d.-])(?<!\d )\d(?:[ .\u00a0\t_-]{0,2}\d){12,18}(?![\d-])", _card, numeric=True),
    # a group on each line
    detector("card", r"(?<![\d.-])(?:\d{4}\n){3}\d{4}(?![\d.-])", _card, numeric=True),
    detector(
        "card",
        r"(?i)(?:card|visa|mastercard|amex|maestro|\bpan\b|karten?|tarjeta|carte|carta|cartão|карт[аыу]|卡号"
        r"|信用卡|银行卡|カード|카드)[^\n\d]{0,30}(\d(?:[ .\u00a0\t-]{0,2}\d){12,18})(?![\d-])",
        starts="card|visa|mastercard|amex|maestro|pan|karte|tarjeta|carte|carta|cartão|карт|卡号|信用卡|银行卡|カード|카드",
    ),
    detector(
        "bank_account",
        r"(?i)\b[A-Z]{2}\d{2}(?:[ .-]?[A-Z0-9]{4}){2,7}(?:[ .-]?[A-Z0-9]{1,3})?\b",
        _iban,
        numeric=True,
    ),
    detector(
        "bank_account",
        rf"(?i)\biban{_NUMBER}{_IS}([A-Z]{{2}}\d{{2}}(?:[ .-]?[A-Z0-9]){{8,30}})",
        starts="iban",
    ),
    detector(
        "bank_account",
        r"(?i)(?:\baccount|\bacct|\ba/c|\bkonto(?:nummer|nr)|\bnúmero de cuenta"
        r"|\bcuenta(?: bancaria)?|\bn° de compte|\bcompte(?: bancaire)?"
        rf"|\bconto corrente|\bconta(?: corrente)?|银行账[号户]|账户|帐号|口座|계좌|\bсчет\w?|\bclabe"
        rf"|\brouting(?: transit)? (?:number|no)|\baba (?:number|routing|no)"
        rf"|\bbsb){_NUMBER}{_IS}(\d(?:[ -]?\d){{5,19}})(?![\d-])",
        _has_digits(6),
        starts="account|acct|a/c|konto|número|cuenta|n°|compte|conto|conta|счет|clabe|routing|aba|bsb|银行账|账户|帐号|口座|계좌",
    ),
    detector("bank_account", rf"(?i)\bsort[ -]?code{_IS}(\d\d[ -]?\d\d[ -]?\d\d)(?!\d)", starts="sort"),
    detector("national_id", r"(?<![\d-])\d{3}-\d{2}-\d{4}(?![\d-])", numeric=True),
    detector(
        "national_id",
        r"(?<![\dA-Za-z])[1-9]\d{5}[ -]?\d{8}[ -]?\d{3}[\dXx](?![\dA-Za-z])",
        lambda v: _valid("cn.ric")(re.sub("[ -]", "", v)) or _chinese_checksum(re.sub("[ -]", "", v)),
        numeric=True,
    ),
    detector(
        "national_id",
        r"\b(?!BG|GB|NK|KN|TN|NT|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?\d\d ?\d\d ?\d\d ?[A-D]\b",
        numeric=True,
    ),
    detector(
        "national_id",
        r"(?<![\w.-])\d{8}-?[A-HJ-NP-TV-Z](?![\w-])",
        lambda v: _valid("es.dni")(v),
        numeric=True,
    ),
    detector(
        "national_id",
        r"(?<![\w.-])[XYZ]-?\d{7}-?[A-HJ-NP-TV-Z](?![\w-])",
        lambda v: _valid("es.nie")(v),
        numeric=True,
    ),
    # Italy's, Mexico's
    detector(
        "national_id",
        r"\b[A-Z]{4}(?:[A-Z]{2}\d\d[A-EHLMPRST]\d\d[A-Z]\d{3}[A-Z]|\d{6}[HM][A-Z]{5}[0-9A-Z]\d)\b",
    ),
    detector("national_id", r"(?<![\d.-])\d{3}\.\d{3}\.\d{3}-\d\d(?![\d.-])", numeric=True),
    detector(
        "national_id",
        r"(?<![\d.-])756\.?\d{4}\.?\d{4}\.?\d\d(?![\d.-])",
        lambda v: _valid("ch.ssn")(v),
        numeric=True,
    ),
    detector(
        "national_id",
        r"(?<![\d-])[1278]\s?\d\d\s?(?:0[1-9]|1[0-2]|[2-9]\d)\s?\d[\dAB]\s?\d{3}\s?\d{3}\s?\d\d(?![\d-])",
        lambda v: _valid("fr.nir")(v),
        numeric=True,
    ),
    detector(
        "national_id",
        r"(?<![\d-])\d{6}[-+A]\d{3}[0-9A-Y](?![\w-])",
        lambda v: _valid("fi.hetu", "se.personnummer")(v),
        numeric=True,
    ),
    detector(
        "national_id", r"(?<![\d-])\d{6}-[1-8]\d{6}(?![\d-])", lambda v: _valid("kr.rrn")(v), numeric=True
    ),
    detector(
        "national_id",
        r"(?<![\d-])\d{4}[ -]\d{4}[ -]\d{4}(?![ -]?\d)",
        lambda v: _valid("in_.aadhaar")(v),
        numeric=True,
    ),
    detector("national_id", r"(?<![\w])[A-Z][12]\d{8}(?!\w)", _taiwan, numeric=True),
    detector(
        "national_id", rf"(?i){_NATIONAL}{_NUMBER}{_IS}{_CODE}", _has_digits(5), starts=_NATIONAL_STARTS
    ),
    detector(
        "national_id",
        rf"{_CJK_ID}(?:号码?|號碼?|卡号|番号|번호)?[^\n\w]{{0,4}}(?:尾号)?[是为為は는은]?\s{{0,3}}[:\"']?\s"
        rf"{{0,2}}([A-Za-z0-9](?:[ -]?[A-Za-z0-9]){{7,20}})",
        _has_digits(6),
        starts=_CJK_NAMES,
    ),
    detector(
        "passport",
        rf"(?i){_PASSPORT}{_NUMBER}{_IS}((?-i:(?:[A-Z]{{3}} )?[A-Za-z]{{0,3}}(?:[ -]?\d){{6,10}}"
        rf"|[A-Z0-9]{{8,10}}))(?![\w-])",
        _has_digits(5),
        starts="pass|reisepass|pasap|paspo|paszp|паспорт|护照|護照|旅券|パスポート|여권",
    ),
    detector(
        "passport",
        r"\b[PIVAC][A-Z<][A-Z]{3}[A-Z<]{25,39}(?:\s{1,3}[A-Z0-9<]{30,44})?",
        lambda v: "<<" in v,
        hints="<<",
    ),
    detector(
        "email",
        r"(?<![\w.+-])[\w.+%-]{1,64}(?:@|\s?[\[(](?:at"
        r"|AT)[\])]\s?)(?:[\w-]{1,63}\.){1,5}[A-Za-z]{2,24}(?!\w)",
        hints="@|at]|at)",
    ),
    detector("phone", r"(?<![\w.+])\+[1-9]\d{0,2}(?:[ ./()-]{0,2}\d){6,12}(?!\d)"),
    detector(
        "phone",
        r"(?<![\w.-])(?:\(\d{2,5}\)[ -]?\d{3,4}[ -]?\d{3,4}|\d{3}[-.]\d{3}[-.]\d{4}"
        r"|0\d{2,4}[ /-]\d{3,4}[ -]?\d{3,5}|1[3-9]\d(?:[ -]?\d{4}){2})(?![\w-])",
    ),
    detector(
        "phone",
        rf"(?i)(?:phone|mobile|cell|\btel\b|telephone|whatsapp|telefon|handy|móvil|teléfono"
        rf"|téléphone|portable|celular|cellulare|电话|手机|電話|携帯|전화"
        rf"|телефон)\w{{0,8}}{_NUMBER}{_IS}(\+?\(?\d(?:[ ./()-]{{0,2}}\d){{5,14}})(?!\d)",
        hints="phone|mobile|cell|tel|whatsapp|telefon|handy|móvil|portable|celular|电话|手机|電話|携帯|전화|телефон",
    ),
    detector("ip_address", r"(?<![\w.])(?<!version )(?:\d{1,3}\.){3}\d{1,3}(?![\w-]|\.\d)", _address),
    detector(
        "ip_address",
        r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:])",
        lambda v: len(v) > 6 and _address(v),
        hints="::|:",
    ),
    detector(
        "address",
        rf"\b\d{{1,5}}[A-Za-z]?,? (?:[A-Z][\w'.-]{{1,20}} ){{1,3}}(?:(?i:{_STREET})\b\.?)(?:,? "
        rf"(?:(?i:apt|apartment|flat|unit|suite|#) ?\w{{1,6}}))?"
        r"(?:,? [A-Z][\w' -]{2,30})?(?:,? (?:[A-Z]{2} )?\d{5}(?:-\d{4})?"
        r"|,? [A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2})?",
    ),
    detector(
        "address",
        r"\b[A-ZÄÖÜ][\wäöüß-]{2,30}(?:straße|strasse|str\.|weg|platz|allee|gasse|ufer|damm"
        r"|ring) \d{1,4}[a-z]?(?:,? \d{5} [A-ZÄÖÜ][\wäöüß-]{2,30})?",
    ),
    detector(
        "address",
        r"(?i)\b(?:\d{1,4},? (?:bis |ter )?(?:rue|avenue|boulevard|place|chemin|impasse)|(?:calle"
        r"|avenida|avda\.|plaza|paseo|via|viale|piazza|corso|rua)) (?:d\w{1,2} |l'|la |las "
        r"|los )?[A-ZÁÉÍÓÚÀÈ][\w'éèáíóúñç -]{2,40}?(?:,? (?:n[º°.]? ?)?\d{1,4}\b|(?=[,.\n])|$)",
        hints="rue|avenue|boulevard|place|chemin|impasse|calle|avenida|avda|plaza|paseo|via|viale|piazza|corso|rua",
    ),
    # No name holds what ends it: a row of such signs can be read in one way only.
    detector(
        "address",
        r"(?:(?:(?![省市区县區縣])[\u4e00-\u9fff]){1,8}[省市区县區縣]{1,2}){0,3}[\u4e00-\u9fff]{2,10}(?:路|街|道|巷|弄|大道"
        r"|胡同)\d{1,5}(?:号|號|弄)(?:[\w\u4e00-\u9fff-]{0,20}(?:室|楼|栋|单元|樓))?",
    ),
)
