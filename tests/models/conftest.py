"""Our encoder as the installer left it, and a sentence model of four dimensions for everything else."""

import base64
import importlib.util

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from proxy.models import vocabulary, weights
from proxy.models.load import fetched_dir, load_embedder

# Gather rows of [[0,0,0,9],[1,0,0,0],[0,1,0,0],[0,0,1,0]] by `input_ids` into `last_hidden_state`.
TINY_GRAPH = base64.b64decode(
    "CAg6mAIKLQoFdGFibGUKCWlucHV0X2lkcxIRbGFzdF9oaWRkZW5fc3RhdGUiBkdhdGhlchIEdGlueSpPCAQIBBABQgV0YWJsZUpA"
    "AAAAAAAAAAAAAAAAAAAQQQAAgD8AAAAAAAAAAAAAAAAAAAAAAACAPwAAAAAAAAAAAAAAAAAAAAAAAIA/AAAAAFodCglpbnB1dF9p"
    "ZHMSEAoOCAcSCgoDEgFiCgMSAXNaIgoOYXR0ZW50aW9uX21hc2sSEAoOCAcSCgoDEgFiCgMSAXNaIgoOdG9rZW5fdHlwZV9pZHMS"
    "EAoOCAcSCgoDEgFiCgMSAXNiKQoRbGFzdF9oaWRkZW5fc3RhdGUSFAoSCAESDgoDEgFiCgMSAXMKAggEQgQKABAR"
)


@pytest.fixture(scope="session")
def fetched():
    """Where the installer put what the encoder needs; skips where it could not."""
    whole = weights.is_whole(fetched_dir() / vocabulary.WORDS_NAME)
    if not whole or not vocabulary.is_whole(fetched_dir() / vocabulary.NAME):
        pytest.skip("our encoder is not here: run scripts/fetch-models")
    return fetched_dir()


@pytest.fixture
def embedder(fetched, tmp_path):
    """A fresh embedder, cache and all."""
    embedder = load_embedder(tmp_path).embedder
    assert embedder is not None
    yield embedder
    embedder.close()


@pytest.fixture
def tiny_model(tmp_path):
    """A directory with an ONNX sentence model: [CLS] is far from a, b and c, which are unit axes."""
    tokenizer = Tokenizer(models.WordLevel({"[CLS]": 0, "a": 1, "b": 2, "c": 3}, unk_token="c"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $0", special_tokens=[("[CLS]", 0)])
    directory = tmp_path / "tiny"
    directory.mkdir()
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "model.onnx").write_bytes(TINY_GRAPH)
    return directory


@pytest.fixture
def hide(monkeypatch):
    """Return a function that makes an installed package look absent."""

    def apply(package):
        find = importlib.util.find_spec
        monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == package else find(n))

    return apply
