"""The order of hits: each list, each factor, the gate, repeats."""

from dataclasses import replace

import pytest

from proxy.domain import Hit
from proxy.pipeline.decision.expect import Expectation
from proxy.pipeline.recall.gate import gate_for
from proxy.pipeline.recall.rank import DAY, Asked, Ranking, rank
from proxy.pipeline.recall.times import named_times
from proxy.timezones import local
from tests.pipeline.conftest import NOW, SCOPE, memory

OPEN = gate_for(expected=Expectation.STRONG, dense=True, model_threshold=0.25, asked=None)
STRICT = gate_for(expected=Expectation.NONE, dense=True, model_threshold=0.25, asked=None)
WORDS = gate_for(expected=Expectation.STRONG, dense=False, model_threshold=0.25, asked=None)


def ids(ranked):
    return [r.memory.id for r in ranked]


def order(hits, terms=(), gate=OPEN, limit=10, ranking=None):
    return ids(rank(hits, Asked(terms), gate, limit=limit, now=NOW, ranking=ranking))


def test_the_nearer_vector_comes_first():
    hits = [Hit(memory("far", "One thing"), 0.3, 0.0), Hit(memory("near", "Other matter"), 0.5, 0.0)]
    assert order(hits) == ["near", "far"]


def test_a_rare_word_lifts_a_memory_over_a_slightly_nearer_one():
    hits = [
        Hit(memory("near", "Printer settings"), 0.42, 0.0),
        Hit(memory("exact", "Error E1042 means low toner"), 0.40, 6.0),
        Hit(memory("rest", "Something else"), 0.10, 0.0),
    ]
    assert order(hits, ("e1042",))[0] == "exact"


def test_a_poor_word_match_does_not_outrank_what_vectors_know():
    hits = [
        Hit(memory("answer", "Sister Niamh lives in Cork"), 0.5, 0.0),
        Hit(memory("word", "Many weeks of work"), 0.3, 1.2),
        Hit(memory("rest", "Something else"), 0.1, 0.0),
    ]
    question = ("many", "sibling", "abroad", "visit", "harbour", "holiday")
    assert order(hits, question) == ["answer", "word", "rest"]
    # A gloss knows less than the words do.
    ranked = rank(hits, Asked(question, glossed=True), OPEN, limit=3, now=NOW)
    assert ids(ranked) == ["word", "answer", "rest"]


def test_a_threshold_asked_for_wants_half_of_the_question_where_cosines_mean_nothing():
    hits = [Hit(memory("one", "Alpha"), None, 1.0), Hit(memory("both", "Alpha beta"), None, 2.0)]
    strict = gate_for(expected=Expectation.STRONG, dense=False, model_threshold=0.25, asked=0.9)
    ranked = rank(hits, Asked(("alpha", "beta")), strict, limit=5, now=NOW)
    assert ids(ranked) == ["both"]
    assert len(rank(hits, Asked(("alpha", "beta")), WORDS, limit=5, now=NOW)) == 2


def test_what_belongs_to_the_project_comes_before_what_is_a_little_nearer():
    here = replace(SCOPE, project="concert")
    hits = [
        Hit(memory("clear", "Board meetings are on Tuesdays"), 0.60, 0.0),
        Hit(memory("general", "Rehearses on Mondays"), 0.45, 0.0),
        Hit(replace(memory("ours", "The concert is on 3 July"), scope=here), 0.40, 0.0),
        Hit(memory("rest", "Something else"), 0.10, 0.0),
    ]
    named = rank(hits, Asked(project="concert"), OPEN, limit=9, now=NOW)
    assert ids(named) == ["clear", "ours", "general", "rest"]
    for other in (None, "crib"):
        assert ids(rank(hits, Asked(project=other), OPEN, limit=9, now=NOW))[2] == "ours"


def test_reciprocal_rank_fusion_is_an_option():
    hits = [
        Hit(memory("both", "Alpha beta"), 0.4, 3.0),
        Hit(memory("dense", "Gamma"), 0.5, 0.0),
        Hit(memory("words", "Alpha"), None, 4.0),
    ]
    ranked = rank(hits, Asked(("alpha",)), OPEN, limit=3, now=NOW, ranking=Ranking(fusion="rrf"))
    assert ids(ranked)[0] == "both"
    assert ranked[0].score <= 1.0


FACTORS = {
    "recent": ({"updated_at": NOW}, {"updated_at": NOW - 200 * DAY}),
    "lately used": (
        {"updated_at": NOW - 300 * DAY, "last_accessed": NOW},
        {"updated_at": NOW - 300 * DAY, "last_accessed": NOW - 299 * DAY},
    ),
    "useful": ({"weight": 2.0}, {"weight": 0.5}),
    "important": ({"importance": 0.9}, {"importance": 0.1}),
    "sure": ({"confidence": 0.95}, {"confidence": 0.6}),
}


@pytest.mark.parametrize("factor", FACTORS)
def test_each_factor_alone_decides_between_equals(factor):
    better, worse = FACTORS[factor]
    # Named so that the tie-break by id would put the worse one first.
    hits = [Hit(memory("a", "First", **worse), 0.4, 0.0), Hit(memory("b", "Second", **better), 0.4, 0.0)]
    assert order(hits) == ["b", "a"]
    assert order(hits[::-1]) == ["b", "a"]


