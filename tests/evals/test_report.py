"""The tables that a run writes."""

import json

from evals import report

SYSTEMS = {
    "memory-proxy": {
        "recall@5": {"en": (0.96, 100), "zh": (0.9, 50), "all": (0.94, 150)},
        "wrong: skip": {"en": (0.0, 10), "all": (0.0, 10)},
    },
    "dense": {"recall@5": {"en": (0.999, 100), "zh": (0.8, 50), "all": (0.9, 150)}},
}


def test_the_results_hold_a_table_for_each_part_with_its_date_and_commit(tmp_path):
    run = {"part": "everyday", "commit": "abc", "when": "2026-05-04 10:00", "seconds": 12.3}
    (tmp_path / "full-everyday.json").write_text(json.dumps(run | {"systems": SYSTEMS}))
    (tmp_path / "quick-everyday.json").write_text("not read")
    report.write(tmp_path / "RESULTS.md", tmp_path)
    lines = (tmp_path / "RESULTS.md").read_text("utf-8").splitlines()
    assert "## everyday" in lines
    assert "2026-05-04 10:00, commit abc, 12 s; up to 150 cases." in lines
    assert "|  | all | en | zh |" in lines
    assert "| recall@5 | .94 | .96 | .90 |" in lines
    assert "| wrong: skip ↓ | .00 | .00 |  |" in lines
    assert "| en | dense |  | 1.0 |  |  |  |" in lines
