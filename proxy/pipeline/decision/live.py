"""Recognise a question that only a tool can answer: the weather at a place, a price, a score, the news.

A topic of live data is enough where it needs no place (a market, the news); the weather and the traffic
need one, since those of the user's own place need memory to know the place.
"""

import re
from enum import IntEnum

from proxy.terms import fold
from proxy.wordlists import any_of, either, whole_words, words


class Live(IntEnum):
    """How sure it is that only a tool can answer."""

    NO = 0
    LIKELY = 1
    SURE = 2


_CURRENCY = f"{any_of('live', 'currency')}s?"
_MARKET = either(
    whole_words("live", "market"),
    rf"\b{_CURRENCY}\b(?=.*\b(?:at|worth|against|rate|trading|to the|in|is|today)\b)",
    rf"\bhow many {_CURRENCY} (?:is|are|to|in)\b",
)
_CLOCK = either(
    # Not "what time is it where Karim is", "like last time in Leeds".
    r"\bwhat time is it\b(?! (?:where|for|at|with)\b)|\bwhat's the time\b(?! (?:where|for|at|with)\b)",
    r"^\W*(?:so |and |hey |please )*(?:what(?:'s|s| is)? |tell me |give me )?(?:the )?"
    r"(?:current |local |exact )?time (?:is it )?(?:now )?in [a-z]+\W*$",
    r"\b(?:que hora es|wie spat ist es|quelle heure est-il)\b"
    r"(?! (?:donde|para|con|en casa|bei|dort|wo|la ou|chez|pour)\b)",
    r"\bwhat(?:'s| is) (?:today's date|the date(?: today)?|the day today)\W*$",
    r"\bwhat (?:day|date)(?: of the week)? is (?:it|today)(?: today)?\W*$",
    r"\bque (?:dia|fecha) es(?: hoy)?\W*$|\bwelche[rs] (?:tag|datum) (?:ist|haben wir) heute\b"
    r"|\bder wievielte\b",
    r"\bquel(?:le)? (?:jour|date) (?:est-on|sommes-nous|est-ce)\b|^\W*(?:what )?(?:phase"
    r"|moon phase)\b.*\bmoon\b",
    r"^今天(?:是)?(?:几月几号|几号|星期几|周几|礼拜几|什么日子)\W*$|现在.{0,6}几点[了钟]?\W*$"
    r"|^.{2,6}(?:当前|现在)时间\W*$",
    r"月相|^(?:今天|今日|现在).{0,3}农历几|^(?:现在|今天)?外面(?:现在|今天)?.{0,2}(?:[冷热]|下雨|下雪|刮风)了?[吗么]\W*$|今何時"
    r"|지금 몇 시",
)
# Of somebody's team as well as of one that everybody knows: whose, the names tell.
_GAME = either(
    r"\bwho won .*\b(?:game|match|race|election|final)\b|\bdid .* win\b|\b(?:quien|qui) a? ?(?:gano"
    r"|gagne) (?:el|le)\b",
    r"\bhat \w+ .*\bgewonnen\b|\b(?:partido|spiel|match) (?:del?|von|du|des)\b",
)
_LOOK_UP = either(
    r"^(?:please |can you |could you )?(?:google|search (?:the web|online|the internet)|look up online"
    r"|web search|browse)\b",
    r"^(?:busca|buscar) en (?:internet|google|la web)|^such(?:e)? (?:im (?:internet|netz|web)|online)"
    r"|^google\b",
    r"^(?:cherche|recherche) (?:sur|dans) (?:internet|google|le web)|^(?:请|帮忙|帮我)*(?:上网|网上|百度"
    r"|谷歌|在网上)(?:搜|查|找)|^(?:请|帮忙|帮我)*(?:搜一下|搜索|搜搜)",
)
# It has a number of its own, so that it is nobody's; but the seat on it is.
_NUMBERED = (
    r"\b(?:flight|vuelo|flug|vol|train) [a-z]{1,3} ?\d{2,4}\b(?!.*\b(?:seats?|book\w*|paid|pay|cost|price"
    r"|asiento|reserv\w*|sitz\w*|platz|gebucht|siege|place|paye)\b)|^\W*[a-z]{2}\d{3,4}航班|[a-z]\d{1,4}高速"
    r"|地铁\S{0,4}\d+号线|^\W*[a-z]{2}\d{3,4}\b.*(?:准点|延误|到)"
    r"|\b(?:is|on) the [amb]\d{1,3}\b.*|\b(?:linea|ligne|line) \d+\b(?=.*\b(?:metro|retards?|retrasos"
    r"|delay\w*|subway|tube)\b)|\bretards? sur la ligne\b"
)
_SERVICES = any_of("live", "services")
_NAMED = either(
    rf"\b(?:is|are|ist|esta|est) {_SERVICES} (?:down|up|offline|caido|en panne|gerade down)\b"
    rf"|{_SERVICES}.{{0,4}}(?:挂了|宕机|崩了)",
    r"\b(?:next|last|first) (?:train|bus|ferry|flight|tram) from [a-z]+ to [a-z]+|\b(?:current|latest"
    r"|newest) version of (?:python|java\w*|node|go|rust|linux|ubuntu|ios)\b",
    r"\bwho won the [a-z]+ (?:game|match|race) (?:last night|yesterday|today|tonight)\b|(?:python|java\w*"
    r"|node|linux|ubuntu|ios|安卓)最新版本?",
    r"从[\u4e00-\u9fff]{2,5}到[\u4e00-\u9fff]{2,5}的?.{0,4}(?:高铁|火车|航班|飞机|大巴|动车)|(?:国足|国乒"
    r"|女排|男篮|女足|湖人|勇士|皇马|巴萨|曼联|曼城|利物浦|阿森纳|拜仁|国安|申花).{0,10}(?:赢|输|几比|比分"
    r"|谁)",
    r"(?:环法|F1|f1|世锦赛|锦标赛|公开赛|马拉松|世界杯|欧冠|总决赛).{0,10}(?:谁|领先|排名|第几)|(?:大桥"
    r"|公园|景区|博物馆|动物园|图书馆|美术馆|机场|地铁|轻轨|城际|轮渡|缆车|高速|故宫|长城).{0,8}(?:开放吗"
    r"|开门吗|正常运行|停运|延误|封|排队|人多)",
    r"(?:现在|今天|目前).{0,8}(?:大桥|公园|景区|博物馆|动物园|图书馆|美术馆|机场|地铁|轻轨|城际|轮渡|缆车"
    r"|高速|故宫|长城).{0,8}(?:开|运行|堵|排队|人多)",
)
_RUN = either(
    r"^(?:please |can you |could you |pls )?(?:run|execute|exec) "
    r"(?!the |a |an |our |this |that |it |all )\S.*\b(?:output|result|prints?|stdout|say)\b",
    r"^(?:请|麻烦)?(?:跑一下|跑下|运行一下|运行|执行一下|执行).*(?:输出|结果|打印)",
)
# "The wind speed", "the nearest star": what a question about live data may speak of as known.
_THE = re.compile(r"\bthe ([\w'-]+)")
_SAFE_THE = re.compile(rf"{any_of('live', 'the')}\b")
_PLACES = words("world_zh", "places")
# On the text as typed: a place has a capital. Weather without a place is weather where the user lives.
_PLACE = re.compile(
    either(
        r"\b(?:in|at|for|near|en|à|a|au|em|auf|im|zum|beim|on|from|over|pour|para|sur|del?|di|du"
        r"|l['’])\s*(?:the |la |el |le |der |die )?(?!Q[1-4]\b)[A-ZÀ-Þ]\w+\b(?!['’]s)",
        r"^(?:请问|查查|看看|查一下)?(?!今天|现在|明天|外面|这里|这边|实时|当前|今晚|昨晚|目前|周末|天气"
        r"|气温)"
        r"[\u4e00-\u9fff]{2,4}?(?:的?天气|的?气温|今天|现在|明天|市|下雪|下雨|会下)",
        r"^(?:今天|现在|明天|今晚|目前|周末)(?!外面|这里|这边|要|该|穿|出门|家|天气"
        r"|气温)[\u4e00-\u9fff]{2,4}?(?:的?天气|的?气温|会下|下雨|下雪|空气)",
        r"^(?!今日|今|明日)[\u3040-\u30ff\u4e00-\u9fff]{2,6}の",
        r"^(?!오늘|지금|내일)[가-힣]{2,5} (?:오늘|지금|내일|날씨)",
    )
)
_DEGREES = re.compile(r"温度|几度|多少度|多?[热冷]|[冷热]不[冷热]")  # an oven has them as well
_OUTSIDE = re.compile(r"\boutside\b|\bdraussen\b|\bdehors\b|\bafuera\b|外面|室外")
_SURE_ANYWHERE = re.compile(rf"{_RUN}|{_CLOCK}|{_LOOK_UP}", re.DOTALL)
_SURE = re.compile(
    either(_MARKET, whole_words("live", "news"), whole_words("live", "score"), _NUMBERED, _NAMED), re.DOTALL
)
_WEATHER = re.compile(whole_words("live", "weather"))
_EYES = re.compile(r"[眼镜鏡]|近视|近視|散光")  # have degrees, too
_NOW = re.compile(whole_words("live", "now"))
_PUBLIC = re.compile(whole_words("live", "public"))  # at a place or on a day that is named
_MOVING = re.compile(f"{whole_words('live', 'moving')}|{_GAME}")
# "How much bitcoin does Leo have"
_SOMEBODY_HAS = re.compile(
    r"\b(?:does|do|did) [A-ZÀ-Þ]\w+ (?:have|own|pay|owe|hold|want|need|get|buy|sell)\b"
)
_CAPITAL = re.compile(r"(?<=\w )[A-ZÀ-Þ]\w|[A-Z]+\d|[\u4e00-\u9fff]")


