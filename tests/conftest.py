import os
import sys
from collections import Counter

import hypothesis
import pytest

from lookalike.cli import main
from tests import processes

# Torch is not loaded yet, here and in the processes to come. Its threads would spin while they wait for each other,
# and on busy cores take the time of those that they wait for: ten times as long for the same work.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # libraries of Hugging Face, which read it when imported, fetch nothing
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

hypothesis.settings.register_profile("ci", deadline=None, max_examples=60, derandomize=True)
hypothesis.settings.load_profile("ci")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks at its options
def pytest_cmdline_main(config):
    """Run the whole suite in two processes where pytest-xdist is installed; `pytest -n 0` runs it in one."""
    is_whole = config.args_source == config.ArgsSource.TESTPATHS and not (
        config.option.keyword or config.option.markexpr
    )
    is_worker = hasattr(config, "workerinput")  # which must not start workers of its own
    if is_whole and not is_worker and getattr(config.option, "numprocesses", 0) is None and (os.cpu_count() or 1) > 1:
        config.option.numprocesses = 2
        config.option.dist = "loadfile"  # fixtures of a module are made once
        os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items):
    import torch

    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="needs a CUDA device")
    for item in items:
        if item.get_closest_marker("gpu"):  # keywords hold names of folders as well
            item.add_marker(skip)


def pytest_collection_finish(session):
    if len(session.items) > 500:  # some will need it, and it is ready by then
        processes.start_server()


def pytest_terminal_summary(terminalreporter):
    """Say once per reason how many tests were skipped."""
    skipped = terminalreporter.stats.get("skipped", [])
    for reason, number in Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped).most_common():
        terminalreporter.line(f"{number} skipped: {reason}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown():
    """Fail a test that leaves processes to the garbage collector, which would end them in the middle of another."""
    yield
    left = processes.kill_children(spared=_pids_of_ranks())
    assert not left, f"these processes were left running: {left}"


def _pids_of_ranks():
    pool = sys.modules.get("tests.ranks")
    return [] if pool is None else [rank.pid for rank in pool.POOL.ranks]


def pytest_sessionfinish():
    if "tests.ranks" in sys.modules:
        sys.modules["tests.ranks"].POOL.close()
    processes.kill_children()
    processes.stop_server()


@pytest.fixture
def threads():
    """Set torch's number of threads for one test."""
    import torch

    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


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


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """A sentence-transformers model of a few thousand random weights that really tokenises and encodes."""
    pytest.importorskip("sentence_transformers")
    from benchmarks.kill_mine import save_model

    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def model(model_folder):
    return pytest.importorskip("sentence_transformers").SentenceTransformer(str(model_folder), device="cpu")
