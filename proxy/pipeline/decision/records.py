"""Recognise a question about recorded history ("who came up with the accordion", "what year did the tube
open", "who was the first person to swim the Channel").

There are two groups of forms. What was invented or patented is taken for public, unless it may well belong
to the user's own people ("the nickname", "the recipe": `words/records.txt`, [maybe theirs]) or the question
speaks of somebody's life. Where somebody came up with a thing, discovered or opened it, the thing itself
must be known to be public, word by word.
"""

import re

from proxy.pipeline import roles
from proxy.pipeline.decision.world import names_stranger
from proxy.pipeline.decision.world_zh import zh_lived
from proxy.terms import plain
from proxy.wordlists import words
from proxy.writing_systems import HAN

_LONGEST = 100  # characters; a longer question tells a story
_LONGEST_THING = 6  # words
_WORD = re.compile(r"[^\W_]+(?:[-'][^\W_]+)*")
_ELIDED = re.compile(r"\b(?:l|d|qu)'(?=\w{2})")

_MADE, _INSTITUTIONS = words("records", "made things"), words("records", "institutions")
_THEIRS, _SAID_OF_ANY = words("records", "maybe theirs"), words("records", "of any kind")
_WORLDS = (
    _MADE
    | words("world", "inventions")
    | words("world", "matters")
    | words("knowledge", "things")
    | words("knowledge", "sports")
    | words("knowledge", "kinds")
)
_PLACES = words("world", "known names") | words("knowledge", "places")
_BESIDE_IT = _PLACES | words("records", "of institutions")

