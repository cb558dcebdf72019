"""Where a sentence ends: at each bar of the table, and nowhere else."""

import pytest

from proxy.text.words import pieces, sentences, without_inner_stops

TABLE = """
Please remember that my dentist is Dr. Ohm.
I live at 12 St. James Street.| It is quiet.
My flight leaves at 6 p.m. Friday.| Anna comes too.
I like e.g. jazz and blues.
Do you smoke?| No.| I never did.
He joined the U.S. Army in 2001.
I work at Acme Inc.| Bo is my boss.
I like tea, milk, etc. and cake.
It is due on Sept. 3, Mon. to Wed. each week.
My site is www.example.org.| It is slow.
Er wurde 50 v. Chr. geboren.
I was born in 1990.| My sister in 1992.
Wait…| Yes!
Call me at tel. (030) 123 or tel. no. 5.
Ich habe am 3. Mai Geburtstag.| Bitte merken.
Das ist d. h. morgen.| Ich komme.
Ich kaufe Äpfel usw.| Das ist alles.
Me gusta la fruta, p. ej. las uvas.
J'aime les fruits, p. ex. les pommes, c.-à-d. tout.
我住在北京。|我的狗叫旺财！|你呢？
我的牙医是 Dr. Ohm。|他很好。
他说：“我住在北京。”|我也是。
「東京です。」|そうですか？|はい。
MY DENTIST IS DR. OHM.| MY DOG IS REX.
Dr. Li says hi.
"""
ROWS = TABLE.strip().splitlines()


def whole(row: str) -> str:
    return row.replace("|", "")


def test_a_sentence_ends_at_each_bar_and_nowhere_else():
    assert [row for row in ROWS if sentences(whole(row)) != [part.strip() for part in row.split("|")]] == []


def test_surroundings_change_no_sentence():
    for row in map(whole, ROWS):
        assert sentences(f"It is so. {row}\n{row}") == ["It is so.", *sentences(row), *sentences(row)]


def test_joined_pieces_are_the_text():
    text = "  ".join(map(whole, ROWS)) + "\n\n a \r\n. … \u2028x.\n"
    assert "".join(pieces(text)) == text


def test_a_line_break_ends_a_sentence_and_marks_alone_are_one():
    assert sentences("My dentist is Dr.\nOhm") == ["My dentist is Dr.", "Ohm"]
    assert sentences("... ") == ["..."]
    assert sentences(" \n") == []


@pytest.mark.parametrize(
    "text",
    [
        *("." * 8_000 + "x", "?!" * 4_000 + "x", "a. " * 2_700, "Dr. " * 2_000, "z. B. " * 1_300),
        *("a.a.a.a. " * 900, "am 3. " * 1_300, "\".'" * 2_700 + "x", "." + " " * 8_000 + "x"),
        *("J." * 4_000 + " x", "A" * 8_000 + ". b", "…" * 8_000 + "x"),
    ],
    ids=lambda text: text[:6],
)
def test_no_text_takes_more_than_linear_time(text, benchmark_ms):
    assert benchmark_ms(lambda: sentences(text)) < 200  # 40 ms
    assert benchmark_ms(lambda: without_inner_stops(text)) < 200
