"""The inputs of the published comparisons can be made again, and so can the comparisons."""

import lzma
import re
import shlex
import sys
import zipfile
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from benchmarks.prepare import __main__ as prepare
from benchmarks.prepare.encoders import timm_name
from benchmarks.prepare.inputs import INPUTS, make, make_from_folder
from benchmarks.prepare.medquad import side_of
from benchmarks.quality.declared import cells_of
from benchmarks.quality.published import PUBLISHED, command
from lookalike.data import load_data

COMPARED = ("epochs", "pairs_per_batch", "learning_rate", "evaluate_every", "hardness", "temperature")
PAGE = (Path(__file__).parents[1] / "docs" / "results.md").read_text()


@pytest.mark.parametrize("data", PUBLISHED)
def test_the_page_shows_the_command_that_is_run(data):
    commands = [" ".join(code.split()) for code in re.findall(r"`(lookalike compare [^`]*)`", PAGE)]
    assert shlex.join(command(data)) in commands


@pytest.mark.parametrize("data", PUBLISHED)
def test_the_command_trains_what_the_cells_train(run_here, data):
    code, out, err = run_here(*command(data)[1:], "--print-config")
    assert (code, err) == (0, "")
    printed = yaml.safe_load(out)
    cells = cells_of(f"compare_{data}")
    assert {(cell.row, cell.settings.seed) for cell in cells} == {
        (sampler, seed) for sampler in printed["samplers"] for seed in range(printed["seeds"])
    }
    expected = asdict(cells[0].settings)
    own = {name: float(printed[name]) if name == "learning_rate" else printed[name] for name in COMPARED}
    assert own == {name: expected[name] for name in COMPARED}
    assert printed["model_options"] | {"encoder": printed["model"]} == cells[0].model
    assert printed["data_options"] == cells[0].source.options


@pytest.mark.parametrize("name", INPUTS)
def test_the_page_names_every_input(name):
    assert f"| `{name}` |" in PAGE
    assert INPUTS[name].checksum in PAGE


def translation(*entries):
    return "".join(f"Package: p\nDescription-md5: 0\nDescription-en: {entry}\n\n" for entry in entries)


def test_descriptions_are_pairs_of_short_and_long(tmp_path):
    entries = ["a game\n Two lines\n of it.\n .\n  And more.", "no more than this", "short \n Long."]
    (tmp_path / "Translation-en.xz").write_bytes(lzma.compress(translation(*entries).encode()))
    made = make("debian", tmp_path / "Translation-en.xz", tmp_path)
    assert made.read_text().splitlines() == ["query\treference", "a game\tTwo lines of it. And more.", "short \tLong."]


def test_other_data_than_the_published_are_told(tmp_path, monkeypatch, capsys):
    entries = [f"the {i}th\n Long {i}." for i in range(20)]
    (tmp_path / "Translation-en.xz").write_bytes(lzma.compress(translation(*entries).encode()))
    monkeypatch.setattr(sys, "argv", ["prepare", "debian", str(tmp_path / "Translation-en.xz"), str(tmp_path / "in")])
    assert prepare.main() == 1
    assert re.search(r"checksum \w+, but afca8a87 in benchmarks/results/compare_debian.json", capsys.readouterr().out)


def document(focus, *pairs):
    answered = "".join(
        f"<QAPair><Question>{question}</Question><Answer>{answer}</Answer></QAPair>" for question, answer in pairs
    )
    return f"<Document><Focus>{focus}</Focus><QAPairs>{answered}</QAPairs></Document>"


def test_a_checkout_of_medquad_becomes_passages(tmp_path):
    (tmp_path / "MedQuAD" / "10_Last_QA").mkdir(parents=True)
    for i in range(40):
        folder = tmp_path / "MedQuAD" / "2_First_QA"
        folder.mkdir(exist_ok=True)
        pairs = [(f"What is {i} ?", f"It is\n   {i}."), ("Where  is it?", "Nowhere."), ("Why?", "")]
        (folder / f"{i:03}.xml").write_text(document(f"Disease {i}", *(pairs if i in (3, 7) else pairs[:1])))
    (tmp_path / "MedQuAD" / "10_Last_QA" / "0.xml").write_text(document("Another", ("What is 3 ?", "It is 3.")))
    made = make_from_folder("medquad", tmp_path)
    passages = (made / "collection.tsv").read_text().splitlines()
    assert passages[:5] == ["0\tIt is 0.", "1\tIt is 1.", "2\tIt is 2.", "3\tIt is 3.", "4\tNowhere."]
    assert len(passages) == 41
    sides = {
        line.split("\t")[1]: side
        for side in ("train", "dev", "test")
        for line in (made / f"queries.{side}.tsv").read_text().splitlines()
    }
    assert len(sides) == 41
    assert sides["What is 5 ?"] == side_of("disease 5")
    joined = side_of("another")  # it shares a question with the third disease, and that one with the seventh
    assert sides["What is 3 ?"] == sides["What is 7 ?"] == sides["Where is it?"] == joined
    assert len({*sides.values()}) == 3
    data = load_data("msmarco", made, split="test")
    assert data.counts["passages"] == 41


def test_an_archive_without_the_folder_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "emoji_sop.zip", "w") as file:
        file.writestr("other/list.txt", "")
    with pytest.raises(ValueError, match=r"emoji_sop\.zip has no folder emoji_sop"):
        make_from_folder("emoji", tmp_path)
    assert not (tmp_path / "emoji_sop").exists()
    with pytest.raises(FileNotFoundError, match=r"has neither grocery128 nor what it is made from: grocery128\.zip"):
        make_from_folder("grocery", tmp_path)


def test_weights_are_rounded_and_everything_else_is_copied(tmp_path):
    model = tmp_path / "model"
    (model / "1_Pooling").mkdir(parents=True)
    (model / "1_Pooling" / "config.json").write_text("{}")
    weights = {"weight": torch.randn(3, 2), "position_ids": torch.arange(4)}
    save_file(weights, model / "model.safetensors")
    made = make("minilm", model, tmp_path / "in")
    rounded = load_file(made / "model.safetensors")
    assert torch.equal(rounded["weight"], weights["weight"].half())
    assert torch.equal(rounded["position_ids"], weights["position_ids"])
    assert (made / "1_Pooling" / "config.json").read_text() == "{}"


def test_weights_get_the_names_of_timm(tmp_path):
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    names = ["_conv_stem.weight", *(f"_bn0.{part}" for part in norm)]
    for block in range(16):
        layers = ("_expand_conv", "_bn0") if block else ()
        for layer in (*layers, "_depthwise_conv", "_bn1", "_project_conv", "_bn2"):
            names += [f"_blocks.{block}.{layer}.{part}" for part in (norm if "bn" in layer else ("weight",))]
    names += ["_conv_head.weight", *(f"_bn1.{part}" for part in norm)]
    renamed = [timm_name(name) for name in names]
    assert len(set(renamed)) == len(names) == 294  # as many as timm's network has
    assert [timm_name(f"_blocks.{i}._bn2.bias") for i in (0, 1, 15)] == [
        "blocks.0.0.bn2.bias",
        "blocks.1.0.bn3.bias",
        "blocks.6.0.bn3.bias",
    ]
    torch.save({name: torch.zeros(2) for name in (*names, "_fc.weight")}, tmp_path / "efficientnet-lite0-0.pth")
    assert set(load_file(make_from_folder("efficientnet", tmp_path))) == set(renamed)
