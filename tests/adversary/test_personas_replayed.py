"""A persona's months replayed over HTTP by a model that never says what its facts replace."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from evals import data, extraction
from evals.judge import Judge

GONE_BY = 2  # stale facts of a persona that only a model's word would end


async def _unknown(text: str) -> npt.NDArray[np.float32] | None:
    return None  # a fact is what its gold says, word for word


@pytest.mark.parametrize("persona", ["e05", "e06"])
async def test_what_has_changed_is_not_current_and_all_else_is(tmp_path: Path, persona: str) -> None:
    personas = data.load([data.EXTRA / f"{persona}.json"])
    report = await extraction.run(
        "unlinked", personas, tmp_path, Judge(_unknown), lambda _: None, again=True, all_replays=False
    )
    verdict = report.verdicts[persona]
    assert verdict.missing == ()
    assert (verdict.extra, verdict.doubled) == (0, ())
    assert len(verdict.stale) <= GONE_BY
    assert report.replays["the same again"].added == ()
    assert report.replays["the same again"].lost == ()
    assert [leak for leak in report.leaks if leak.api] == []
