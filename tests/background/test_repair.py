import pytest

from proxy.background.repair import Unreadable, read_facts

FACT = '{"type": "semantic", "content": "User lives in Ghent", "confidence": 0.9}'
OTHER = '{"type": "preference", "content": "User prefers tea", "confidence": 0.8}'

READABLE = {
    "plain": f'{{"facts": [{FACT}]}}',
    "fenced": f'```json\n{{"facts": [{FACT}]}}\n```',
    "fenced, never closed": f'```json\n{{"facts": [{FACT}]}}',
    "thinking first": f'<think>The user said {{"a": 1}} maybe [2].</think>\n{{"facts": [{FACT}]}}',
    "a draft in the thoughts": f"<think>[{OTHER}]</think>[{FACT}]",
    "prose around": f'Here are the facts [as asked]:\n{{"facts": [{FACT}]}}\nLet me know if you need more!',
    "bare array": f"[{FACT}]",
    "array of type and content only": '[{"type": "semantic", "content": "User lives in Ghent"}]',
    "single object": FACT,
    "facts is an object": f'{{"facts": {FACT}}}',
    "key fact": '{"facts": [{"category": "semantic", "fact": "User lives in Ghent", "score": 0.9}]}',
    "key text": '{"memories": [{"type": "semantic", "text": "User lives in Ghent"}]}',
    "key memory": '{"results": [{"type": "semantic", "memory": "User lives in Ghent"}]}',
    "trailing commas": '{"facts": [{"type": "semantic", "content": "User lives in Ghent",},],}',
    "single quotes": "{'facts': [{'type': 'semantic', 'content': 'User lives in Ghent', 'replaces': None}]}",
    "single quotes with null": "[{'type': 'semantic', 'content': 'User lives in Ghent', 'replaces': null}]",
    "cut in the second element": f'{{"facts": [{FACT}, {{"type": "preference", "content": "User pref',
    "cut between elements": f'{{"facts": [{FACT}, ',
    "cut bare array": f'[{FACT}, {{"type": "sem',
    "capital type": '[{"type": "Semantic", "content": "User lives in Ghent"}]',
    "raw newline in a string": '[{"type": "semantic", "content": "User lives\nin Ghent"}]',
    "bracket inside a string": f'[{FACT}, {{"type": "unknown", "content": "a ] b }} c"}}]',
    "byte order mark": f'\ufeff{{"facts": [{FACT}]}}',
    "an element that is no object": f'{{"facts": [{FACT}, null, "User likes tea", 3]}}',
}


@pytest.mark.parametrize("answer", READABLE.values(), ids=READABLE.keys())
def test_a_survivable_answer_is_read(answer: str) -> None:
    (fact,) = read_facts(answer)
    assert (fact.type, fact.content) == ("semantic", "User lives in Ghent")


@pytest.mark.parametrize(
    "answer", ['{"facts": []}', "[]", '{"facts": null}', "{}", "```json\n[]\n```", "Nothing: []"]
)
def test_nothing_to_remember_is_an_answer(answer: str) -> None:
    assert read_facts(answer) == []


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "I could not find any facts.",
        "<think>still thinking",
        "User lives in Ghent.",
        '{"facts": [{"type": "sem',
        '{"type": "semantic", "content": "User lives in Gh',
        '{"error": {"message": "overloaded"}}',
        '[{"content": "User lives in Ghent"}]',
        "[[[[[[" * 5000,
        '{"a":' * 5000,
    ],
    ids=lambda a: a[:30],
)
def test_an_answer_without_whole_facts_is_refused_rather_than_guessed(answer: str) -> None:
    with pytest.raises(Unreadable):
        read_facts(answer)


def test_whole_elements_of_a_cut_list_are_all_kept() -> None:
    assert len(read_facts(f'{{"facts": [{FACT}, {OTHER}, {{"type": "semantic", "con')) == 2


def test_unknown_types_are_dropped_and_the_rest_kept() -> None:
    answer = f'{{"facts": [{{"type": "rumour", "content": "User may be a spy"}}, {FACT}]}}'
    assert [f.content for f in read_facts(answer)] == ["User lives in Ghent"]


def test_no_more_than_ten_facts_are_read() -> None:
    assert len(read_facts("[" + ",".join([FACT] * 14) + "]")) == 10


@pytest.mark.parametrize(
    ("given", "read"),
    [
        *(("0.9", 0.9), ('"0.7"', 0.7), ('"90%"', 0.9), ("85", 0.85), ("1", 1.0), ("-3", 0.0)),
        *(('"high"', 0.9), ('"stated"', 0.95), ("null", 0.8), ("true", 0.8), ("[]", 0.8), ("NaN", 0.8)),
    ],
)
def test_confidence_is_read_in_every_notation(given: str, read: float) -> None:
    (fact,) = read_facts(f'[{{"type": "semantic", "content": "User lives in Ghent", "confidence": {given}}}]')
    assert fact.confidence == pytest.approx(read)


def test_tags_outside_the_list_and_references_to_nothing_are_dropped() -> None:
    (fact,) = read_facts(
        '[{"type": "semantic", "content": "User lives in Ghent",'
        ' "tags": ["home", "xyz", 3], "replaces": "null"}]'
    )
    assert fact.tags == ("home",)
    assert fact.replaces is None
