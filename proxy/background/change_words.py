"""Words by which a statement says of itself that something changed: rows of (what changes, pattern).

Patterns match folded text (see `terms.fold`): no case, no accents. English, Chinese, Spanish, German,
French. The words only open the question; what must be shared with the old fact is decided in `compare`.
"""

import re
from enum import StrEnum


class Cue(StrEnum):
    """What a clause says about the fact that held before."""

    MOVED = "moved"  # it has another value, which follows
    ENDED = "ended"  # it holds no more
    NOW = "now"  # this holds now: something else may have held before
    DENIED = "denied"  # a plain negation
    INSTEAD = "instead"  # names what it takes the place of, after the cue
    GONE = "gone"  # somebody or something named is no longer there


_MOVED = (
    r"\b(?:moved (?:to|from|out|up|back)|was moved|has moved|moved|reschedul\w+|rebooked|postponed|extended"
    r"|shortened|brought forward|pushed (?:back|to)|delayed|slipped|shifted|changed|switched|swapped|raised"
    r"|lowered|increased|decreased|reduced|cut|rose|risen|fell|dropped to|(?:goes|went|gone|is) (?:up"
    r"|down) to"
    r"|grew to|grown to|upgraded|downgraded|migrated|renamed|renewed|relocated|promoted|replaced by"
    r"|converted)\b"
    r"|改为|改成|改到|改在|改用|改由|改请|改吃|改喝|改签|换成|换到|换为|换了|换用|搬到|搬去|搬进|推迟|延期|延后|延到"
    r"|提前到|提前至|调到|调整|调为|涨到|涨至|降到|降至|加到|减到|减为|减至|提高到|提到|升级|升到|迁移|转为|转到|变成|变为"
    r"|\b(?:se mud\w+|se traslad\w+|se pospus\w+|se aplaz\w+|se retras\w+|se adelant\w+|fue \w*(?:plazad"
    r"|puest|lantad)\w+"
    r"|cambi(?:o|a|aron)|pas(?:o|a) a(?:l)?|sub(?:e|io) a|baj(?:a|o) a|se redujo|se amplio|aument\w+|reduj\w+"
    r"|umgezogen|zieht um|verschoben|verlegt|vorgezogen|verlangert|erhoht|gesenkt|gekurzt|gestiegen"
    r"|steigt|sinkt"
    r"|gewechselt|wechselt\w*|geandert|umgestellt|umgestiegen"
    r"|demenag\w+|report(?:e|ee|es)|repouss\w+|avanc(?:e|ee)|decal(?:e|ee)|augment\w+|baisse|chang(?:e|ee)"
    r"|est passe(?:e)?|passe(?:e)? a|prolong(?:e|ee))\b"
)
_ENDED = (
    r"\b(?:no longer|not any ?more|any ?more|stopped|quit|gave up|given up|cancel\w+|called off|sold|scrapped"
    r"|abandoned|turned down|rejected|declined|withdrew|dropped|decided (?:not|against"
    r"|on \S+ \S+ \S+ against)"
    r"|will not|won't|did not (?:happen|take place)|does not take place|ended|broke up|split up|gave notice"
    r"|leaving|quitting|selling|has left"
    r"|left(?! (?:and|knee|hand|arm|eye|ear|leg|foot|side|shoulder|wrist|hip|ankle))|resigned"
    r"|retired|sold|gave away|closed|shut down|removed|has healed|is over|got rid of"
    r"|(?:is|are|was|were|been) off|fell through|lapsed|came to like|has come to like)\b"
    r"|不再|取消|卖掉|卖了|戒了|戒|拒掉|拒绝|停用|停止|停了|下线|放弃|退订|退出|离开|离职|辞职|决定不|没有参加|不打算|不去了|不做了"
    r"|\b(?:ya no|dej(?:o|a) de|dejo|abandono|cancel\w+|anul\w+|renunci\w+|vendi\w*|rechaz\w+"
    r"|nicht mehr|kein\w* .{1,40} mehr|abgesagt|verkauft|gekundigt|aufgehort|aufgegeben|verlassen|abgelehnt"
    r"|ne .{1,30} plus|n'\w+ plus|arrete|annul\w+|vendu\w*|renonc\w+|quitte|abandonne)\b"
)
_NOW = (
    r"\b(?:now|currently|from now on|these days|as of (?:now|today)|since (?!then|he|she|they|it|the\b"
    r"|user)\S+"
    r"|(?:from|starting|as of|effective)(?: in| on)?(?: \d+)?"
    r" (?:january|february|march|april|may|june|july|august|september|october|november"
    r"|december)|new|down to|up to|nowadays|lately"
    r"|ahora|actualmente|a partir de|desde (?:el )?\d*\w*"
    r"|jetzt|mittlerweile|inzwischen|ab sofort|neuerdings|nunmehr|seit|nur noch"
    r"|maintenant|desormais|dorenavant|depuis|actuellement)\b"
    r"|现在|目前|如今|已经|已|起改|之后都|(?:月|日|年|号)起"
)
_DENIED = (
    r"^not\b|\b(?:is not|isn't|are not|aren't|was not|does not|doesn't|do not|don't|cannot|can't|never"
    r"|no es|no tiene|no puede|nicht|kein\w*|pas|n'est pas|ne .{1,20} pas)\b|不是|没有|不会|不能|不"
)
_INSTEAD = (
    r"\b(?:formerly|previously(?: called| known as)?|used to be|until now"
    r"|instead of|rather than|in place of|replac(?:es|ed|ing|e)|took over .{0,60}?from"
    r"|takes over .{0,60}?from"
    r"|switched from|changed from|moved from|(?:changed|switched) \w+ from|migrated from|in favou?r of"
    r"|antes(?: llamad\w+)?|anteriormente|ehemals|fruher|bisher|anciennement|auparavant"
    r"|sustituy\w+(?: al?)?|reemplaz\w+(?: al?)?|en lugar de|en vez de|cambi\w+ de"
    r"|statt|anstatt|anstelle von|ersetzt|lost .{1,30} ab"
    r"|au lieu de|remplac\w+|a la place de)\b"
    r"|取代|代替|接替|而不是|下线|原名|曾用名|以前叫|原来叫"
)
_GONE = (
    r"\b(?:left|retired|moved (?:out|away|on|to)|resigned|died|quit|cancelled|is gone|broke|went bust|closed"
    r"|se jubilo|se fue|se marcho|dejo|ist in (?:elternzeit|rente)|ist weg|geht in|est parti\w*"
    r"|est mort\w*|est deced\w+|a quitte|ist (?:gestorben|tot)|murio|ha muerto)\b"
    r"|转岗|离职|退休|跑路|离开|去世|搬走|调走|坏了"
)

