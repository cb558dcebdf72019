"""Patterns of standing instructions about answers ("no more emojis"): rows of regular expressions, on
folded text (proxy.terms.fold).

A row matches at the beginning of a clause, after its lead-in ("please", "from now on", "可以"). What a row
asks for is about all answers by its very form ("no more emojis"); a row of `MARKED` only where the sentence
says for how long ("from now on", "in this chat"). The words of the rows stand in `words/answers.txt`.
"""

from typing import NamedTuple

from proxy.wordlists import any_of, whole_words


class Row(NamedTuple):
    """One way to set a slot."""

    slot: str
    pattern: str


_LANGS = any_of("answers", "languages")
_LANGS_ZH, _LANGS_ES, _LANGS_DE, _LANGS_FR = (
    any_of("answers", f"languages {name}") for name in ("zh", "es", "de", "fr")
)
# "use Greek", not "use Greek yoghurt"
_ALONE = (
    r"(?=\W*$|\W*[,.!;:]| (?:please|only|from|for|in|with|when|while|instead|again|here|now|today|throughout"
    r"|everywhere|to|as|until|unless)\b)"
)
_NUMBER = r"(?:\d{1,3}|one|two|three|four|five|six|seven|eight|ten|a|an)"
_ANSWERS = r"(?:answers?|replies|reply|responses?|explanations?|messages?|it|things|everything|this chat)"
_BRIEF, _FULL = any_of("answers", "brief"), any_of("answers", "full")
_TONE, _FORM = any_of("answers", "tone"), any_of("answers", "form")
_TITLE = r"(?:[^\W\d_]{1,5}\. ?){0,3}"  # "Dr. ", "J. R. "
_FLOURISH, _UNITS = any_of("answers", "flourish"), any_of("answers", "units")

