"""The scripted models of the evaluation."""

import json
from typing import Any

from evals.conversations import Scripted, fact, rows
from evals.data import persona, seconds
from evals.house import opened
from evals.model import Good, Model, flat, quote
from tests.evals.test_data import raw

PROMPT = (
    "<known_memories>\n{known}\n</known_memories>\n<context>\nNothing.\n</context>\n<conversation>\n"
    '<exchange date="x">\n<user>\n{said}\n</user>\n<assistant>\nFine.\n</assistant>\n</exchange>\n'
    "</conversation>"
)


def extracted(said: str, known: str = "(none)") -> list[dict[str, object]]:
    answer = Good([persona(raw())])(PROMPT.format(said=said, known=known))
    found: list[dict[str, object]] = json.loads(answer)["facts"]
    return found


def test_the_good_model_states_and_quotes_the_facts_in_the_prompt_and_names_what_they_replace():
    assert [f["content"] for f in extracted("Old, no, new.")] == ["Old.", "New."]
    assert extracted("Something else.") == []
    old, new = extracted("Old, no, new.", known="[mem_1] (semantic, 2026-01-01) Old.")
    assert (old["replaces"], new["replaces"]) == (None, "mem_1")
    turn = "Lovely day. We said 7,500 dollars all in for Portugal! And it rains."
    assert quote("User's budget for Portugal is $7,500.", turn).startswith("We said 7,500")


SAID = "I left Siemens in May. At Bosch now! By the way, how do I cook rice?"
ASKED = "<known_memories>\n[mem_7] (semantic, 2026-01-01) User works at Siemens.\n</known_memories>\n{said}"


def answer(script: Scripted, said: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        script(ASKED.format(said=f"<conversation>{said}</conversation>"))
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


def test_the_evidence_of_each_candidate_is_in_its_message():
    for _, row in rows("statements", quick=False):
        for candidate in row["candidates"]:
            evidence = fact(candidate["content"], row["message"])["evidence"]
            assert flat(evidence) in flat(row["message"])


async def test_each_request_of_an_evaluation_is_made_at_its_own_time(tmp_path):
    """In a real proxy, forwards and backwards."""
    said = {
        "2026-05-01T12:00:00Z": "User has cats",
        "2031-01-01T00:00:00Z": "User owns a kayak",
        "2027-02-03T04:05:06Z": "User works at Acme",
    }
    async with opened(tmp_path, Model(), {}, whole=False) as house:
        for when, content in said.items():
            house.clock.set(seconds(when))
            added = await house.call("POST", "/v1/memory", {"user_id": "anna", "content": content})
            assert abs(added.body["created_at"] - seconds(when)) < 60, content
