"""The decision alone: candidates, the memories near to them and how they relate in, changes out."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.admit.decision import (
    Decision,
    Relations,
    Weighed,
    confirmed,
    decayed,
    decide_changes,
    hold,
    memory_id,
    pairs_to_judge,
    verdict,
)
from proxy.domain.changes import Change, Confirm, Create, Supersede
from proxy.domain.core import Candidate, Evidence, Hit
from proxy.domain.ports import Relation
from tests.learn.support import ANA, NOON, memory
from tests.support.judge import APART, CHANGED, SAME

APOLLO = replace(ANA, project="apollo")


def said(content: str, *, exchange: str = "ex_9", **fields: Any) -> Candidate:
    values: dict[str, Any] = {"type": "semantic", "content": content, "observed_at": NOON}
    return Candidate(**{**values, "origin": Evidence("s-1", exchange), **fields})


def decide(*candidates, known=(), scope=ANA, relation=APART):
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


# ---------------------------------------------------------------- new, the same, changed
def test_a_new_fact_is_created_as_of_when_it_was_said():
    (change,) = decide(said("User lives in Ghent", observed_at=NOON - 60, tags=("home",))).changes
    assert isinstance(change, Create)
    assert (change.memory.valid_from, change.memory.created_at) == (NOON - 60, NOON)
    assert (change.memory.tags, change.memory.evidence) == (("home",), (Evidence("s-1", "ex_9"),))


@pytest.mark.parametrize(("before", "stated", "then"), [(0.9, 1.0, 1.0), (0.6, 0.6, 0.8), (0.6, 0.95, 0.95)])
def test_the_same_words_confirm_and_raise_the_confidence(before, stated, then):
    old = memory("User lives in Ghent.", confidence=before, type="episodic")
    (change,) = decide(said("user lives in  ghent", confidence=stated), known=(old,)).changes
    assert change == Confirm(old.id, NOON, pytest.approx(then), (Evidence("s-1", "ex_9"),))


def test_the_relation_decides_and_not_the_type():
    old = memory("User lives in Leeds")
    moved = said("User moved to Ghent", type="episodic")
    (change,) = decide(moved, known=(old,), relation=CHANGED).changes
    assert isinstance(change, Supersede)
    assert change.old_id == old.id
    assert kinds(decide(moved, known=(old,), relation=APART)) == [Create]
    final = said("Final budget: $12,000 (stated 2026-03-01)")
    added = memory("Added $2,000 to the budget")
    assert kinds(decide(final, known=(added,), relation=SAME)) == [Supersede], "no number is lost"
    dated = memory("Final budget: $12,000 (stated 2026-01-11)")
    assert kinds(decide(final, known=(dated,), relation=SAME)) == [Confirm]
    again = said("User's home is in Leeds", type="preference")
    assert kinds(decide(again, known=(old,), relation=SAME)) == [Confirm]


@pytest.mark.parametrize(
    ("relation", "cosine", "found"),
    [
        (Relation(same=0.0, changed=0.75, apart=0.25), None, "changed"),
        (Relation(same=0.0, changed=0.75, apart=0.25), 0.8, "changed"),
        (Relation(same=0.0, changed=0.75, apart=0.25), 0.7, "apart"),
        (Relation(same=0.0, changed=0.95, apart=0.05), 0.5, "apart"),  # the head guesses about far facts
        (Relation(same=0.9, changed=0.05, apart=0.05), 0.7, "same"),
        (Relation(same=0.5, changed=0.4, apart=0.1), 0.7, "changed"),  # the newer text is right in both cases
    ],
)
def test_unsure_facts_are_apart_unless_they_are_close(relation, cosine, found):
    assert verdict(relation, cosine) == found


# ---------------------------------------------------------------- replacements named by the extraction model
LOST_JOB = "User is between jobs since May"


@pytest.mark.parametrize(
    ("relation", "ends"),
    [
        (Relation(same=0.2, changed=0.25, apart=0.55), Supersede),  # too unsure to act on by itself
        (Relation(same=0.1, changed=0.2, apart=0.7), Create),
        (None, Create),  # without a judge it is believed if the texts share a term
    ],
)
def test_a_replacement_is_believed_unless_the_facts_are_apart(relation, ends):
    old = memory("User works at Tidewell")
    assert kinds(decide(said(LOST_JOB, replaces=old.id), known=(old,), relation=relation)) == [ends]
    new = said("User has left Tidewell", replaces=old.id)
    assert kinds(decide(new, known=(old,), relation=None)) == [Supersede]


# ---------------------------------------------------------------- inferred and explicit preferences
def test_an_inference_does_not_overwrite_an_explicit_preference():
    outright = memory("User's editor is Zed", type="preference", source="explicit")
    guess = said("User's editor is Emacs", type="preference")
    decision = decide(guess, known=(outright,), relation=CHANGED)
    assert (decision.changes, decision.dropped) == ((), {"explicit_preference": 1})
    stated = replace(guess, evidence="I work in Emacs", origin=Evidence("s-1", "ex_9", "I work in Emacs"))
    assert kinds(decide(stated, known=(outright,), relation=CHANGED)) == [Supersede]


@given(st.floats(0.01, 0.98))
def test_confirmation_raises_confidence_by_bayes_and_contradiction_lowers_it(confidence):
    against = decayed(memory("User likes jazz", confidence=confidence), NOON).confidence
    assert against < confidence < confirmed(confidence) <= 1
    assert confirmed(0.6) == pytest.approx(0.8 * 0.6 / (0.8 * 0.6 + 0.3 * 0.4))
    assert confirmed(1.0) == 1.0, "what a person entered stays as sure as they said"


# ---------------------------------------------------------------- projects
def test_a_general_fact_and_the_same_one_of_a_project_become_the_general_one():
    content = "User's release day is Thursday"
    (change,) = decide(said(content), known=(memory(content, scope=APOLLO),), scope=ANA).changes
    assert isinstance(change, Supersede)
    assert change.memory.scope.project is None
    assert kinds(decide(said(content), known=(memory(content),), scope=APOLLO)) == [Confirm]


def test_a_project_changes_no_fact_of_another_one_or_of_all():
    new = said("User's release day is Tuesday")
    theirs = memory("User's release day is Thursday", scope=replace(ANA, project="borealis"))
    assert kinds(decide(new, known=(theirs,), scope=ANA, relation=CHANGED)) == [Create]
    general = memory("User's release day is Thursday")
    assert kinds(decide(new, known=(general,), scope=APOLLO, relation=CHANGED)) == [Create]
    python = memory("User wants examples in Python", type="preference")
    go = said("User wants examples in Go", type="preference", replaces=python.id)
    assert kinds(decide(go, known=(python,), scope=APOLLO, relation=CHANGED)) == [Create]


# ---------------------------------------------------------------- ids
def test_the_same_statement_has_the_same_id_and_another_exchange_another():
    assert memory_id("ex_1", "User lives in Ghent.") == memory_id("ex_1", "user lives in Ghent")
    assert memory_id("ex_1", "User lives in Ghent") != memory_id("ex_2", "User lives in Ghent")
    candidate = said("Acme hosts everything", exchange="ex_1")
    one, again = (hold(candidate, "x", now=NOON, seed=seed) for seed in ("job-1", "job-2"))
    other = hold(said("Acme hosts everything", exchange="ex_2"), "x", now=NOON, seed="job-1")
    assert one.id == again.id != other.id
    assert one.id.startswith("held_")
