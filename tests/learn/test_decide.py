"""The decision alone: candidates, the memories near to them and how they relate in, changes out."""

from dataclasses import replace
from typing import Any

import pytest

from proxy.admit.decision import (
    Decision,
    Relations,
    Weighed,
    decide_changes,
    memory_id,
    pairs_to_judge,
    verdict,
)
from proxy.domain.core import (
    Candidate,
    Change,
    Confirm,
    Create,
    Edit,
    Evidence,
    Hit,
    Memory,
    Scope,
    Supersede,
)
from proxy.domain.judging import Relation
from tests.learn.support import ANA, NOON, memory
from tests.support.judge import APART, CHANGED, SAME

APOLLO = replace(ANA, project="apollo")


def said(content: str, *, exchange: str = "ex_9", **fields: Any) -> Candidate:
    values: dict[str, Any] = {"type": "semantic", "content": content, "observed_at": NOON}
    return Candidate(**{**values, "origin": Evidence("s-1", exchange), **fields})


def decide(
    *candidates: Candidate,
    known: tuple[Memory, ...] = (),
    scope: Scope = ANA,
    relation: Relation | dict[tuple[str, str], Relation] | None = APART,
) -> Decision:
    """Decide with one verdict for all pairs, one for each (the others: apart), or without a judge (None)."""
    weighed = [Weighed(c, None, tuple(Hit(m, 0.9, 1.0) for m in known)) for c in candidates]
    if relation is None:
        relations = Relations()
    else:
        by_pair = relation if isinstance(relation, dict) else {}
        other = APART if isinstance(relation, dict) else relation
        relations = Relations({p: by_pair.get(p, other) for p in pairs_to_judge(weighed, NOON, near=0.0)})
    return decide_changes(weighed, relations, scope=scope, now=NOON, seed="job")


def kinds(decision: Decision) -> list[type[Change]]:
    return [type(c) for c in decision.changes]


def test_a_new_fact_is_created_as_of_when_it_was_said() -> None:
    (change,) = decide(said("User lives in Ghent", observed_at=NOON - 60, tags=("home",))).changes
    assert isinstance(change, Create)
    assert change.memory.valid_from == NOON - 60
    assert change.memory.created_at == NOON
    assert change.memory.tags == ("home",)
    assert change.memory.evidence == (Evidence("s-1", "ex_9"),)


def test_the_same_words_confirm() -> None:
    old = memory("User lives in Ghent.")
    (change,) = decide(said("user lives in  ghent"), known=(old,)).changes
    assert change == Confirm(old.id, NOON, 1.0, (Evidence("s-1", "ex_9"),))


def test_a_fact_said_again_is_surer_than_before() -> None:
    old = memory("User lives in Ghent.", confidence=0.6)
    (change,) = decide(said("User lives in Ghent", confidence=0.6), known=(old,)).changes
    assert isinstance(change, Confirm)
    assert change.confidence == pytest.approx(0.8)
    (change,) = decide(said("User lives in Ghent", confidence=0.95), known=(old,)).changes
    assert isinstance(change, Confirm)
    assert change.confidence == 0.95


def test_without_a_judge_only_equal_texts_are_the_same() -> None:
    old = memory("User lives in Ghent.")
    assert kinds(decide(said("User lives in Ghent"), known=(old,), relation=None)) == [Confirm]
    assert kinds(decide(said("User's home is in Ghent"), known=(old,), relation=None)) == [Create]


def test_a_changed_value_supersedes() -> None:
    old = memory("User's budget for the Hawaii trip is $10,000")
    new = said("User's budget for the Hawaii trip is $15,000")
    (change,) = decide(new, known=(old,), relation=CHANGED).changes
    assert isinstance(change, Supersede)
    assert change.old_id == old.id


@pytest.mark.parametrize(
    ("relation", "cosine", "found"),
    [
        (Relation(same=0.0, changed=0.6, apart=0.4), 0.6, "apart"),
        (Relation(same=0.0, changed=0.6, apart=0.4), None, "apart"),
        (Relation(same=0.0, changed=0.6, apart=0.4), 0.7, "changed"),
        (Relation(same=0.0, changed=0.4, apart=0.6), 0.99, "apart"),
        (Relation(same=0.9, changed=0.05, apart=0.05), 0.4, "same"),
        (Relation(same=0.5, changed=0.4, apart=0.1), 0.4, "changed"),  # the newer text is right in both cases
    ],
)
def test_unsure_facts_are_apart_unless_they_are_close(
    relation: Relation, cosine: float | None, found: str
) -> None:
    assert verdict(relation, cosine) == found


def test_a_fact_that_holds_beside_another_is_created() -> None:
    old = memory("User's budget for the Portugal trip is $7,500")
    assert kinds(decide(said("User's budget for the Iceland trip is $9,000"), known=(old,))) == [Create]


def test_the_type_of_a_memory_does_not_decide() -> None:
    old = memory("User lives in Leeds")
    new = said("User moved to Ghent", type="episodic")
    assert kinds(decide(new, known=(old,), relation=CHANGED)) == [Supersede]
    again = said("User's home is in Leeds", type="preference")
    assert kinds(decide(again, known=(old,), relation=SAME)) == [Confirm]


