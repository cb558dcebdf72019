"""The cues of each language: rows of regular expressions, matched on folded text (proxy.terms.fold)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cues:
    """One language's patterns, on folded text."""

    language: str
    explicit: str  # asks to remember, or sets a rule for the future
    personal: str  # first person: states something about the user
    not_personal: str  # begins in the first person, yet asks or chats
    command: str  # begins a request to the assistant
    question: str  # begins a question even without a question mark
    supposed: str  # fiction, role-play, hypothesis: nothing after it is meant
    transient: str  # true for minutes only
    resumed: str  # ends a fiction
    hedged: str  # not sure, not decided
    private: str  # other people's matters, or told in confidence
    chatter: str  # begins a reaction, an aside, a greeting: says nothing by itself


LANGUAGES = (
    Cues(
        "en",
        explicit=r"^(?:\W|ok(?:ay)?\b|please\b|also\b|and\b|so\b|(?:can|could|would) you\b|you should\b"
        r"|always\b)*(?:remember (?!when\b|how\b|the time\b)|memori[sz]e |(?:keep|bear) in mind"
        r"|(?:please |also )*note (?:that|down)\b|please note\b|make a note|take note|(?:don'?t"
        r"|do not|never) forget|save (?:this|that) (?:to|in) (?:your )?memory)|\bfrom (?:now"
        r"|here|this point) on(?:wards?)?\b|\bgoing forward\b|\bfor future reference\b"
        r"|\bfor the record,|\bnever forget that\b",
        personal=r"\b(?:i|we)(?:'m|'ve| am| was| have| had| are| were| live| work| own| use| like| love"
        r"| hate| prefer| need| want| eat| drink| drive| play| speak| study| learn| teach| run"
        r"| take| get| go| went| got| moved| decided| chose| bought| sold| started| stopped"
        r"| quit| switched| changed| finished| fixed| met| grew| was born| can'?t| cannot"
        r"| don'?t| do not| never| always| usually| no longer| only| just| also| recently| plan"
        r"| hope| will|'ll| keep| wake| sleep| report| lead| manage| build| write| read| wear"
        r"| deploy| ship| said| agreed| paid| booked| signed| put| call| named| adopted| became"
        r"| weigh| avoid| dislike| enjoy| do| think| might| may)\b|\b(?:my|our) \w+|\bcall me \w+|\b(?:mine"
        r"|ours) (?:is|are|was)\b|\bi'd (?:rather|prefer|like (?!to know|you|it if))",
        not_personal=r"^\W*(?:i|we)(?:'m| am| was|'ve| have)? (?:just )?(?:wonder|curious|asking|sorry"
        r"|not sure|afraid|trying to understand|a question|some questions|another question"
        r"|no idea|got a question|guess|see\b|mean\b|know\b|don'?t (?:know|understand|get)"
        r"|do not (?:know|understand)|want (?:you|to (?:know|ask|understand))|need (?:you"
        r"|help|some help|a hand|to know|to understand)|would like (?:you|to know|to ask)"
        r"|'?d like (?:you|to know|to ask)|can'?t (?:figure|remember|find)|(?:will"
        r"|'ll) (?:try|do that|check|let)|heard (?:that )?)|^\W*my (?:bad|goodness|god"
        r"|pleasure|question)\b",
        command=r"^\W*(?:(?:ok(?:ay)?|please|now|then|also|and|so|next|again)[,\s]+)*(?:write|make|give"
        r"|tell|show|explain|list|help|create|fix|translate|summari[sz]e|draft|suggest|recommend"
        r"|find|compare|convert|generate|add|continue|rewrite|check|calculate|describe|implement"
        r"|refactor|debug|plan|pick|stop|enough|let me know|remind me|act as|play|can you|could you"
        r"|would you|will you|look|take a look|have a look|pull|search|go|do not|don'?t|use)\b",
        question=r"^\W*(?:(?:and|so|ok|but|hi|hey|also)[,\s]+)*(?:what|who|whom|whose|when|where|why|how"
        r"|which|is|are|am|was|were|do|does|did|can|could|should|would|will|shall|may|have i"
        r"|has|any (?:idea|tips))\b(?!ever)",
        supposed=r"\b(?:imagine|pretend|suppose|hypothetically|role-?play|make[- ]believe|in (?:my|the"
        r"|this) (?:novel|story|game|scene)|what if|if i (?:were|was|had|won|lived|owned|ruled|became)"
        r"|let'?s (?:say|play)|says:|act as|thought experiment|for the sake of argument|a world where"
        r"|in (?:another|a parallel) (?:life|universe)|my character|i'?ll (?:be|play) (?:the|a|an|your))\b",
        transient=r"\b(?:right now|brb|afk|on my phone|battery|signal keeps|typing (?:on|with|by)"
        r"|on the (?:train|bus|subway|tram|metro|ferry|plane)|waiting room|at the door"
        r"|in a meeting|be right back|gotta run|half asleep|\w+ line and)\b",
        resumed=r"\banyway\b|\b(?:stop|end|enough|out|done) (?:of |with )?(?:the |this )?"
        r"(?:role-?play(?:ing)?|game|story|pretending|act)\b|\bback to (?:reality|business|work"
        r"|real life|earth)\b|\bjok(?:es|ing) aside\b|\bin (?:reality|real life)\b|\bfor real\b"
        r"|\bout of character\b|\bseriously\b|^\W*(?:by the way|btw|on another note)\b",
        hedged=r"\b(?:i (?:think|guess|suppose|suspect|wonder)|maybe|perhaps|might|may be|not (?:yet )?sure"
        r"|unsure|undecided|probably|possibly|half a notion|toying with|considering|haven't decided"
        r"|on the fence|leaning towards|tempted to|thinking (?:of|about))\b",
        private=r"\b(?:privately|between (?:us|you and me)|in confidence|don't tell|keep (?:this|it) quiet"
        r"|custody|divorc\w+|separat(?:ed|ing) from|sick leave|left (?:him|her)\b"
        r"|got (?:sacked|fired|laid off)|burn-?out|ivf|miscarr\w+|rehab|alcoholic"
        r"|bankrupt|owes? (?:him|her|them|\w+) (?:money|\d+|two|three|a)\b"
        r"|(?:he|she|they)(?:'s| is| are)? (?:interviewing|cheating|having an affair)"
        r"|(?:he|she|they|(?!i\b)\w+)(?:'s| is| was| has)? (?:just )?(?:been )?diagnosed"
        r"|(?:he|she)(?:'s| is| has| takes| had)(?: on)? (?:c(?:o)?eliac|warfarin|cancer|dementia"
        r"|depress\w+|pregnant|antidepressants|chemo|(?:his|her) \w+ done))\b",
        chatter=r"^\W*(?:thanks?|thank you|ta|cheers|ok(?:ay)?|great|nice|perfect|good|cool|lovely|brilliant"
        r"|sensible|correct|exactly|right|yes|yep|yeah|no|nope|sure|fine|haha+|lol|ugh|oof|oops|ouch|wow"
        r"|wonderful|smart|fair|sorry|hi|hello|hey|hmm+|well|done|sold|agreed|understood|got it|noted"
        r"|congrat\w+|that'?s|this is|it'?s|here'?s|here is|sounds|looks)\b",
    ),
    Cues(
        "zh",
        explicit=r"记住|记得(?!吗)|记一下|记下|记好|别忘了|不要忘|从现在(?:开始|起)|今后|从今"
        r"|以后(?!再说|怎么)|往后",
        personal=r"我|咱|本人",
        not_personal=r"^\W*(?:我想(?:知道|问|了解|请)|我(?:不知道|不懂|不明白|该"
        r"|应该|能不能|可以|要不要)|帮我|给我|请|告诉我|我有个问题)",
        command=r"^\W*(?:那|好|再|先|然后|顺便)*(?:帮|给我|请(?!记)|告诉我|写|翻译"
        r"|解释|总结|概括|推荐|列|看看|看下|看一下|比较|讲|起个|排个)",
        question=r"^\W*(?:什么|谁|哪|怎么|为什么|为啥|多少|几|是不是|能不能|有没有)|(?:吗|呢|么|没有|不)\W*$",
        supposed=r"假如|(?:如果|要是|万一)我(?:是|有|中|能|当|变|住|赢|会飞)|想象|假设|假装|扮演"
        r"|角色扮演|设想|小说里|剧本里",
        transient=r"正在(?:地铁|火车|车|路)上|地铁.{0,8}上|手机.{0,6}电|先下了|等会|马上到",
        resumed=r"言归正传|说正经的|回到(?:现实|正题)|别演了|不演了|停止扮演|玩笑归玩笑|不开玩笑|说真的"
        r"|话说回来|对了",
        hedged=r"可能|也许|大概|或许|好像|不确定|没(?:想好|定|决定)|还没(?:想好|定|决定)|在考虑|犹豫"
        r"|说不定|估计",
        private=r"离婚|流产|抑郁|出轨|破产|戒毒|别(?:说出去|告诉别人)|私下(?:说|告诉)|保密"
        r"|^[^我咱]{1,12}(?:查出|确诊|被裁|怀孕|住院|欠)|我们?[^,，。]{1,6}(?:查出|确诊|被裁)",
        chatter=r"^\W*(?:谢谢|多谢|好的?|好嘞|行|对|嗯|哈+|不错|可以|收到|明白|有道理|没问题|太好了|厉害"
        r"|绝了|靠|唉"
        r"|合理|恭喜|你好|早|要|是的?)(?:[,，。!！~～]|了|的|吧|啊|哈|\W*$)",
    ),
    Cues(
        "es",
        explicit=r"\brecuerda(?: que|:)|\bacuerdate|\bten en cuenta|\bno (?:te )?olvides"
        r"|\bde ahora en adelante|\ba partir de ahora",
        personal=r"\b(?:mi|mis|nuestr[oa]s?) \w+|\b(?:soy|somos|tengo|tenemos|vivo|vivimos|trabajo"
        r"|prefiero|odio|estudio|hablo|uso|usamos|nunca|naci|decidi|decidimos|me (?:gusta"
        r"|gustan|llamo|encanta|mude|case)|estoy|estamos|hemos|como|bebo)\b",
        not_personal=r"^\W*(?:necesito (?:ayuda|saber|que)|quiero (?:saber|que)|me gustaria (?:saber"
        r"|que)|tengo una (?:pregunta|duda))",
        command=r"^\W*(?:por favor,? )?(?:escribe|haz|dame|dime|explica|traduce|resume|ayuda|ayudame"
        r"|recomienda|recomiendame|puedes)\b",
        question=r"^\W*(?:¿|que|quien|cuando|donde|por que|como|cual|cuanto)\b",
        supposed=r"\b(?:imagin(?:a|ate|emos)|supon(?:gamos|te)?|si (?:yo )?(?:fuera|tuviera|ganara"
        r"|viviera)|finge"
        r"|hagamos como|juego de rol|hazte pasar|mi personaje)\b",
        transient=r"\b(?:ahora mismo|en el metro|bateria)\b",
        resumed=r"\b(?:en serio|bromas aparte|fuera de broma|volviendo a (?:la realidad|lo)|basta de|en fin"
        r"|por cierto|cambiando de tema)\b",
        hedged=r"\b(?:quizas?|tal vez|a lo mejor|puede que|creo que|supongo|no (?:estoy|se) segur[oa]"
        r"|probablemente"
        r"|posiblemente|no se si|dudo|estoy pensando en|sin decidir|me estoy planteando)\b",
        private=r"\b(?:entre nosotr[oa]s|en confianza|no se lo digas|divorci\w+|custodia|separad[oa]s?"
        r"|arruinad[oa]"
        r"|alcoholic[oa]|de baja|embarazada|despedid[oa]|quiebra|y bebe|(?!me\b)\w+ han diagnosticado)\b",
        chatter=r"^\W*(?:gracias|vale|genial|perfecto|bien|muy bien|si|no|claro|hola|buenas|de acuerdo"
        r"|estupendo"
        r"|jaja\w*|ni caso|buena idea|que bien|ok)\b",
    ),
    Cues(
        "de",
        explicit=r"\bmerke? dir|\bdenk(?:e)? (?:daran|dran)|\bvergiss nicht|\bab (?:jetzt|sofort"
        r"|heute)\b|\bvon nun an|\bkunftig\b|\bbitte beachte",
        personal=r"\b(?:ich|wir) (?:bin|sind|habe|haben|hab|wohne|wohnen|arbeite|lebe|mag|liebe|hasse"
        r"|bevorzuge|nutze|nutzen|benutze|esse|trinke|fahre|spiele|spreche|lerne|heisse|heiße"
        r"|ziehe|zog|kaufte|entschied|brauche|nehme|will|mochte|gehe|war|komme)\b|\b(?:mein"
        r"|meine|meiner|meinem|meinen|unser|unsere) \w+|\bnenn mich \w+",
        not_personal=r"^\W*(?:ich|wir) (?:brauche hilfe|mochte (?:wissen|fragen)|habe eine frage"
        r"|frage mich|will wissen|weiss nicht|weiß nicht)",
        command=r"^\W*(?:bitte )?(?:schreib|mach|gib|sag|zeig|erklar|ubersetz|fass|hilf|empfiehl|erstell"
        r"|kannst du|konntest du)",
        question=r"^\W*(?:was|wer|wann|wo|warum|wieso|wie|welche[rsn]?|ist|sind|kann|soll|darf)\b",
        supposed=r"\b(?:stell(?:t|en wir)? (?:dir|euch|uns) (?:mal )?vor|angenommen,|nehmen wir (?:mal )?an"
        r"|wenn ich .{0,30}(?:ware|hatte|wurde|gewanne)|ich ware (?:gern )?(?:ein|der|die)|rollenspiel"
        r"|tu (?:mal )?so,? als|in meinem roman)\b",
        transient=r"\b(?:gerade (?:im|in der) (?:zug|bahn|bus)|akku)\b",
        resumed=r"\b(?:spaß beiseite|spass beiseite|im ernst|zuruck (?:zum|zur|in die)|schluss (?:mit|damit)"
        r"|genug (?:davon|getraumt|gespielt)|wie dem auch sei|jedenfalls|ubrigens|anderes thema)\b",
        hedged=r"\b(?:vielleicht|eventuell|moglicherweise|wahrscheinlich|vermutlich|ich (?:glaube|denke"
        r"|schatze)"
        r"|nicht sicher|unsicher|konnte sein|uberlege|uberlegen|noch nicht entschieden|mal sehen)\b",
        private=r"\b(?:unter uns|im vertrauen|vertraulich|sag(?:'s| es)? niemandem|scheidung|geschieden"
        r"|sorgerecht"
        r"|burnout|krankgeschrieben|gekundigt worden|entlassen worden|fehlgeburt|schwanger|pleite"
        r"|alkoholiker\w*"
        r"|schulden bei)\b",
        chatter=r"^\W*(?:danke|vielen dank|ok(?:ay)?|super|gut|prima|perfekt|klar|ja|nein|genau|stimmt"
        r"|hallo|moin"
        r"|haha\w*|quatsch|toll|schon|alles klar|passt|bitte)\b",
    ),
    Cues(
        "fr",
        explicit=r"\bsouviens-toi|\brappelle-toi|\bretiens\b|\bn'oublie pas|\bdesormais\b|\bdorenavant\b"
        r"|\ba partir de maintenant|\bnote (?:bien )?que\b|\bsache que\b",
        personal=r"\bje (?:suis|vis|travaille|prefere|deteste|parle|joue|bois|mange|vais|viens|prends"
        r"|fais|porte|ne|m'appelle|me)\b|\bj'(?:ai|habite|aime|adore|etudie|utilise|apprends"
        r"|etais)\b|\b(?:mon|ma|mes|notre|nos) \w+|\bnous (?:avons|sommes|habitons|utilisons)\b"
        r"|\bappelle-moi \w+",
        not_personal=r"^\W*(?:je (?:voudrais|veux) (?:savoir|que)|j'ai (?:une question|besoin d'aide)"
        r"|je (?:ne sais pas|me demande))",
        command=r"^\W*(?:s'il (?:te|vous) plait,? )?(?:ecris|fais|donne|dis|montre|explique|traduis"
        r"|resume|aide|recommande|peux-tu|pouvez-vous)\b",
        question=r"^\W*(?:quel(?:le)?s?|qui|quand|ou|pourquoi|comment|combien|est-ce|qu'est-ce)\b",
        supposed=r"\b(?:imagin(?:e|ons|ez)|suppos(?:e|ons|ez)|si j'(?:etais|avais)|si je (?:gagnais|vivais)"
        r"|jeu de role|fais comme si|dans mon roman|mon personnage)\b",
        transient=r"\b(?:dans le (?:metro|train|bus)|batterie)\b",
        resumed=r"\b(?:bref|serieusement|blague a part|plus serieusement|treve de|revenons"
        r"|retour a la realite"
        r"|au fait|autre chose|changeons de sujet)\b",
        hedged=r"\b(?:peut-etre|probablement|sans doute|je (?:crois|pense|suppose)"
        r"|pas (?:encore )?sur(?:e)?\b"
        r"|j'hesite|je me demande si|pas encore decide|il se peut)\b",
        private=r"\b(?:entre nous|en confidence|ne le dis|divorc\w+|garde des enfants|burn-?out|arret maladie"
        r"|licencie[e]?|fausse couche|enceinte|faillite|alcoolique|diagnostique[e]?)\b",
        chatter=r"^\W*(?:merci|d'accord|parfait|super|genial|bien|tres bien|oui|non|bonjour|salut|haha\w*|ok"
        r"|exactement|c'est|bonne idee)\b",
    ),
    Cues(
        "pt, it",
        explicit=r"\blembr(?:e-se|a-te|e que|a que)|\bnao (?:se )?esque[cç]a|\bde agora em diante"
        r"|\ba partir de agora|\bricorda(?:ti)? che|\btieni (?:presente|a mente)"
        r"|\bnon dimenticare|\bd'ora in poi",
        personal=r"\b(?:meu|minha|meus|minhas|nosso|nossa) \w+|\b(?:sou|tenho|moro|trabalho|prefiro"
        r"|gosto|odeio|chamo-me|me chamo)\b|\b(?:il mio|la mia|i miei|le mie|mia|mio) \w+"
        r"|\b(?:vivo|abito|lavoro|preferisco|mi chiamo|mi piace|odio|ho|abbiamo)\b",
        not_personal=r"^\W*(?:preciso de ajuda|quero saber|ho (?:bisogno|una domanda)|vorrei sapere)",
        command=r"^\W*(?:por favor,? |per favore,? )?(?:escreva|faca|me de|diga|explique|traduza|ajude"
        r"|scrivi|fai|dammi|dimmi|spiega|traduci)\b",
        question=r"^\W*(?:o que|quem|quando|onde|por que|como|qual|che cosa|chi|dove|perche|come|quale"
        r"|quanto)\b",
        supposed=r"\b(?:imagin[ae]|supon(?:ha|hamos)?|immagina(?:ti)?|se eu (?:fosse|tivesse)|se fossi"
        r"|se avessi"
        r"|faz de conta|facciamo finta|mettiamo che)\b",
        transient=r"\b(?:no metro|no onibus|in metro|sul treno)\b",
        resumed=r"\b(?:falando serio|brincadeiras a parte|enfim|voltando a|scherzi a parte|sul serio|comunque"
        r"|torniamo a|a proposito)\b",
        hedged=r"\b(?:talvez|provavelmente|acho que|nao tenho certeza|forse|probabilmente|credo che|penso che"
        r"|non sono sicur[oa]|magari|sto pensando di)\b",
        private=r"\b(?:entre nos|em segredo|divorci\w+|gravida|falid[oa]|demitid[oa]|tra (?:noi|di noi)"
        r"|in confidenza"
        r"|divorzi\w*|incinta|licenziat[oa]|alcolizzat[oa]|fallit[oa])\b",
        chatter=r"^\W*(?:obrigad[oa]|beleza|otimo|perfeito|bem|sim|nao|claro|oi|ola|grazie|perfetto|bene"
        r"|va bene"
        r"|si|no|certo|ciao|ok)\b",
    ),
    Cues(
        "ja, ko, ru",
        explicit=r"覚えて|忘れないで|今後は|これからは|기억해"
        r"|잊지\s*마|앞으로는|\bзапомни|\bне забудь|\bотныне\b|\bс этого момента",
        personal=r"私|僕|俺|わたし|うちの|저는|나는|제\s|우리\s|\b(?:я|мой|моя|мое|мои|мы|меня|нас|наш)\b",
        not_personal=r"^\W*(?:教えて|알려|помоги|скажи)",
        command=r"(?:ください|してくれ|해\s*줘|해\s*주세요)\W*$|^\W*(?:напиши"
        r"|сделай|объясни|переведи|дай|покажи)\b",
        question=r"(?:か|の|까|나요)\W*$|^\W*(?:что|кто|когда|где|почему|как|какой|сколько)\b",
        supposed=r"もし(?:も|私|僕|俺)|想像して|仮に|ロールプレイ|のふりを|만약|상상해|역할극"
        r"|\b(?:представ(?:ь|им)|если бы|допустим|предположим)\b",
        transient=r"今電車|バッテリー|지금 지하철",
        resumed=r"冗談はさておき|それはさておき|さて|本題|真面目な話|농담은 그만|진지하게|그건 그렇고"
        r"|\bшутки в сторону|\bладно,|\bкстати",
        hedged=r"かもしれ|たぶん|多分|おそらく|まだ決めて|迷って|아마|것 같|고민 ?중|확실하지"
        r"|\b(?:может быть|наверное|возможно"
        r"|кажется|не уверен\w*|думаю)\b",
        private=r"離婚|内緒|ここだけの話|うつ病|流産|クビ|이혼|비밀|유산|우울증|해고|\b(?:между нами"
        r"|по секрету|развод\w*"
        r"|уволили|беременна|банкрот\w*)\b",
        chatter=r"^\W*(?:ありがとう|了解|はい|いいえ|なるほど|そうですね|こんにちは|감사|고마워|네"
        r"|아니요|좋아요?|안녕|спасибо"
        r"|хорошо|да|нет|привет|отлично|понятно|ок)(?![\wぁ-ん가-힣])",
    ),
)