# What a question must hold to be one of these at all: looking for it is quicker than the patterns.
_STEMS = (
    "invent patent pioneer devised erfund erfand erfinder ideo came thought dreamt dreamed discover"
    " founded entdeck descub decouv ocurrio open start began begin launch introduc abolish close end"
    " gegrund eroffn gebaut eingefuhrt abgeschafft fund abri inaugur constru empez acab termin introdu"
    " abol ouvert fond cree commenc supprim first erste primer premi record rekord world history erde"
    " welt mundo monde histor geschichte designed where made built fall sink banned seit come join leave"
).split()
_MAKERS = r"(?:invented|patented|pioneered|devised)"
_FIRST = r"(?:(?:first|actually|really|originally|even|ever|eigentlich|denn|uberhaupt|zuerst) )*+"
_INVENTED = re.compile(
    rf"\W*+(?:so |and |ok |y |und |et )?(?:"
    rf"who (?:was it (?:that|who) )?{_FIRST}{_MAKERS} (?P<en>.{{2,60}})"
    rf"|(?:when|where|how long ago|(?:in )?(?:what|which) (?:year|century|country|decade))"
    rf"(?: was| were|'s|s)? (?P<en_when>.{{2,60}}?) (?:first |originally )?(?:invented|patented)(?: in"
    rf"| by\b.*)?"
    r"|who(?:'s| is| was|s) the inventor of (?P<en_of>.{2,60})"
    rf"|wer hat {_FIRST}(?P<de>.{{2,60}}?) (?:erfunden|patentiert)"
    rf"|wer erfand {_FIRST}(?P<de_past>.{{2,60}})"
    rf"|(?:wann|wo|von wem|in welche[mr] (?:jahr|land|jahrhundert)) (?:wurden?|ist) {_FIRST}"
    r"(?P<de_when>.{2,60}?) (?:erfunden|patentiert)(?: worden)?"
    r"|wer (?:ist|war) der erfinder (?P<de_of>.{2,60})"
    r"|(?:y |a ver )?quien(?:es)? (?:invento|inventaron|patento|ideo) (?P<es>.{2,60})"
    r"|(?:cuando|donde|en que (?:ano|siglo|pais)) (?:se )?(?:invento|inventaron|patento"
    r"|fue(?:ron)? inventad[oa]s?) (?P<es_when>.{2,60})"
    r"|quien (?:es|fue) el inventor de ?(?P<es_of>.{2,60})"
    r"|(?:c'est )?qui (?:est-ce )?(?:qui )?(?:a|ont) (?:invente|brevete) (?P<fr>.{2,60})"
    r"|(?:quand|ou|en quelle annee|a quelle epoque|depuis quand) (?:a|ont) ete (?:invente"
    r"|brevete)e?s? (?P<fr_when>.{2,60})"
    r"|(?:quand|ou|en quelle annee) (?P<fr_be>.{2,60}?) (?:a|ont)(?:-t-(?:il|elle|ils))? ete (?:invente"
    r"|brevete)e?s?"
    r"|(?:qui est |c'est qui )?l'inventeur d(?:u|e|es) ?(?P<fr_of>.{2,60})"
    r")[ ?!.]*"
)
_CAME_UP = re.compile(
    rf"\W*+(?:so |and |y |und |et )?(?:"
    rf"who {_FIRST}(?:came up with|thought up|thought of|dreamt up|dreamed up|discovered|made the first"
    rf"|designed the first"
    r"|built the first) (?P<en>.{2,60})"
    r"|(?:where|(?:which|what) (?:country|place|part of the world)) (?:do|does) (?P<en_where>.{2,40}?)"
    r" (?:originally )?(?:come from|originate(?: from)?)"
    r"|(?:when|where|(?:in )?(?:what|which) (?:year|century|country)) (?:was|were) (?P<en_when>.{2,60}?)"
    r" (?:first )?discovered"
    rf"|wer (?:hat |ist ){_FIRST}(?:auf )?(?P<de>.{{2,60}}?) (?:entdeckt|gekommen)"
    r"|(?:wann|wo|in welchem jahr) (?:wurden?|ist) (?P<de_when>.{2,60}?) (?:entdeckt|aufgekommen)"
    r"|quien descubrio (?P<es>.{2,60})|a quien se le ocurrio (?:lo de )?(?P<es_idea>.{2,60})"
    r"|(?:cuando|en que ano) (?:se )?(?:descubrio|aparecio) (?P<es_when>.{2,60})"
    r"|qui a (?:decouvert|eu l'idee d(?:e|u)) (?P<fr>.{2,60})"
    r"|(?:quand|en quelle annee) (?:a ete decouverte?|est apparue?) (?P<fr_when>.{2,60})"
    r")[ ?!.]*"
)
_BEGAN = re.compile(
    r"\W*+(?:so |and |y |und |et )?(?:"
    r"(?:when|(?:in )?(?:what|which) (?:year|decade|century)) (?:did|was"
    r"|were) (?P<en>.{2,60}?) (?:first |finally )?"
    r"(?:open(?:ed)?|start(?:ed)?|begin|begun|launch(?:ed)?|end(?:ed)?|finish(?:ed)?|close[d]?|fall"
    r"|built|founded|created"
    r"|introduced|abolished|banned|legali[sz]ed|outlawed|completed|established|come in|come out|sink"
    r"|nationali[sz]ed"
    r"|privati[sz]ed|get the vote|happen|break out)(?: again)?"
    r"|(?:wann|seit wann|in welchem jahr) (?:wurden?|ist|hat|haben|war) (?P<de>.{2,60}?)"
    r" (?:eroffnet|gegrundet|gebaut|eingefuhrt|abgeschafft|begonnen|gefallen|fertiggestellt|gesunken"
    r"|angefangen"
    r"|geendet|verboten|erlaubt)|seit wann gibt(?: es|'s|s) (?P<de_since>.{2,60})"
    r"|(?:cuando|en que ano) (?:se )?(?:abrio|abrieron|inauguro|fundo|construyo|creo|empezo|acabo"
    r"|termino|introdujo"
    r"|abolio|prohibio|cayo|hundio|estreno|legalizo) (?P<es>.{2,60})"
    r"|(?:quand|en quelle annee|depuis quand) (?:a|ont|est)(?: ete)? (?:ouverte?|inauguree?|fondee?"
    r"|construite?"
    r"|creee?|commence|aboli[e]?|introduite?|coule|tombee?) (?P<fr>.{2,60})"
    r"|(?:quand|en quelle annee) (?P<fr_be>.{2,60}?) (?:a|ont)(?:-t-(?:il|elle|ils"
    r"|elles))?(?: ete)? (?:ouverte?|inauguree?"
    r"|fondee?|construite?|creee?|commence|abolie?|introduite?|coule)"
    r")[ ?!.]*"
)
_JOINED = re.compile(
    r"\W*+(?:when|(?:in )?(?:what|which) year|wann|in welchem jahr|cuando|en que ano|quand|en quelle annee)"
    r" (?:did|trat|ist|entro|ingreso|a|est)? ?(?P<who>.{2,30}?)"
    r" (?:join|leave|adopt|host|win|bei|beigetreten|en|rejoint|entree?)"
    r" (?:the |der |den |la |el |le |l'|dans l'|a l'|in |en )*"
    r"(?:eu|eec|euro|eurozone|nato|un|olympics|world cup|ue|otan|onu|union europeenne|union europea)[ ?!.]*"
)
_OF_ALL = re.compile(
    r"\b(?:\w{3,}est|most \w{3,}) [^?.]{2,50}\b(?:in the world|on earth|in history|of all time"
    r"|in the universe"
    r"|ever recorded|ever built|ever measured)\b"
    r"|\b(?:worst|best|greatest) [^?.]{2,40}\b(?:in history|ever recorded)\b"
    r"|\bworld records? (?:for|in|of|holder|at)\b|^\W*world record\b"
    r"|\bweltrekord\w*|\b(?:record|plus (?:grand|grande|gros|haut|haute|vieux|vieille|long|longue|rare"
    r"|rapide)e?s? [^?.]{2,40}) du monde\b"
    r"|\b(?:record mundial|mas (?:grande|alt[oa]|larg[oa]|viej[oa]|antigu[oa]|rar[oa]|rapid[oa]"
    r"|pequen[oa]) del mundo)\b"
    r"|\b(?:grosste|langste|hochste|alteste|schnellste|seltenste|teuerste|kleinste|tiefste"
    r"|schwerste)[nrs]? [^?.]{2,40}"
    r"\b(?:der welt|auf der (?:welt|erde)|der geschichte|aller zeiten)\b"
    r"|\bwho was the first (?:\w+ )?(?:person|man|woman|human|european|african|american|briton|pilot"
    r"|climber|sailor)"
    r" (?:ever )?to (?:climb|summit|swim|sail|row|fly|walk|cross|orbit|circumnavigate|ascend)\b"
    r"|\bquien fue (?:el|la) primer[ao]? (?:\w+ )?(?:persona|hombre|mujer|humano|piloto|alpinista) en"
    r" (?:subir|escalar|cruzar|dar la vuelta|volar|nadar|pisar|coronar)\b"
    r"|\bqui (?:a ete|est|fut) (?:le premier|la premiere) (?:\w+ )?(?:homme|femme|personne|alpiniste"
    r"|pilote) a"
    r" (?:gravir|traverser|marcher|escalader|voler|faire le tour)\b"
)
_NICE = re.compile(
    r"\b(?:best|nicest|loveliest|sweetest|cutest|dearest|cheapest|favou?rite) .*\b(?:in the world"
    r"|on earth)\b"
)
_OF_NAMED = re.compile(r"\b(?:for|by|of|de|di|von|pour|para|bei|für) [A-ZÀ-Þ]")  # "the worst race … for Tom"
_CLAUSE = frozenset(
    "that which who with for we you they he she at when because mit fur bei wir ihr sie con para que nosotros"
    " ellos avec pour qui chez nous vous ils elles used wore played".split()
)
_TAIL = re.compile(
    r"(?: (?:in the first place|originally|first|anyway|actually|again|then|eigentlich|ursprunglich"
    r"|zuerst|denn"
    r"|exactly|por primera vez|primero|originalmente|au juste|en premier|au depart|please|bitte|stp"
    r"|do you know))+$"
)

