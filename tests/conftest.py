import hypothesis
import pytest
import torch

from lookalike.cli import main
from tests import processes

hypothesis.settings.register_profile("ci", deadline=None, max_examples=60, derandomize=True)
hypothesis.settings.load_profile("ci")


def pytest_sessionfinish():
    if "tests.ranks" in sys.modules:
        sys.modules["tests.ranks"].POOL.close()
    left = processes.stop_server()
    assert not left, f"tests left processes behind: {left}"


@pytest.fixture
def threads():
    """Set torch's number of threads for one test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def pytest_collection_modifyitems(items):
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="needs a CUDA device")
    for item in items:
        if item.get_closest_marker("gpu"):  # keywords hold names of folders as well
            item.add_marker(skip)


@pytest.fixture
def run_here(tmp_path, monkeypatch, capsys):
    """The command line in this process, which saves the imports, from an empty folder: exit code, output, errors."""
    monkeypatch.chdir(tmp_path)

    def run_in_this_process(*arguments):
        code = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = ended.code or 0
        return code, *capsys.readouterr()

    return run_in_this_process