# ---------------------------------------------------------------- what the extraction model says it replaces
LOST_JOB = "User is between jobs since May"


@pytest.mark.parametrize(
    ("verdict", "ends"),
    [
        (Relation(same=0.2, changed=0.25, apart=0.55), Supersede),  # too unsure to act on it without the vote
        (Relation(same=0.1, changed=0.2, apart=0.7), Create),
        (Relation(same=0.0, changed=0.05, apart=0.95), Create),
    ],
)
def test_a_replacement_is_believed_unless_the_facts_are_apart(verdict: Relation, ends: type[Change]) -> None:
    old = memory("User works at Tidewell")
    decision = decide(said(LOST_JOB, replaces=old.id), known=(old,), relation=verdict)
    assert kinds(decision) == [ends]


def test_without_a_judge_a_replacement_is_believed_where_the_texts_share_a_term() -> None:
    old = memory("User works at Tidewell")
    new = said("User has left Tidewell", replaces=old.id)
    assert kinds(decide(new, known=(old,), relation=None)) == [Supersede]
    assert kinds(decide(said(LOST_JOB, replaces=old.id), known=(old,), relation=None)) == [Create]


def test_a_replacement_that_says_less_of_the_same_confirms() -> None:
    old = memory("User has a dog called Rex, a brown labrador")
    new = said("User has a dog called Rex", replaces=old.id)
    assert kinds(decide(new, known=(old,), relation=SAME)) == [Confirm]


def test_a_replacement_also_closes_what_says_the_same_as_it() -> None:
    old, stored = memory("User works at Tidewell"), memory("User has no job at the moment")
    new = said(LOST_JOB, replaces=old.id)
    verdicts = {(old.content, LOST_JOB): CHANGED, (stored.content, LOST_JOB): SAME}
    decision = decide(new, known=(stored, old), relation=verdicts)
    assert [c.old_id for c in decision.changes if isinstance(c, Supersede)] == [old.id, stored.id]


def test_replacing_an_unknown_id_creates() -> None:
    assert kinds(decide(said(LOST_JOB, replaces="mem_unknown"), relation=CHANGED)) == [Create]


def test_two_replacements_of_one_memory_close_it_once_and_keep_both() -> None:
    old = memory("User has two cats, Miso and Tofu")
    first, second = "User's cat Miso lives with User's sister now", "User still has the cat Tofu"
    decision = decide(
        said(first, replaces=old.id),
        said(second, replaces=old.id),
        known=(old,),
        relation={(old.content, first): CHANGED, (old.content, second): CHANGED},
    )
    assert kinds(decision) == [Supersede, Create]


# ---------------------------------------------------------------- when it was said
def test_a_session_read_late_adds_to_the_history_and_does_not_undo_a_newer_one() -> None:
    now = memory("User's manager is Daniel", valid_from=NOON, updated_at=NOON)
    late = said("User's manager is Priya", observed_at=NOON - 600)
    for candidate in (late, replace(late, replaces=now.id)):
        (change,) = decide(candidate, known=(now,), relation=CHANGED).changes
        assert isinstance(change, Create)
        assert change.memory.superseded_by == now.id
        assert (change.memory.valid_from, change.memory.valid_to) == (NOON - 600, NOON)


def test_what_was_said_before_and_again_after_a_candidate_outlives_it() -> None:
    held = memory("User's manager is Daniel", valid_from=NOON - 900, updated_at=NOON)
    late = said("User's manager is Priya", observed_at=NOON - 600)
    decision = decide(late, known=(held,), relation=CHANGED)
    assert decision.changes == ()
    assert decision.dropped == {"outdated": 1}


def test_of_two_wordings_the_first_said_stays_whichever_is_read_first() -> None:
    first, then = "User's dog is called Rex", "Rex is the user's dog"
    old = memory(first, valid_from=NOON - 60, updated_at=NOON - 60)
    assert kinds(decide(said(then), known=(old,), relation=SAME)) == [Confirm]
    late = memory(then, valid_from=NOON, updated_at=NOON)
    (change,) = decide(said(first, observed_at=NOON - 60), known=(late,), relation=SAME).changes
    assert isinstance(change, Supersede)
    assert (change.memory.content, change.memory.valid_from, change.memory.updated_at) == (
        first,
        NOON - 60,
        NOON,
    )


def test_of_two_wordings_the_one_with_more_detail_stays_whichever_is_read_first() -> None:
    short, long = "User has a dog called Rex", "User has a dog called Rex, a brown labrador"
    old = memory(short, confidence=0.6)
    (change,) = decide(said(long, confidence=0.6), known=(old,), relation=SAME).changes
    assert isinstance(change, Supersede)
    assert (change.memory.content, change.memory.confidence) == (long, pytest.approx(0.8))
    assert kinds(decide(said(short), known=(memory(long),), relation=SAME)) == [Confirm]
    later = memory(long, valid_from=NOON, updated_at=NOON)
    assert kinds(decide(said(short, observed_at=NOON - 60), known=(later,), relation=SAME)) == [Confirm]


