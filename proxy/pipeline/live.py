"""Does a question ask for what only a tool can know: the weather at a place, a price, a score, the news?

A topic of live data is enough where it needs no place (a market, the news); the weather and the traffic
need one, since those of the user's own place need memory to know the place.
"""

import re
from enum import IntEnum

from proxy.pipeline.world_words_zh import PLACES
from proxy.terms import fold


class Live(IntEnum):
    """How sure it is that only a tool can answer."""

    NO = 0
    LIKELY = 1
    SURE = 2


def _any(*patterns: str) -> str:
    return f"(?:{'|'.join(patterns)})"


_NOW = _any(
    r"\b(?:right now|now|currently|at the moment|this (?:very )?(?:minute|moment|second)|current|live"
    r"|latest|so far)\b",
    r"\b(?:today(?:'s)?|tonight|tomorrow|yesterday|last night|this (?:morning|afternoon|evening|weekend)"
    r"|yet|next)\b",
    r"\b(?:ahora|hoy|manana|anoche|ayer|esta (?:noche|tarde|manana)|este fin de semana|ultim[ao]s?"
    r"|actual\w*)\b",
    r"\b(?:jetzt|heute|morgen|gestern|gerade|aktuell\w*|derzeit|neueste[nrs]?|am wochenende|im moment)\b",
    r"\b(?:maintenant|aujourd'hui|demain|hier|actuel\w*|ce (?:soir|matin|week-end)|dernier\w*|la\W*$)\b",
    r"\ben ce moment\b|\ben este momento\b|\btrading at\b|\b(?:agora|hoje|amanha|adesso|oggi|domani)\b",
    r"现在|今天|明天|此刻|实时|当前|今日|明日|昨晚|昨天|今晚|目前|最新|这会儿|周末|今の|지금|오늘|내일",
)
_WEATHER = _any(
    r"\b(?:weather|temperatures?|forecast|humidity|rain(?:ing)?|snow(?:ing)?|air quality|uv index|wind(?:y"
    r"| speed)?|sunny)\b",
    r"\b(?:cloudy|earthquakes?|foggy|storm(?:y| warning)?|pollen|sunrise|sunset|waves|tide|degrees"
    r"|heat ?wave|aqi)\b",
    r"\bhow (?:hot|cold|warm|humid|windy|high are the waves)\b|\bsun (?:rise|set|come up|go down)s?\b"
    r"|\bwater level\b",
    r"\b(?:clima|temperatura|llueve|llover|lluvia|nieva|nevando|nevar|humedad|viento|pronostico"
    r"|calidad del aire|oleaje)\b",
    r"\bque tiempo (?:hace|hara)\b|\bcuant[oa] (?:frio|calor)\b|\b(?:pone|sale) el sol\b|\bindice uv\b"
    r"|\bpolen\b",
    r"\b(?:wetter\w*|temperatur|regnet|regnen|schneit|luftqualitat|luftfeuchtigkeit|wind|sturm|unwetter"
    r"|pegel|pollenflug)\b",
    r"\bwie (?:warm|kalt|heiss|hoch sind die wellen)\b|\bgeht .*\bsonne\b|\bsonne (?:auf|unter)\b"
    r"|\buv-index\b",
    r"\b(?:meteo|temperature|pleut|pleuvoir|neige|neiger|humidite|vent|previsions|qualite de l'air|orage)\b",
    r"\bquel temps\b|\bil fait (?:combien|chaud|froid|quel)\b|\b(?:couche|leve) (?:le|du) (?:de )?soleil\b"
    r"|\bindice uv\b",
    r"\b(?:chove|piove)\b|天气|气温|温度|下雨|下雪|刮风|空气质量|湿度|风速|浪高|水位|日出|日落|紫外线|花粉"
    r"|雾霾|台风|预警|暴雨|有地震",
    r"几度|多少度|有多[热冷]|多[热冷]|[热冷][吗么]|冷不冷|热不热|天気|気温|날씨|기온",
)
_CURRENCY = r"(?:euro|dollar|pound|yen|yuan|franc|rupee)s?"
_MARKET = _any(
    r"\b(?:stock price|share price|stock market|nasdaq|dow jones|s&p 500|exchange rate|market cap)\b",
    r"\b(?:bitcoin|btc|ethereum|dogecoin|crypto|(?:gold|oil|silver|gas) price|price of (?:gold|oil|silver"
    r"|gas))\b",
    rf"\b{_CURRENCY}\b(?=.*\b(?:at|worth|against|rate|trading|to the|in|is|today)\b)|\b(?:usd|eur|gbp|jpy"
    rf"|cny) (?:to|in|vs)\b",
    rf"\bhow many {_CURRENCY} (?:is|are|to|in)\b",
    r"\b(?:tipo de cambio|cambio (?:dolar|euro)|wechselkurs|\w*aktien?kurs|\w+-aktie|taux de change|dax"
    r"|ftse|ibex|cac 40)\b",
    r"\b(?:cotiza|cote|nikkei|precio del (?:bitcoin|oro|petroleo)|\w+preis (?:heute|gerade)|prix (?:du"
    r"|de l')(?: ?bitcoin| ?or))\b",
    r"\b(?:is|are) (?!.*\bthe\b).{1,40} (?:stock|shares?) .{0,40}\b(?:at|worth|trading)\b|\b(?:stock"
    r"|shares) (?:is "
    r"|are )?(?:at|trading|doing)\b",
    r"\ba cuanto esta el (?:dolar|euro)\b|\b(?:euro|dollar|pfund|franken)\b.* (?:zum|gegen|in|en) "
    r"(?:euros?|dollars?|pfund|franken)|\binterest rate|\bprime rate",
    r"(?:美元|欧元|日元|英镑|港币)(?:兑|现在|对|今天)|汇率|股价|金价|油价|比特币|以太坊|大盘|股市|[aA]股"
    r"|港股|美股|收盘|指数|纳斯达克|道琼斯",
    r"黄金.{0,4}多少|汽油.{0,4}多少|基准利率|加息|降息|兑多少|為替|株価|환율|주가",
)
_CLOCK = _any(
    r"\bwhat time is it\b|\bwhat's the time\b|\btime (?:is it )?(?:now )?in [a-z]+\W*$",
    r"\bque hora es\b|\bwie spat ist es\b|\bquelle heure est-il\b",
    r"\bwhat(?:'s| is) (?:today's date|the date(?: today)?|the day today)\W*$",
    r"\bwhat (?:day|date)(?: of the week)? is (?:it|today)(?: today)?\W*$",
    r"\bque (?:dia|fecha) es(?: hoy)?\W*$|\bwelche[rs] (?:tag|datum) (?:ist|haben wir) heute\b"
    r"|\bder wievielte\b",
    r"\bquel(?:le)? (?:jour|date) (?:est-on|sommes-nous|est-ce)\b|^\W*(?:what )?(?:phase"
    r"|moon phase)\b.*\bmoon\b",
    r"^今天(?:是)?(?:几月几号|几号|星期几|周几|礼拜几|什么日子)\W*$|现在.{0,6}几点[了钟]?\W*$"
    r"|^.{2,6}(?:当前|现在)时间\W*$",
    r"月相|农历几|^(?:现在|今天)?外面(?:现在|今天)?.{0,2}(?:[冷热]|下雨|下雪|刮风)了?[吗么]\W*$|今何時"
    r"|지금 몇 시",
)
_NEWS = _any(
    r"\b(?:(?:in|on) the news|latest news|news (?:on|about|today)|breaking news|top stories|headlines?"
    r"|trending)\b",
    r"\b(?:noticias|titulares|nachrichten|schlagzeilen|nouvelles (?:du|des|aujourd'hui)|actualites?"
    r"|dernieres nouvelles)\b",
    r"\bquelles sont les nouvelles\b|新闻|头条|热搜|时事|最新的?(?:选举|国际|国内|疫情|比赛)消息",
)
_SCORE = _any(
    r"\b(?:live scores?|score of the|who(?:'s| is) (?:winning|leading)|standings|match result)\b",
    r"\b(?:como va el (?:partido|ibex)|wie steht es (?:beim|bei)|quel est le score|resultado del partido"
    r"|spielstand)\b",
    r"比分|(?:队|赛).{0,8}(?:赢|输)了|(?:英超|西甲|中超|欧冠|nba).{0,6}(?:积分|排名|战况)",
)
# Of a place or a day that is named.
_PUBLIC = re.compile(
    r"\bmovies? (?:are |is )?(?:playing|showing|on)\b|\bpeliculas? (?:ponen|hay)\b|\bfilme laufen\b"
    r"|\bfilms? passent\b|电影.{0,3}上映|上映.{0,3}电影"
    r"|\b(?:how(?:'s| is) (?:the )?)?traffic (?:in|on|to|near)\b|\btrafico en\b|\bstau auf\b"
    r"|\bcirculation sur\b|路况|堵[车吗不]"
)
# Of somebody's team as well as of one that everybody knows: whose, the names tell.
_GAME = _any(
    r"\bwho won .*\b(?:game|match|race|election|final)\b|\bdid .* win\b|\b(?:quien|qui) a? ?(?:gano"
    r"|gagne) (?:el|le)\b",
    r"\bhat \w+ .*\bgewonnen\b|\b(?:partido|spiel|match) (?:del?|von|du|des)\b",
)
_MOVING = _any(
    r"\b(?:traffic|flight [a-z]{2} ?\d{2,4}|delays? on|line \d+|(?:is|are) .* (?:closed|running|open|down"
    r"|on time|delayed)|next train)\b",
    r"\b(?:trafico|vuelo [a-z]{2} ?\d{2,4}|retrasos?|caid[oa]|atasco)\b|\b(?:stau|flug [a-z]{2} ?\d{2,4}"
    r"|verspatung\w*|punktlich|down)\b",
    r"\b(?:circulation|vol [a-z]{2} ?\d{2,4}|retards?|en panne|embouteillages?)\b",
    r"\bopening hours of\b",
    r"堵车|堵吗|封路|路况|准点|延误|晚点|正常运行|停运|挂了吗|宕机|下一班|开放吗|排队|最新版本",
)
_LOOK_UP = _any(
    r"^(?:please |can you |could you )?(?:google|search (?:the web|online|the internet)|look up online"
    r"|web search|browse)\b",
    r"^(?:busca|buscar) en (?:internet|google|la web)|^such(?:e)? (?:im (?:internet|netz|web)|online)"
    r"|^google\b",
    r"^(?:cherche|recherche) (?:sur|dans) (?:internet|google|le web)|^(?:请|帮忙|帮我)*(?:上网|网上|百度"
    r"|谷歌|在网上)(?:搜|查|找)|^(?:请|帮忙|帮我)*(?:搜一下|搜索|搜搜)",
)
# It has a number of its own, so that it is nobody's.
_NUMBERED = (
    r"\b(?:flight|vuelo|flug|vol|train) [a-z]{1,3} ?\d{2,4}\b|^\W*[a-z]{2}\d{3,4}航班|[a-z]\d{1,4}高速"
    r"|地铁\S{0,4}\d+号线|^\W*[a-z]{2}\d{3,4}\b.*(?:准点|延误|到)"
    r"|\b(?:is|on) the [amb]\d{1,3}\b.*|\b(?:linea|ligne|line) \d+\b(?=.*\b(?:metro|retards?|retrasos"
    r"|delay\w*|subway|tube)\b)|\bretards? sur la ligne\b"
)
_SERVICES = (
    "github|gitlab|gmail|google|youtube|twitter|facebook|instagram|whatsapp|slack|zoom|netflix|spotify"
    "|reddit|discord|aws|azure"
    "|cloudflare|openai|chatgpt|steam|outlook|paypal|telegram|tiktok|linkedin|dropbox|npm|pypi|微信|支付宝"
    "|淘宝|抖音|微博|知乎|百度"
)
_NAMED = _any(
    rf"\b(?:is|are|ist|esta|est) (?:{_SERVICES}) (?:down|up|offline|caido|en panne|gerade down)\b"
    rf"|(?:{_SERVICES}).{{0,4}}(?:挂了|宕机|崩了)",
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
_RUN = _any(
    r"^(?:please |can you |could you |pls )?(?:run|execute|exec) "
    r"(?!the |a |an |our |this |that |it |all )\S.*\b(?:output|result|prints?|stdout|say)\b",
    r"^(?:请|麻烦)?(?:跑一下|跑下|运行一下|运行|执行一下|执行).*(?:输出|结果|打印)",
)
# "The wind speed", "the nearest star": what a question about live data may speak of as known.
_THE = re.compile(r"\bthe ([\w'-]+)")
_SAFE_THE = re.compile(
    _any(
        "weather|temperature|forecast|humidity|air|uv|wind|pollen|sun|moon|waves|tide|water|storm|sea"
        "|degrees",
        "euro|dollar|pound|yen|yuan|franc|rupee|price|share|stock|exchange|interest|gas|oil|gold|silver"
        "|market|nasdaq|dow",
        r"date|day|time|score|scores|standings|news|headlines?|traffic|latest|current|live|moment|web"
        r"|internet|world",
        r"[amb]\d+|next|election|opening|louvre|s&p|ecb|fed|ftse|dax|ibex|cac|match|game|race|final|tour"
        r"|output|result|top",
    )
    + r"\b"
)
# On the text as typed: a place has a capital. Weather without a place is weather where the user lives.
_PLACE = re.compile(
    _any(
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
_SURE = re.compile(rf"{_MARKET}|{_NEWS}|{_SCORE}|{_NUMBERED}|{_NAMED}", re.DOTALL)
_WEATHER_RE = re.compile(_WEATHER)
_NOW_RE = re.compile(_NOW)
_MOVING_RE = re.compile(rf"{_MOVING}|{_GAME}")
_CAPITAL = re.compile(r"(?<=\w )[A-ZÀ-Þ]\w|[A-Z]+\d|[\u4e00-\u9fff]")


def live(text: str) -> Live:
    """Return how sure it is that the answer changes by the hour and stands in no memory."""
    folded = fold(text).strip(" ¿¡").replace("’", "'")
    if _SURE_ANYWHERE.search(folded):
        return Live.SURE
    if any(not _SAFE_THE.match(m[1]) and m[1] not in _names(text) for m in _THE.finditer(folded)):
        return Live.NO
    if _SURE.search(folded):
        return Live.SURE
    now = _NOW_RE.search(folded) is not None
    if _WEATHER_RE.search(folded):
        if any(place in text for place in PLACES) or "月相" in text:
            return Live.SURE
        if _DEGREES.search(folded) and not _OUTSIDE.search(folded):
            return Live.NO
        if _PLACE.search(text) or (now and _OUTSIDE.search(folded)):
            return Live.SURE
        return Live.NO
    if _PUBLIC.search(folded) and (now or _PLACE.search(text)):
        return Live.SURE
    if _MOVING_RE.search(folded) and _CAPITAL.search(text):
        return Live.LIKELY
    return Live.NO


def _names(text: str) -> set[str]:
    return {fold(name) for name in re.findall(r"(?<=\w )[A-ZÀ-Þ][\w'-]*", text)}
