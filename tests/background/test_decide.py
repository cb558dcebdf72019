"""The decision alone: candidates and what is like them in, changes out."""

from dataclasses import replace
from typing import Any

import pytest

from proxy.background.write_gate.claims import takes_back_date
from proxy.background.write_gate.decide import Decision, Weighed, decide_changes, memory_id
from proxy.domain import Candidate, Change, Confirm, Create, Edit, Evidence, Hit, Memory, Scope, Supersede
from tests.background.support import ANA, NOON, memory

APOLLO = replace(ANA, project="apollo")


def said(content: str, *, exchange: str = "ex_9", **fields: Any) -> Candidate:
    values: dict[str, Any] = {"type": "semantic", "content": content, "observed_at": NOON}
    return Candidate(**{**values, "origin": Evidence("s-1", exchange), **fields})


def decide(
    *candidates: Candidate, known: tuple[Memory, ...] = (), scope: Scope = ANA, cosine: float | None = 0.9
) -> Decision:
    hits = tuple(Hit(m, cosine, 1.0) for m in known)
    weighed = [Weighed(c, None, hits) for c in candidates]
    return decide_changes(weighed, scope=scope, now=NOON, near=0.8, seed="job")


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


def test_a_changed_value_supersedes() -> None:
    old = memory("User's budget for the Hawaii trip is $10,000")
    (change,) = decide(said("User's budget for the Hawaii trip is $15,000"), known=(old,)).changes
    assert isinstance(change, Supersede)
    assert change.old_id == old.id


def test_a_fact_of_another_trip_is_created_beside() -> None:
    old = memory("User's budget for the Portugal trip is $7,500")
    assert kinds(decide(said("User's budget for the Iceland trip is $9,000"), known=(old,))) == [Create]


def test_another_family_of_types_is_left_alone_and_preferences_are_of_the_semantic_family() -> None:
    old = memory("User's release day is Thursday", type="episodic")
    assert kinds(decide(said("User's release day is Tuesday"), known=(old,))) == [Create]
    old = memory("User's favourite colour is red", type="preference")
    assert kinds(decide(said("User's favourite colour is blue"), known=(old,))) == [Supersede]


def test_what_the_model_replaces_is_superseded_however_far_the_words() -> None:
    old = memory("User works at Tidewell")
    new = said("User is between jobs since May", replaces=old.id)
    (change,) = decide(new, known=(old,), cosine=0.1).changes
    assert isinstance(change, Supersede)


def test_replacing_an_unknown_id_creates() -> None:
    assert kinds(decide(said("User is between jobs", replaces="mem_nobody"))) == [Create]


def test_two_replacements_of_one_memory_close_it_once_and_keep_both() -> None:
    old = memory("User has two cats, Miso and Tofu")
    decision = decide(
        said("User's cat Miso went to live with his sister", replaces=old.id),
        said("User still has the cat Tofu", replaces=old.id),
        known=(old,),
        cosine=0.5,
    )
    assert kinds(decision) == [Supersede, Create]


def test_a_session_read_late_adds_to_the_history_and_does_not_undo_a_newer_one() -> None:
    now = memory("User's manager is Daniel", valid_from=NOON, updated_at=NOON)
    late = said("User's manager is Priya", observed_at=NOON - 600)
    for candidate in (late, replace(late, replaces=now.id)):
        (change,) = decide(candidate, known=(now,)).changes
        assert isinstance(change, Create)
        assert change.memory.superseded_by == now.id
        assert (change.memory.valid_from, change.memory.valid_to) == (NOON - 600, NOON)


def test_what_was_said_before_and_again_after_a_candidate_outlives_it() -> None:
    held = memory("User's manager is Daniel", valid_from=NOON - 900, updated_at=NOON)
    decision = decide(said("User's manager is Priya", observed_at=NOON - 600), known=(held,))
    assert decision.changes == ()
    assert decision.dropped == {"outdated": 1}


def test_of_two_wordings_the_first_said_stays_whichever_is_read_first() -> None:
    first, then = "User's dog is called Rex", "Rex is the user's dog"
    old = memory(first, valid_from=NOON - 60, updated_at=NOON - 60)
    assert kinds(decide(said(then), known=(old,))) == [Confirm]
    late = memory(then, valid_from=NOON, updated_at=NOON)
    (change,) = decide(said(first, observed_at=NOON - 60), known=(late,)).changes
    assert isinstance(change, Supersede)
    assert (change.memory.content, change.memory.valid_from, change.memory.updated_at) == (
        first,
        NOON - 60,
        NOON,
    )


def test_a_change_closes_all_wordings_of_what_was_before() -> None:
    one, other = memory("User's dog is called Rex"), memory("Rex is the user's dog")
    decision = decide(said("User's dog is now called Max"), known=(one, other))
    assert {c.old_id for c in decision.changes if isinstance(c, Supersede)} == {one.id, other.id}
    assert len({c.memory.id for c in decision.changes if isinstance(c, Supersede)}) == 1


