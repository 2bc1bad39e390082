import pytest

from tests.toys import write_glyph_file


@pytest.fixture(scope="session")
def glyph_file(tmp_path_factory):
    """Write a file of glyphs that trains within a second."""
    return write_glyph_file(tmp_path_factory.mktemp("data") / "own.npz", classes=60)


@pytest.fixture
def nothing_loads(monkeypatch):
    """Fail if a model is built or data are read."""

    def fail(*_, **__):
        pytest.fail("something was loaded before the mistake was noticed")

    monkeypatch.setattr("lookalike.training.run.make_encoder", fail)
    monkeypatch.setattr("lookalike.data.DataSource.load", fail)
