"""The figures in the docs come from a saved run."""

import json

import pytest

from bench.figures import BEGIN, END, PAGE, publish


def test_only_the_marked_part_of_the_page_is_replaced(tmp_path):
    page, run = tmp_path / "page.md", tmp_path / "run.json"
    page.write_text(f"before\n{BEGIN}old\n{END}after\n")
    run.write_text(json.dumps({"report": "Commit abc.\n\n### Requests\n\n| a |\n\n### Goals\n\n| b |"}))
    assert publish(run, page) == run
    assert page.read_text() == f"before\n{BEGIN}\nCommit abc.\n\n### Requests\n\n| a |\n\n{END}after\n"


def test_the_docs_have_a_place_for_figures(tmp_path):
    text = PAGE.read_text("utf-8")
    assert text.index(BEGIN) < text.index(END)
    bare = tmp_path / "bare.md"
    bare.write_text("no markers")
    (tmp_path / "run.json").write_text('{"report": ""}')
    with pytest.raises(ValueError, match="markers"):
        publish(tmp_path / "run.json", bare)