ROWS = (
    # ------------------------------------------------------------ English
    Row(
        "language",
        r"(?:answer|reply|respond|speak|talk|write|continue|chat|communicate|explain)(?: back)?"
        r"(?: (?:to me|me|with me|everything|only|always|all (?:your )?answers))*(?: only)? in "
        rf"(?:simple |plain |british |american )?{_LANGS}\b|(?:switch|change|go)(?: back)?"
        rf"(?: over)?(?: the language)? to {_LANGS}\b|(?:only |just )?speak {_LANGS}\b(?! (?:words?"
        rf"|names?|terms?|spelling))|(?:only |just )?use {_LANGS}\b{_ALONE}"
        rf"|(?:only )?in {_LANGS},? (?:please|only|from now on|from here on)\b"
        rf"|{_LANGS} only\b|no (?:more )?{_LANGS}\b{_ALONE}",
    ),
    Row(
        "length",
        rf"keep (?:(?:your|the|all|all your) )*{_ANSWERS} (?:\w+ )?(?:{_BRIEF}|{_FULL}|under .{{1,30}})\b"
        rf"|(?:be|stay) (?:more |very |as |really )?(?:brief|concise|succinct|terse|verbose"
        rf"|detailed|thorough)\b|(?:(?:give me|i want|use|only|just) )?(?:\w+ )?(?:{_BRIEF}"
        rf"|{_FULL}|one[- ](?:sentence|line)) (?:answers|replies|responses|explanations)\b"
        rf"|(?:answer|reply|respond|explain)(?: \w+){{0,2}} (?:briefly|concisely|in detail)\b"
        rf"|(?:answer|reply|respond)(?: to me)? (?:in|with|using) (?:at most |max(?:imum)? |no"
        rf" more than |only |just |under |fewer than )?{_NUMBER} (?:words?|sentences?|lines?|paragraphs?)\b"
        rf"|(?:no (?:more|longer) than|at most|max(?:imum)?|up to|no answers? over) {_NUMBER}"
        rf" (?:words?|sentences?|lines?|paragraphs?|bullets?)(?: per (?:answer|reply))?\b"
        r"|(?:no|stop with the|skip the) (?:more )?(?:long|lengthy)"
        r" (?:answers|replies|explanations|intros?)\b",
    ),
    Row(
        "format",
        rf"(?:use|answer|reply|respond|write)(?: only| always| me)? (?:in |as |with )?(?:\w+ )?{_FORM}"
        rf"(?: only)?\W*$|(?:no|never|stop using|don'?t use|do not use|avoid|without|skip|drop)"
        rf" (?:more |any |the )?{_FORM}(?:,? (?:and|or) (?:\w+ )?{_FORM})?\b|(?:only|just) {_FORM}\b"
        rf"|{_FORM} (?:is|are) (?:fine|ok(?:ay)?|welcome|allowed|all right)\b",
    ),
    Row(
        "tone",
        rf"be (?:more |less |a bit more |a little more |very )?{_TONE}\b"
        rf"|(?:use|keep|adopt|take|have) (?:a |an |the |your |it )?(?:more |less )?{_TONE}"
        r"(?: (?:tone|voice|style|register|language))?\b|(?:talk|speak|write|sound|answer) (?:more |less )?"
        rf"(?:like an? \w+|{_TONE}(?:ly)?)\b|explain (?:it |things |everything )?like i(?:'?m| am) "
        rf"(?:five|5|a \w+)\b",
    ),
    Row(
        "name",
        r"(?:call|address) me (?:as |by )?(?!back\b|if\b|when\b|later\b|tomorrow\b|today\b|tonight\b|at\b"
        r"|on\b|in\b|an?\b|the\b|out\b|crazy\b|old\b|stupid\b|whatever\b|anytime\b|this\b|that\b|it\b|up\b"
        rf"|again\b|now\b|maybe\b|for\b|and\b|or\b)['\"“]?{_TITLE}\w[\w'’.-]{{0,30}}"
        r"(?: \w[\w'’.-]{0,30})?['\"”]?(?: instead| from now on| please| not \w+)?\W*$"
        r"|(?:don'?t|do not|stop|never) (?:call|calling) me \w+",
    ),
    Row(
        "units",
        rf"(?:use|stick (?:to|with)|switch (?:back )?to|give me|prefer|work in|answer in|show|always use)"
        rf"(?: me)?(?: (?:prices|distances|temperatures|weights|amounts|sizes|times|dates|everything"
        rf"|all \w+|them|it))? ?(?:in |with )?{_UNITS}(?: (?:only|everywhere|throughout))?\W*$"
        rf"|(?:prices|distances|temperatures|weights|amounts|sizes|times|dates|everything|all \w+)"
        rf" in {_UNITS}\b|no (?:more )?{_UNITS}\W*$|{_UNITS} (?:only|please)\b",
    ),
    Row(
        "style",
        r"(?:no|stop (?:using|with)(?: the)?|don'?t use|do not use|avoid|without|skip|drop|quit|cut|lose"
        rf"|enough with|never use|use|you can use) (?:more |any |the |your |all |fewer |less )*{_FLOURISH}\b"
        rf"|{_FLOURISH} (?:is|are) (?:fine|ok(?:ay)?|welcome|allowed|all right)\b"
        r"|(?:don'?t|do not|stop|never) (?:apologi[sz]\w+|repeat\w* my question|thank\w* me|flatter\w* me)\b",
    ),
    # ------------------------------------------------------------ Chinese
    Row(
        "language",
        r"(?:都|一律|全部|只|全程)?(?:改用|换成|切换(?:到|成|为)|用|使用|说|讲)"
        rf"(?:简体|繁体)?{_LANGS_ZH}(?!怎么|写|翻译|介绍|的|里|名|单词|水平|版)(?:来|跟我|和我|给我)*"
        r"(?:回答|回复|答复|作答|交流|沟通|对话|聊天?|说话?|讲|解释)?(?:我|吧|就好|就行|即可|可以吗|好吗|吗)*\W*$",
    ),
    Row(
        "length",
        r"(?:你的|请|把)*(?:回答|回复|答案|解释|说|讲|写)?(?:都|要|尽量|请|得|可以|更|保持|再|稍微)*"
        r"(?:简短|简洁|精简|简明|简单|短|详细|具体|长)(?:一?点儿?|一?些|扼要|为主|就好|即可)\W*$"
        r"|(?:回答|回复|答案)(?:都|要|尽量|请|得|保持)*(?:简短|简洁|精简|简明|详细)\W*$"
        r"|长话短说|(?:不要|别|不用)(?:再)?(?:太|这么|那么|说那么)(?:长|啰嗦|罗嗦|详细|多)"
        r"|(?:回答|回复|每次)?(?:控制在|不要?超过|最多|限制在)\s*[\d一二两三四五六七八九十百]+\s*(?:个字|字|句话?|行|条|段)",
    ),
    Row(
        "format",
        r"(?:都|一律|请|只)?(?:用|使用|以)(?:表格|列表|要点|清单|项目符号|纯文本|markdown|编号)"
        r"(?:来|的形式|形式|格式)*(?:回答|回复|展示|列出|给我|呈现)?\W*$"
        r"|(?:不要|别|不用|不准|不许|少)(?:再)?(?:用|使用|加|给我)(?:表格|列表|markdown|项目符号|标题|粗体|代码块)",
    ),
    Row(
        "style",
        r"(?:不要|别|不用|不准|不许|少|可以)(?:再)?(?:用|使用|加|发|带|说)?(?:任何|那么多|这么多)?"
        r"(?:表情符号|表情包?|emoji|颜文字|感叹号|客套话?|废话|道歉|网络用语|术语)",
    ),
    Row(
        "tone",
        r"(?:语气|口吻|说话|回答|态度)?(?:请|要|可以|尽量|更|再|稍微|能)*"
        r"(?:正式|随意|轻松|严肃|友好|幽默|直接|温柔|客气|礼貌|口语化|专业|活泼)(?:一?点儿?|一?些)\W*$"
        r"|(?:不要|别|不用)(?:再)?(?:太|这么|那么|对我)*(?:客气|正式|客套|严肃|随便)",
    ),
    Row(
        "name",
        r"(?:就|可以|你)*(?:叫|称呼|喊)我(?:为|作|做)?(?!起床|一声|去|来|干|怎么|吃|的|等|什么|回)"
        r"[^\s，。,.!！?？吗]{1,12}(?:吧|就好|就行|好了|即可)?\W*$|(?:不要|别)(?:再)?叫我\S{1,12}",
    ),
    Row(
        "units",
        r"(?:都|一律|请|价格|温度|距离|重量|全部)*(?:用|使用|换成|改用|按)(?:公制|英制|摄氏度?|华氏度?|公里|英里|公斤"
        r"|千克|斤|磅|人民币|美元|欧元|24小时制|12小时制)(?:单位)?(?:来|表示|显示|计算|算|回答|吧|就好)*\W*$",
    ),
    # ------------------------------------------------------------ Spanish
    Row(
        "language",
        r"(?:responde(?:me)?|contesta(?:me)?|habla(?:me)?|escribe(?:me)?|sigue|explica(?:me)?"
        rf"|respondas|contestes|hables|respondeme todo)(?: siempre| solo| todo)* en {_LANGS_ES}\b"
        rf"|(?:cambia|pasa|volvamos|vuelve) (?:al?|de nuevo al) {_LANGS_ES}\b"
        rf"|(?:solo )?en {_LANGS_ES},? por favor",
    ),
    Row(
        "length",
        r"(?:se|sea|seas) (?:mas |muy )?(?:breve|conciso|concisa|escueto|detallado|claro)\b"
        r"|(?:(?:dame|quiero|con|da) )?(?:respuestas|explicaciones) (?:mas |muy )?"
        r"(?:cortas|breves|concisas|largas|detalladas)\b|(?:responde|contesta)(?:me)? (?:brevemente"
        r"|con (?:brevedad|detalle)|en (?:una|dos|tres|\d+) (?:frases?|lineas?))\b"
        r"|(?:maximo|como maximo|no mas de) (?:\d+|una|dos|tres) (?:palabras|frases?|lineas?)\b",
    ),
    Row(
        "format",
        r"(?:usa|responde(?:me)?|contesta)(?: solo)? (?:con |en |en forma de )?(?:listas?|vinetas|tablas?"
        r"|markdown|texto plano|json)\W*$|(?:sin|no uses|nada de|deja de usar)(?: mas)? (?:listas?|vinetas"
        r"|tablas?|markdown|titulos)\b",
    ),
    Row(
        "style",
        r"(?:sin|no uses|nada de|no mas|deja de usar|evita|no pongas)(?: mas)?(?: los)? (?:emojis?|emoticonos"
        r"|exclamaciones|disculpas|cumplidos|rodeos|tecnicismos)\b",
    ),
    Row(
        "tone",
        r"(?:se|seas) (?:mas |menos )?(?:formal|informal|amable|directo|directa|serio|seria)\b"
        r"|(?:usa|mantén|manten) un (?:tono|estilo) (?:mas )?\w+\b"
        r"|(?:tuteame|tratame de (?:tu|usted)|hablame de (?:tu|usted))\b",
    ),
    Row(
        "name", r"(?:llamame|dime|puedes llamarme) (?!la\b|el\b|que\b|si\b|como\b|cuando\b|algo\b"
                rf"|un){_TITLE}\w{{2,30}}\W*$"
    ),
    Row(
        "units",
        r"(?:usa|utiliza|dame|pon)(?: siempre)?(?: los| las| el)?(?: \w+ en)? ?(?:unidades metricas"
        r"|sistema (?:metrico|imperial)|unidades imperiales|grados celsius|celsius|fahrenheit|kilometros"
        r"|millas|euros|dolares|kilos)\b|(?:precios|distancias|temperaturas) en \w+\W*$",
    ),
    # ------------------------------------------------------------ German
    Row(
        "language",
        r"(?:antworte?|schreibe?|sprich|rede|red|erklar\w*|mach)(?: mir| bitte| immer| nur| ab jetzt| jetzt"
        rf"| weiter)* (?:auf|in) {_LANGS_DE}\b|(?:wechsle?|wechsel)(?: bitte| wieder)? (?:auf|zu|ins) "
        rf"{_LANGS_DE}e?\b|(?:nur |bitte )*auf {_LANGS_DE},? bitte",
    ),
    Row(
        "length",
        r"(?:fass(?:e)? dich|halte? (?:dich|es|deine antworten|die antworten))(?: bitte"
        r"| immer)? (?:sehr )?kurz\w*"
        r"|(?:antworte?|erklar\w*)(?: mir| bitte| immer)* (?:kurz|knapp|ausfuhrlich|in (?:\d+|einem|zwei"
        r"|drei) (?:satz|satzen|zeilen))|(?:sei |bitte )+(?:kurz|knapp|ausfuhrlich)\w*\b"
        r"|(?:nur )?(?:kurze|kurzere|knappe|ausfuhrliche|langere) antworten\b"
        r"|(?:hochstens|maximal|nicht mehr als) (?:\d+|ein|zwei|drei) (?:worter|satze|satz|zeilen)\b",
    ),
    Row(
        "format",
        r"(?:benutze?|verwende|nutze?|antworte?)(?: bitte| nur| mir)* (?:in |mit "
        r"|als )?(?:stichpunkten?|listen?"
        r"|tabellen?|markdown|fliesstext|json|aufzahlungen)\W*$|(?:keine?|ohne|verzichte? auf)(?: mehr)?"
        r" (?:stichpunkte|listen|tabellen|markdown|aufzahlungen|uberschriften)\b",
    ),
    Row(
        "style",
        r"(?:keine?|ohne|verzichte? auf|lass (?:die|das))(?: \w+)? (?:emojis?|smileys?|ausrufezeichen"
        r"|floskeln|entschuldigungen|fachbegriffe|anglizismen)\b|keine mehr (?:emojis?)",
    ),
    Row(
        "tone",
        r"(?:sei|bleib)(?: bitte)? (?:etwas |ein bisschen )?(?:formlicher|lockerer|formell|locker|direkter"
        r"|direkt|hoflicher|freundlicher|ernster)\b|(?:duze?|sieze?) mich\b"
        r"|(?:du kannst|kannst du|wir konnen uns)(?: mich)? (?:duzen|siezen)\b",
    ),
    Row("name", r"nenn(?:e)?(?: mich| mich bitte) (?!nicht\b|das\b|den\b|die\b|ein)"
                rf"{_TITLE}\w{{2,30}}\W*$"),
    Row(
        "units",
        r"(?:benutze?|verwende|nutze?|rechne|gib)(?: bitte| immer)*(?: mir)?(?: alles)?(?: in)? (?:metrische"
        r" einheiten|das metrische system|celsius|fahrenheit|kilometern?|meilen|kilogramm|euro|dollar)\b"
        r"|(?:preise|temperaturen|entfernungen) in \w+\W*$",
    ),
    # ------------------------------------------------------------ French
    Row(
        "language",
        r"(?:repond(?:s|ez|re)?|parl(?:e|ez|er)|ecri(?:s|vez|re)|continue[rz]?|explique[rz]?)(?:-moi| moi)?"
        rf"(?: toujours| seulement| uniquement)* en {_LANGS_FR}\b|(?:passe|passons|reviens|revenons)"
        rf" (?:a l'|au |a )?{_LANGS_FR}\b|(?:seulement )?en {_LANGS_FR},? (?:s'il|stp|svp)",
    ),
    Row(
        "length",
        r"(?:sois|soyez|reste) (?:plus |tres )?(?:bref|breve|concis|concise|court|detaille)\b"
        r"|(?:fais|faites|garde|donne(?:-moi)?)(?: des)? (?:reponses )?(?:plus )?(?:courtes?|court|breves?"
        r"|bref|longues?|detaillees?)\b|(?:des )?reponses (?:plus )?(?:courtes|breves|concises"
        r"|detaillees)\b|reponds(?:-moi)? (?:brievement|en (?:une|deux|trois|\d+) (?:phrases?|lignes?))\b"
        r"|(?:maximum|pas plus de) (?:\d+|une|deux|trois) (?:mots|phrases?|lignes?)\b",
    ),
    Row(
        "format",
        r"(?:utilise|reponds)(?: seulement)? (?:des |en |avec des |sous forme de )?(?:listes?|puces|tableaux?"
        r"|markdown|texte brut|json)\W*$|(?:sans|pas de|plus de|n'utilise (?:pas|plus)(?: de)?"
        r"|arrete les) (?:listes?|puces|tableaux?|markdown|titres)\b",
    ),
    Row(
        "style",
        r"(?:sans|pas d'|plus d'|pas de|plus de|n'utilise (?:pas|plus)(?: d'| de)?|arrete (?:les|avec les)"
        r"|evite les) ?(?:emojis?|emoticones|points d'exclamation|excuses|jargon|politesses)\b",
    ),
    Row(
        "tone",
        r"(?:sois|soyez|reste) (?:plus |moins )?(?:formel|formelle|familier|direct|directe|poli|serieux)\b"
        r"|(?:tutoie|vouvoie)(?:-moi| moi)\b|(?:on peut se|tu peux me|vous pouvez me) (?:tutoyer|vouvoyer)\b",
    ),
    Row("name", r"(?:appelle|appelez)(?:-moi| moi) (?!quand\b|si\b|demain\b|plus\b|un|le\b|la\b"
                rf"|a\b){_TITLE}\w{{2,30}}\W*$"),
    Row(
        "units",
        r"(?:utilise|donne(?:-moi)?)(?: toujours)?(?: les| le| des)?(?: \w+ en)? ?(?:unites metriques"
        r"|systeme (?:metrique|imperial)|unites imperiales|celsius|fahrenheit|kilometres|miles"
        r"|euros|dollars|kilos)\b|(?:prix|distances|temperatures) en \w+\W*$",
    ),
)  # fmt: skip

