"""The words that `decide` knows, as tables per language. Data only; matched on folded text.

Adding a language means adding rows. A missing word costs a wasted search; a wrong one costs a memory, so
ambiguous words stay out. Folded means: lower case, no accents ("adios"), й as и.
"""


def _words(text: str) -> tuple[str, ...]:
    return tuple(" ".join(word.split()) for word in text.split(","))


# Whole messages made only of these need no memory. Answers ("yes", "no", "go on") are not among them:
# they continue something.
GREETINGS = {
    "en": _words(
        """
        hi, hiya, hey, heya, hello, helo, yo, howdy, greetings, good morning, good afternoon,
        good evening, good day, good night, goodnight, morning, evening, afternoon, gm, gn, sup,
        what's up, whats up, wassup, how are you, how are you doing, how are you today, how's it going,
        hows it going, how do you do, nice to meet you, happy new year, merry christmas, happy holidays,
        long time no see, thanks, thank you, thank u, thankyou, thx, tysm, ty, cheers, much appreciated,
        appreciate it, i appreciate it, many thanks, thanks in advance, ok, okay, k, kk, okey dokey,
        alright, all right, got it, gotcha, i see, noted, understood, makes sense, that makes sense,
        cool, nice, great, perfect, awesome, excellent, wonderful, amazing, brilliant, lovely,
        sounds good, fair enough, that helps, that helped, very helpful, you're welcome, no problem,
        no worries, lol, haha, bye, bye bye, goodbye, good bye, see you, see ya, see you later,
        see you tomorrow, later, take care, cya, ttyl, farewell, have a good day, have a nice day,
        have a good one, have a great day, have a good weekend, talk to you later, that's all,
        that is all, that's all for now, that's it for now, i'm back, ping, test, testing,
        ha, haha, hahaha, hehe, lmao, funny, so funny, very funny, hilarious, that's hilarious, love it,
        i love it, love that, made my day, you made my day, that made my day, you're the best,
        you are the best, you rock, you're awesome, you are awesome, well done, good job, nice one,
        good one, wow, interesting, good to know, talk soon, speak soon, see you soon, bye for now,
        sleep well, congrats, congratulations
        """
    ),
    "zh": _words(
        """
        你好, 您好, 你们好, 大家好, 哈喽, 哈啰, 哈罗, 嗨, 嘿, 喂, 早, 早安, 早上好, 上午好, 中午好,
        下午好, 晚上好, 晚安, 在吗, 在么, 在不在, 你好吗, 最近好吗, 最近怎么样, 吃了吗, 新年好,
        新年快乐, 谢谢, 谢谢你, 谢谢您, 多谢, 感谢, 非常感谢, 谢了, 谢啦, 辛苦了, 麻烦了, 好, 好的,
        好滴, 好嘞, 行, 嗯, 嗯嗯, 哦, 噢, 明白, 明白了, 知道了, 了解, 了解了, 懂了, 收到, 没问题,
        不客气, 哈哈, 哈哈哈, 太好了, 太棒了, 不错, 再见, 拜拜, 拜, 回头见, 回见, 明天见, 下次见,
        先这样, 就这样, 太逗了, 笑死, 笑死了, 真好玩, 好玩, 有意思, 厉害, 真棒, 太有趣了, 回头聊,
        下次聊, 改天聊, 再聊
        """
    ),
    "es": _words(
        """
        hola, buenas, buenos dias, buenas tardes, buenas noches, buen dia, que tal, como estas, como va,
        que hay, gracias, muchas gracias, mil gracias, muchisimas gracias, vale, de acuerdo, entendido,
        perfecto, genial, estupendo, adios, hasta luego, hasta manana, hasta pronto, chao, chau,
        nos vemos, de nada, jaja, jajaja, jajajaja, me encanta, que bueno, muy bueno, que gracioso,
        hablamos, hablamos pronto, hasta la proxima, eres el mejor, eres la mejor, me has alegrado el dia
        """
    ),
    "de": _words(
        """
        hallo, hallochen, moin, moin moin, servus, gruss gott, gruezi, guten morgen, guten tag,
        guten abend, gute nacht, guten, wie geht's, wie gehts, wie geht es dir, wie geht es ihnen, na,
        danke, danke schon, dankeschon, vielen dank, besten dank, danke dir, danke sehr, tausend dank,
        alles klar, verstanden, passt, super, prima, in ordnung, gut, tschuss, tschus, ciao, bis bald,
        bis dann, bis spater, bis morgen, auf wiedersehen, schonen tag noch, schonen abend,
        schonen guten abend, einen schonen tag, einen schonen abend, haha, hihi, herrlich, lustig,
        sehr lustig, sehr gut, klasse, toll, wunderbar, das war gut, bis demnachst, man liest sich
        """
    ),
    "fr": _words(
        """
        bonjour, bonsoir, salut, coucou, bonne nuit, ca va, comment ca va, comment allez-vous,
        comment vas-tu, merci, merci beaucoup, merci bien, mille mercis, d'accord, entendu, compris,
        parfait, super, tres bien, au revoir, a bientot, a plus, a plus tard, a demain, bonne journee,
        bonne soiree, bon week-end, de rien, haha, mdr, ptdr, trop drole, trop fort, j'adore, genial,
        bravo, a tout a l'heure, on se reparle
        """
    ),
    "pt": _words(
        """
        ola, oi, oie, bom dia, boa tarde, boa noite, tudo bem, tudo bom, como vai, e ai, obrigado,
        obrigada, muito obrigado, muito obrigada, valeu, beleza, entendi, perfeito, otimo, tchau,
        ate logo, ate mais, ate amanha, de nada
        """
    ),
    "it": _words(
        """
        ciao, salve, buongiorno, buon giorno, buonasera, buona sera, buonanotte, buon pomeriggio,
        come stai, come va, grazie, grazie mille, molte grazie, va bene, d'accordo, capito, perfetto,
        ottimo, arrivederci, a presto, a dopo, a domani, prego
        """
    ),
    "ja": _words(
        """
        こんにちは, こんにちわ, こんばんは, おはよう, おはようございます, おやすみ, おやすみなさい,
        やあ, もしもし, はじめまして, お疲れ様, お疲れ様です, 元気, 元気ですか, お元気ですか,
        ありがとう, ありがとうございます, ありがとうございました, どうもありがとう, どうも, 了解,
        了解です, わかりました, 分かりました, 承知しました, なるほど, オッケー, さようなら, またね,
        じゃあね, また明日, バイバイ
        """
    ),
    "ko": _words(
        """
        안녕, 안녕하세요, 안녕하십니까, 하이, 좋은 아침, 좋은 아침이에요, 좋은 저녁, 잘 자, 잘 지내,
        잘 지내세요, 반가워, 반갑습니다, 고마워, 고마워요, 고맙습니다, 감사, 감사해요, 감사합니다,
        알겠어, 알겠어요, 알겠습니다, 네 알겠습니다, 오케이, 수고하세요, 수고하셨습니다, 잘 가,
        안녕히 가세요, 안녕히 계세요, 또 봐, 다음에 봐요
        """
    ),
    "ru": _words(
        """
        привет, здравствуйте, здравствуй, доброе утро, добрыи день, добрыи вечер, спасибо,
        большое спасибо, спасибо большое, понятно, хорошо, ладно, ок, пока, до свидания, до завтра,
        спокоинои ночи, как дела
        """
    ),
}

