"""Recognise an errand that a tool can run as it is told ("timer 40 mins for the plaster", "lights off").

All that the tool must know stands in the message: an alarm has its time in numbers, music its kind or
player, a lamp its switch. An errand that leaves something out ("the usual time", "an hour before the
recital", "call the surveyor", "play what we danced to") is searched: memory knows what is meant. A request
says "me" of nobody in particular, so that `decide` asks here before it asks whether a text is personal.
"""

import re

from proxy.pipeline.decision.own import is_personal
from proxy.pipeline.roles import is_lived
from proxy.terms import plain
from proxy.wordlists import any_of, words
from proxy.writing_systems import HAN

_LONGEST = 110  # characters; a longer one tells a story
_LONGEST_LABEL = 9  # words of what an alarm is for
_WORD = re.compile(r"[^\W_]+(?:[-'.:/][^\W_]+)*'?")


def _of(section: str) -> str:
    return any_of("errands", section)


# Atomic: what one word was taken for, it is not taken for another time.
_POLITE = rf"\W*+(?>(?>{_of('polite')}),? )*+"
_POLITE_END = re.compile(rf",? (?:{_of('polite ends')})\Z")
_ALARM = re.compile(
    rf"{_POLITE}(?:{_of('sets')} (?:me |us |mir |uns |nous )?(?:up )?)?"
    rf"(?:(?:an?|the|una?|einen?|eine|den|die|le|la|les|l'|une) ?)?(?P<span>(?:[\d-]+|one|two|three"
    rf"|four|five|ten|fifteen|twenty|thirty|zwei|drei|funf|zehn)[ -]?(?:min\w*|h\w*"
    rf"|sec\w*) )?"
    rf"(?:{_of('alarms')})(?!\w) ?(?P<rest>.*)"
)
_WAKE = re.compile(rf"{_POLITE}{_of('calls to wake')}(?!\w)(?: up)? ?(?P<rest>.*)")
_WITHIN = re.compile(rf"{_of('within a time')}|{_of('before a time')}|{_of('times of day')}")
_IS_NUMBER = re.compile(rf"{_of('numbers')}(?:{_of('units of time')})?")
_IS_UNIT = re.compile(_of("units of time"))
_AT_NOON = re.compile(_of("times of day"))
# "A" and "half" count only beside a unit, or the hour.
_COUNTS_ITSELF = re.compile(r"\d.*|\w{3,}")
_LABEL = re.compile(_of("label"))
_NO_LABEL = re.compile(rf"\b{_of('no label')}\b")
_CLOCK_LAST = re.compile(
    r"(?P<label>(?:to|que|zu|de|d') .{3,60}?),? (?P<rest>(?:at|in|a las|um|dans|en|a) \S.*)"
)

_SWITCH = re.compile(rf"{_POLITE}(?:{_of('switches')} )(?P<rest>.*)")
_DEVICE = re.compile(rf"(?<!\w)(?>{_of('devices')})(?!\w)")
_AROUND = words("errands", "around devices")
_MUSIC = re.compile(
    rf"{_POLITE}{_of('plays music')} (?:me |mir |mal |uns |nous |-?moi )?"
    rf"(?:(?:some|any|an?|un|una|de|des|du|la|le|une|el|eine?|bitte|mal|more|good|nice) )*+"
    rf"(?P<what>(?:\w+ ){{0,3}}{_of('music')}(?!\w).*|\w[\w' ]{{1,40}}? (?:by|von|de|par) \w.*)"
)
_THEIRS = re.compile(rf"\b{_of('no music of theirs')}\b")
_CALL = re.compile(
    rf"{_POLITE}(?:call|ring|phone|dial|get|order|book|llama(?:me)?(?: a)?|marca|pide(?:me)?|ruf(?:e)?"
    rf"|bestell(?:e)?"
    rf"|wahl(?:e)?|appelle|compose) (?:me |us |mir |uns |-?moi )?{_of('emergency')}(?: an| now| please"
    rf"| bitte)*\W*+"
)
_NET = re.compile(rf"{_POLITE}{_of('looks')}(?!\w) .*\b{_of('looks on the net')}(?!\w).*")

# ---------------------------------------------------------------- Chinese
_ZH_NUMBER = r"(?:\d{1,4}(?:[.:：]\d{1,2})?|[零一二三四五六七八九十两百半]{1,4})"
_ZH_TIME = re.compile(
    rf"{_ZH_NUMBER}(?:个|個)?半?(?:点钟?|點鐘?|分钟|分鐘|小时|小時|钟头|鐘頭|秒钟?|刻钟?|min)"
    rf"|\d{{1,2}}[:：]\d{{2}}"
)
_ZH_ALARM = re.compile(
    rf"(?:[定设設开開调調来來加弄上](?:置|一?下|一?[个個])?.{{0,14}}{_of('zh alarms')}"
    rf"|{_of('zh alarms')})|[叫提喊](?:醒)?我"
)
_ZH_SWITCH = re.compile(
    rf"(?:请|麻烦|帮我|给我|把|幫我)*(?:(?:打开|关掉|关上|关闭|打開|關掉|關上|开|关|調|调|開"
    rf"|關)(?:一?下)?(?:所有的?|全部)?"
    rf"(?:客厅|卧室|厨房|卫生间|阳台|书房|客廳|臥室|廚房)?的?{_of('zh devices')}"
    rf"|{_of('zh devices')}(?:打开|关掉|关上|关了|开一?下|调[高低大小亮暗到]|打開|關掉|調[高低大小到]"
    rf"|开|关|大点|小点)(?:一?点)?)"
    rf"(?:到|调到)?\W*\d{{0,3}}[度%档]?(?:一?下|吧|谢谢)?\W*"
)
_ZH_MUSIC = re.compile(
    r"(?:请|麻烦|帮我|给我|幫我|給我)*(?:播放|放|播|来|來)(?:一?[首点段曲點些]|几首)?"
    r"(?:《[^》]{1,20}》|\S{0,8}(?:音乐|音樂|歌单|的歌|的曲子|爵士乐?|古典乐?|摇滚乐?|轻音乐|民谣|民歌"
    r"|戏曲|京剧|相声|评书"
    r"|白噪音))(?:吧|听听?|來聽|谢谢)?\W*"
)
_ZH_KNOWN = re.compile(
    "几点|幾點|是几|上次|之前|平时|平時|老样子|常|喜欢|喜歡|爱听|愛聽|那[首个个张]|我们|我們|咱|什么"
    "|什麼|谁|哪|怎么|吗|嗎|[前后]再|以前"
)


