from tests.e2e.conftest import models_dir

__all__ = ["models_dir"]
