"""What is known about models by their names."""

import pytest

from proxy.config import EmbeddingSettings
from proxy.models.embedder import Prompts
from proxy.models.load import row_of
from proxy.models.weights import ENCODER_NAME


@pytest.mark.parametrize(
    ("name", "prompts", "first_token"),
    [
        (ENCODER_NAME, Prompts("query: ", "passage: "), False),
        ("all-MiniLM-L6-v2", Prompts(), False),
        ("intfloat/multilingual-e5-small", Prompts("query: ", "passage: "), False),
        ("intfloat/multilingual-e5-large", Prompts("query: ", "passage: "), False),
        ("intfloat/multilingual-e5-large-instruct", Prompts(), False),
        ("intfloat/e5-base-v2", Prompts("query: ", "passage: "), False),
        ("BAAI/bge-m3", Prompts(), True),
        (
            "BAAI/bge-small-en-v1.5",
            Prompts("Represent this sentence for searching relevant passages: "),
            True,
        ),
        ("BAAI/bge-small-zh-v1.5", Prompts("为这个句子生成表示以用于检索相关文章："), True),
        ("nomic-ai/nomic-embed-text-v1.5", Prompts("search_query: ", "search_document: "), False),
        ("acme/own", Prompts(), False),
    ],
)
def test_a_model_is_asked_as_its_family_was_trained(name: str, prompts: Prompts, first_token: bool) -> None:
    family = row_of(name).family
    assert (family.prompts, family.first_token) == (prompts, first_token)


def test_our_encoder_is_the_default() -> None:
    assert EmbeddingSettings().model == ENCODER_NAME
    assert EmbeddingSettings().dimension == row_of(ENCODER_NAME).model.dimension