# A search in a place that is named, for any of a kind: "find a chemist near Swansea that …".
_FINDS = re.compile(
    rf"{_POLITE}(?:find|search for|look up|busca(?:me)?|encuentra(?:me)?|such(?:e)?|finde?|zeige?"
    rf"|cherche|trouve)"
    r"(?:[ -](?:me|us|mir|uns|moi|nous))? (?P<what>.{3,90})"
)
_AT_PLACE = re.compile(
    r"\b(?:in|near|around|en|cerca de|por|à|a|près de|vers|bei|nahe|um) (?:la |el |St\.? "
    r"|Saint-)?[A-ZÀ-Þ]\w{2,}"
)
_NOT_ANY = re.compile(rf"\b{_of('not any of a kind')}\b|'s\b")
_TO_WHOM = re.compile(r"(?<=[a-z])[ -](?:me|us|mir|uns|moi|nous)\b")


def is_errand(text: str) -> bool:
    """True if the text is an order to a tool that says all that the tool must know."""
    if len(text) > _LONGEST:
        return False
    if HAN.search(text):
        return _is_errand_zh(plain(text))
    said = _POLITE_END.sub("", plain(text).strip(" .!?¿¡"))
    return (
        _is_alarm(said)
        or _is_switch(said)
        or _is_music(said)
        or bool(_CALL.fullmatch(said))
        or bool(_NET.fullmatch(said) and not _is_theirs(_TO_WHOM.sub("", said, count=1)))
        or _is_search(said, text)
    )


def _is_alarm(said: str) -> bool:
    found = _ALARM.fullmatch(said)
    if found:
        return _is_timed(found["rest"], bool(found["span"]))
    found = _WAKE.fullmatch(said)
    if not found:
        return False
    last = _CLOCK_LAST.fullmatch(found["rest"])  # "remind me to turn the oven off in 20 min"
    if last and _is_label(_WORD.findall(last["label"])):
        return _is_timed(last["rest"])
    return _is_timed(found["rest"])


def _is_timed(rest: str, counted: bool = False) -> bool:
    """True if the words are a time in full, and then at most what it is for."""
    said = _WORD.findall(rest)
    last = -1  # of what belongs to the number
    for at, word in enumerate(said):
        beside = said[at + 1] if at + 1 < len(said) else ""
        is_unit = bool(_IS_UNIT.fullmatch(word) or _AT_NOON.fullmatch(word))
        if _IS_NUMBER.fullmatch(word) and (_COUNTS_ITSELF.fullmatch(word) or _IS_UNIT.fullmatch(beside)):
            counted, last = True, at
        elif is_unit:
            counted, last = counted or bool(_AT_NOON.fullmatch(word)), at
        elif not (_IS_NUMBER.fullmatch(word) or _WITHIN.fullmatch(word)):
            return counted and _is_label(said[last + 1 :])
    return counted


def _is_label(said: list[str]) -> bool:
    """True if the words begin with what leads to a label ("for the plaster"), and ask for nothing."""
    first = next((at for at, word in enumerate(said) if _LABEL.fullmatch(word)), len(said))
    label = " ".join(said)
    leads = all(_WITHIN.fullmatch(word) for word in said[:first])
    if first == len(said) or not leads or len(said) > _LONGEST_LABEL or _NO_LABEL.search(label):
        return False
    return not _is_theirs(label)


def _is_theirs(said: str) -> bool:
    return is_personal(said) or is_lived(said)


def _is_switch(said: str) -> bool:
    """True for a device that is turned on, off or to a number, wherever in the house."""
    found = _SWITCH.fullmatch(said)
    rest = found["rest"] if found else said
    if not _DEVICE.search(rest):
        return False
    others = _WORD.findall(_DEVICE.sub(" ", rest))
    return bool(found or others) and all(word in _AROUND or word.isdigit() for word in others)


def _is_music(said: str) -> bool:
    found = _MUSIC.fullmatch(said)
    return found is not None and not (_THEIRS.search(found["what"]) or _is_theirs(found["what"]))


def _is_search(said: str, text: str) -> bool:
    found = _FINDS.fullmatch(said)
    if found is None or _NOT_ANY.search(found["what"]) or _is_theirs(found["what"]):
        return False
    return _AT_PLACE.search(text) is not None


def _is_errand_zh(said: str) -> bool:
    if _ZH_KNOWN.search(said):
        return False
    if _ZH_SWITCH.fullmatch(said) or _ZH_MUSIC.fullmatch(said):
        return True
    return bool(_ZH_ALARM.search(said) and _ZH_TIME.search(said))
