"""Two things that one question compares, taken apart."""

import pytest

from proxy.pipeline.recall.compared import sides

APART = [
    (
        "How many days between signing the lease and getting the keys?",
        "signing the lease",
        "getting the keys",
    ),
    (
        "About how long was it between us moving and me changing jobs, and why?",
        "us moving",
        "me changing jobs",
    ),
    ("Between the house and the car, what do we pay?", "the house", "the car"),
    ("Which came first, the van or the new roof?", "the van", "the new roof"),
    (
        "what was longer, my time at the post or my time at sea, and by how much?",
        "my time at the post",
        "my time at sea",
    ),
    ("Was it before or after the operation that we sold the boat?", "the operation", "we sold the boat"),
    ("Did we replace the boiler before or after the storm?", "the storm", "Did we replace the boiler"),
    ("How many weeks is it from our show till my flight?", "our show", "my flight"),
    ("How long after the crates came did I start there?", "the crates came", "did I start there"),
    (
        "How old was Tim's girl when I went to nurse our mother?",
        "I went to nurse our mother",
        "How old was Tim's girl",
    ),
    (
        "How many days are we in town before the cottage is free?",
        "the cottage is free",
        "How many days are we in town",
    ),
    ("¿Cuántos días pasaron entre que llegó mi hijo y el concierto?", "llegó mi hijo", "el concierto"),
    ("¿Qué fue antes, la obra o mi lesión?", "la obra", "mi lesión"),
    ("¿Cuánto tiempo pasó desde que abrimos hasta la carrera?", "abrimos", "la carrera"),
    ("Wie viele Tage liegen zwischen dem Umzug und meiner Prüfung?", "dem Umzug", "meiner Prüfung"),
    ("Was kommt früher, das Konzert oder die Feier, und mit wie viel Abstand?", "das Konzert", "die Feier"),
    ("Fing ich vor oder nach der Kur dort an?", "der Kur dort an", "Fing ich"),
    ("Combien de semaines entre mon opération et la reprise ?", "mon opération", "la reprise"),
    ("On a signé avant ou après le passage à la mairie ?", "le passage à la mairie", "On a signé"),
    ("La course tombe combien de jours après la fête ?", "la fête", "La course tombe combien de jours"),
    ("交书稿和去宝鸡,哪个在前,差几天?", "交书稿", "去宝鸡"),
    ("从我爸住院到停药,前后多久?", "我爸住院", "停药"),
    ("是先换的房子还是先开的店?", "换的房子", "开的店?"),
    ("拿到驾照之后过了多少天我们才搬的家?", "拿到驾照", "我们才搬的家"),
]
ONE = [
    "What is between the house and the garden?",
    "How long is it now since then?",
    "How many nights did we stay?",
    "How long between our two trips, and which cost more?",
    "What happens from the first call to the invoice?",
    "Seat by the window or by the aisle?",
    "Who signs before the invoice goes out?",
    "我和我太太的房租是多少?",
    "从家到公司怎么走?",
    "hi",
    "",
]


@pytest.mark.parametrize(("text", "one", "other"), APART)
def test_what_is_compared_is_taken_apart(text: str, one: str, other: str) -> None:
    assert [side.strip("?") for side in sides(text)] == [one, other.strip("?")]


@pytest.mark.parametrize("text", ONE)
def test_what_compares_nothing_stays_whole(text: str) -> None:
    assert sides(text) == ()


def test_a_long_message_and_letters_that_change_their_length_stay_whole() -> None:
    asked = "Which came first, my new job or our move?"
    assert sides(asked)
    assert not sides("x" * 300 + asked)
    assert not sides(asked.replace("job", "İob"))
