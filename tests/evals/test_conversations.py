"""The scripted conversations of the evaluation, and their comparison with memories."""

import json
from typing import Any

from evals import everyday
from evals.conversations import Scripted, fact, rows
from evals.model import flat

SAID = "I left Siemens in May. At Bosch now! By the way, how do I cook rice?"
PROMPT = "<known_memories>\n[mem_7] (semantic, 2026-01-01) User works at Siemens.\n</known_memories>\n{said}"


def answer(script: Scripted, said: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        script(PROMPT.format(said=f"<conversation>{said}</conversation>"))
    )["facts"]
    return found


def test_the_scripted_model_gives_the_facts_of_the_message_in_the_prompt():
    script = Scripted({SAID: [fact("User works at Bosch.", SAID)], "Another.": []})
    (one,) = answer(script, SAID)
    assert (one["content"], one["evidence"], one["replaces"]) == (
        "User works at Bosch.",
        "At Bosch now!",
        None,
    )
    assert answer(script, SAID.replace("I left Siemens in May.", "[redacted]")) == [one]
    assert answer(script, "Something else.") == []


def test_the_scripted_model_may_claim_that_the_known_memory_is_replaced():
    script = Scripted({SAID: [fact("User works at Bosch.", SAID)]}, replaces=True)
    assert answer(script, SAID)[0]["replaces"] == "mem_7"


def test_the_evidence_of_each_candidate_is_in_its_message():
    for _, row in rows("statements", quick=False):
        for candidate in row["candidates"]:
            evidence = fact(candidate["content"], row["message"])["evidence"]
            assert flat(evidence) in flat(row["message"])


def test_a_copy_of_a_user_has_memories_of_its_own():
    (user,) = everyday.read(("nl",))
    ((copy, text, ids),) = everyday.copies([user], "forget")
    assert text == "Vergeet maar wat ik aan huur betaal."
    assert ids == {"nl-wietske-huur-forget1"}
    assert ids < {f.id for _, f in copy.facts()}
    assert not {f.id for _, f in copy.facts()} & {f.id for _, f in everyday.persona(user).facts()}