def test_factors_together_do_not_outweigh_a_clear_match():
    hits = [
        Hit(memory("match", "A", weight=0.5, importance=0.1, updated_at=NOW - 300 * DAY), 0.6, 0.0),
        Hit(memory("loved", "B", weight=5.0, importance=1.0), 0.3, 0.0),
        Hit(memory("none", "C"), 0.1, 0.0),
    ]
    assert order(hits)[0] == "match"


def test_a_weak_best_hit_passes_only_where_the_question_expects_memory():
    hits = [Hit(memory("m", "Dev Mistry is the contact"), 0.18, 0.0)]
    assert order(hits, gate=OPEN) == ["m"]
    assert order(hits, gate=STRICT) == []


def test_a_question_that_half_expects_memory_needs_a_better_hit_than_one_that_does():
    half = gate_for(expected=Expectation.SOME, dense=True, model_threshold=0.25, asked=None)
    assert order([Hit(memory("m", "Dev Mistry is the contact"), 0.19, 0.0)], gate=half) == ["m"]
    assert order([Hit(memory("m", "Dev Mistry is the contact"), 0.15, 0.0)], gate=half) == []


def test_a_hit_below_the_floor_stays_out():
    hits = [Hit(memory("a", "Near"), 0.5, 0.0), Hit(memory("b", "Noise"), 0.01, 0.0)]
    assert order(hits) == ["a"]


def test_a_threshold_that_the_request_sets_is_each_hits_own_cosine():
    asked = gate_for(expected=Expectation.STRONG, dense=True, model_threshold=0.25, asked=0.6)
    hits = [Hit(memory("a", "Close"), 0.61, 0.0), Hit(memory("b", "Less close"), 0.59, 0.0)]
    assert order(hits, gate=asked) == ["a"]


def test_a_strong_word_match_passes_without_a_near_vector():
    hits = [Hit(memory("m", "Error E1042 means low toner"), 0.02, 6.0)]
    assert order(hits, ("error", "e1042"), gate=STRICT) == ["m"]


def test_a_weak_word_match_needs_a_near_vector():
    hits = [Hit(memory("m", "Many weeks of work"), 0.02, 1.0)]
    assert order(hits, ("many", "planets", "orbit", "sun"), gate=STRICT) == []


def test_without_vectors_words_decide():
    hits = [Hit(memory("m", "用户对芒果过敏"), None, 2.0), Hit(memory("n", "用户住在杭州"), None, 0.0)]
    assert order(hits, ("芒果", "蛋糕"), gate=WORDS) == ["m"]


def test_cosines_do_not_count_where_they_mean_nothing():
    hits = [Hit(memory("noise", "甲乙"), 0.9, 1.0), Hit(memory("word", "芒果"), 0.1, 2.0)]
    assert order(hits, ("芒果",), gate=WORDS) == ["word", "noise"]


def test_a_rewording_is_shown_once():
    hits = [
        Hit(memory("a", "User's flatmate Bea is coeliac, so meals must be gluten free"), 0.6, 0.0),
        Hit(memory("b", "Flatmate Bea: coeliac"), 0.55, 0.0),
    ]
    assert order(hits) == ["a"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Daughter Emma is 7 years old", "Daughter Emma is 8 years old"),
        ("User eats fish on Fridays", "User does not eat fish on Fridays"),
        ("User is allergic to peanuts", "User is allergic to cats"),
        ("用户对花生过敏", "用户对花生不过敏"),
        ("Staging database is pg-stage-02", "Production database is pg-prod-01"),
    ],
)
def test_like_facts_that_differ_are_both_shown(one, other):
    hits = [Hit(memory("a", one), 0.6, 0.0), Hit(memory("b", other), 0.55, 0.0)]
    assert order(hits) == ["a", "b"]


def test_the_limit_bounds_the_list():
    hits = [Hit(memory(f"m{i}", f"Topic number{i}"), 0.3 + i / 100, 0.0) for i in range(20)]
    assert len(order(hits, limit=7)) == 7


def test_why_names_the_lists_and_no_content():
    hits = [Hit(memory("m", "Error E1042 means low toner"), 0.41, 6.0)]
    (found,) = rank(hits, Asked(("error", "e1042")), OPEN, limit=1, now=NOW)
    assert found.why == "dense .41, lexical 2 terms"


def test_nothing_found_ranks_nothing():
    assert order([]) == []


def test_a_memory_of_the_time_that_the_question_names_wins_between_equals():
    (march,) = named_times("What happened in March 2026?", local(NOW, "UTC"))
    hits = [
        Hit(memory("a", "User sold the boat on 2026-05-02"), 0.4, 0.0),
        Hit(memory("b", "User sold the car on 2026-03-02"), 0.4, 0.0),
        Hit(memory("none", "C"), 0.1, 0.0),
    ]
    assert ids(rank(hits, Asked(), OPEN, limit=10, now=NOW))[0] == "a"
    assert ids(rank(hits, Asked(times=(march,)), OPEN, limit=10, now=NOW))[0] == "b"


@pytest.mark.parametrize(("asked", "found"), [(None, []), (0.0, ["m"]), (0.3, [])])
def test_without_cosines_a_threshold_of_0_lets_any_shared_word_pass(asked, found):
    words = gate_for(expected=Expectation.NONE, dense=False, model_threshold=0.25, asked=asked)
    terms = ("alpha", *(f"word{n}" for n in range(14)))
    assert order([Hit(memory("m", "An alpha of its own"), None, 1.0)], terms, gate=words) == found
    assert words.follows is (asked is None)
