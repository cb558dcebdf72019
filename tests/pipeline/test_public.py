"""What is public and changes by the hour, and what only sounds so."""

import pytest

from proxy.pipeline.decision.commands import is_command
from proxy.pipeline.decision.decide import decide
from proxy.pipeline.decision.public import is_public
from tests.pipeline.conftest import turn


@pytest.mark.parametrize(
    "text",
    [
        # A feed of no place
        "eur/usd",
        "a cuánto está el dólar blue",
        "aktuelle bauzinsen 10 jahre",
        "les tirages du loto d'hier",
        "did arsenal win",
        "茅台现在什么价",
        "国足赢了没",
        "leitzins fed derzeit",
        "goldpreis pro unze",
        "wer führt beim skispringen",
        "schau ob die domain turmfalke.de noch frei ist",
        # A feed of a place that is named
        "windstärke sylt",
        "elbpegel dresden",
        "nachtapotheke in linz",
        "hay todavía entradas para shakira",
        "reste des places pour stromae vendredi",
        "gibts noch karten für coldplay",
        "verglas cette nuit à metz",
        "gasolina más barata por Alcorcón",
        "ist BA 981 schon gelandet",
        "fährt die fähre nach borkum heute",
        "hat der edeka in der schillerstraße noch offen",
        "杭州到武汉周日还有动车票没",
        "How high are the waves at St Clair right now?",
        "What is the tide in Simon's Town right now?",
        "What's the cricket score at Edgbaston this minute?",
        "pollen count for austin tx",
        "schneehöhe zugspitze",
        "regnets morgen in kassel",
        "helará esta noche en soria",
        "vagues à hossegor",
        "青岛今晚几点涨潮",
        # Roads and rides, and how they are
        "Is the highway at Enterprise open at this moment, any closures?",
        "is the snake pass open or shut",
        "is the red line running in Boston right this minute?",
        "what's the traffic like on I-90 right this second",
        "Could you find out whether the 17:42 from Paddington is running late?",
        "Schau bitte nach, ob der RE nach Bremen gerade Verspätung hat",
        "ya aterrizó el IB6830",
        "le col du galibier est ouvert ou pas",
        "现在去鼓浪屿的轮渡还有没有票,帮我查一下",
        "MU5100晚点了没",
        # Sights, shops at a place, services
        "how long's the queue at the louvre at the moment",
        "is ikea in croydon open now",
        "se cayó whatsapp??",
        "广州塔现在排队要多久",
    ],
)
def test_what_only_a_feed_can_tell_is_public(text: str) -> None:
    assert is_public(text)
    assert not decide(turn(text)).search


@pytest.mark.parametrize(
    "text",
    [
        # What may be the user's own
        "what's the rent in lisbon right now",
        "Is the boat in the harbour at Split still for sale",
        "Is the road to the cabin clear right now?",
        "what's the account balance right now",
        "how's the renovation going right now",
        "current password for the router",
        "What's the temperature in the greenhouse right now?",
        "wie warm ist es in leos zimmer",
        "Is line 3 down right now?",
        "Is the Hue bridge running?",
        "Is port 5432 open on atlas?",
        "is the bridge loan open",
        "is the museum job in Bath still open",
        "is the account in Zurich closed",
        # Somebody's
        "Is Lena on the ferry to Harris right now?",
        "How is Anna's flight to Rome, on time?",
        "¿de qué puerta sale el vuelo de Marta?",
        "le vol de marie est à l'heure ?",
        "where's Marta right now, Lisbon or Porto?",
        "is storm in the barn",
        "wie lang ist die schlange leo",
        "王芳的高铁晚点了吗",
        "小雅的航班几点到",
        "did the kids win the match on saturday",
        # A ride that the user is to take
        "When does the train to Oslo leave?",
        "¿A qué hora sale el tren a Sevilla?",
        "wann fährt der nächste Bus nach Hause",
        "what gate is the flight",
        "flight BA117, which seat",
        # Nobody says where: memory knows the place
        "Is the ferry running right now?",
        "is it raining",
        # A public word in a question of a life
        "What time's sunset yoga on saturday",
        "pollen allergy meds",
        "uv lamp hours for the gecko",
        "how warm does the snake need it",
        "cuánto mide la cola de Luna",
        "Ist der Wellensittich krank?",
        "Hochwasserschutz in Passau, wer macht das Angebot",
        "neige le chat, il mange quoi",
        "花粉过敏吃哪个药",
        "停车场哪个位置",
        "银行开门让谁去",
        "黄金买了多少克",
        "what's the wait time at the clinic",
        "gibts noch karten für die hochzeit",
        "quedan entradas para la boda",
        "reste des places pour la fête",
        "fährt papa heute nach köln",
        "fährt der bus heute",
        "windstärke beim rennen",
        "el control de Marta",
        "which platform does Lena's train leave from",
        "is the printer down or is it just me",
    ],
)
def test_what_may_be_of_somebodys_life_is_searched(text: str) -> None:
    assert decide(turn(text)).search


