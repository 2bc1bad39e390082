"""`lookalike plan`, as typed."""

import numpy as np
import pytest

from lookalike.data.synthetic import clustered_embeddings


def rows_of(text):
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]


def test_plan_from_embeddings(run_here, tmp_path):
    np.save(tmp_path / "x.npy", clustered_embeddings(600, dim=32)[0].numpy())
    code, out, err = run_here("plan", "x.npy", "--n", "3000", "--k", "32", "--target", "0.4", "--max-bits", "256")
    assert (code, err) == (0, "")
    rows = rows_of(out)
    assert [row[:3] for row in rows] == [
        ["64", "8", "1/16"],
        ["128", "16", "1/8"],
        ["192", "24", "1/5.33333"],
        ["256", "32", "1/4"],
    ]
    shares = [float(row[3].split("%")[0]) for row in rows]
    assert shares == sorted(shares)
    (choice,) = [int(row[0]) for row in rows if row[4]]
    assert f"{choice} bits are predicted to find" in out
    assert "More rows would narrow the error: 3,000 are recommended." in out


def test_plan_from_theory(run_here):
    code, out, err = run_here("plan", "--eps", "0.3", "--a", "1.1", "--n", "40000")
    assert (code, err) == (0, "")
    assert [row[0] for row in rows_of(out)] == ["14,606", "9,352", "14,566", "18,043", "695"]
    assert "14,608 bits keep the order" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "give either a file of embeddings or --eps, --a and --n."),
        (("--eps", "0.3", "--a", "1.1"), "give either a file of embeddings or --eps, --a and --n."),
        (("absent.npy",), "absent.npy: there is no such file of embeddings."),
        (("--eps", "0.3", "--a", "0.9", "--n", "10"), "a above 1 with a * eps at most 1"),
    ],
)
def test_mistakes_are_one_line(run_here, arguments, sentence):
    code, _, err = run_here("plan", *arguments)
    assert (code, len(err.splitlines())) == (2, 1)
    assert sentence in err


def test_fewer_rows_than_neighbours(run_here, tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((100, 4)))
    code, _, err = run_here("plan", "x.npy")
    assert code == 2
    assert "has 100 rows and at least 129 are needed; give more rows or a smaller k." in err
