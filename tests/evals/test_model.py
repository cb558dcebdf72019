"""The scripted models of the evaluation."""

import json

from evals.data import persona
from evals.model import Good, Model, quote, replies_of
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


def test_the_model_answers_as_the_assistant_did_and_keeps_extraction_apart():
    sessions = [{**raw()["sessions"][0]}]
    sessions[0]["turns"] = [*sessions[0]["turns"], {"id": "t2", "role": "assistant", "content": "Noted!"}]
    model = Model(replies_of([persona(raw() | {"sessions": sessions})]))
    said = {
        "messages": [{"role": "system", "content": "block"}, {"role": "user", "content": "Old, no, new."}]
    }
    assert model.answer(said, "openai") == "Noted!"
    assert "block" in model.shown_text()
    model.answer({"messages": [{"role": "user", "content": "p"}]}, "memory-proxy/1 (memory_extraction)")
    assert model.prompts == ["p"]
    assert "block" in model.shown_text()
