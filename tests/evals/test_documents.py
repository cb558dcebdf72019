"""The evaluation of documents: its questions hold together."""

from evals.documents import PARTS, questions, texts
from proxy.learn.documents import split


def test_every_question_names_a_section_that_is_there():
    headings = {
        (name, passage.headings[-1])
        for name, content in texts().items()
        for passage in split(content, "markdown")
    }
    asked = [one for one in questions() if one.section is not None]
    assert {one.section for one in asked} <= headings
    assert len(asked) >= 40
    assert len({one.id for one in questions()}) == len(questions())
    assert {one.part for one in questions()} == set(PARTS)


def test_every_document_has_more_sections_than_an_answer_could_show():
    for content in texts().values():
        assert len({passage.section for passage in split(content, "markdown")}) > 18