# May stand around a greeting without making it a question.
FILLERS = {
    "en": _words(
        """
        there, again, all, everyone, everybody, folks, team, guys, friend, my friend, buddy, mate, pal,
        me again, bot, assistant, claude, gpt, chatgpt, so much, very much, a lot, a bunch, a million, a ton,
        lots, oh, ah, well, so, and, then, for now, for that, for this, for the help, for your help,
        for everything, for all the help, for helping, for the info, for the answer, today, really,
        super, very, to you, to you too, you too, now, man, dude, please
        """
    ),
    "zh": _words(
        """
        啊, 呀, 哈, 呢, 啦, 哦, 噢, 呐, 哟, 咯, 嘛, 吧, 了, 哇, 亲, 朋友, 朋友们, 大家, 助手, 你, 您,
        啦啦, 先, 就, 那, 今天
        """
    ),
    "es": _words(
        """
        a todos, amigo, amiga, por todo, por tu ayuda, por la ayuda, muy, muy bien, pues, bueno, y,
        de nuevo
        """
    ),
    "de": _words(
        """
        zusammen, alle, nochmal, noch mal, dir, euch, ihnen, fur alles, fur die hilfe, fur deine hilfe,
        sehr, und, also, ja, dann
        """
    ),
    "fr": _words(
        """
        tout le monde, a tous, mon ami, beaucoup, pour tout, pour votre aide, pour ton aide, et, bon,
        alors, infiniment
        """
    ),
    "pt": _words(
        """
        a todos, pessoal, amigo, amiga, muito, por tudo, pela ajuda, e, entao, gente
        """
    ),
    "it": _words(
        """
        a tutti, amico, amica, mille, tante, di tutto, per tutto, per l'aiuto, e, allora, molto
        """
    ),
    "ja": _words(
        """
        ね, よ, です, ます, 皆さん, みなさん, 本当に, どうも
        """
    ),
    "ko": _words(
        """
        여러분, 정말, 너무, 진짜, 네, 요
        """
    ),
    "ru": _words(
        """
        всем, большое, еще раз, и
        """
    ),
}

