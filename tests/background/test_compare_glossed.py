"""Vectors of Chinese are vectors of glosses: they find memories, and do not say which are the same."""

from proxy.background.write_gate.compare import Relation, relate


def test_a_near_gloss_does_not_merge_chinese_facts_that_differ_in_a_rare_word() -> None:
    one, other = "用户在魑林公司负责采购。", "用户在魅岭公司负责采购。"
    assert relate(one, other, 0.99, near=0.8) is relate(one, other, None, near=0.8)


def test_the_same_chinese_words_are_the_same_fact_whatever_the_vector_says() -> None:
    assert relate("用户对青霉素过敏。", "用户对青霉素过敏", 0.1, near=0.8) is Relation.SAME
