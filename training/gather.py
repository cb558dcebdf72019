"""Gather what writers wrote into the data sets: one compressed file for each split and language.

    python -m training.gather RAW      # RAW/<task>/<split>/<language>.<writer>.jsonl

Adds `task` and `writer` to each line, drops repetitions, and refuses a line that the card does not allow.
Lines of tasks that RAW does not hold stay in the data sets.
"""

import gzip
import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

from training.train_head import CLASSES, examples

DATA = Path(__file__).parent / "data"
SPLITS = ("train", "dev", "test")


def check(task: str, line: dict) -> None:
    """Raise ValueError for a line that its task cannot read."""
    if task == "form":
        if not line["text"]:
            raise ValueError("an empty text")
        return
    count = len(line.get("facts", ()))
    if len(set(line.get("facts", ()))) < count:
        raise ValueError(f"a memory is there twice: {line['facts']}")
    if task in CLASSES:
        examples(task, line)
        if not all(0 <= place < count for place in line.get("forget", ())):
            raise ValueError(f"an index outside the memories: {line['forget']}")
        return
    questions = [one["q"] for one in (*line["asked"], *line["missing"])]
    if task == "retrieval" and len(set(questions)) < len(questions):
        raise ValueError(f"a question is asked twice: {questions}")
    for asked in line["asked"]:
        if not asked["a"] or not all(0 <= i < count for i in asked["a"]):
            raise ValueError(f"an index outside the memories: {asked}")
    holding = [*line.get("standing", ()), *line.get("rules", ()), *line.get("traits", ())]
    for place in [*holding, *(i for m in line["missing"] for i in m.get("near", ()))]:
        if not 0 <= place < count:
            raise ValueError(f"an index outside the memories: {place}")


def others(target: Path, delivered: set[str]) -> list[str]:
    """Return the lines of a data set whose task is not delivered."""
    if not target.exists():
        return []
    lines = gzip.decompress(target.read_bytes()).decode().splitlines()
    return [line for line in lines if json.loads(line)["task"] not in delivered]


def main() -> None:
    raw = Path(sys.argv[1])
    found: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    counts: Counter[tuple[str, str]] = Counter()
    for file in sorted(raw.glob("*/*/*.jsonl")):
        task, split, (language, writer, _) = file.parts[-3], file.parts[-2], file.name.split(".")
        assert split in SPLITS, file
        for text in filter(str.strip, file.read_text("utf-8").splitlines()):
            line = json.loads(text)
            check(task, line)
            whole = {"task": task, "writer": writer, **line}
            key = json.dumps([task, line], sort_keys=True)
            if found[split, language].setdefault(key, json.dumps(whole, ensure_ascii=False)):
                counts[task, split] += 1
    delivered = {task for task, _ in counts}
    for (split, language), lines in sorted(found.items()):
        target = DATA / split / f"{language}.jsonl.gz"
        target.parent.mkdir(parents=True, exist_ok=True)
        body = "".join(f"{line}\n" for line in (*lines.values(), *others(target, delivered))).encode()
        target.write_bytes(gzip.compress(body, mtime=0))
    for (task, split), count in sorted(counts.items()):
        print(f"{task:10} {split:6} {count}")


if __name__ == "__main__":
    main()
