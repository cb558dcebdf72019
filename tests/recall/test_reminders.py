"""What a session's notes say to a request of it."""

from proxy.domain.core import Message
from proxy.domain.session import Anchor, RecentTurn, SessionNotes
from proxy.recall.pack import TURN_TOKENS, reminders

DAY = 1_767_225_600.0
CHINESE = Anchor("language", "Answer in Chinese.", DAY)
SHORT = Anchor("length", "Keep it short.", DAY)


def words(text: str) -> int:
    return len(text.split())


def told(notes: SessionNotes, *messages: Message, budget: int = 600) -> list[str]:
    return reminders(notes, messages, budget_tokens=budget, tokens=words)


def test_an_anchor_carries_its_date():
    assert told(SessionNotes((CHINESE,))) == ["[anchor 2026-01-01] Answer in Chinese."]


def test_what_the_user_says_in_the_conversation_is_not_repeated():
    notes = SessionNotes((CHINESE, SHORT))
    shown = Message("user", "Hello. Answer in Chinese. What is two plus two?")
    assert told(notes, shown) == ["[anchor 2026-01-01] Keep it short."]
    repeated = Message("assistant", shown.text)  # the model's words are not the user's
    assert len(told(notes, repeated)) == 2


def test_a_cut_anchor_is_known_by_its_beginning():
    notes = SessionNotes((Anchor("other", "From now on, always mention…", DAY),))
    assert told(notes, Message("user", "From now on, always mention every rule.")) == []


def test_the_newest_anchors_find_room_first_and_stand_last():
    notes = SessionNotes(tuple(Anchor("other", f"Rule {n} holds.", DAY) for n in range(5)))
    lines = told(notes, budget=2 * words("[anchor 2026-01-01] Rule 1 holds."))
    assert [line[-13:] for line in lines] == ["Rule 3 holds.", "Rule 4 holds."]


def test_turns_come_after_the_state_and_within_their_bounds():
    long = RecentTurn("question " * 60, "answer " * 60, DAY)
    notes = SessionNotes(
        (CHINESE,), (long, long, RecentTurn("why?", "so", DAY)), {"topic": "tea", "facts": ["a", "b"]}, DAY
    )
    anchor, state, *turns = told(notes)
    assert anchor.startswith("[anchor")
    assert state == "[state 2026-01-01] topic: tea; facts: a, b"
    assert turns[-1] == "[turn 2026-01-01] user: why? — assistant: so"
    assert all(len(turn) < 260 for turn in turns)
    assert sum(map(words, turns)) <= TURN_TOKENS


def test_an_unanswered_turn_says_only_what_was_asked():
    assert told(SessionNotes((), (RecentTurn("why?", "", DAY),))) == ["[turn 2026-01-01] user: why?"]


def test_nothing_fits_into_nothing():
    assert told(SessionNotes((CHINESE,), (RecentTurn("a", "b", DAY),), {"topic": "x"}, DAY), budget=1) == []
