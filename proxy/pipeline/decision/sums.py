"""Recognise a sum, a conversion or a count of days that has all its numbers in the message."""

import re

from proxy.terms import fold
from proxy.wordlists import either

_NUMBER = r"(?<![\d.,])[.,]?\d[\d.,]*+"
_UNIT = (
    r"(?:°? ?[cfk]|degrees?|grados?|grad|degres?|(?:fahrenheit|celsius|kelvin|centigrad\w*|centigrade)"
    r"|km|m|cm|mm|mi|miles?|millas?|meilen?|milles?|kilomet\w+|met(?:er|re|ro)s?"
    r"|zentimeter|feet|foot|ft|pies?"
    r"|fuss|pieds?|inch\w*|zoll|pulgadas?|pouces?|yards?|yardas?"
    r"|kg|g|kilos?|kilogram\w*|gram\w*|gramm|lbs?|pounds?|libras?|livres?|pfund|oz|ounces?"
    r"|onzas?|unzen?|onces?|stone"
    r"|l|ml|lit(?:er|re|ro)s?|gallons?|galon\w*|gallonen|pints?|cups?|tazas?|tassen?|tasses?|tbsp|tsp"
    r"|hours?|horas?|stunden?|heures?|minut\w+|seconds?|segundos?|sekunden?|secondes?"
    r"|days?|dias?|tagen?|jours?|weeks?"
    r"|acres?|hectar\w+|hectareas?|mph|kmh|km/h|kb|mb|gb|tb|bytes?|bits?|watts?|kw|kwh"
    r"|joules?|calor\w+|kcal|bar|psi)"
)
# Of a month: its name in full, cut or not, in the languages whose dates have it as a word.
_MONTH = (
    r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|ene|abr|ago|dic|mai|okt|dez|fev"
    r"|avr|juin|juil|aout|marz"
    r"|dez)[a-z]{0,8}"
)
_DAY = (
    rf"(?:(?:the |el |le |dem |den )?\d{{1,2}}(?:st|nd|rd|th|er|\.)? (?:de |of )?{_MONTH}"
    rf"(?:,? (?:de |del )?\d{{4}})?"
    rf"|{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?|\d{{1,4}}[-./]\d{{1,2}}[-./](?:\d{{2,4}})?)"
)
_TIME = r"(?:\d{1,2}[:.h]\d{2}|\d{1,2} ?(?:am|pm|h|uhr|heures?|点))"
_PER = r"(?:[a-zµμ]{1,4}/[a-z]{1,4}|mcg|µg|mg|iu|mmol|mol|mmhg|kpa|hpa)"
_RUN = r"\d[\d.,]* ?(?:km|k|miles?|mi|m|kilometer|kilometres?|kilometros)"
_CLOCK = r"\d{1,2}(?::\d{2}){1,2}|\d{1,2} ?h ?\d{0,2}|\d{1,3} ?min\w*"
_CLOCK = rf"(?:{_CLOCK})"
# A time of one place in another. Han characters are a place's name here.
_ELSEWHERE = r"(?:[a-z]+(?: [a-z]+){0,2})"
_SUM = re.compile(
    either(
        rf"{_NUMBER}\s*%\s*(?:of|de|von|da|di)\s*[^\d\s]?{_NUMBER}",
        rf"{_NUMBER}\s*的\s*{_NUMBER}\s*%",
        r"^(?:what(?:'s| is)|calculate|compute|how much is)?\s*"
        rf"\(?{_NUMBER}(?:\s*[-+*/x×÷^]\s*\(?{_NUMBER}\)?)+\s*[=?]*$",
        rf"\b{_NUMBER}\s*(?:divided by|multiplied by|times|plus|minus"
        r"|entre|dividido (?:entre|por)|multiplicado por|mas|menos|geteilt durch|mal|divise par|fois|moins)"
        rf"\s*{_NUMBER}\W*$",
        rf"^{_NUMBER}%?(?:除以|乘以|乘|加上?|减去?){_NUMBER}%?(?:等于|是)?(?:几|多少)?\W*$",
        rf"\b(?:(?:square|cube) root of|raiz cuadrada de|(?:quadrat)?wurzel aus"
        rf"|racine carree de) {_NUMBER}",
        rf"{_NUMBER}\s*的平方根|^把?\s*{_NUMBER}\s*\S{{1,4}}(?:换算成|等于多少)\S{{1,4}}$",
        rf"\bconvert {_NUMBER}\s*\S+(?: \w+)? (?:to|into|in) \w+",
        rf"\bhow many \w+ (?:is|are|in) {_NUMBER}\s?\w+",
        rf"\bwhat(?:'s| is) {_NUMBER} (?:squared|cubed)\b|{_NUMBER}的(?:平方|立方)"
        rf"|^{_NUMBER}\s*\S{{1,3}}(?:等于|是)多少",
        r"^\W*(?:please )?(?:calculate|compute|solve|evaluate|simplify|factor(?:i[sz]e)?|complete"
        r"|continue)\b[a-z :,]{0,24}[-\d\s+*/^=().,:%xyz]+\W*$",
        r"^\W*(?:calcula|resuelve|simplifica|berechne|lose|rechne|calcule|resous"
        r"|simplifie)\b[a-z :,]{0,24}[-\d\s+*/^=().,:%xyz]+\W*$",
        r"^(?:请|帮我)?(?:计算|算一下|算算|解方程|解|求解?|约分|化简|补全数列"
        r"|因式分解)[：:]?\s*[-\d\s+*/^=().,%xyz×÷]+\W*$",
        rf"^\W*(?:square root|sqrt|root|raiz|wurzel|racine)(?: (?:of|de|aus|von|d'))? ?{_NUMBER}\W*$",
        rf"^\W*(?:what is |what's |how much is |cuanto es |cuantos? son |wie viel ist "
        rf"|wieviel sind |combien font )?"
        rf"{_NUMBER} ?{_UNIT} (?:to|in|into|a|en|zu|nach|as) {_UNIT}\W*$",
        rf"^\W*(?:how many |number of |nb de |nombre de |cuantos |wie ?viele |combien de )?"
        rf"(?:days?|weeks?|months?|dias|semanas|meses|tage|wochen|monate|jours|semaines|mois)"
        rf"(?: (?:are there|hay|sind|liegen|y a-t-il|il y a|van|passed))? (?:between|from|entre"
        rf"|desde|zwischen|von) {_DAY}"
        rf" (?:and|to|until|y|a|al|hasta|und|bis|et|au) {_DAY}\W*$",
        rf"^\W*(?:which is |what is |que es |cual es |was ist |wer ist )?(?:bigger|larger"
        rf"|greater|smaller|mayor|menor"
        rf"|mas grande|grosser|kleiner|groesser)[,:]? {_NUMBER}(?:/\d+)? (?:or|o|oder"
        rf"|ou) {_NUMBER}(?:/\d+)?\W*$",
        rf"^\W*{_NUMBER}(?:/\d+)? (?:or|o|oder|ou) {_NUMBER}(?:/\d+)?[ ,:]+"
        r"(?:which is |cual es |que es |was ist |lequel est |qui est )?(?:(?:the |el |le |plus |mas )*)"
        r"(?:bigger|larger|greater|smaller|mayor|menor|grande?|petit|grosser|kleiner)\W*$",
        rf"^\W*(?:split |divide |teile |divise |partage )?{_NUMBER} ?(?:€|\$|£|euros?|dollars?)? ?"
        rf"(?:divided by|by|between|entre|durch|a diviser par|divise par|par|/) {_NUMBER} (?:\w+ )?"
        rf"(?:with|plus|con|mas|mit|und|avec|et|\+) (?:an? |un |una )?{_NUMBER} ?(?:%|percent"
        rf"|por ciento|prozent|pour cent)"
        r"(?: (?:de |of )?(?:tip|propina|trinkgeld|pourboire))?\W*$",
        rf"^\W*(?:(?:what(?:'s| is)|if it's|if it is|son|las|a las|um|wenn es|a|il est) )?{_TIME}"
        rf"(?: (?:in|en|de|a|in der))? ?{_ELSEWHERE}(?: time)?,? (?:is what time |what time is (?:it"
        rf"|that) )?"
        rf"(?:in|to|en hora de|que hora es en|en que hora de|ist wie ?viel uhr in"
        rf"|ist wie spat in|ca fait quelle heure a"
        rf"|c'est quelle heure a|en heure de) {_ELSEWHERE}(?: time)?\W*$",
        rf"^{_TIME}?(?:\d{{1,2}}:\d{{2}})?[\u4e00-\u9fff]{{2,5}}时间(?:是|等于|换成"
        rf"|对应)[\u4e00-\u9fff]{{2,5}}(?:时间)?(?:是)?几点\W*$",
        rf"^\W*(?:roman numerals?|binary|hex(?:adecimal)?|octal|factorial|(?:prime )?factors|log|cube"
        rf"|square)"
        rf" (?:for|of) {_NUMBER}\W*$",
        rf"^\W*{_NUMBER} (?:in|to|en|a) (?:binary|hex|roman numerals|binario|binar)\W*$",
        rf"^\W*(?:convierte|rechne|wandle|convertis) {_NUMBER}\s*\w+ (?:a|en|in) \w+(?: um)?\W*$",
        # A concentration, a dose; a pace, of a distance and a time
        rf"^\W*(?:please |bitte |por favor )?(?:(?:convert|what is|what's|was (?:ist|sind)|pasa(?:me)?"
        rf"|convierte|convertis"
        rf"|passe(?:-moi)?|rechne|cuanto (?:es|son)|combien (?:fait|font)) )?{_NUMBER} ?{_PER}"
        rf" (?:to|in|into|a|en|zu|nach|as) {_PER}(?: umrechnen| um| stp| please| bitte| porfa)*\W*$",
        rf"\b(?:pace|ritmo|allure|tempo|vitesse|speed)\b[^.:]{{0,40}}\b(?:{_RUN} [^\d.]{{1,12}}{_CLOCK}"
        rf"|{_CLOCK} [^\d.]{{1,12}}{_RUN})\W*$",
        rf"\b{_RUN} (?:in|en|im) {_CLOCK},? [^.:]{{0,24}}\b(?:pace|ritmo|allure|tempo|vitesse"
        rf"|speed)\b[^.:\d]{{0,12}}$",
        rf"^\W*(?:date ?:? )?{_NUMBER} (?:days?|weeks?|months?|dias|semanas|meses|tage|wochen|monate"
        rf"|jours|semaines|mois)"
        rf" (?:after|from|before|despues (?:de|del)|antes (?:de|del)|nach|vor|apres|avant) {_DAY}\W*$",
        # Numbers of another base
        r"^\W*(?:(?:convert|what is|what's|was ist|cual es|cuanto es|pasa|convierte|convertis"
        r"|combien fait) )?"
        r"(?:(?:0x[\da-f]{1,16}|0b[01]{1,64}|0o[0-7]{1,22})|(?:hexa?(?:dez?cimal)?|bina\w{1,3}|octal"
        r"|decimal|dezimal) [\da-f]{1,16}"
        r"|[\da-f]{1,16} (?:hexa?(?:de[cz]imal)?|bina\w{1,3}|octal|decimal|dezimal)) ?"
        r"(?:in|en|to|into|a|zu|nach|als|as) (?:de[cz]imale?|bina\w{1,3}|hexa?(?:de[cz]imal)?"
        r"|o[ck]tal)\W*$",
        rf"^(?:把)?(?:0x[\da-f]{{1,16}}|{_NUMBER})(?:转换?[成为]?|换算?成|变成|用)(?:二|八"
        rf"|十六?)进制(?:是多少|怎么写|表示)?\W*$",
        # A price of each, and how many
        rf"^\W*{_NUMBER} \w{{2,20}}(?: (?:of|de|d'|von) ?\w{{2,20}})? (?:at|a|zu|je|for|por) (?:\$|€"
        rf"|£)?{_NUMBER} ?"
        r"(?:€|\$|£|euros?|dollars?|dolares|pesos|pounds?|franken|francs?|cents?|centimes?)?"
        r"(?: (?:each|per|the|le|la|el|pro|das|der|die|cada|por|chacune?|piece|stuck)(?: \w{2,20})?)?,? "
        r"(?:total|in total|gesamt|zusammen|en tout|en total|insgesamt|how much|cuanto(?: es)?|combien"
        r"|macht)\W*$",
        # In Chinese: reduced by tenths, days between, shared, compared
        rf"^{_NUMBER}[元块]?(?:的|打)?[一二三四五六七八九\d.]{{1,3}}折(?:后|之后)?(?:是"
        rf"|等于)?多少[钱元块]?\W*$",
        r"^(?:从)?(?:\d{4}年)?\d{1,2}月\d{1,2}[日号](?:到|至|和"
        r"|跟)(?:\d{4}年)?\d{1,2}月\d{1,2}[日号](?:之间)?"
        r"(?:相?隔|相?差|有|是|一共|总共|共)?了?(?:几|多少)[天周]\W*$",
        rf"^[一二三四五六七八九十两\d]{{1,3}}个?人(?:aa|平分|均分|平摊"
        rf"|分)\s?{_NUMBER}[块元]?钱?[,，]?\s?(?:每人|一人|人均)(?:是|要|付"
        rf"|出)?多少[钱元块]?\W*$",
        rf"^{_NUMBER}(?:/\d+)?(?:和|跟|与|还是){_NUMBER}(?:/\d+)?[,，]?(?:谁|哪个)更?[大小]\W*$",
    )
)


def is_calculation(text: str) -> bool:
    """True if the text is a sum or a conversion of units with all its numbers."""
    return bool(_SUM.search(fold(text).strip()))
