"""`lookalike` itself: its help, what it imports, and how it words mistakes."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field

import pytest

import lookalike
from lookalike.cli import COMMANDS, with_options
from lookalike.cli.parsing import Flag, Pairs
from tests.processes import PATIENCE

HEAVY = ("torch", "numpy", "numba", "rich", "yaml", "matplotlib", "PIL")


def test_version_and_help(run_here):
    assert run_here("--version") == (0, f"lookalike {lookalike.__version__}\n", "")
    code, shown, err = run_here("--help")
    assert (code, err) == (0, "")
    for name, summary in COMMANDS.items():
        assert any(line.startswith(f"│ {name} ") and summary in line for line in shown.splitlines())
    assert run_here() == run_here("-h") == (0, shown, "")


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("data", "bench")])
def test_every_command_has_help(run_here, name):
    code, shown, err = run_here(name, "--help")
    assert (code, err) == (0, "")
    assert shown.startswith(f"usage: lookalike {name} [-h]")
    assert "-h, --help" in shown


def test_menus_of_menus(run_here):
    assert "│ check  " in run_here("data")[1]
    assert "usage: lookalike data check" in run_here("data", "check", "--help")[1]
    assert "│ batches  " in run_here("bench", "--help")[1]


def test_help_fits_a_narrow_terminal(run_here, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    assert max(len(line) for line in run_here("--help")[1].splitlines() if "─" in line or "│" in line) <= 40


PROGRAM = """
import json, sys
from lookalike.cli import main
try:
    main(sys.argv[2:])
except SystemExit as ended:
    assert not ended.code
heavy = [name for name in json.loads(sys.argv[1]) if name in sys.modules]
commands = [name.rpartition(".")[2] for name in sys.modules if name.startswith("lookalike.cli.")]
print(json.dumps([heavy, "tyro" in sys.modules, commands]))
"""


@pytest.mark.parametrize(
    ("arguments", "with_tyro"),
    [(["--help"], False), (["--version"], False), (["train", "--help"], True), (["data", "list"], True)],
)
def test_help_imports_nothing_heavy(arguments, with_tyro):
    command = [sys.executable, "-c", PROGRAM, json.dumps(HEAVY), *arguments]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout
    heavy, is_tyro_there, commands = json.loads(shown.splitlines()[-1])
    assert ("╭─ options ─" in shown) == ("--help" in arguments)
    assert not heavy
    assert is_tyro_there == with_tyro
    assert set(COMMANDS) & set(commands) == set(COMMANDS) & set(arguments)


def test_the_library_needs_neither_tyro_nor_yaml():
    code = "import sys; sys.modules.update(tyro=None, yaml=None); from lookalike import compare, train"
    code += "; import lookalike.mining, lookalike.report, lookalike.analysis.study, lookalike.data.check"
    subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=PATIENCE, check=True)


def test_python_m_lookalike():
    command = [sys.executable, "-m", "lookalike", "trian"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (shown.returncode, shown.stdout) == (2, "")
    assert shown.stderr == "lookalike: there is no command 'trian'; did you mean 'train'? See lookalike --help.\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("xyz",), "there is no command 'xyz'. See lookalike --help."),
        (("data", "chekc"), "there is no command 'chekc'; did you mean 'check'? See lookalike data --help."),
        (("demo", "--bit", "64"), "there is no option '--bit'; did you mean '--bits'? See lookalike demo --help."),
        (("demo", "--di=64"), "there is no option '--di'; did you mean '--dim'? See lookalike demo --help."),
        (("demo", "64"), "unexpected argument '64'. See lookalike demo --help."),
        (("demo", "--n", "many"), "--n must be an integer, got 'many'."),
        (("demo", "--bits", "64,x"), "--bits must be an integer, or several with commas between them, got 'x'."),
        (("demo", "--bits", "12"), "bits must be a multiple of 8, got 12; the next one is 16."),
        (("demo", "--n", "1"), "n must be at least 2, got 1."),
        (("plan", "x.npy", "--k", "0"), "k must be at least 1, got 0."),
        (("analyze", "x.npy", "--anchors", "0"), "anchors must be at least 2, got 0."),
        (("plan", "--target", "x"), "--target must be a number, got 'x'."),
        (("train", "--no-resume"), "there is no option '--no-resume'; did you mean '--resume'?"),
        (("train", "--mixed-precison"), "there is no option '--mixed-precison'; did you mean '--mixed-precision'?"),
    ],
)
def test_mistakes_are_one_line(run_here, arguments, sentence):
    code, out, err = run_here(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"lookalike: {sentence}")
    assert len(err.splitlines()) == 1


def test_an_option_without_its_value(run_here):
    code, out, err = run_here("demo", "--bits")
    assert (code, out) == (2, "")
    assert "Missing value for argument" in err  # tyro's own words, which differ by version
    assert "--bits" in err


def test_errors_of_the_system_are_one_line(run_here):
    code, _, err = run_here("train", "--out", "x" * 300)
    assert (code, err.count("\n")) == (2, 1)
    assert "File name too long" in err


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("arguments", [["--version"], ["train", "--help"], ["completion", "bash"]], ids=" ".join)
def test_a_reader_that_has_seen_enough_is_no_mistake(arguments, unbuffered):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        line = [sys.executable, "-m", "lookalike", *arguments]
        environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        ended = subprocess.run(
            line, check=False, stdout=writing, stderr=subprocess.PIPE, env=environment, timeout=PATIENCE
        )
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_ctrl_c_outside_of_training(run_here, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("lookalike.cli.demo.parse", interrupt)
    assert run_here("demo") == (130, "", "\nlookalike: interrupted.\n")


@dataclass(frozen=True, kw_only=True)
class Options:
    force: Flag = False
    header: bool = True
    out: str | None = None
    max_bits: int = 64
    model_options: Pairs = field(default_factory=dict)


@pytest.mark.parametrize(
    ("error", "translated"),
    [
        ("force=True overwrites it, out= chooses a file.", "--force overwrites it, --out chooses a file."),
        ("set header=False.", "set --no-header."),
        ("max_bits=512 is enough; out=a/b.npy.", "--max-bits 512 is enough; --out a/b.npy."),
        ("give model_options=", "give --model-option"),
        ("numpy.unique(labels, return_inverse=True)[1]", "numpy.unique(labels, return_inverse=True)[1]"),
        ("/tmp/max_bits=512,out=1 holds a run", "/tmp/max_bits=512,out=1 holds a run"),
        ("sentence-transformers>=6, size=224", "sentence-transformers>=6, size=224"),
    ],
)
def test_arguments_of_the_library_become_options(error, translated):
    assert with_options(error, Options) == translated
