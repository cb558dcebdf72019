"""Recognise a Chinese question about the world rather than about anybody's life: as `world`, for text
without spaces.

Words are looked for wherever they stand (`words/world_zh.txt`); a kind only where the question begins with
it.
"""

import re

from proxy.pipeline import roles
from proxy.pipeline.decision.worldly import LONGEST, Worldly
from proxy.wordlists import words

_ZH_MATTERS, _ZH_KINDS, _ZH_TOPICS = (words("world_zh", name) for name in ("matters", "kinds", "topics"))
_ZH_PLACES, _ZH_SIGHTS = words("world_zh", "places"), words("world_zh", "sights")
_ZH_LIVED, _ZH_OWNED = words("world_zh", "lived"), words("world_zh", "owned")
_LEAD = re.compile(
    r"^(?:请问|你知道|告诉我|帮我|请|简单|详细|煮|养|种|泡|做|介绍一下|介绍|解释一下|解释|说明|讲讲|说说"
    r"|列出|说出|为什么|世界上|一只|一个|普通|正常)+"
)
_SURNAMES = (
    "赵钱孙李周吴郑王冯陈卫蒋沈韩杨朱秦许何吕施张孔曹严金魏陶姜谢邹苏潘葛范"
    "彭鲁韦马方任袁柳唐薛雷贺罗郝安于傅齐康伍余顾孟黄萧尹姚邵汪毛"
)
_GEOGRAPHY = re.compile(
    rf"^(?![小老阿大去到来从回坐]|[{_SURNAMES}][\u4e00-\u9fff]{{1,2}}(?:有|是|在|多|身|今))"
    # Not "the mountain climbed in May" (爬的山).
    r"[\u4e00-\u9fff]{2,8}?(?<!的)(?:山脉|山|峰|河|江|湖|海|洋|岛|群岛|沙漠|海峡|运河|高原|盆地|瀑布|半岛|大桥"
    r"|长城)"
    r"(?:的(?:面积|长度|全长|高度|海拔|深度|最|源头|主峰|水)"
    r"|有|是|在|位于|全长|多|面积|海拔|最|为什么|一共|属于|流经)"
)
_DEFINES = re.compile(
    r"^(?:什么是|什么叫|何谓)|的缩写|的定义|的由来|的起源|的近义词|的反义词"
    r"|第一[位个次].{0,10}(?:人|女性|男性|总统|皇帝|诺贝尔|宇航员)|世界上.{0,6}最|全世界最?|世界第一|《.+》"
    r"|哪些?个?国家|(?:什么|哪种|哪个)(?:动物|植物|金属|元素|国家|行星|星球|气体)|几大[洲洋]|哪种(?:动物"
    r"|植物|元素|金属|气体)|哪位(?:皇帝|总统|科学家|作家|诗人|画家)"
    r"|(?:1[0-8]\d\d|19[0-4]\d)年.*(?:谁|哪|什么|几)|公元前|世纪.*(?:谁|哪|什么)"
)
_ZH_UNITS = re.compile(
    r"(?:一|1|每)(?:年|天|周|小时|分钟|世纪|光年|吨|公斤|千克|斤|克|吨|磅|盎司|公里|英里|米|厘米|英尺|英寸"
    r"|升|毫升|加仑|亩|公顷).{0,2}(?:等于|有|是|合)多少"
)
# What is asked of a kind in general. Chinese says "the cat" as it says "cats".
_GENERALLY = re.compile(
    # Where it may go is asked of one of them: 狗能进吗.
    r"(?:会|[能可]以?(?![进带上坐住入睡]))[^了]{1,8}[吗么]|能不能|有几[^个天]|有多少(?!钱)|有多[高长重大快深远]|(?:一般|平均|正常"
    r"|通常|普遍|自然)|最[多快长大高]|^为什么|为什么|怎么(?![样了用修办不泡煮喝吃])"
    r"|是.{1,8}还是|属于|由什么|多少度|比.{1,8}[快慢大小高重轻长]|生活在|分布在|原产|煮几分钟|煮多久"
    r"|有(?:耳朵|牙齿?|翅膀|腿|骨头|心脏|血|毒|记忆|尾巴)[吗么]"
    r"|是(?:哺乳|爬行|食肉|食草)?(?:动物|植物|水果|蔬菜|鱼|鱼类|昆虫|鸟|鸟类|金属|液体)[吗么]|要多久"
    r"|需要多久|是什么(?:动物|植物|材料|做的|组成|构成)|寿命|怀孕期|妊娠期|孕期|吃什么\W*$|睡多久|几条腿"
    r"|得有?多快|哪些营养|有什么(?:作用|区别|不同|好处|危害)"
)
# Of food it is the speaker who may or may not.
_MAY_EAT = re.compile(r"^\W*(?:能|可以|可不可以|能不能)(?:吃|喝|用|碰)[吗么]?\W*$")
_IN_GENERAL = re.compile(
    r"规则|意思|原理|怎么(?:计算|算|换算|产生|形成)|有什么(?:作用|区别|不同|症状|习俗)|有哪些症状|症状|正常"
    r"|标准|一队|最长|最多|法律|法定|年龄|规定|为什么|一场|怎么区分|几月几号|哪一?年|发行|有多少个"
    r"|有几[个颗种]|由来"
    r"|来历|起源|习俗|换算|等于"
    r"|是谁发明|定义|是什么(?:病|技术|概念|节日)|哪个队|冠军|哪一?年举办|在哪举办"
)
_GEOGRAPHY_ASKED = re.compile(
    r"有多[高长大深远宽重]|(?:在|位于)(?:哪|什么)|全长|海拔|多[长高深大重]|最[高长大深小多]|离.{1,4}有?多远"
    r"|多远|一共|多少个|哪[一个]?年|(?:是谁|谁)(?:建|修|造)|"
    r"的?(?:直径|半径|周长|年龄|质量|温度|面积|卫星)|自转|公转|为什么|怎么形成"
)
_AFTER_KIND = "的能会可有是为怎一平正通吃睡跑属离最多身体每在不和与"
_PLACE_MATTER = re.compile(
    r"首都|省会|人口|面积|语言|说什么话|货币|用什么钱|时区|国旗|国歌|总统|国王|总理|皇帝|位于|哪个洲"
    r"|最[高长大深小快多]|法律|合法|违法|犯法|法定|独立|建国|多少个?国家|成员国|城市|海拔|气候|历史|特产"
    r"|方言|河流?|山|民族|有多少个?(?:省|州|市|岛)"
)


