"""What is not meant for long: fictions from their opening to their end, states that pass."""

import pytest

from proxy.background.extraction.framed import is_passing, is_supposed


@pytest.mark.parametrize(
    ("said", "evidence"),
    [
        ("Imagine I owned a lighthouse. I have a goat called Invoice.", "I have a goat called Invoice"),
        ("Seriously, imagine I lived in Rome.", "imagine I lived in Rome"),
        ("假如我中了五百万,我就去大理开民宿。院子里种花。", "院子里种花"),
        ("Stell dir vor, ich wäre Kapitän auf der Gorch Fock.", "ich wäre Kapitän"),
        ("Imagínate que vivo en París. Tengo un yate.", "Tengo un yate"),
    ],
)
def test_a_fiction_reaches_to_the_end_of_its_paragraph(said: str, evidence: str) -> None:
    assert is_supposed(evidence, said)


@pytest.mark.parametrize(
    ("said", "evidence"),
    [
        ("Imagine I won the lottery, ha. Anyway. Also I sing alto.", "I sing alto"),
        (
            "okay sold. Stop the role-play. Our release: scope freezes on Thursday",
            "scope freezes on Thursday",
        ),
        ("Imagine I owned a boat.\n\nI live in Ghent.", "I live in Ghent"),
        ("要是我是富翁就好了。言归正传,我住在杭州。", "我住在杭州"),
        ("Imagina que soy rica. Bromas aparte, vivo en Vigo.", "vivo en Vigo"),
        ("Stell dir vor, ich wäre reich. Spaß beiseite, ich wohne in Halle.", "ich wohne in Halle"),
        ("I can't imagine living elsewhere. I live in Ghent.", "I live in Ghent"),
    ],
)
def test_what_is_said_after_a_fiction_is_meant(said: str, evidence: str) -> None:
    assert not is_supposed(evidence, said)


@pytest.mark.parametrize(
    "text",
    [
        "I'm on the bus",
        "I'm typing this on the bus so excuse the spelling",
        "my arm's gone dead",
        "4% battery",
        "手机只剩 3% 的电",
        "我现在在地铁 1 号线上单手打字",
        "我正在轮渡上",
        "Estoy en el metro, luego sigo.",
        "Bin gerade auf der Autobahn",
        "Je suis dans le train",
        "今電車の中です",
    ],
)
def test_a_state_of_minutes_passes(text: str) -> None:
    assert is_passing(text)


@pytest.mark.parametrize(
    "text",
    [
        "I'm on the board of a school",
        "I work in the metro",
        "我在地铁公司上班",
        "I'm on the train committee",
        "Ich bin auf Diät",
    ],
)
def test_a_state_of_years_does_not(text: str) -> None:
    assert not is_passing(text)