# Words that tie the question to the person who asks.
PERSONAL_WORDS = {
    "en": _words(
        """
        i, i'm, i've, i'll, i'd, my, me, mine, myself, we, we're, we've, we'll, we'd, our, ours,
        ourselves, let's
        """
    ),
    "es": _words(
        """
        yo, mi, mis, mio, mia, mios, mias, me, conmigo, nosotros, nosotras, nuestro, nuestra, nuestros,
        nuestras, nos, tengo, soy, estoy, puedo, debo, quiero, necesito, tenia, teniamos, tenemos,
        somos, estamos, podemos
        """
    ),
    "de": _words(
        """
        ich, mein, meine, meinen, meinem, meiner, meines, mir, mich, wir, uns, unser, unsere, unseren,
        unserem, unserer, unseres
        """
    ),
    "fr": _words(
        """
        je, j'ai, j'aime, moi, mon, ma, mes, nous, notre, nos, m'a, m'ont, j'avais, j'habite
        """
    ),
    "pt": _words(
        """
        eu, meu, minha, meus, minhas, mim, comigo, nos, nosso, nossa, nossos, nossas, tenho, sou, estou,
        posso, temos
        """
    ),
    "it": _words(
        """
        io, mio, mia, miei, mie, mi, noi, nostro, nostra, nostri, nostre, ho, sono, posso, devo,
        abbiamo, siamo
        """
    ),
    "ru": _words(
        """
        я, мне, меня, мои, моя, мое, моего, моеи, мы, нас, нам, наш, наша, наше, наши
        """
    ),
}

# The same in scripts without spaces, or whose particles cling to the word.
PERSONAL_PARTS = {
    "zh": _words(
        """
        我, 咱, 俺, 本人, 自己
        """
    ),
    "ja": _words(
        """
        私, 僕, 俺, わたし, ぼく, うちの, 我々, 自分
        """
    ),
    "ko": _words(
        """
        나는, 나의, 내가, 저는, 저의, 제가, 우리, 저희, 나한테, 저한테
        """
    ),
}

# Spanish and Portuguese verbs say "we" in their ending; Korean "my" is one syllable that stands alone.
# "Gramos" is no verb.
_OTHER_AMOS = (
    "(?:\\w*gramos|ultimos|proximos"
    "|maximos|minimos|primos|\\w*onimos|decimos|extremos|tramos|ramos|optimos|racimos)"
)
PERSONAL_PATTERNS = (rf"\b(?!{_OTHER_AMOS}\b)\w{{2,}}(?:amos|emos|imos)\b", r"(?<!\w)[내제] ")

# Where the speaker only asks to be answered: "tell me …" is not about the speaker.
REQUESTS = (
    r"\b(?:tell|give|show|send|paste|write|explain(?: to)?|help|teach|let|get|find|read|name) me\b(?! my\b)",
    r"\b(?:can|could|may) i (?:ask|know|get)\b",
    r"\bi(?:'d like| want| need|'m curious| am curious|'d love| wonder| was wondering)(?: to know"
    r"| to ask)\b",
    r"帮我|给我(?!们?的)|告诉我|教我|跟我说|和我说|我想(?:知道|问|了解)|请问我|让我",
    r"\b(?:sag|sage|gib|zeig|zeige|erklar|erklare) mir\b",
    r"\b(?:dime|dame|muestrame|explicame)\b",
    r"\b(?:dis|donne|montre|explique)[- ]moi\b",
    r"\b(?:war|elizabeth|charles|james|wilhelm|napoleon|francis|peter|henry|type"
    r"|world war) i\b(?! \w+ (?:to|my|you))(?=\W*$| (?:start|end|begin|happen|break)|['’]s)",
    r"\bquel(?:le)? (?:jour|date) sommes-nous\b",
)

# Words that point at something said before, or at a thing that both sides know.
POINTERS = {
    "en": _words(
        """
        it, its, this, those, these, they, them, he, she, him, her, his, their, again, still,
        anymore, last time, earlier, previously, before, remember, remind, mentioned, discussed,
        talked, said, told, agreed, decided, usual, usually, same, one, ones, is that, was that,
        what that, about that, of that, for that, on that, in that, with that, do that, and that,
        to that, that one, that thing, that time, like that, after that
        """
    ),
    "es": _words(
        """
        eso, esto, esa, ese, aquella, aquel, otra vez, antes, recuerda, todavia
        """
    ),
    "de": _words(
        """
        dieser, diese, dieses, jener, wieder, nochmal, vorhin, immer noch, erinnere, erinnerst
        """
    ),
    "fr": _words(
        """
        ca, cela, ce, cette, encore, rappelle, rappelles, rappelle-moi, avant
        """
    ),
}

# The same in scripts without spaces.
POINTER_PARTS = {
    "zh": _words(
        """
        那, 这, 它, 他, 她, 上次, 之前, 以前, 刚才, 还记得, 说过, 提过, 来着, 原定, 原来
        """
    ),
    "ja": _words(
        """
        あの, その, この, それ, 前に
        """
    ),
    "ko": _words(
        """
        그것, 저번, 지난번
        """
    ),
}