# "TCP和UDP有什么不同": terms that every textbook has.
_TERMS = words("world", "known names") | words("world", "kinds") | words("world", "matters")
_IS_WHAT = re.compile(r"\W*\w+(?:状态码\d+)?\s*(?:是什么|指什么|代表什么|表示什么)\W*")
_LATIN = re.compile(r"[A-Za-z][A-Za-z0-9+#.]*")
_COMPARED = re.compile(r"区别|不同|差别|关系|哪个更快")


def of_chinese(text: str) -> Worldly:
    if any(word in text for word in _ZH_LIVED):
        return Worldly.NO
    found = _by_chinese_evidence(text)
    return Worldly.NO if found and zh_lived(text) else found


def _by_chinese_evidence(text: str) -> Worldly:
    subject = _LEAD.sub("", text.strip())
    if _DEFINES.search(text) or _zh_meaning(text) or _ZH_UNITS.search(text) or _GEOGRAPHY.search(subject):
        return Worldly.SURE
    pieces = {text[at : at + size] for at in range(len(text)) for size in range(2, 8)}
    matter = not pieces.isdisjoint(_ZH_MATTERS)
    place = not pieces.isdisjoint(_ZH_PLACES) and _PLACE_MATTER.search(text)
    sight = not pieces.isdisjoint(_ZH_SIGHTS) and _GEOGRAPHY_ASKED.search(text)
    latin = {term.lower() for term in _LATIN.findall(text)}
    if latin and latin <= _TERMS and (_COMPARED.search(text) if len(latin) > 1 else _IS_WHAT.fullmatch(text)):
        return Worldly.SURE
    kind = _kind(subject)
    if (
        kind
        and not matter
        and (_ZH_GOES_WRONG.search(text) or (kind in _ZH_OWNED and _ZH_COUNTED.search(text)))
    ):
        return Worldly.NO
    topic = not pieces.isdisjoint(_ZH_TOPICS)
    if matter or place or sight or (topic and _IN_GENERAL.search(text)) or _is_of_kind(subject, text):
        return Worldly.SURE
    if kind and _MAY_EAT.search(subject[len(kind) :]):
        return Worldly.NO
    return Worldly.LIKELY if kind and _GENERALLY.search(text) else Worldly.NO