def test_a_change_closes_everything_that_it_changes() -> None:
    one, other = memory("User's dog is called Rex"), memory("Rex is the user's dog")
    cat = memory("User's cat is called Miso")
    new = "User's dog is now called Max"
    verdicts = {(one.content, new): CHANGED, (other.content, new): CHANGED}
    decision = decide(said(new), known=(one, cat, other), relation=verdicts)
    assert {c.old_id for c in decision.changes if isinstance(c, Supersede)} == {one.id, other.id}
    assert len({c.memory.id for c in decision.changes if isinstance(c, Supersede)}) == 1


def test_the_same_words_under_another_type_confirm() -> None:
    old = memory("User's release day is Thursday", type="episodic")
    assert kinds(decide(said("User's release day is Thursday"), known=(old,))) == [Confirm]


def test_what_a_model_inferred_does_not_overwrite_a_preference_said_outright() -> None:
    outright = memory("User's editor is Zed", type="preference", source="explicit")
    guess = said("User's editor is Emacs", type="preference")
    decision = decide(guess, known=(outright,), relation=CHANGED)
    assert decision.changes == ()
    assert decision.dropped == {"explicit_preference": 1}
    stated = replace(guess, evidence="I work in Emacs", origin=Evidence("s-1", "ex_9", "I work in Emacs"))
    assert kinds(decide(stated, known=(outright,), relation=CHANGED)) == [Supersede]


def test_an_inferred_preference_decays_when_another_is_said_outright_again() -> None:
    outright = memory("User's editor is Zed", type="preference", source="explicit")
    guess = memory("User's editor is Emacs", type="preference", confidence=0.6)
    again = said("User's editor is Zed", type="preference", evidence="Zed, as I said")
    decision = decide(again, known=(outright, guess), relation=CHANGED)
    (edit,) = [c for c in decision.changes if isinstance(c, Edit)]
    assert (edit.memory.id, edit.memory.confidence) == (guess.id, pytest.approx(0.42))
    assert not edit.memory.archived


def test_a_general_statement_takes_the_place_of_the_same_one_of_a_project() -> None:
    theirs = memory("User's release day is Thursday", scope=APOLLO)
    (change,) = decide(said("User's release day is Thursday"), known=(theirs,), scope=ANA).changes
    assert isinstance(change, Supersede)
    assert change.memory.scope.project is None


def test_a_batch_that_says_it_twice_stores_it_once() -> None:
    decision = decide(said("User's dog is called Rex"), said("Rex is the user's dog"), relation=SAME)
    assert kinds(decision) == [Create]
    assert decision.dropped == {"duplicate": 1}


def test_facts_of_one_message_never_close_each_other() -> None:
    one, two = said("User's office is in Ghent"), said("User's office is in Leeds")
    assert kinds(decide(one, two, relation=CHANGED)) == [Create, Create]
    later = said("User's office is in Leeds", exchange="ex_10")
    assert kinds(decide(one, later, relation=CHANGED)) == [Create, Supersede]


def test_projects_are_kept_apart() -> None:
    new = said("User's release day is Tuesday")
    theirs = memory("User's release day is Thursday", scope=replace(ANA, project="borealis"))
    assert kinds(decide(new, known=(theirs,), scope=ANA, relation=CHANGED)) == [Create]
    general = memory("User's release day is Thursday")
    assert kinds(decide(new, known=(general,), scope=APOLLO, relation=CHANGED)) == [Create]


def test_a_general_fact_said_again_in_a_project_is_confirmed_and_not_doubled() -> None:
    general = memory("User's release day is Thursday")
    assert kinds(decide(said("User's release day is Thursday"), known=(general,), scope=APOLLO)) == [Confirm]


def test_a_named_replacement_is_seen_wherever_the_old_one_was() -> None:
    general = memory("User lives in Leeds")
    (change,) = decide(
        said("User moved to Ghent", replaces=general.id), known=(general,), scope=APOLLO, relation=CHANGED
    ).changes
    assert isinstance(change, Supersede)
    assert change.memory.scope.project is None
    theirs = memory("Apollo launches in May", scope=APOLLO)
    (change,) = decide(
        said("Apollo launches in June", replaces=theirs.id), known=(theirs,), scope=ANA, relation=CHANGED
    ).changes
    assert isinstance(change, Supersede)
    assert change.memory.scope.project == "apollo"


def test_a_projects_preference_overrides_the_general_one_without_ending_it() -> None:
    general = memory("User wants examples in Python", type="preference")
    new = said("User wants examples in Go", type="preference", replaces=general.id)
    assert kinds(decide(new, known=(general,), scope=APOLLO, relation=CHANGED)) == [Create]


def test_the_same_statement_has_the_same_id_and_another_exchange_another() -> None:
    assert memory_id("ex_1", "User lives in Ghent.") == memory_id("ex_1", "user lives in Ghent")
    assert memory_id("ex_1", "User lives in Ghent") != memory_id("ex_2", "User lives in Ghent")
