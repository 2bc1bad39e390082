import pytest


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Use an empty cache folder."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("LOOKALIKE_CACHE", str(folder))
    return folder
