"""`lookalike plan`, as typed."""

import json
import shlex

import numpy as np
import pytest

from lookalike.cli.advice import train_command
from lookalike.data.synthetic import clustered_embeddings
from lookalike.training.settings import Settings
from tests.toys import write_glyph_file


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
    scalar = [float(row[5].split("%")[0]) for row in rows]
    assert all(more > fewer for more, fewer in zip(scalar, shares, strict=True))
    (shorter,) = [int(row[0]) for row in rows if row[6]]
    assert shorter <= choice
    assert f"{shorter} bits of scalar codes are predicted to find" in out
    assert "More rows would narrow the error: 3,000 are recommended." in out


def test_plan_from_theory(run_here):
    code, out, err = run_here("plan", "--eps", "0.3", "--a", "1.1", "--n", "40000")
    assert (code, err) == (0, "")
    assert [row[0] for row in rows_of(out)] == ["14,606", "9,352", "14,566", "18,043", "695"]
    assert "14,608 bits keep the order" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "give a data set, a file of embeddings, or --eps, --a and --n."),
        (("--eps", "0.3", "--a", "1.1"), "give a data set, a file of embeddings, or --eps, --a and --n."),
        (("absent.npy",), "absent.npy: there is no such file of embeddings."),
        (("absent.npz",), "absent.npz: there is no such file of embeddings."),
        (("absent.npz:x",), "absent.npz: there is no such file of embeddings."),
        (("glyfs",), "glyfs is neither a data set nor a file of embeddings (.npy, .npz, .safetensors, .parquet)"),
        (("glyfs",), "did you mean 'glyphs'?"),
        (("pairs.jsonl",), "name a data set, and give its folder or file with --root"),
        (("absent.npy", "--model", "convnet"), "--model has no effect here: absent.npy holds embeddings."),
        (("glyphs", "--n", "9"), "--n has no effect here: glyphs is a data set."),
        (("--eps", "0.3", "--a", "1.1", "--n", "9", "--sample", "64"), "--sample has no effect here"),
        (("texts",), "texts is read from a file: give its path with --root FILE."),
        (("glyphs", "--model", "convnett"), "there is no encoder 'convnett'"),
        (
            ("glyphs", "--model-option", "encoder=convnet"),
            "encoder is not an option of the model: give it with --model",
        ),
        (("glyphs", "--sample", "8"), "sample must be"),
        (("glyphs", "--sample", "200", "--pairs-per-batch", "64"), "--sample must be at least 256"),
        (("glyphs", "--pairs-per-batch", "1"), "pairs_per_batch must be"),
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


def test_a_data_set_gets_a_table_a_reason_and_a_command(run_here, tmp_path):
    own = write_glyph_file(tmp_path / "own.npz", classes=120)
    plan = ("plan", own, "--pairs-per-batch", "8", "--model-option", "width=8", "--sample", "128", "--k", "16")
    code, out, err = run_here(*plan, "--out", "advice.json", "--device", "cpu", "--max-bits", "256")
    assert (code, err) == (0, "")
    advice = json.loads((tmp_path / "advice.json").read_text())
    found = {row[0]: row[1:] for row in rows_of(out)}
    assert found["positive beats 32nd negative"][0] == f"{advice['readiness']['beats']['32']:.0%}"
    assert found["hardest in a mined batch"][0] == f"cosine {advice['mined']['cosine']:.3f}"
    assert found["duplicate with another label"][0] == f"{advice['false_negatives']['identical']:.1%}"
    assert found["positive beats 32nd negative"][1] == "ready from 70%"
    assert [found[name][1] for name in ("hardest in a mined batch", "hardest of all")] == [
        "batches of 8",
        "one neighbourhood each",
    ]
    assert f"{advice['sample']} of {advice['population']} samples, embedded with ConvNet" in out
    assert " ".join(advice["reasons"]) in " ".join(out.split())
    (command,) = [line for line in out.splitlines() if line.startswith("lookalike train")]
    code, printed, err = run_here(*shlex.split(command)[1:], "--print-config")
    assert (code, err) == (0, "")
    assert not {"--center", "--mask-above", "--neighbourhood"} & set(shlex.split(command))
    assert f"bits: {advice['settings']['bits']}\n" in printed
    assert "pairs_per_batch: 8\n" in printed
    code, _, err = run_here(*plan, "--out", "advice.json")
    assert (code, err) == (2, "lookalike: advice.json exists; --force overwrites it, --out chooses another file.\n")


def test_an_archive_is_what_it_holds(run_here, tmp_path):
    np.savez(tmp_path / "x.npz", rows=clustered_embeddings(200, dim=16)[0].numpy())
    code, out, _ = run_here("plan", "x.npz", "--k", "16", "--max-bits", "64")
    assert code == 0
    assert "200 samples of dimension 16, predicted from 200 rows of x.npz." in out


def test_the_command_repeats_what_was_typed_and_adds_what_differs():
    typed = {"root": "my data", "data_options": {"size": 224}, "model_options": {"pretrained": True}, "sample": 9}
    before = Settings()
    chosen = Settings(bits=256, guard=0.95)
    assert train_command("sop", typed, before, before) == (
        "lookalike train sop --root 'my data' --data-option size=224 --model-option pretrained=true"
    )
    assert train_command("sop", {}, before, chosen) == "lookalike train sop --sampler lsh:256 --guard 0.95"
    assert train_command("sop", {}, before, Settings(warm_start="off")) == "lookalike train sop --warm-start off"
    assert train_command("sop", {}, before, Settings(sampler="random")) == "lookalike train sop --sampler random"
