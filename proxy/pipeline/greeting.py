"""Is a message only a greeting? A small grammar: words of greeting, wishes, praise, and whom one speaks to.

A message is cut at punctuation and emojis; every piece must be a greeting, a wish, a word of praise or thanks
as a whole. So "hope you're well" passes in any wording, and one piece that says or asks anything else ends
it.
"""

import re

from proxy.pipeline import phrases
from proxy.terms import plain

LONGEST = 120  # characters; a longer message is not only a greeting
_TAIL = r"(?: [\w'’-]+){0,8}"
# A wish that asks: "hope you remember the boat".
_NO_ASKING = (
    r"(?!.*\b(?:remember|recall|know|can|could|will|help|tell|find|found|forg[eo]t|note|noted|sav\w+|my|our"
    r"|about"
    r"|recuerd\w*|sab\w+|puedas|weisst|kannst|erinner\w*|sais|peux|souvien\w*|mi|mis|mein\w*|unser\w*|mon"
    r"|ma|mes)\b)"
)
_DAY = (
    r"(?:day|morning|afternoon|evening|night|week|weekend|one|time|trip|rest|sleep|break|holiday|holidays"
    r"|year|start|luck|morrow|vibes"
    r"|monday|tuesday|wednesday|thursday|friday|saturday|sunday)"
)
_FINE = (
    r"(?:good|great|nice|lovely|wonderful|fantastic|amazing|awesome|excellent|perfect|brilliant|helpful"
    r"|useful|right"
    r"|correct|clear|kind|impressive|fun|funny|fine|better|beautiful|cool|it|all|well|sweet|incredible"
    r"|super)"
)
_PIECES = {
    "en": (
        rf"(?:i |we |just )?(?:hope|hoping|wish|wishing|trust) (?:that )?(?:you|your|all|everything|things"
        rf"|life|the|to) ?{_NO_ASKING}.*",
        rf"(?:and |so )?(?:have|enjoy) (?:yourself|(?:a|an|the|your)(?: \w+){{0,4}} {_DAY})(?: \w+){{0,3}}",
        r"(?:and |so )?(?:take care|stay|keep|be|get|sleep|rest)(?: of yourself)?(?: (?:and|stay|keep|safe"
        r"|well|healthy|warm|cool|tuned"
        r"|good|out|there|soon|it|up|the|great|work|care))*",
        rf"(?:a )?(?:very )?(?:(?:happy|merry|good|blessed|joyful) {_DAY}|(?:happy|merry"
        rf"|blessed) (?:new year|birthday|\w+mas|easter|hanukkah"
        r"|halloween|thanksgiving|diwali|eid|friyay|hump day|\w+ day))(?: (?:to|and|my|dear|friend|you|all"
        r"|too|everyone|\w+mas))*",
        rf"(?:that|this|it|you|what|they)(?:'s| is| was|'re| are| were|'ve been| have been)(?: (?:an?|so"
        rf"|very|really|super|extremely"
        rf"|exactly|just|absolutely|pretty|such|truly|incredibly|the|been|quite))* {_FINE}(?: \w+){{0,3}}",
        r"(?:thanks|thank you|thx|ty|cheers|much appreciated|i appreciate)"
        r"(?: (?:so|very|much|a|lot|again|anyway|for|your|the|all|that|this|it|help|helping|you|everything"
        r"|time|support|answer"
        r"|explanation|me|quick|reply|guys|\w+ly|kindly|and|today|really|indeed))*",
        r"(?:that|this|it) (?:really |totally |all )?(?:helps|helped|works|worked|makes sense|answers it"
        r"|does it)(?: (?:a|lot|so|much|perfectly|fine|me|now))*",
        r"(?:so |and )?how(?:'s| is| are|'re|s)(?: (?:it|you|things|everything|life|your|the|day|week"
        r"|morning|evening|going|doing|today|feeling|been|"
        r"all|tonight|treating|this|weekend|so|far))+",
        r"how (?:have you been|do you feel|are things|goes it|do you do)(?: \w+)?",
        r"(?:are |is )?(?:you|anyone|anybody|u) (?:there|around|here|awake|online)",
        r"(?:it was |it's |was )?(?:so |very )?(?:nice|great|good|lovely|glad|happy|pleasure"
        r"|pleased)(?: (?:to|be|see|meet|chatting|talking|talk|speak|hear"
        r"|with|you|back|again|here|from|it|all))+",
        r"(?:i'll|i will|i have to|gotta|got to|i must|i need to) (?:go|run|leave)(?: (?:now|soon|bye))?"
        r"|(?:i'll |i will |let's )?(?:see|talk to|speak to|catch|chat|talk|speak|catch up|be back|head out"
        r"|head off)"
        r"(?: (?:you|ya|u|to|with|later|soon|tomorrow|then|again|around|next|time|week|on|off|now|back|in|a"
        r"|bit|up|out|monday|tuesday"
        r"|wednesday|thursday|friday))+",
        r"(?:no|nope|nah) (?:thanks|thank you|worries|problem|need)(?: \w+)?",
        r"(?:that's|that is|that will be|that'll be|this is) (?:all|it|enough)(?: (?:for|from|i|needed"
        r"|wanted|now|today|me|here|thanks|then))*",
        r"(?:great|good|nice|awesome|excellent|amazing|fantastic|super|wonderful) (?:job|work|answer|stuff"
        r"|idea|one|news|explanation|going|point)",
        r"(?:you|u)(?:'re| are)? (?:so |the |very |really |a )*(?:best|awesome|great|amazing|rock|welcome"
        r"|kind|helpful|star|lifesaver|legend|genius|funny)",
        r"my (?:friend|dear|dude|man|buddy)|dear \w+|long time no \w+|same to you|you too|likewise"
        r"|welcome back|all good|sweet dreams",
        r"(?:just |only )?(?:saying|wanted to say|came to say|dropping by|stopping by|checking in)(?: (?:to"
        r"|say|hi|hello|hey|thanks|thank|you|bye|good))*",
        r"(?:sunshine|darling|champ|boss|sir|madam|ma'am|partner|stranger|world|captain|chief|i hope|hope)",
        r"(?:god )?bless you|best (?:wishes|regards)|kind regards|good (?:luck|vibes)|no (?:worries|problem"
        r"|rush)",
    ),
    "es": (
        rf"(?:y )?(?:espero|deseo|ojala) (?:que )?(?:todo|estes?|hayas?|te|le|tengas?|pases?|os|tu|usted|la"
        rf"|el) ?{_NO_ASKING}.*",
        rf"(?:y )?que (?:tengas?|te vaya|le vaya|vaya|pases?|estes?|descanses?|disfrutes?|duermas?|todo"
        rf"|os vaya) ?{_NO_ASKING}.*",
        r"(?:feliz|felices|buen[oa]?s?) (?:y )?(?:fin de semana|fin|dia|dias|tarde|tardes|noche|noches"
        r"|semana|viaje|descanso|suerte|provecho|finde|navidad|navidades|ano|lunes|martes"
        r"|miercoles|jueves|viernes|sabado|domingo|fiestas|pascua|cumpleanos|vacaciones|puente"
        r"|trabajo)(?: (?:a|para|de|y|todos|ti|semana|ano|nuevo|prospero))*",
        r"(?:muchas |muchisimas |mil )?gracias(?: (?:por|tu|la|el|todo|ayuda|de|nuevo|otra|vez|mucho"
        r"|igualmente|su|respuesta|a|ti|rapida))*",
        r"(?:me (?:ha|has|sirvio|ayudo|ayudaste)|te|se|os|le)(?: lo)?(?: (?:agradezco|ayudado|servido|mucho"
        r"|ha|muchisimo|sirvio|de|bastante))+",
        r"(?:eres|esta|estuvo|es|fue|era)(?: (?:muy|el|la|un|una|tan|super|todo))* (?:mejor|genial|amable"
        r"|bien|util|crack|claro|perfecto|increible|bueno|bonito|bonita|maja|majo)",
        r"(?:como|que tal)(?: (?:estas?|va|te|todo|le|has|el|la|dia|hoy|semana|andas|vas|lo|llevas|por|ahi"
        r"|dormiste|dormido))*",
        r"(?:encantad[oa]|un placer|mucho gusto|igualmente)(?: (?:de|en|conocerte|saludarte|verte|hablar"
        r"|contigo))*",
        r"(?:cuidate|cuidese|descansa|saludos|abrazos|un saludo|un abrazo|nos vemos|hablamos"
        r"|hasta)(?: (?:mucho|bien|cordiales?|luego|pronto|manana|otra"
        r"|la|proxima|el|lunes|martes|miercoles|jueves|viernes|despues|entonces|y|cuidate))*",
        r"(?:querid[oa]|estimad[oa]|mi) \w+|asistente|eso es todo(?: por (?:hoy|ahora))?|no gracias"
        r"|bien hecho|buen trabajo|que (?:bien|guay|bueno|gracia|chulo)|estas ahi",
    ),
    "de": (
        rf"(?:ich |wir )?(?:hoffe|hoffen|wunsche?n?)(?: dass)?(?: (?:du|dir|es|alles|ihnen|sie|euch|ihr"
        rf"|geht's|dein|deine)) ?{_NO_ASKING}.*|(?:dass )?(?:du|dir geht|dir geht's|es geht|es dir"
        rf"|dir) {_NO_ASKING}(?:.*(?:gut|geschlafen|schon|prima|super|bestens).*)",
        r"(?:(?:ich )?wunsche?(?: (?:dir|euch|ihnen))? )?(?:noch )?(?:einen? |ein )?(?:schon|gut|frohlich"
        r"|froh|angenehm|erholsam)e?[nrs]? (?:\w*tag|\w*morgen|\w*abend|nacht|\w*woche|wochenende|\w*zeit"
        r"|montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonntag"
        r"|feierabend|weihnachten|ostern|urlaub|ferien|jahr|fest|feiertage|reise|rest|neues jahr|start"
        r"|erfolg|besserung|rutsch)(?: (?:noch|dir|euch|ihnen|zusammen|auch|und|allen|tag|abend"
        r"|gewunscht))*",
        r"(?:vielen |besten |herzlichen |tausend )?(?:dank|danke)(?: (?:schon|sehr|dir|ihnen|euch|fur|die"
        r"|deine|hilfe|alles|nochmal|antwort|schnelle|ihre|vielmals|auch|trotzdem))*",
        r"ich danke(?: (?:dir|ihnen|euch|sehr|herzlich|fur|alles|die|hilfe|vielmals))*",
        r"(?:das|es|du) (?:hat|hast|war|ist|bist)(?: (?:mir|sehr|echt|wirklich|super|so|der|die|ein|eine"
        r"|toll|total|schon|richtig))* (?:geholfen|hilfreich|gut|super|toll|klasse|nett|lieb|beste|perfekt"
        r"|prima|schatz|lustig|richtig|schon|weitergeholfen)",
        r"(?:und )?wie (?:geht|gehts|geht's|lauft|lauft's|laufts|war|ist)(?: (?:es|dir|ihnen|euch|so|heute"
        r"|bei|dein|der|tag|woche|alles|denn))*",
        r"(?:freut|hat)(?: (?:mich|uns|dich|sie|sehr|gefreut|kennenzulernen|zu|sehen|wiederzusehen|dass"
        r"|auch))+",
        r"(?:mach's|machs|mach es|lass es dir|schlaf|pass|komm|bleib)(?: (?:gut|gehen|schon|auf|dich|gesund"
        r"|heim|munter|und))*",
        r"bis (?:dann|bald|spater|morgen|nachher|zum|montag|dienstag|mittwoch|donnerstag|freitag|nachste"
        r"|nachstes)(?: (?:mal|woche))?",
        r"(?:alles (?:gute|liebe|klar|bestens)|gute|liebe|viele|beste|herzliche)(?: (?:grusse|wunsche|dir"
        r"|euch|ihnen|nacht|besserung|reise|und))*|grusse?(?: (?:dich|an|alle))*",
        r"(?:ich )?hoffe|(?:dich|sie|euch) (?:kennenzulernen|wiederzusehen|zu sehen)"
        r"|hab(?:t)? (?:noch )?(?:einen?|ein) \w+ \w+(?: noch)?|sehr (?:hilfreich|nett|gut|schon)"
        r"|(?:lieber?|werter?) \w+|bist du da|gern(?:e)?(?: geschehen)?|gut gemacht|das (?:war's"
        r"|wars)(?: (?:fur|heute|erstmal))*|nein danke|lange nicht gesehen|bitte(?: (?:sehr|schon))?",
    ),
    "fr": (
        rf"(?:et )?(?:j'espere|je te souhaite|je vous souhaite|en esperant)(?: que)?(?: (?:tu|vous|tout|ta"
        rf"|votre|une|un|la|le|ca)) ?{_NO_ASKING}.*",
        rf"que (?:tout|ta|votre|tu|vous) {_NO_ASKING}.*|passez? une? (?:tres )?(?:bonne?|belle?|excellente?"
        rf"|agreable) \w+",
        r"(?:une? )?(?:tres )?(?:bon|bonne|belle|beau|joyeux|joyeuses|excellente?|heureuse?) (?:journee"
        r"|soiree|nuit|matinee|semaine|week-end|apres-midi|annee|fin de (?:journee|semaine)|lundi|mardi"
        r"|mercredi|jeudi|vendredi|samedi"
        r"|dimanche|noel|fetes|paques|vacances|chance|courage|voyage|continuation|anniversaire|appetit"
        r"|reste|retour|debut)(?: (?:a|toi|vous|tous|aussi|et|encore))*",
        r"(?:un grand |mille |grand )?merci(?: (?:beaucoup|bien|infiniment|pour|ton|ta|votre|l'aide|aide"
        r"|tout|a|toi|vous|encore|mille|fois|la|reponse|le|quand|meme|d'avance))*",
        r"je (?:te|vous) remercie(?: (?:beaucoup|bien|infiniment|pour|tout|ton|votre|aide))*",
        r"(?:ca|cela|c'|tu|vous)(?: ?(?:m'a|m'as|est|etait|es|etes|a|t'es))(?: (?:beaucoup|bien|tres"
        r"|vraiment|super|trop|si|le|la|un|une))* (?:aide|utile|genial|gentil|gentille|parfait|top|meilleur"
        r"|meilleure|cool|clair|drole|bien|chou|bon)(?: (?:merci|aide))?",
        r"(?:comment|ca)(?: (?:vas-tu|allez-vous|va|vas|tu|vous|ca|aujourd'hui|toi|allez|se|passe|ta"
        r"|journee|bien))+",
        r"(?:enchante|ravi|content|heureux)e?(?: (?:de|te|vous|rencontrer|connaitre|revoir|retrouver|faire"
        r"|ta|votre|connaissance|d'etre|la))*",
        r"(?:prends|prenez|porte|portez|repose|dors)(?:-toi|-vous)?(?: (?:soin|de|toi|vous|bien|toujours))*",
        r"a (?:bientot|demain|plus|tout|la|lundi|mardi|mercredi|jeudi|vendredi|ce)(?: (?:tard|a|l'heure"
        r"|prochaine|soir|de))*",
        r"j'espere|(?:cher|chere|mon) \w+|tu es la|salutations|cordialement|bien (?:joue|a toi)|bon travail"
        r"|c'est (?:tout|bon|noted?)(?: (?:pour|aujourd'hui|l'instant))*|non merci|bisous?"
        r"|ca fait longtemps|avec plaisir",
    ),
}
_ZH_NO_ASKING = r"(?!.*(?:我的|记得|知道|告诉|能帮|可以帮|项目|几|哪|谁|多少))"
_ZH = (
    rf"(?:愿|祝福?|祝愿|希望|但愿)(?:你|您|大家|一切|今天|各位|我们|周末|新的|身体|万事|学习|工作"
    rf"|早日){_ZH_NO_ASKING}.{{0,14}}",
    r".{0,6}(?:快乐|愉快|顺利|安康|吉祥|大吉|如意|平安|开心)(?:呀|啊|哦|哟)?",
    r"(?:真是|真的|非常|十分|太|多|万分|很|特别|好)?(?:感谢|感激|谢谢|多谢|谢)(?:不尽|你|您|了|啦|咯|哈|呀"
    r"|的|帮助|帮忙|支持|分享|回答|解答|今天|一直|大家|耐心)*",
    r"(?:你|您|这|这个|那|回答|讲得|解释得|今天|你们)?(?:也)?(?:真|真的|太|很|好|非常|挺|特别|超|超级|十分"
    r"|可)?(?:有)?(?:是)?(?:棒|厉害|有帮助|帮助|有用|清楚|不错|完美|优秀|好用|贴心|靠谱|给力|可爱|聪明|有趣"
    r"|有意思|漂亮|赞|牛|专业|详细)(?:了|啦|极了|呀|啊|哦|的)*",
    r"(?:你|您)?(?:今天|真的|可)?(?:帮|帮到)(?:了)?(?:我)?(?:很|大|不少|个)?(?:大)?忙(?:了|啦)?|帮忙"
    r"|帮助了我",
    r"(?:干|做|说|答|写)得(?:很|真|太|非常|好)?(?:漂亮|好|棒|不错|对)(?:了|啊|呀)?",
    r"(?:今天|这次|目前|暂时)?(?:就|先|那就|那)?(?:到|聊|说)(?:这儿|这里|这|此为止)(?:了|吧|啦|哈)*"
    r"|(?:那)?(?:先|就)?这样(?:吧|啦|了|哈)*",
    r"(?:小|亲爱的)?(?:助手|助理|朋友|机器人|chatgpt|gpt|claude|ai|宝贝|老师|各位|大家|同学)(?:们)?(?:你"
    r"|您)?(?:好|在吗|在不在)?(?:呀|啊|哈)?",
    r"(?:你|您|大家)?(?:最近|今天|这几天|近来|一切|现在|周末)*(?:还|都|过得|过的)*(?:好|怎么样|如何|好不好"
    r"|怎样|顺利)(?:吗|呀|呢|啊|么)?",
    r"(?:你|您|有人|还)*(?:在|忙)(?:吗|么|不在|不|嘛|呀|啊)+",
    r"(?:又|好久|好久不|很久没|终于|很高兴|高兴|幸会|很开心)(?:见面|不见|没见|见到|认识|再次|遇见|见)?(?:了"
    r"|面|你|您|啦|呀|大家|到)*",
    r"(?:明天|回头|下次|改天|以后|晚点|待会儿?|下周|周一|一会儿?|有空|后会)(?:再)?(?:见|聊|说|联系"
    r"|有期)(?:啦|吧|哈|咯)*",
    r"(?:多|请)?(?:保重|注意(?:安全|身体|休息)|好好休息|早点(?:休息|睡)|照顾好自己|别太累)(?:了|啊|哦|呀"
    r"|吧)*",
    r"(?:辛苦|麻烦|打扰)(?:你|您|大家)?(?:了|啦|咯)*|(?:没事|没关系|不用|不必|无妨|别客气|不客气|客气)(?:了"
    r"|的|啦|还是|谢|谢谢|你|客气)*",
    r"(?:听起来|听上去|看起来|感觉)?(?:很|挺|非常|还)?(?:不错|行|棒|完美|好|好的|ok|赞)(?:了|吧|的|啊|呀"
    r"|哈)*",
    r"(?:你|大家|我们)?(?:今天|明天|新的一天|周一)?(?:也)?(?:要|继续)?加油(?:哦|呀|啊|吧)*",
    r"还是(?:很)?(?:谢谢|感谢|多谢)(?:你|您|啦)*|同(?:乐|喜)|你也(?:是|一样)|彼此彼此|3q+|thx|88+|666+"
    r"|哈{2,}|嘿{2,}|嘻{2,}|呵{2,}|哇+|哎呀?|爱了|绝了|佩服|恭喜.{0,6}",
    r"(?:早|早安|午安|晚安|早上|上午|中午|下午|晚上)(?:好|安)?(?:呀|啊|哦|哈|啦)*|你们?好(?:呀|啊|哈)*"
    r"|您好(?:呀|啊)*",
)