def test_an_event_ends_a_plan_that_it_names_and_no_other_event() -> None:
    plan = memory("User is to speak at a meetup in Porto on 9 June")
    new = said("The meetup in Porto was cancelled", type="episodic")
    assert kinds(decide(new, known=(plan,), cosine=0.7)) == [Supersede]
    happened = memory("User spoke at a meetup in Porto on 9 June", type="episodic")
    later = said("User's next meetup in Porto was moved to 12 June")
    assert kinds(decide(later, known=(happened,), cosine=0.85)) == [Create]


def test_the_same_words_under_another_type_confirm() -> None:
    old = memory("User's release day is Thursday", type="episodic")
    assert kinds(decide(said("User's release day is Thursday"), known=(old,))) == [Confirm]


def test_what_a_model_inferred_does_not_overwrite_a_preference_said_outright() -> None:
    outright = memory("User's editor is Zed", type="preference", source="explicit")
    guess = said("User's editor is Emacs", type="preference")
    decision = decide(guess, known=(outright,))
    assert decision.changes == ()
    assert decision.dropped == {"explicit_preference": 1}
    stated = replace(guess, evidence="I work in Emacs", origin=Evidence("s-1", "ex_9", "I work in Emacs"))
    assert kinds(decide(stated, known=(outright,))) == [Supersede]
    changed = replace(guess, content="User's editor is now Emacs")
    assert kinds(decide(changed, known=(outright,))) == [Supersede]


def test_an_inferred_preference_decays_when_another_is_said_outright_again() -> None:
    outright = memory("User's editor is Zed", type="preference", source="explicit")
    guess = memory("User's editor is Emacs", type="preference", confidence=0.6)
    again = said("User's editor is Zed", type="preference", evidence="Zed, as I said")
    decision = decide(again, known=(outright, guess))
    (edit,) = [c for c in decision.changes if isinstance(c, Edit)]
    assert (edit.memory.id, edit.memory.confidence) == (guess.id, pytest.approx(0.42))
    assert not edit.memory.archived


def test_a_general_statement_takes_the_place_of_the_same_one_of_a_project() -> None:
    theirs = memory("User's release day is Thursday", scope=APOLLO)
    (change,) = decide(said("User's release day is Thursday"), known=(theirs,), scope=ANA).changes
    assert isinstance(change, Supersede)
    assert change.memory.scope.project is None


def test_a_batch_that_says_it_twice_stores_it_once() -> None:
    decision = decide(said("User's dog is called Rex"), said("Rex is the user's dog"))
    assert kinds(decision) == [Create]
    assert decision.dropped == {"duplicate": 1}


def test_facts_of_one_message_never_close_each_other() -> None:
    one, two = said("User's office is in Ghent"), said("User's office is in Leeds")
    assert kinds(decide(one, two)) == [Create, Create]
    later = said("User's office is in Leeds", exchange="ex_10")
    assert kinds(decide(one, later)) == [Create, Supersede]


def test_projects_are_kept_apart() -> None:
    theirs = memory("User's release day is Thursday", scope=replace(ANA, project="borealis"))
    assert kinds(decide(said("User's release day is Tuesday"), known=(theirs,), scope=ANA)) == [Create]
    general = memory("User's release day is Thursday")
    assert kinds(decide(said("User's release day is Tuesday"), known=(general,), scope=APOLLO)) == [Create]


def test_a_general_fact_said_again_in_a_project_is_confirmed_and_not_doubled() -> None:
    general = memory("User's release day is Thursday")
    assert kinds(decide(said("User's release day is Thursday"), known=(general,), scope=APOLLO)) == [Confirm]


def test_a_named_replacement_is_seen_wherever_the_old_one_was() -> None:
    general = memory("User lives in Leeds")
    (change,) = decide(
        said("User moved to Ghent", replaces=general.id), known=(general,), scope=APOLLO
    ).changes
    assert isinstance(change, Supersede)
    assert change.memory.scope.project is None
    theirs = memory("Apollo launches in May", scope=APOLLO)
    (change,) = decide(
        said("Apollo launches in June", replaces=theirs.id), known=(theirs,), scope=ANA
    ).changes
    assert isinstance(change, Supersede)
    assert change.memory.scope.project == "apollo"


def test_a_projects_preference_overrides_the_general_one_without_ending_it() -> None:
    general = memory("User wants examples in Python", type="preference")
    new = said("User wants examples in Go", type="preference", replaces=general.id)
    assert kinds(decide(new, known=(general,), scope=APOLLO, cosine=0.6)) == [Create]


def test_the_same_statement_has_the_same_id_and_another_exchange_another() -> None:
    assert memory_id("ex_1", "User lives in Ghent.") == memory_id("ex_1", "user lives in Ghent")
    assert memory_id("ex_1", "User lives in Ghent") != memory_id("ex_2", "User lives in Ghent")


