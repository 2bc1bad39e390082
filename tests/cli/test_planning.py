"""`lookalike plan`, as typed."""

import numpy as np
import pytest

from lookalike.data.synthetic import clustered_embeddings
from tests.cli.test_cli import run


def rows_of(text):
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]


def test_plan_from_embeddings(tmp_path):
    np.save(tmp_path / "x.npy", clustered_embeddings(600, dim=32)[0].numpy())
    shown = run("plan", str(tmp_path / "x.npy"), "--n", "3000", "--k", "32", "--target", "0.4", "--max-bits", "256")
    assert shown.returncode == 0, shown.stderr
    rows = rows_of(shown.stdout)
    assert [row[:3] for row in rows] == [
        ["64", "8", "1/16"],
        ["128", "16", "1/8"],
        ["192", "24", "1/5.33333"],
        ["256", "32", "1/4"],
    ]
    shares = [float(row[3].split("%")[0]) for row in rows]
    assert shares == sorted(shares)
    (choice,) = [int(row[0]) for row in rows if row[4]]
    assert f"{choice} bits are predicted to find" in shown.stdout
    assert "More rows would make it surer: 3,000 are advisable." in shown.stdout


def test_plan_from_theory():
    shown = run("plan", "--eps", "0.3", "--a", "1.1", "--n", "40000")
    assert shown.returncode == 0, shown.stderr
    assert [row[0] for row in rows_of(shown.stdout)] == ["14,606", "9,352", "14,566", "18,043", "695"]
    assert "14,608 bits keep the order" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "give either a file of embeddings or --eps, --a and --n."),
        (("--eps", "0.3", "--a", "1.1"), "give either a file of embeddings or --eps, --a and --n."),
        (("absent.npy",), "absent.npy: there is no such file of embeddings."),
        (("--eps", "0.3", "--a", "0.9", "--n", "10"), "a above 1 the ratio"),
    ],
)
def test_mistakes_are_said_in_one_line(arguments, sentence):
    shown = run("plan", *arguments)
    assert shown.returncode == 2
    assert sentence in shown.stderr
    assert len(shown.stderr.splitlines()) == 1


def test_fewer_rows_than_neighbours(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((100, 4)))
    shown = run("plan", str(tmp_path / "x.npy"))
    assert "has 100 rows and at least 129 are needed; give more rows or a smaller k." in shown.stderr