def is_greeting(text: str) -> bool:
    """True if the text is only greetings, wishes, thanks, praise, farewells or acknowledgements."""
    if len(text) > LONGEST:
        return False
    folded = _STRETCHED.sub(r"\1", plain(text))
    if _ONLY_GREETING.fullmatch(folded):
        return bool(_GREETING.search(folded))
    pieces = [piece.strip(" '\"-") for piece in _CUT.split(folded)]
    said = [piece for piece in pieces if _SAYS.search(piece)]
    if not said:
        return bool(_EMOJI.search(text))
    if not all(_PIECE.fullmatch(piece) or _ONLY_GREETING.fullmatch(piece) for piece in said):
        return False
    return any(_PIECE.fullmatch(piece) or _GREETING.search(piece) for piece in said)


def any_of(*tables: dict[str, tuple[str, ...]]) -> str:
    """Return one group that matches any word of the tables, longest first; whole words where the script
    has spaces."""
    words = {word for table in tables for row in table.values() for word in row}
    ordered = sorted(words, key=len, reverse=True)
    spaced = "|".join(re.escape(w) for w in ordered if not _UNSPACED.search(w))
    unspaced = "|".join(re.escape(w) for w in ordered if _UNSPACED.search(w))
    both = [rf"(?<!\w)(?:{spaced})(?!\w)" if spaced else "", f"(?:{unspaced})" if unspaced else ""]
    return f"(?:{'|'.join(filter(None, both))})"


_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_STRETCHED = re.compile(r"([a-z])\1{2,}")
_SAYS = re.compile(r"\w")
_CUT = re.compile(r"[^\w\s'’-]+|\n|(?<=[a-z0-9])\s*(?=[\u3400-\u9fff])|(?<=[\u3400-\u9fff])\s+")
_EMOJI = re.compile("[\u2600-\u27bf\U0001f300-\U0001faff]")
_GREETING = re.compile(any_of(phrases.GREETINGS))
_WORDS = any_of(phrases.GREETINGS, phrases.FILLERS)
_ONLY_GREETING = re.compile(rf"[\W_]*(?:{_WORDS}[\W_]*)+")
_LED = rf"(?:(?:{any_of(phrases.GREETINGS, phrases.FILLERS)})\s+){{0,3}}"
_PIECE = re.compile(
    rf"{_LED}(?:{'|'.join(p for rows in _PIECES.values() for p in rows)})(?:\s+{_WORDS}){{0,3}}"
    rf"|(?:{'|'.join(_ZH)})"
)
