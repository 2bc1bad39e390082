"""One server for the tests that change nothing, and one browser."""

import pytest

from tests.explore.serving import explored, serving, write_embeddings
from tests.report.browser import Browser, find_chromium


@pytest.fixture(scope="session")
def client(tmp_path_factory):
    folder = write_embeddings(tmp_path_factory.mktemp("explore"))
    with serving(explored(folder, labels="labels.txt", texts="texts.txt")) as client:
        yield client


@pytest.fixture(scope="session")
def browser():
    """One process for all tests, since it starts slowly."""
    with Browser(find_chromium()) as browser:
        yield browser
