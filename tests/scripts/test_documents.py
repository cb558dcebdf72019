"""Links and paths in documents lead to something, and pages for users name no module of ours."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOR_USERS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FOR_DEVELOPERS = [
    ROOT / f"{name}.md" for name in ("CONTRIBUTING", "tests/README", "evals/README", "training/README")
]
ALL = [*FOR_USERS, *FOR_DEVELOPERS]
_FOLDERS = "bench|config|docs|evals|proxy|scripts|tests|training"
_PATH = re.compile(rf"`((?:{_FOLDERS})/[^`\s]*|scripts/[\w-]+)[^`]*`")


def anchors(page: Path) -> set[str]:
    """Return the anchors of the page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def missing(page: Path, text: str) -> list[str]:
    """Return the links and paths in the text that lead to nothing."""
    found = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, anchor = link.partition("#")
        target = page if not name else page.parent / name
        if "://" not in link and not (target.exists() and (not anchor or anchor in anchors(target))):
            found.append(link)
    for path in _PATH.findall(text):
        names = re.sub(r"<\w+>|…", "*", path)
        if not ("*" in names and list(ROOT.glob(names))) and not (ROOT / path).exists():
            found.append(path)
    return found


@pytest.mark.parametrize("page", ALL, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_and_path_leads_to_something(page):
    assert missing(page, page.read_text("utf-8")) == []


@pytest.mark.parametrize("page", FOR_USERS, ids=lambda page: page.name)
def test_pages_for_users_name_no_module(page):
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"proxy/\w+/?[\w/]*\.py|\b\w+\.py\b", text) == []


def test_a_wrong_link_anchor_or_path_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A title\n")
    text = "[a](#a-title) [b](#none) [c](none.md) `proxy/none.py` `proxy/config.py` `evals/*/en.json`"
    text += " `evals/no*`"
    assert missing(page, text) == ["#none", "none.md", "proxy/none.py", "evals/no*"]


def test_how_memory_decides_is_one_page():
    assert len((ROOT / "docs" / "how-memory-decides.md").read_text("utf-8").splitlines()) <= 150