# Says for how long: with it, a sentence that begins like an order is a standing instruction of any kind.
MARKER = (
    rf"{whole_words('answers', 'for how long')}"
    r"|\b(?:until|unless) i (?:say|tell you)\b(?: otherwise| so| stop)?"
)
# What an order begins with. "From now on I'm vegan" is none.
ORDER = whole_words("answers", "order")
LEAD_IN = rf"^(?:[\W_]|{whole_words('answers', 'lead-in')})*"
ONCE = whole_words("answers", "once")  # of this one answer only
AGAIN = whole_words("answers", "again")
END_EVERY = (
    r"(?:forget|drop|ignore|cancel|stop following|scrap) (?:all )?(?:of )?(?:my|the|those|these|your)"
    r" (?:special |standing |earlier |previous )?(?:instructions|rules"
    r"|preferences)(?: i gave you)?(?: from now on)?\W*$"
    r"|(?:go )?back to normal(?:,? please)?\W*$|(?:answer|reply|respond|talk"
    r"|write) normally(?: again)?\W*$|no (?:more )?special (?:rules|instructions)"
    r"|(?:恢复正常|正常回答|之前的(?:要求|规则|指示)(?:都)?(?:取消|作废|不用了))|vuelve a la normalidad\W*$"
    r"|wieder normal\W*$|reviens a la normale\W*$"
)
END_LATEST = (
    r"(?:forget|scrap|cancel|undo|drop|ignore|never ?mind|strike) (?:that|it|this|what i (?:just )?said"
    r"|my last (?:instruction|request|rule|message))\W*$|never ?mind\W*$|scratch that\W*$"
    r"|(?:算了|当我没说|不用了|取消刚才的)\W*$|(?:olvidalo|olvida eso|da igual)\W*$"
    r"|(?:vergiss (?:das|es)|schon gut)\W*$|(?:oublie(?: ca| cela)?|laisse tomber)\W*$"
)
