"""Patterns for how statements about oneself and requests to remember begin: one row of regular expressions
for each language.

They match folded text (see `terms.fold`). Words that may stand anywhere are in `words/cues.txt`.
"""

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
        chatter=r"^\W*(?:ありがとう|了解|はい|いいえ|なるほど|そうですね|こんにちは|감사|고마워|네"
        r"|아니요|좋아요?|안녕|спасибо"
        r"|хорошо|да|нет|привет|отлично|понятно|ок)(?![\wぁ-ん가-힣])",
    ),
)