PATTERNS: dict[Cue, re.Pattern[str]] = {
    Cue.MOVED: re.compile(_MOVED),
    Cue.ENDED: re.compile(_ENDED),
    Cue.NOW: re.compile(_NOW),
    Cue.DENIED: re.compile(_DENIED),
    Cue.INSTEAD: re.compile(_INSTEAD),
    Cue.GONE: re.compile(_GONE),
}

# The new fact holds beside the old one, and says so.
BESIDE = re.compile(
    r"\b(?:also|too|another|additional(?:ly)?|a second|a third|as well|in addition|besides|both"
    r"|tambien|ademas|otr[oa]s?|auch|ausserdem|zusatzlich|noch ein\w*|weiter\w+|aussi|egalement|en plus)\b"
    r"|还|也|另外|另一|同时|再加"
)
# What is meant to be: it comes true, changes or comes to nothing.
PLANNED = re.compile(
    r"\b(?:plans?|planning|wants?|wanted|hopes?|considering|considers|might|(?<!\d )may(?! \d)|will"
    r"|intends?|thinking (?:of"
    r"|about)|undecided"
    r"|is to|going to|booked|registered|signed up|temporarily|goal|aims?|unsure|thinks|offer"
    r"|reserv(?:e|ed|ado|ada|iert|ee)|gebucht"
    r"|planea|quiere|piensa|va a|inscrit[oa]|plant|will|erwag\w+|mochte|vorhat|prevoit|veut|voulait"
    r"|envisage)\b"
    r"|计划|打算|想|准备|考虑|报名|备考|目标"
)
# Why, or on what occasion: what follows is not what the statement is about.
REASON = re.compile(
    r"\b(?:because|so that|due to|thanks to|owing to|after|since (?:then|he|she|they|it|the|user"
    r"|[a-z]+ [a-z]+ed\b)|when"
    r"|porque|ya que|debido|tras|para que|weil|da \w+ .{0,30}\w+ ist|wegen|damit|nachdem"
    r"|parce que|car|a cause|suite a|apres)\b|因为|由于|,因(?!此)|，因(?!此)"
)
KIN = re.compile(
    r"\b(?:wife|husband|partner|spouse|girlfriend|boyfriend|mother|mom|mum|father|dad|parents?|sons?"
    r"|daughters?|goddaughter"
    r"|child|children|kids?|baby|brothers?|sisters?|siblings?|aunt|uncle|cousins?|nephews?|nieces?"
    r"|grandmother|grandfather|grandma|grandpa|friends?|colleagues?|coworkers?|neighbou?rs?|roommate"
    r"|flatmates?"
    r"|boss|manager|landlord|in-laws?|team|company|office"
    r"|esposa|marido|mujer|madre|padre|padres|hij[oa]s?|herman[oa]s?|ti[oa]|prim[oa]s?|abuel[oa]s?"
    r"|amig[oa]s?|jef[ea]"
    r"|companer[oa]s?|novi[oa]"
    r"|frau|mann|ehefrau|ehemann|mutter|vater|eltern|sohn\w*|tochter\w*|kind|kinder|bruder\w*"
    r"|schwester\w*|tante|onkel|oma|opa"
    r"|freund\w*|kolleg\w*|chef\w*|nachbar\w*"
    r"|femme|mari|mere|pere|parents|fils|fille|enfants?|freres?|soeurs?|tante|oncle|ami[es]*|patron"
    r"|collegue\w*)\b"
    r"|妻子|老婆|老公|丈夫|爱人|妈妈|母亲|爸爸|父亲|父母|儿子|女儿|孩子|哥哥|弟弟|姐姐|妹妹|朋友|同事|老板|邻居|奶奶|爷爷|外婆|外公"
    r"|公司|部门|团队"
)
