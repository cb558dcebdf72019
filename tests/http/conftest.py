from tests.e2e.conftest import house, models_dir, stores

__all__ = ["house", "models_dir", "stores"]
