"""Recipes, from what is typed to a finished run, on miniature data and models."""

import json

import pytest

from lookalike.data import data_sets
from lookalike.training.recipes import recipe
from lookalike.training.settings import SAMPLERS
from tests.cli.test_cli_training import run
from tests.data.miniatures import write_msmarco, write_sop
from tests.training.encoders.tiny import save_image_model, save_text_model


@pytest.mark.parametrize("name", [e.name for e in data_sets().values() if e.root and not e.suffix])
def test_print_config_shows_what_would_be_trained(run_here, name, tmp_path):
    code, out, err = run_here(
        "train",
        name,
        "--root",
        "some/folder",
        "--sampler",
        "lsh:128",
        "--epochs",
        "3",
        "--data-option",
        "size=[64,32]",
        "--model-option",
        "gradient_checkpointing=true",
        "--print-config",
    )
    assert (code, err) == (0, "")
    shown = json.loads(out)
    assert shown["data_set"] == name
    assert shown["root"] == str(tmp_path / "some/folder")
    assert shown["data"] == {"size": [64, 32]}
    assert shown["model"] == {**recipe(name).model, "gradient_checkpointing": True}
    assert [shown["settings"][key] for key in ("sampler", "bits", "epochs")] == ["lsh", 128, 3]
    assert not list(tmp_path.iterdir())


def test_print_config_of_a_comparison_shows_every_contender(run_here):
    arguments = ("compare", "glyphs", "--samplers", "random,lsh:64", "--seeds", "4", "--model-option", "width=16")
    code, out, err = run_here(*arguments, "--print-config")
    assert (code, err) == (0, "")
    shown = json.loads(out)
    assert shown["seeds"] == 4
    assert {name: settings["sampler"] for name, settings in shown["settings"].items()} == {
        "random": "random",
        "lsh:64": "lsh",
    }


@pytest.mark.parametrize(("text", "value"), [("False", False), ("true", True), ("none", None), ("[1,2]", [1, 2])])
def test_values_are_what_they_look_like(run_here, text, value):
    code, out, _ = run_here("train", "texts", "--model-option", f"pretrained={text}", "--print-config")
    assert code == 0
    assert json.loads(out)["model"]["pretrained"] == value


def test_train_resume_analyze_and_report_on_texts(tmp_path):
    model = save_text_model(tmp_path / "model")
    (tmp_path / "data").mkdir()
    root = write_msmarco(tmp_path / "data")
    options = ("--model", f"sentence-transformers:{model}", "--pairs-per-batch", "2", "--out", tmp_path / "run")
    code, out, err = run("train", "msmarco", "--root", root, *options, "--epochs", "2", cwd=tmp_path)
    assert (code, err) == (0, "")
    lines = [line for line in out.splitlines() if line.startswith("epoch")]
    assert ["R@1      -" in line for line in lines] == [False, True, False]  # evaluated before and after
    moved = root.rename(tmp_path / "moved")  # data that were moved are found where --root says
    code, out, err = run("train", "--out", tmp_path / "run", "--root", moved, "--resume", cwd=tmp_path)
    assert (code, err) == (0, "")
    assert "lsh:512" in out
    code, _, err = run("train", "--out", tmp_path / "run", "--resume", "--root", moved, "--lr", "1", cwd=tmp_path)
    assert code == 2
    assert "learning_rate was 0.0001, now 1.0" in err


def test_compare_on_images_is_the_papers_table(run_here, tmp_path, capsys):
    model = save_image_model(tmp_path / "model")
    capsys.readouterr()  # saving draws a bar
    (tmp_path / "data").mkdir()
    root = write_sop(tmp_path / "data")
    code, _, err = run(
        "compare",
        "sop",
        "--root",
        root,
        "--data-option",
        "size=32",
        "--model",
        f"transformers:{model}",
        "--epochs",
        "2",
        "--pairs-per-batch",
        "2",
        "--seeds",
        "1",
        "--out",
        tmp_path / "runs",
        cwd=tmp_path,
    )
    assert (code, err) == (0, "")
    table = json.loads((tmp_path / "runs" / "compare.json").read_text())
    assert [row["sampler"].partition(":")[0] for row in table["rows"]] == ["before training", *SAMPLERS, "lsh"]
    assert table["encoder"] == "transformers:model"  # without the folder
    assert table["data_options"] == {"size": 32}
    (model / "model.safetensors").unlink()  # the weights that the run began with are not needed again
    code, _, err = run_here("analyze", tmp_path / "runs" / "lsh-512-seed0", "--bits", "64", "--k", "3")
    assert (code, err) == (0, "")
    code, _, err = run_here("report", tmp_path / "runs", "--out", tmp_path / "report.html")
    assert (code, err) == (0, "")
    assert "image/png;base64" in (tmp_path / "report.html").read_text()