# ---------------------------------------------------------------- the day of an event
WEEK = 7 * 86_400.0
RAN = ("User ran 5 km yesterday (2026-05-20).", "User ran 5 km yesterday (2026-05-27).")
LAUNCH = ("The launch is in two weeks (2026-06-04).", "The launch is in two weeks (2026-06-11).")
DENTIST = "The dentist appointment is on 3 June 2026."


@pytest.mark.parametrize("type_", ["semantic", "episodic"])
def test_what_happened_again_a_week_later_is_no_confirmation(type_: str) -> None:
    old = memory(RAN[0], type=type_, valid_from=NOON - WEEK, updated_at=NOON - WEEK)
    assert kinds(decide(said(RAN[1], type=type_), known=(old,))) == [Create]
    late = said(RAN[0], type=type_, observed_at=NOON - WEEK)
    now = memory(RAN[1], type=type_, valid_from=NOON, updated_at=NOON)
    (change,) = decide(late, known=(now,)).changes
    assert isinstance(change, Create)
    assert change.memory.superseded_by is None


def test_the_same_words_of_the_same_day_still_confirm() -> None:
    old = memory(RAN[1])
    assert kinds(decide(said("User ran 5 km yesterday (2026-05-27)"), known=(old,))) == [Confirm]
    noted = memory("User lives in Ghent (2026-05-20).")
    assert kinds(decide(said("User lives in Ghent (2026-05-27)."), known=(noted,))) == [Confirm]


def test_another_day_for_what_had_not_come_yet_supersedes_and_an_event_stays() -> None:
    old = memory(LAUNCH[0], valid_from=NOON - WEEK, updated_at=NOON - WEEK)
    assert kinds(decide(said(LAUNCH[1]), known=(old,))) == [Supersede]
    assert kinds(decide(said(LAUNCH[1], type="episodic"), known=(replace(old, type="episodic"),))) == [Create]


def test_a_denial_does_not_close_another_time_in_the_same_words() -> None:
    past = memory(RAN[0], id="past", valid_from=NOON - WEEK)
    old = memory(RAN[1], id="old", valid_from=NOON - 60)
    decision = decide(said("User did not run 5 km yesterday (2026-05-27)."), known=(old, past))
    assert [c.old_id for c in decision.changes if isinstance(c, Supersede)] == ["old"]


@pytest.mark.parametrize(
    "types", [("semantic", "episodic"), ("episodic", "semantic"), ("episodic", "episodic")]
)
@pytest.mark.parametrize(
    "then",
    [
        "The dentist appointment is on 10 June 2026, not 3 June 2026.",
        "The dentist appointment is on 10 June 2026 instead of 3 June 2026.",
    ],
)
def test_a_day_that_is_taken_back_holds_no_more_whatever_the_types(types: tuple[str, str], then: str) -> None:
    old = memory(DENTIST, type=types[0])
    assert kinds(decide(said(then, type=types[1]), known=(old,))) == [Supersede]


def test_until_its_day_has_come_an_event_may_be_on_another_day_now() -> None:
    now = said("The dentist appointment is now on 10 June 2026.", type="episodic")
    assert kinds(decide(now, known=(memory(DENTIST, type="episodic"),))) == [Supersede]
    over = memory("The dentist appointment is on 20 May 2026.", type="episodic", valid_from=NOON - 3 * WEEK)
    assert kinds(decide(now, known=(over,))) == [Create]


def test_two_events_in_nearly_the_same_words_stay_two() -> None:
    for then in (
        "The dentist appointment is on 10 June 2026.",
        "User's dentist appointment is on 10 June 2026.",
    ):
        assert kinds(decide(said(then, type="episodic"), known=(memory(DENTIST, type="episodic"),))) == [
            Create
        ]
    other = said("The eye appointment is on 10 June 2026, not 3 June 2026.", type="episodic")
    vet = memory("The vet's appointment for Miso is on 3 June 2026.", type="episodic")
    assert kinds(decide(other, known=(vet,), cosine=0.5)) == [Create]


@pytest.mark.parametrize(
    ("old", "new", "is_so"),
    [
        ("Der Termin ist am 3. März.", "Der Termin ist am 10. März, nicht am 3. März.", True),
        ("La cita es el 3 de marzo", "La cita es el 10 de marzo, en vez del 3 de marzo", True),
        ("Le rendez-vous est le 3 mars", "Le rendez-vous est le 10 mars et non le 3 mars", True),
        ("牙医预约在3月3日", "牙医预约在3月10日,不是3月3日", True),
        ("The call is on Tuesday", "The call is on Thursday, not on Tuesday", True),
        ("The call is on Tuesday", "The call is not on Thursday", False),
        ("The party is on 3 March", "The party is on 10 March", False),
    ],
)
def test_a_day_is_taken_back_where_it_is_named_as_the_wrong_one(old: str, new: str, is_so: bool) -> None:
    assert takes_back_date(old, new) is is_so
