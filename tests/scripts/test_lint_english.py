"""scripts/lint_english.py finds mannered turns wherever people read, and leaves code alone."""

import pytest

from scripts import lint_english as lint


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("page.md", "Fine.\n\nWhoever asks is served.\n", [3]),
        ("page.md", "```\nnobody\n```\n`nobody` and [a link](nobody.md) are code.\n", []),
        ("module.py", '"""Returns what is kept of a user."""\n', [1]),
        ("module.py", 'def f():\n    """First.\n\n    Made anew.\n    """\n', [4]),
        ("module.py", "x = 1\ny = 2  # nobody reads it\n", [2]),
        ("module.py", "if True:\n    raise ValueError('This is no number')\n", [2]),
        ("module.py", "WORDS = ['nobody told me']\n", []),
        ("module.py", "def find(told):\n    doomed = told\n", [1, 2]),
        ("test_module.py", "def test_nobody_is_let_in():\n    pass\n", [1]),
        ("schema.sql", "SELECT 1; -- as far as it is known\nSELECT 'nobody';\n", [1]),
        ("settings.yaml", "port: 80  # whom it serves\n", [1]),
        ("script.js", "const x = 'nobody' // nobody\nlet y = 'nobody'\n", [1]),
    ],
)
def test_a_turn_is_found_at_its_line(name, text, lines, tmp_path):
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    assert sorted({int(found.partition(":")[0]) for found in lint.findings(file)}) == lines


def test_the_command_fails_and_names_file_and_line(tmp_path, capsys):
    file = tmp_path / "page.md"
    file.write_text("One.\nNobody knows.\n", encoding="utf-8")
    assert lint.main([str(file)]) == 1
    assert f"{file}:2: “Nobody”" in capsys.readouterr().out
    file.write_text("One.\nNo client knows it.\n", encoding="utf-8")
    assert lint.main([str(file)]) == 0
