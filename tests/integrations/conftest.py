import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is fetched, and nothing is waited for


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """A text model on disk that nobody changes."""
    pytest.importorskip("sentence_transformers")
    from tests.integrations.texts import save_tiny_model

    return save_tiny_model(tmp_path_factory.mktemp("model"))
