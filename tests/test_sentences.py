"""Where a sentence ends: a bar in the table stands where one does, and nowhere else."""

import pytest

from proxy.sentences import goes_on, pieces, sentences, without_inner_stops

TABLE = """
Please remember that my dentist is Dr. Ohm.
My dentist is Dr. Ohm.| My dog is Rex.
My boss is Mr. Lee.| I like him.
My neighbour is Mrs. Hill.
I live at 12 St. James Street.| It is quiet.
I live at 12 Main St.| My dog is Rex.
My flight leaves at 6 p.m. on Friday.
My flight leaves at 6 p.m. Friday.| Anna comes too.
We eat at 6 p.m.| Anna brings cake.
The call is at 6 p.m. EST on Monday.
I like e.g. jazz and blues.
I like music, e.g. Jazz.
My locker is No. 5.| It is red.
Do you smoke?| No.| I never did.
no.| i never did.
My appointment is with Prof. Kern on Monday.
My son was born in the U.S. in 2015.
I live in the U.S.| My wife is from Rome.
He joined the U.S. Army in 2001.
My budget is 1.5 million.| That is all.
I work at Acme Inc. in Berlin.
I work at Acme Inc.| My boss is Bo.
I work at Acme Inc.| Bo is my boss.
We sell to Acme Co. Ltd. in Leeds.
Wir sind die Huber GmbH & Co. KG in Wien.
My friend J. R. Smith lives in Rome.
My friend J.R. Smith lives in Rome.
I take vitamin D.| I feel fine.
She is taller than I.| He is not.
We play Arsenal vs. Chelsea.| I go there.
I bought tea, milk, etc.| Answer in French.
I like tea, milk, etc. and cake.
I was born on Jan. 5 in Bonn.| It snowed.
It is due on Sept. 3, Mon. to Wed. each week.
My son is Jan.| He is 5.
My site is www.example.org.| It is slow.
See https://a.de/x.html?y=1.5 for more.
Er wurde 50 v. Chr. geboren.
Version 3.14.2 is out.| I use it.
I was born in 1990.| My sister in 1992.
I am 42.| Anna is 40.
i'm 42.| my dog is 5.
My gpa is 3.5.| I am proud.
Well... that is it.
Well...| I live in Rome.
Wait… what?
Wait…| Yes!
Martin Luther King Jr. was his hero.
My uncle is John Smith Sr.| I love him.
She has a Ph.D. in physics.
I live in Washington, D.C.| We moved in May.
My room is Apt. 4B.| My phone is ext. 12.
Call me at tel. (030) 123 or tel. no. 5.
My suite is at 5th Ave. in New York.
I earn approx. 5000 a month.| My rent is 900.
"My doctor is Dr. Ohm."| I said so.
I love it!| Do you?| Yes.
Elizabeth II. was queen.
Ich wohne in der Hauptstr. 5 in Bonn.| Mein Hund heißt Rex.
Ich wohne in der Berliner Str. 12.| Wir haben einen Garten.
Ich habe am 3. Mai Geburtstag.| Bitte merken.
Ich bin im 2. Stock.| Anna ist im 3. Stock.
Wir fahren vom 3. bis 5. April nach Rom.
Ich mag z. B. Wein und z.B. Käse.| Bier nicht.
Das ist d. h. morgen.| Ich komme.
Mein Chef ist Hr. Müller bzw. Fr. Dr. Meier.
Mein Auto kostet ca. 5 Mio. Euro.
Er ist Dipl.-Ing. Huber.| Er wohnt in Graz.
Meine Tel. Nr. 12345 gilt.
Ich kaufe Äpfel usw.| Das ist alles.
Mi jefe es el Sr. García.| Vivo en Lima.
Mi médica es la Dra. Ruiz y el Lic. Paz.
Vivo en la Av. Bolívar 12.| Mi perro es Rex.
Vivo en la Av. La Paz 12.
Me gusta la fruta, p. ej. las uvas.
Nací en EE. UU. en 1990.
Como a las 6 p. m. los lunes.
Mi piso es el núm. 5.| Es azul.
Mon médecin est M. Dupont.| J'ai deux chats.
Mon médecin est Mme. Curie et Mlle. Petit.
Il est né en 50 av. J.-C. à Rome.
J'aime les fruits, p. ex. les pommes, c.-à-d. tout.
J'habite 5 bd. Voltaire à Paris.| C'est cher.
我住在北京。|我的狗叫旺财！|你呢？
你好吗?|我住在北京
我的牙医是 Dr. Ohm。|他很好。
他说：“我住在北京。”|我也是。
私は東京に住んでいます。|犬がいます。
「東京です。」|そうですか？|はい。
My dentist is Dr.
I work 5 hrs. a day.
MY DENTIST IS DR. OHM.| MY DOG IS REX.
I WORK AT ACME INC.| MY BOSS IS BO.
my dentist is dr. ohm.| my dog is rex.
我的牙医是Dr. Ohm。|他很好。
我爱你.| Ich auch.
Meine Nr. ist 5.| Ich bin 3.| Anna ist 4.
他说「明天见。」|我走了。
Dr. Li says hi.
I saw Dr. Who and Mr. Bean!| Good?
He lives at No. 10, St. Mark's Rd. in Bath.
"""
ROWS = TABLE.strip().splitlines()


@pytest.mark.parametrize("row", ROWS)
def test_a_sentence_ends_where_the_bar_stands(row):
    expected = [part.strip() for part in row.split("|")]
    assert sentences(row.replace("|", "")) == expected


def test_the_table_is_long_enough_to_tell():
    assert len(ROWS) >= 60


@pytest.mark.parametrize("row", ROWS)
def test_what_belongs_together_stays_so_whatever_stands_around_it(row):
    whole = row.replace("|", "")
    assert sentences(f"It is so. {whole}\n{whole}") == ["It is so.", *sentences(whole), *sentences(whole)]


def test_joined_pieces_are_the_text():
    text = "  ".join(row.replace("|", "") for row in ROWS) + "\n\n a \r\n. … \u2028x.\n"
    assert "".join(pieces(text)) == text


def test_a_line_break_ends_a_sentence_even_behind_a_title():
    assert sentences("My dentist is Dr.\nOhm") == ["My dentist is Dr.", "Ohm"]


def test_a_text_without_words_has_its_marks():
    assert sentences("... ") == ["..."]
    assert sentences(" \n") == []


@pytest.mark.parametrize(
    ("text", "at", "expected"),
    [
        ("at Dr. Ohm's", 5, True),
        ("I live at 12 Main St. My dog", 20, False),
        ("pi is 3.14", 7, True),
        ("so be it. And", 8, False),
        ("no stop here", 3, False),
        ("at Dr.", 5, False),
    ],
)
def test_a_single_stop_is_judged_as_within_its_sentence(text, at, expected):
    assert goes_on(text, at) is expected


def test_only_the_stops_inside_a_sentence_are_left_out():
    text = "My dentist is Dr. Ohm. I pay 3.50 to J. R. Smith."
    assert without_inner_stops(text) == "My dentist is Dr Ohm. I pay 3.50 to J R Smith."
