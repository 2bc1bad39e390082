"""`lookalike explore`: mistakes are one line; the command prints an address that works and ends with Ctrl-C."""

import signal
import subprocess
import sys
import urllib.request

import numpy as np
import pytest

from lookalike.cli import main


@pytest.fixture
def embeddings(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32))
    return path


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["missing"], "there is no such run or file"),
        (["{folder}", "--labels", "x"], "--labels belongs to a file of embeddings"),
        (["{folder}"], "holds no run"),
        (["{x}", "--port", "70000"], "port must be at most 65535"),
        (["{x}", "--marks", "{folder}/marks.csv"], "must be a .jsonl file"),
        (["{x}", "--bits", "9"], "multiple of 8"),
        (["{x}", "--texts", "{x}", "--images", "{folder}"], "--texts and --images both say"),
    ],
)
def test_mistakes_are_one_line(embeddings, args, said, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["explore", *(each.format(folder=embeddings.parent, x=embeddings) for each in args), "--no-browser"])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_the_address_works_until_ctrl_c(embeddings):
    command = [sys.executable, "-m", "lookalike", "explore", str(embeddings), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            lines = [process.stdout.readline() for _ in range(3)]
            assert lines[0] == "x.npy: 20 samples in 512 bits.\n"
            address = lines[1].removeprefix("Open ").strip()
            with urllib.request.urlopen(f"{address}api/about", timeout=60) as answer:
                assert answer.status == 200
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, err) == (0, "")
    assert "0 pairs are marked." in out
