from tests.learn.conftest import embedder, house

__all__ = ["embedder", "house"]
