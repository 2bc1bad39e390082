"""Recipes, from what is typed to a finished run, on miniature data and models."""

import json

import pytest
import yaml

from lookalike.data import data_sets
from lookalike.training.recipes import recipe
from lookalike.training.settings import SAMPLERS
from tests.data.miniatures import write_msmarco, write_sop
from tests.training.encoders.tiny import save_image_model, save_text_model


@pytest.mark.parametrize("name", [e.name for e in data_sets().values() if e.root and not e.suffix])
def test_print_config_shows_what_would_be_trained(run_here, name, tmp_path):
    typed = ("--root", "some/folder", "--sampler", "lsh:128", "--epochs", "3", "--data-option", "size=[64,32]")
    code, out, err = run_here("train", name, *typed, "--model-option", "gradient_checkpointing=true", "--print-config")
    assert (code, err) == (0, "")
    shown, usual = yaml.safe_load(out), recipe(name)
    assert shown["data"] == name
    assert shown["root"] == str(tmp_path / "some/folder")
    assert shown["data_options"] == {**usual.data, "size": [64, 32]}
    assert {"encoder": shown["model"], **shown["model_options"]} == {**usual.model, "gradient_checkpointing": True}
    assert [shown[key] for key in ("sampler", "bits", "epochs")] == ["lsh", 128, 3]
    assert [shown[key] for key in ("pairs_per_batch", "learning_rate", "evaluate_every")] == [
        usual.settings.pairs_per_batch,
        usual.settings.learning_rate,
        usual.settings.evaluate_every,
    ]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("text", "value"), [("False", False), ("true", True), ("none", None), ("[1,2]", [1, 2])])
def test_values_are_what_they_look_like(run_here, text, value):
    code, out, _ = run_here("train", "texts", "--model-option", f"pretrained={text}", "--print-config")
    assert code == 0
    assert yaml.safe_load(out)["model_options"]["pretrained"] == value


def test_train_and_resume_on_texts(run_here, tmp_path, capsys):
    model = save_text_model(tmp_path / "model")
    capsys.readouterr()  # saving draws a bar
    (tmp_path / "data").mkdir()
    root = write_msmarco(tmp_path / "data")
    options = ("--model", f"sentence-transformers:{model}", "--pairs-per-batch", "2", "--out", tmp_path / "run")
    code, out, err = run_here("train", "msmarco", "--root", root, *options, "--epochs", "2")
    assert (code, err) == (0, "")
    lines = [line for line in out.splitlines() if line.startswith("epoch")]
    assert ["R@1      -" in line for line in lines] == [False, True, False]  # evaluated before and after
    moved = root.rename(tmp_path / "moved")  # data that were moved are found where --root says
    code, out, err = run_here("train", "--out", tmp_path / "run", "--root", moved, "--resume")
    assert (code, err) == (0, "")
    assert "lsh:512" in out
    code, _, err = run_here("train", "--out", tmp_path / "run", "--resume", "--root", moved, "--learning-rate", "1")
    assert code == 2
    assert "learning_rate was 0.0001, now 1.0" in err


def test_compare_on_images_is_the_papers_table(run_here, tmp_path, capsys):
    model = save_image_model(tmp_path / "model")
    capsys.readouterr()  # saving draws a bar
    (tmp_path / "data").mkdir()
    root = write_sop(tmp_path / "data")
    code, _, err = run_here(
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
