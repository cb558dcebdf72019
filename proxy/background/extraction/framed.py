"""Recognise sentences that should not be kept for long: inside a fiction or a hypothesis, or true for
minutes only.

Stricter than what `verbatim` leaves out: here a language model has already judged that it is worth keeping.
"""

import re

from proxy.background.extraction.cues import paragraphs, supposed
from proxy.background.extraction.provenance import flat
from proxy.terms import plain

_VEHICLE = (
    r"(?:train|bus|subway|tube|metro|underground|ferry|plane|tram|cab|taxi|ice|uber|checkout|airport|traffic"
    r"|blue line|red line|green line)"
)
_PASSING = re.compile(
    # en
    r"\b(?:battery|signal) (?:keeps|is|at)\b|\b\d{1,2} ?% (?:of )?(?:battery|charge)\b"
    r"|\btyping (?:this|that)?\s?(?:on|with|by|one|from|while|mostly)\b"
    rf"|\b(?:i'm|i am|we're|we are) (?:currently |still |just |now )?(?:on|in|at) (?:the|a|my|an) "
    rf"(?:\w+ ){{0,2}}{_VEHICLE}\b(?! (?:team|project|committee|board|crash|strike))"
    r"|\bat the door\b|\bin (?:a|the) (?:\w+'?s? )?(?:waiting room|queue|meeting right now)"
    r"|\b(?:brb|afk|gotta (?:run|go)|back in a (?:sec|minute|bit)|be right back)\b"
    r"|\b(?:heat pack|ice pack)\b|\b(?:arm|leg|foot|hand)(?:'s| is| has)? gone (?:dead|numb)\b"
    r"|\bhalf asleep\b"
    # zh, ja, ko
    r"|手机.{0,10}电|(?:地铁|火车|高铁|公交|飞机|出租车)\s?.{0,8}(?:上|里).{0,6}(?:打字|信号|单手|回你|聊)"
    r"|我(?:现在|正|还|人)?在(?:\w{0,3}(?:地铁|公交|大巴|轮渡|渡轮|船|动车|火车|高铁|飞机|出租|机场|路"
    r"|车))\s?(?:\d+ ?号线)?(?:上|里)(?!班)"
    r"|打字不(?:方便|便)|先下了|马上到站|今(?:、)?(?:電車|バス|車|飛行機|地下鉄)(?:の中)?(?:です|に|で|から)"
    r"|電池が|지금 (?:지하철|버스|기차|차) ?(?:안|에)|배터리"
    # es, pt, it, fr, de, ru
    r"|\b(?:estoy|voy|sigo) (?:ahora |justo )?(?:en|por) (?:el |la |un |una )?(?:metro|tren|bus|autobus|coche"
    r"|avion|taxi|cola|autopista|carretera|calle|sala de espera|ascensor|aeropuerto)\b|\b(?:luego"
    r"|ahora) sigo\b"
    r"|\bbateria al? \d|\bsin bateria\b"
    r"|\b(?:estou|to) (?:agora )?n[oa] (?:metro|onibus|trem|comboio|carro|aviao|fila|transito)\b"
    r"|\bsono (?:in|sul|sulla) (?:metro|treno|autobus|macchina|aereo|autostrada|coda)\b"
    r"|\bje suis (?:actuellement |encore |la )?(?:dans|en|a|sur) (?:le |la |l'|un |une )?(?:metro|train"
    r"|bus|tram"
    r"|voiture|avion|route|autoroute|salle d'attente|file)\b|\bplus de batterie\b|\bdans le (?:metro"
    r"|train|bus)\b"
    r"|\b(?:bin|sitze|stehe|stecke|sind|sitzen) (?:ich |wir )?(?:gerade|grad|jetzt|noch|eben) (?:auf|in"
    r"|im|am|beim"
    r"|an) (?:der |dem |einem |einer )?(?:autobahn|zug|bahn|bus|u-?bahn|s-?bahn|tram|auto|stau|flugzeug"
    r"|flughafen|fahre|schiff"
    r"|supermarkt|wartezimmer|kasse|schlange)\b|\bakku\b.{0,20}%|\b(?:im|in der) (?:zug|bahn"
    r"|bus)\b.{0,20}\bgerade\b"
    r"|\bв (?:метро|поезде|автобусе|пробке)\b.{0,20}\bсейчас\b|\bсейчас в (?:метро|поезде|автобусе|пробке)\b"
)


def is_passing(text: str) -> bool:
    """True for a state that is over in minutes: on the train, low battery, somebody at the door."""
    return bool(_PASSING.search(plain(text)))


def is_supposed(evidence: str, said: str) -> bool:
    """True if the evidence stands in a fiction: from the words that open it to those that end it, or to the
    paragraph's end."""
    span = flat(evidence)
    if not span:
        return False
    for paragraph in paragraphs(said):
        if span in flat(paragraph):
            return span in flat(" ".join(supposed(paragraph)))
    return False