# ---------------------------------------------------------------- Chinese
_ZH_WHO = (
    r"(?:到底|最早|最先|首先|第一个)?(?:是|由)?(?:谁|誰|哪[个個]国家|哪国人?|什么人|何人)"
    r"(?:最早|最先|首先|第一个)?"
)
_ZH_WHEN = r"(?:是)?(?:在)?(?:哪一?年|什么时候|什麼時候|何时|哪个(?:年代|朝代|世纪)|几几年)"
_ZH_MADE = words("world_zh", "inventions")
_ZH_INVENTED = re.compile(
    rf"(?:请问|話說|话说|你知道)?(?:{_ZH_WHO}(?:发明|發明)(?:了|的|出)?(?P<what>\S{{1,10}}?)"
    rf"|(?P<of>\S{{1,10}}?)(?:{_ZH_WHO}|{_ZH_WHEN})(?:被|给)?(?:发明|發明)(?:出来"
    rf"|出來)?的?)[呀啊呢的来着]*\W*"
)
_ZH_OPENED = re.compile(
    rf"(?:请问|你知道)?(?P<of>\S{{2,12}}?){_ZH_WHEN}(?:开通|通车|建成|成立|开放|废除|取消|诞生|发行"
    rf"|上市|开播|爆发|结束|灭亡|举办)的?\W*"
)
_ZH_PLACE = rf"(?:{'|'.join(sorted(words('world_zh', 'places'), key=len, reverse=True))})"
_ZH_APART = re.compile(
    rf"(?:请问)?{_ZH_PLACE}(?:和|跟|与|到|离|比){_ZH_PLACE}(?:之间)?(?:有|的|是)?(?:差|时差|相差|距离"
    rf"|相距|快|慢|多远|直线距离)"
    r"(?:有|是)?(?:几|多少|多远|多大)?个?(?:小时|公里|钟头|千米)?\W*"
)
_ZH_THEIRS = re.compile(
    "[我咱你他她它这那家厂店]|外号|绰号|名字|叫法|游戏|规矩|口号|菜|吃法|方子|配方|玩法|点子|暗号|密码"
    "|歌|招|梗|班|队|社"
)
_ZH_WORLD = re.compile(
    "地铁|高铁|铁路|运河|大桥|奥运|世界杯|春晚|联合国|欧盟|欧元|人民币|粮票|科举|高考|长城|故宫|铁塔"
    "|共和国|革命|战争|大战|帝国"
    "|王朝|[唐宋元明清汉秦隋周]朝|一战|二战|互联网|微信|淘宝|支付宝|抖音|电视台|红楼梦|三峡|身份证"
    "|义务教育|计划生育"
)