@pytest.mark.parametrize(
    "text",
    ["is notion down or is it just me", "spinnt vinted oder liegts an mir", "leboncoin rame ou c'est moi"],
)
def test_or_is_it_just_me_makes_an_outage_no_question_about_the_user(text: str) -> None:
    assert not decide(turn(text)).search


@pytest.mark.parametrize(
    "text",
    [
        "zeig mir was in /var/log liegt",
        "list the files in the current directory",
        "run `df -h` and show me what it says",
        "haz ping a google.com",
        "führ mal docker ps aus",
        "跑一下 npm test",
    ],
)
def test_a_command_that_is_the_same_on_every_machine_is_one(text: str) -> None:
    assert is_command(text)


@pytest.mark.parametrize(
    "text",
    ["Run the release process", "run it again", "top floor or ground floor", "run make deploy on atlas"],
)
def test_what_is_run_by_agreement_is_no_command(text: str) -> None:
    assert not is_command(text)


@pytest.mark.parametrize(
    "text",
    [
        "is " * 45,
        "l'" * 68 + "x",
        "train to " * 15,
        "a" * 138,
        "1:" * 68,
        "现在" * 68,
        "查一下" * 45,
        "的" * 138 + "票",
    ],
)
def test_no_text_keeps_the_rules_busy(text: str, benchmark_ms) -> None:
    assert benchmark_ms(lambda: is_public(text)) < 10
    assert benchmark_ms(lambda: is_command(text)) < 10


@pytest.mark.parametrize(
    "text",
    [
        "any delays on the Leeds trains right this second",
        "is the M6 shut at this very minute",
        "is the Forth Bridge open as we speak",
        "is the A1 closed at present near Berwick",
        "queues at Dover right this minute?",
        "how long's the queue at Heathrow security as we speak",
        "what's the traffic like on the M25 this very second",
        "is the Northern line running at present",
        "is it snowing in Aviemore right this minute",
        "hay cola en la frontera de Tijuana en este preciso instante",
        "está cortada la A-6 ahora mismo",
        "¿está lloviendo en Bilbao en estos momentos?",
        "cómo está el tráfico en la M-30 en este momento",
        "ist die A8 gerade eben gesperrt",
        "fährt die S-Bahn in Stuttgart im Moment",
        "staut es sich gerade eben am Brenner",
        "ist der Gotthard momentan zu",
        "schneit es in Garmisch gerade",
        "y a-t-il des bouchons sur l'A7 à l'instant",
        "le RER B roule-t-il en ce moment même",
        "est-ce que la ligne 13 est en retard à l'heure qu'il est",
        "il pleut à Brest là tout de suite ?",
        "地铁2号线此刻还在跑吗",
        "这会儿南京南站人多吗",
        "沪宁高速现在这一刻堵不堵",
        "北京现在这会儿下雨吗",
        "京沪高铁此时此刻晚点吗",
        "are the trains from Leeds running late at present",
        "is the ferry to Arran sailing right this second",
        "is Heathrow backed up right this second",
        "is the Severn Bridge shut to lorries as we speak",
        "is the tide in at Whitby at this moment",
        "how busy is Ikea Leeds at this very moment",
        "is GitHub down as we speak",
    ],
)
def test_how_it_is_at_a_named_place_this_very_minute_is_a_tool_s(text: str) -> None:
    assert not decide(turn(text)).search


@pytest.mark.parametrize(
    "text",
    [
        "is the boiler man running late",
        "is Tom's train late",
        "is Ana's flight delayed right this second",
        "is the shop open at this very minute",
        "are we late right now",
        "is the pool open as we speak",
        "what are the hens doing right this second",
        "is the kiln on at present",
        "who's on shift right this second",
        "ist der Klempner gerade eben unterwegs",
        "está el horno encendido ahora mismo",
        "who is at the cottage as we speak",
        "où est Karim à l'instant",
        "此刻谁在店里",
        "这会儿该喂谁了",
        "is the choir rehearsing at this moment",
        "how long is the queue for the allotment at present",
        "is the road to the farm shut at this very minute",
        "what's on the hob at present",
    ],
)
def test_how_it_is_with_the_user_s_own_this_very_minute_is_searched(text: str) -> None:
    assert decide(turn(text)).search
