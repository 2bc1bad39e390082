import subprocess
import sys

import lookalike


def run(*arguments):
    command = [sys.executable, "-c", "from lookalike.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=None)


def test_version_and_help():
    assert run("--version").stdout == f"lookalike {lookalike.__version__}\n"
    assert "demo" in run("--help").stdout


def test_demo_prints_a_table():
    shown = run("demo", "--n", "3000", "--dim", "64", "--bits", "64,256", "--k", "16")
    assert shown.returncode == 0, shown.stderr
    rows = {line.split("│")[1].strip(): line for line in shown.stdout.splitlines() if line.startswith("│")}
    assert list(rows) == ["float32, exact", "64 bits", "256 bits"]
    shares = [float(rows[name].split("│")[4].strip().rstrip("%")) for name in rows]
    assert shares[0] == 100
    assert 10 < shares[1] < shares[2] < 100
    assert rows["64 bits"].split("│")[2].strip() == "8"


def test_mistakes_are_said_in_one_line():
    for arguments, sentence in {
        ("demo", "--bits", "12"): "lookalike: bits must be a multiple of 8, got 12; the next one is 16.",
        (
            "demo",
            "--bits",
            "many",
        ): "lookalike: --bits takes integers with commas between them, such as 128,512, got 'many'.",
    }.items():
        shown = run(*arguments)
        assert shown.returncode == 2
        assert shown.stderr.strip() == sentence