def is_record(text: str) -> bool:
    """True if the text asks who made something of the world's, when it began, or what is most of all."""
    if len(text) > _LONGEST:
        return False
    if HAN.search(text):
        return _is_record_zh(text)
    folded = plain(text).strip(" ¿¡")
    if not any(stem in folded for stem in _STEMS):
        return False
    if _OF_ALL.search(folded):
        return not (_NICE.search(folded) or _OF_NAMED.search(text) or roles.is_lived(text))
    if found := _INVENTED.fullmatch(folded):
        return _is_anybodys(found, text)
    if found := _CAME_UP.fullmatch(folded):
        return _is_all_of(_thing(found), _WORLDS)
    if found := _JOINED.fullmatch(folded):
        return _is_all_of(_thing(found), _PLACES)
    found = _BEGAN.fullmatch(folded)
    return (
        found is not None
        and _is_all_of(_thing(found), _INSTITUTIONS, _BESIDE_IT)
        and not roles.is_lived(text)
    )


def _thing(found: re.Match[str]) -> list[str]:
    said = next(filter(None, found.groups()), "")
    return _WORD.findall(_ELIDED.sub("", _TAIL.sub("", said)))


def _is_anybodys(found: re.Match[str], text: str) -> bool:
    """True for a thing that was invented, unless it is one that people invent among themselves."""
    thing = _thing(found)
    if not thing or len(thing) > _LONGEST_THING:
        return False
    if _is_all_of(thing, _WORLDS):
        return True
    held = frozenset(thing)
    return not (held & _THEIRS or held & _CLAUSE or roles.is_lived(text) or names_stranger(text))


def _is_all_of(thing: list[str], known: frozenset[str], beside: frozenset[str] = frozenset()) -> bool:
    """True if the words name what is known: one at least, and nothing but what may stand beside it."""
    said = [word for word in thing if word not in _SAID_OF_ANY and (word in known or word not in beside)]
    return bool(said) and len(thing) <= _LONGEST_THING and all(_is_of(word, known) for word in said)


def _is_of(word: str, known: frozenset[str]) -> bool:
    return word in known or (word.endswith("s") and word[:-1] in known) or word.removesuffix("en") in known


def _is_record_zh(text: str) -> bool:
    said = text.strip()
    if _ZH_APART.fullmatch(said):
        return True
    if found := _ZH_INVENTED.fullmatch(said):
        thing = found["what"] or found["of"] or ""
        if thing in _ZH_MADE:
            return True
        return not (_ZH_THEIRS.search(thing) or zh_lived(text))
    found = _ZH_OPENED.fullmatch(said)
    return found is not None and bool(_ZH_WORLD.search(found["of"])) and not zh_lived(text)
