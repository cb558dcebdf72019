"""What a tool runs as it is told, and what it would have to be told first."""

import pytest

from proxy.pipeline.decision.decide import decide
from proxy.pipeline.decision.errands import is_errand
from tests.pipeline.conftest import turn


@pytest.mark.parametrize(
    "text",
    [
        "set an alarm for ten to six",
        "wake me at six",
        "start a timer for forty minutes will you",
        "ping me in 20 min",
        "timer 10 minutes",
        "timer 40 mins for the plaster",
        "set a reminder in 15 min to recheck",
        "wake me at half four",
        "stell das metronom auf 92",
        "pon recordatorio diario a las 7 para la pastilla",
        "temporizador de 45 minutos",
        "mets une playlist zouk pour danser",
        "打开节拍器 90",
        "三小时后叫我喂奶，定个闹钟",
        "tune to radio 4 long wave",
        "búscame en youtube el ave verum de mozart a cuatro voces",
        "turn the lights off in the kitchen",
        "lights off",
        "pon algo de los panchos",
        "play some jazz",
        "play some music by Fela Kuti",
        "call an ambulance",
        "给我放一首《茉莉花》",
        "remind me to turn the oven off in 20 min",
        "réveille-moi à 6h30",
        "mets un minuteur de 12 minutes",
        "stell einen wecker auf 5 uhr 40",
        "erinnere mich in 10 minuten an die nudeln",
        "明早六点叫我起床",
        "apaga la luz del salón",
        "dim the lights",
        "remind me tomorrow at 9 to ask Tom",
        "despiértame a las seis y media",
        "avísame en 20 minutos",
        "十分钟后提醒我关火",
        "明天早上七点闹钟",
        "开灯",
        "音量调到30",
        "spiel was von Nina Simone",
        "mach das licht aus",
        "run a timer, ten minutes",
        "look up skip hire companies in Kilkenny",
        "find a 24 hour pharmacy near Swansea",
        "search for oxalic acid strips in stock near Taunton",
        "such uns einen lkw parkplatz bei Rosenheim",
        "start a five minute countdown with a bell",
    ],
)
def test_an_order_that_says_all_the_tool_must_know_is_an_errand(text: str) -> None:
    assert is_errand(text)
    assert not decide(turn(text)).search


@pytest.mark.parametrize(
    "text",
    [
        "remind me of Ana's recital",
        "set an alarm an hour before the recital",
        "wake me at the usual time",
        "call mum",
        "call the surveyor",
        "play the song from our wedding",
        "play what we danced to",
        "remind me what the eye screening letter said, am i back in 6 months or 12",
        "set a timer for the bread, how long did I say",
        "timer for the bread",
        "turn the heating to the usual",
        "remind me at six about Tom's thing",
        "recuérdame cómo se llamaba el técnico del boiler",
        "erinner mich wann die probe ist",
        "what's the alarm code",
        "alarm code?",
        "is the radio fixed",
        "radio licence, paid?",
        "heating",
        "lights in the barn, who fitted them",
        "我定的闹钟是几点",
        "提醒我上次医生说的几点吃药",
        "play that album Tom likes",
        "order a taxi for the christening",
        "remind me two days before the exam",
        "remind me in March to prune the figs",
        "lamp",
        "turn on the lamp Gran gave me",
        "wake me before the bell rings at six",
        "mets la chanson de la première danse",
        "set a timer for 10 minutes and tell me what Ana said",
        "remind me at ten what the vet said",
        "wake me in time for the 7:40",
        "放那首婚礼上的歌",
        "提醒我吃药",
        "find the quote from the roofers in Kilkenny",
        "find what Tom said in Leeds",
        "look up Ana's flat in Cali",
        "look up the vet in Kilkenny",
        "find a dentist",
        "search for emails from Ana in Leeds",
        "find our hotel in Lyon",
        "busca el contrato en Madrid",
        "such die Rechnung in Outlook",
        "look up flights we took to Oslo",
        "remind me at six to ask what the vet said",
        "timer 10 min for the usual bread",
    ],
)
def test_an_order_that_leaves_something_to_memory_is_none(text: str) -> None:
    assert not is_errand(text)
    assert decide(turn(text)).search


@pytest.mark.parametrize(
    "text",
    [
        "please " * 15,
        "timer 1 " * 13,
        "set a timer for 1 " * 6,
        "play a by " * 11,
        "light " * 18,
        "remind me to x at " * 6,
        "提醒" * 55,
        "3点" * 55,
    ],
)
def test_no_text_keeps_the_rule_busy(text: str, benchmark_ms) -> None:
    assert benchmark_ms(lambda: is_errand(text)) < 10