def live(text: str) -> Live:
    """Return how sure it is that the answer changes by the hour and stands in no memory."""
    folded = fold(text).strip(" ¿¡").replace("’", "'")
    if _SOMEBODY_HAS.search(text):
        return Live.NO
    if _SURE_ANYWHERE.search(folded):
        return Live.SURE
    if any(not _SAFE_THE.match(m[1]) and m[1] not in _names(text) for m in _THE.finditer(folded)):
        return Live.NO
    if _SURE.search(folded):
        return Live.SURE
    now = _NOW.search(folded) is not None
    if _WEATHER.search(folded) and not _EYES.search(folded):
        if any(place in text for place in _PLACES):
            return Live.SURE
        if _DEGREES.search(folded) and not _OUTSIDE.search(folded):
            return Live.NO
        if _PLACE.search(text) or (now and _OUTSIDE.search(folded)):
            return Live.SURE
        return Live.NO
    if _PUBLIC.search(folded) and (now or _PLACE.search(text)):
        return Live.SURE
    if _MOVING.search(folded) and _CAPITAL.search(text):
        return Live.LIKELY
    return Live.NO


def _names(text: str) -> set[str]:
    return {fold(name) for name in re.findall(r"(?<=\w )[A-ZÀ-Þ][\w'-]*", text)}
