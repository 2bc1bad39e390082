"""`lookalike train` and `lookalike compare`, as typed."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from lookalike.training.comparison import summary
from tests.processes import wait_until
from tests.toys import write_glyph_file

NETWORK = ("--model-option", "width=8", "--model-option", "dim=32")
QUICK = ("--epochs", "3", *NETWORK, "--pairs-per-batch", "8")
LONGER = ("--epochs", "16", *QUICK[2:])


def start(*arguments, **options):
    command = [sys.executable, "-c", "from lookalike.cli import main; main()", *map(str, arguments)]
    options["env"] = {**options.get("env", os.environ), "OMP_NUM_THREADS": "1"}  # threads wait for busy cores
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def run(*arguments, **options):
    process = start(*arguments, **options)
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


@pytest.fixture(scope="module")
def glyph_file(tmp_path_factory):
    return write_glyph_file(tmp_path_factory.mktemp("data") / "own.npz", classes=120)


def test_train_prints_a_line_per_epoch_and_a_table(glyph_file, tmp_path):
    code, out, err = run("train", glyph_file, *QUICK, "--sampler", "lsh:64", "--baseline", "random", cwd=tmp_path)
    assert (code, err) == (0, "")
    assert len(re.findall(r"^epoch +\d  R@1", out, re.MULTILINE)) == 8
    assert len(re.findall(r"^epoch   0  R@1 .*%  before training$", out, re.MULTILINE)) == 2
    rows = [line.split("│")[1].strip() for line in out.splitlines() if line.startswith("│")]
    assert rows == ["before training", "lsh:64", "random"]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["own-lsh64-seed0", "own-random-seed0"]
    code, out, err = run("train", glyph_file, *QUICK, "--sampler", "lsh:64", cwd=tmp_path)
    assert code == 2
    assert err.strip() == (
        "lookalike: runs/own-lsh64-seed0 holds a finished run; --force overwrites it, --out chooses another folder."
    )


def test_a_baseline_of_other_settings_is_refused_before_anything_is_trained(glyph_file, tmp_path):
    arguments = ("train", glyph_file, *QUICK[2:], "--baseline", "random", "--seed", "3", "--out", tmp_path / "mine")
    assert run(*arguments, "--epochs", "1")[0] == 0
    shutil.rmtree(tmp_path / "mine")
    code, out, err = run(*arguments, "--epochs", "2")
    assert code == 2
    assert "own-random-seed3 holds a run of another configuration: epochs was 1, now 2." in err
    assert "epoch " not in out
    assert run(*arguments, "--epochs", "2", "--force")[0] == 0
    metrics = tmp_path / "own-random-seed3" / "metrics.jsonl"
    assert len(metrics.read_text().splitlines()) == 3  # forced, the baseline was trained anew as well


def test_train_chooses_its_bits(glyph_file, tmp_path):
    code, out, err = run("train", glyph_file, *QUICK, "--bits", "auto", "--target-overlap", "0.3", cwd=tmp_path)
    assert (code, err) == (0, "")
    chosen = re.findall(r"^epoch .* (\d+) bits$", out, re.MULTILINE)
    assert chosen[0] == "1024"
    assert int(chosen[2]) < 1024
    metrics = (tmp_path / "runs" / "own-lshauto-seed0" / "metrics.jsonl").read_text().splitlines()
    assert [str(json.loads(line)["bits"]) for line in metrics[1:]] == chosen


@pytest.fixture(scope="module")
def uninterrupted(glyph_file, tmp_path_factory):
    """The folder of a run that nothing stops."""
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    assert run("train", glyph_file, *LONGER, "--out", folder)[0] == 0
    return folder


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_it_saves_and_says_how_to_go_on(glyph_file, uninterrupted, tmp_path, number):
    part = tmp_path / "part"
    process = start("train", glyph_file, *LONGER, "--out", part)
    wait_until(lambda: (part / "metrics.jsonl").exists() and (part / "metrics.jsonl").read_text(), process)
    process.send_signal(number)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 128 + number, err
    assert f"stopped by {number.name}; everything is saved. Continue with: lookalike train --out {part} --re" in out
    assert run("train", "--out", part, "--resume")[0] == 0
    finals = [json.loads((folder / "result.json").read_text())["metrics"] for folder in (uninterrupted, part)]
    assert finals[0] == finals[1]


def test_compare_prints_the_table_and_writes_it(glyph_file, tmp_path):
    samplers = "random,batchhard,full,incremental,lsh:64,lsh:128"
    options = ("--samplers", samplers, "--seeds", "2", *QUICK, "--out", tmp_path, "--jobs", "2")
    code, out, err = run("compare", glyph_file, *options, env={**os.environ, "COLUMNS": "140"})
    assert (code, err) == (0, "")
    rows = [line.split("│")[1].strip() for line in out.splitlines() if line.startswith("│")]
    assert rows == ["before training", *samplers.split(",")]
    table = json.loads((tmp_path / "compare.json").read_text())
    assert [row["sampler"] for row in table["rows"]] == rows
    assert all(len(row["recall@1"]["values"]) == 2 for row in table["rows"])
    assert all(name in table for name in ("settings", "machine", "versions", "data_checksum"))
    markdown = (tmp_path / "compare.md").read_text()
    assert markdown.count("\n| ") == 8
    zero_shot = [json.loads((tmp_path / f"full-seed{i}" / "result.json").read_text())["zero_shot"] for i in (0, 1)]
    assert table["rows"][0]["recall@1"]["values"] == [each["recall@1"] for each in zero_shot]
    assert f"| before training | {100 * table['rows'][0]['recall@1']['mean']:.2f} ±" in markdown
    # Finished runs are read, not trained again; a lost one is made up for.
    shutil.rmtree(tmp_path / "random-seed1")
    began = time.time()
    assert run("compare", glyph_file, *options[:-2])[0] == 0
    retrained = [path.parent.name for path in tmp_path.glob("*/result.json") if path.stat().st_mtime > began]
    assert retrained == ["random-seed1"]
    again = json.loads((tmp_path / "compare.json").read_text())
    assert [row["recall@1"] for row in again["rows"]] == [row["recall@1"] for row in table["rows"]]


def test_summary_counts_standard_errors():
    def result(seed, recall):
        names = ("recall@1", "recall@5", "recall@10", "recall@1%", "mrr@10")
        return {
            "metrics": dict.fromkeys(names, recall),
            "seconds": 1.0,
            "mining_seconds_per_epoch": None,
            "mining_share": None,
            "kept_bytes": 5,
            "config": {"seed": seed},
        }

    rows = summary({"random": [result(0, 0.5), result(1, 0.7)], "lsh:8": [result(1, 0.8), result(0, 0.8)]})
    assert rows[0]["recall@1"]["mean"] == pytest.approx(0.6)
    assert rows[0]["recall@1"]["sd"] == pytest.approx(0.1414, abs=1e-4)
    assert rows[1]["gain_over_random"]["mean"] == pytest.approx(0.2)
    assert rows[1]["gain_over_random"]["standard_error"] == pytest.approx(0.1)
    assert "gain_over_random" not in rows[0]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("train", "--sampler", "hard"), "there is no sampler 'hard'; there are random, batchhard, full"),
        (("train", "nothing"), "there is no data set 'nothing'; there are glyphs, glyphs-paired"),
        (("train", "sop", "--model", "convnet"), "sop is read from a file or folder of yours: say where"),
        (("train", "sop", "--model", "resnet"), "there is no encoder 'resnet'; there are the built-in network"),
        (("train", "--model-option", "depth=9"), "convnet does not take the option 'depth'"),
        (("train", "--model-option", "depth"), "--model-option takes NAME=VALUE, such as size=224, got 'depth'"),
        (("train", "--data-option", "size=9"), "the data set glyphs does not take the option 'size'"),
        (("train", "--model-option", "width=abc"), "width must be an integer, got str"),
        (("train", "--model-option", "encoder=timm:x"), "got 'encoder=timm:x'; encoder is --model"),
        (("train", "--sampler", "lsh:128", "--bits", "256"), "--sampler lsh:128 and --bits 256 disagree"),
        (("train", "--sampler", "random", "--hardness", "0.5"), "--hardness means nothing for the sampler random"),
        (("train", "--device", "tpu"), "there is no device 'tpu' here that torch can use"),
        (("train", "--resume", "--force", "--out", "a"), "give one of them"),
        (("train", "--resume", "--out", "absent"), "absent holds no run to continue; to begin one there, say what"),
        (("train", "--root", "."), "glyphs is not read from a folder and takes no root"),
        (("train", "absent.npz"), "absent.npz: there is no such file of glyphs."),
        (("train", "--resume"), "runs/glyphs-lsh512-seed0 holds no run to continue"),
        (("train", "--bits", "12"), "bits must be a multiple of 8, got 12"),
        (("train", "--bits", "some"), "--bits takes a number, such as 512, or auto, got 'some'"),
        (("train", "--model-option", "width=9"), "width must be a multiple of 8"),
        (("compare", "--samplers", "random,lsh:x"), "'lsh:x' is not a sampler"),
    ],
)
def test_mistakes_are_said_in_one_line(run_here, tmp_path, arguments, sentence):
    code, _, err = run_here(*arguments)
    assert code == 2
    assert err.startswith("lookalike: ")
    assert sentence in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "runs").exists()  # nothing was begun