_ZH_COUNTED = re.compile("有多[重大高长]|(?:有多少|有?几)[条只棵个盆匹]|是什么\\W*$")
# Of kinds one asks why they cannot or are, not why they leak.
_ZH_GOES_WRONG = re.compile(
    "为什么(?:不(?![会能是])|没|漏|坏|响|停|老|一直|总|突然|还|又|掉|死|枯|蔫|有味|.{1,5}了)"
)
_ZH_INVENTIONS = words("world_zh", "inventions")
_ZH_MEANS = re.compile(r"(?:的(?:意思|含义)是什么|是什么意思|什么意思|的含义)")
# Two to six characters that no 的 or 上 ties to anything: a word, an idiom.
_ZH_WORD = re.compile(
    "(?:请问|你知道|成语|词语|单词|网络用语)?(?![小老阿])[^的里上中下那这\\s，,]{1,8}(?:这个词|这个成语|一词)?"
    r"|[A-Za-z][A-Za-z\d .+#-]{0,20}(?:状态码|错误码)?\s*\d*"
)
_ZH_ASKED_OF = re.compile(
    r"谁(?:发明|发现|画|创作|提出)"
    r"|哪一?年(?:发明|爆发|成立|建立|灭亡|结束|统一|诞生|倒塌|去世|出生|发生|上映|建成|独立)"
    r"|(?:人口|货币|沸点|熔点|海拔|直径)(?:是|有|在)?(?:什么|哪|多少|多高)"
)
# A place that is asked about, not one where something is (上海的房子) or where somebody goes.
_ZH_OF_PLACE = re.compile(
    rf"(?<![去到在来从回搬])(?:{'|'.join(sorted(_ZH_PLACES, key=len, reverse=True))})"
    r"(?!的(?!人口|货币|海拔|首都|面积))"
)


def zh_of_nobody(text: str) -> bool:
    """True if the (Chinese) text asks who made something, in which year it was or how high it is, and that
    something can only be the world's."""
    if len(text) > LONGEST or not _ZH_ASKED_OF.search(text) or zh_lived(text):
        return False
    pieces = {text[at : at + size] for at in range(len(text)) for size in range(1, 8)}
    known = _ZH_MATTERS | _ZH_SIGHTS | _ZH_TOPICS | _ZH_INVENTIONS
    evident = pieces & known - {"人口", "货币", "沸点", "熔点", "海拔"} or "《" in text
    return bool(evident or _ZH_OF_PLACE.search(_ZH_ASKED_OF.sub(" ", text)))


def zh_lived(text: str) -> bool:
    """True if a (Chinese) text has a word of somebody's life, or a person in a role."""
    return any(word in text for word in _ZH_LIVED) or roles.speaks_of_role(
        text, "zh", _ZH_KINDS | {"对象", "单位"}
    )


def _zh_meaning(text: str) -> bool:
    means = _ZH_MEANS.search(text[:LONGEST])
    if not means:
        return False
    asked = text[: means.start()].strip()
    return _ZH_WORD.fullmatch(asked) is not None


def _is_of_kind(subject: str, text: str) -> bool:
    """True for a general question whose subject is a kind: 猫能分辨颜色吗, and not 猫粮在哪买的."""
    kind = _kind(subject)
    rest = subject[len(kind) :]
    asked = "为什么" + rest if text.startswith("为什么") else rest
    return bool(
        kind
        and not _MAY_EAT.search(rest)
        and not rest.endswith(("了吗？", "了？", "了吗?"))
        and _GENERALLY.search(asked)
    )


def _kind(subject: str) -> str:
    """Return the kind that the subject begins with, "" for none; of one character, only where it ends."""
    kind = next((subject[:size] for size in range(6, 0, -1) if subject[:size] in _ZH_KINDS), "")
    if len(kind) == 1 and subject[1:2] not in _AFTER_KIND:
        return ""
    return kind
