from tests.e2e.conftest import house, models_dir

__all__ = ["house", "models_dir"]
