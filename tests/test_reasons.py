"""Every value of X-Memory-Reason is documented and used."""

import re
from pathlib import Path

from proxy.domain.core import Level, Reason

ROOT = Path(__file__).parent.parent
ROW = re.compile(r"^\| `(\w+)` \| (.+) \|$", re.MULTILINE)


def test_the_documentation_lists_each_reason_with_its_meaning() -> None:
    _, _, section = (ROOT / "docs/memory.md").read_text("utf-8").partition("\n## What X-Memory-Reason says\n")
    assert ROW.findall(section.partition("\n## ")[0]) == [(one.value, one.meaning) for one in Reason]


def test_the_documentation_lists_each_level() -> None:
    _, _, section = (ROOT / "docs/memory.md").read_text("utf-8").partition("\n## What X-Memory-Level says\n")
    listed = [word for word, _ in ROW.findall(section.partition("\n## ")[0])]
    assert listed == [level.value for level in Level]


def test_each_reason_is_used() -> None:
    sources = [p.read_text("utf-8") for p in (ROOT / "proxy").rglob("*.py")]
    said = set(re.findall(r"\bReason\.([A-Z_]+)", "\n".join(sources)))
    assert said == set(Reason.__members__)


def test_each_reason_fits_into_a_header() -> None:
    assert all(re.fullmatch("[a-z_]+", one.value) for one in Reason)
