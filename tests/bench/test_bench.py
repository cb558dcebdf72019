"""The soak's arithmetic: what counts as growth, and what does not."""

import json
import random
from dataclasses import replace
from random import Random

from bench.figures import BEGIN, END, publish
from bench.seed import FACTS_A_USER, facts, question
from bench.soak.verdict import growth
from bench.soak.watch import Sample, complaints

AT_REST = Sample(
    at=0, rss=250, pss=240, anonymous=180, fds=30, threads=14, cpu=2, requests=1, disk=1, wal=4,
    queued=0, oldest_job=0, dead_jobs=0, level=0, failures=0, stored=0,
)  # fmt: skip


def an_hour(**per_hour: float) -> list[Sample]:
    """Samples of an hour, in which these grow by so much, over the noise of an allocator."""
    rng, found = Random(3), []
    for number in range(121):
        hours = number / 120
        noise = rng.uniform(-0.5, 0.5)
        work = {"cpu": 2 + 150 * hours, "requests": 1 + round(15_000 * hours)}
        grown = {name: getattr(AT_REST, name) + by * hours for name, by in per_hour.items()}
        found.append(replace(AT_REST, at=3600 * hours, **({"rss": 250 + noise} | work | grown)))
    return found


def failed(samples: list[Sample]) -> list[str]:
    return [line.name for line in growth(samples) if line.passed is False]


def test_an_hour_at_rest_passes():
    samples = an_hour()
    assert failed(samples) == []
    warmed = [replace(s, rss=s.rss - max(0.0, 100 - s.at / 12)) for s in samples]
    assert failed(warmed) == [], "what grew before the warm-up was over counts for nothing"


def test_a_small_leak_of_each_kind_is_reported_by_name():
    assert failed(an_hour(rss=5)) == ["resident memory"]
    assert failed(an_hour(fds=8)) == ["open files"]
    assert failed(an_hour(threads=2)) == ["threads"]
    assert failed(an_hour(disk=8)) == ["database"]


def test_requests_that_cost_ever_more_are_found():
    samples = [replace(s, cpu=s.cpu * (1 + s.at / 3600)) for s in an_hour()]
    assert failed(samples) == ["processor time a request"]


def test_complaints_are_counted_by_event_and_a_purge_that_waits_is_none(tmp_path):
    log = tmp_path / "log"
    log.write_text(
        '{"event": "store.opened", "level": "info"}\n{"event": "store.trouble", "level": "error"}\n'
        '{"event": "store.purge.delayed", "level": "warning"}\nTraceback (most recent call last):\nwords\n'
    )
    assert complaints(log) == {"store.trouble": 1, "Traceback (most recent call last):": 1}


def test_only_the_marked_part_of_the_page_is_replaced(tmp_path):
    page, run = tmp_path / "page.md", tmp_path / "run.json"
    page.write_text(f"before\n{BEGIN}old\n{END}after\n")
    run.write_text(json.dumps({"report": "Commit abc.\n\n### Requests\n\n| a |\n\n### Goals\n\n| b |"}))
    assert publish(run, page) == run
    assert page.read_text() == f"before\n{BEGIN}\nCommit abc.\n\n### Requests\n\n| a |\n\n{END}after\n"


def test_every_question_is_about_a_fact_of_its_user_and_asked_once():
    chance = random.Random(1)
    for user in range(3):
        asked = {fact.question for fact in facts(user)}
        assert len(facts(user)) == len({fact.text for fact in facts(user)}) == FACTS_A_USER
        for number in range(20):
            said = question(chance, user, number)
            assert said.partition(" Keep it under ")[0] in asked
    assert len({question(chance, 7, number) for number in range(500)}) == 500
