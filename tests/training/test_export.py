"""A finished run is loaded in one call, and exported so that other libraries compute the same embeddings."""

import dataclasses
import re
import types
from pathlib import Path

import pytest
import torch

import lookalike
from lookalike.training.encoders import make_encoder
from lookalike.training.export_formats import choose_format
from lookalike.training.model_card import model_card
from lookalike.training.run_folder import RunFolder
from lookalike.utils.cards import DATA_SET, TAG, front_matter
from tests.training.encoders.test_saving import TEXTS, trained_on_texts
from tests.training.encoders.tiny import save_image_model, save_text_model
from tests.training.runs import stopped, trained

unit = torch.nn.functional.normalize


@pytest.fixture(scope="module")
def text_runs(tmp_path_factory):
    """The run of an encoder of each library for texts."""
    library = pytest.importorskip("sentence_transformers")
    assert library
    runs = {}
    for kind in ("sentence-transformers", "transformers"):
        folder = tmp_path_factory.mktemp(kind)
        options = {"max_length": 8}
        runs[kind] = trained_on_texts(folder, f"{kind}:{save_text_model(folder / 'before')}", **options).path
    return runs


@pytest.mark.parametrize("kind", ["sentence-transformers", "transformers"])
def test_sentence_transformers_computes_the_same_embeddings(text_runs, tmp_path, kind):
    library = pytest.importorskip("sentence_transformers")
    model = lookalike.load_model(text_runs[kind], device="cpu")
    assert not model.training
    out = lookalike.export_model(text_runs[kind], tmp_path / "new" / "model")
    theirs = library.SentenceTransformer(str(out), device="cpu").encode([*TEXTS, "a b c d e f g h i j"])
    ours = model.encode([*TEXTS, "a b c d e f g h i j"])
    torch.testing.assert_close(unit(torch.from_numpy(theirs), dim=1), ours, rtol=0, atol=1e-6)
    plain = model.encode([*TEXTS, "a b c d e f g h i j"], normalize=kind == "transformers")
    torch.testing.assert_close(torch.from_numpy(theirs), plain, rtol=0, atol=1e-6)
    torch.testing.assert_close(model.encode(TEXTS[0]), ours[0], rtol=0, atol=1e-6)
    leaked = [p for p in out.rglob("*.json") if "/tmp" in p.read_text() or str(tmp_path) in p.read_text()]
    assert not leaked


@pytest.mark.parametrize("kind", ["sentence-transformers", "transformers"])
def test_the_card_is_valid_complete_and_runs(text_runs, tmp_path, monkeypatch, kind):
    hub = pytest.importorskip("huggingface_hub")
    out = lookalike.export_model(text_runs[kind], tmp_path / "model")
    card = hub.ModelCard.load(out / "README.md")
    assert card.data.library_name == "sentence-transformers"
    assert "lookalike" in card.data.tags
    result = lookalike.RunResult.from_json(__import__("json").loads((text_runs[kind] / "result.json").read_text()))
    for metric in result.metrics:
        assert re.search(rf"^\| {re.escape(metric)} \| [\d.,]+ \| [\d.,]+ \|$", card.text, re.MULTILINE), metric
    assert {each.metric_type for each in card.data.eval_results} == {name for name in result.metrics if "@" in name}
    assert str(tmp_path.parent) not in card.content, "a folder of this machine is shared"
    monkeypatch.chdir(tmp_path)
    exec(re.search(r"```python\n(.*?)```", card.text, re.DOTALL)[1], {})


def test_images_of_transformers_and_weights_alone(tmp_path):
    encoder = make_encoder(f"transformers:{save_image_model(tmp_path / 'before')}").eval()
    images = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8)
    assert encoder.encode(images, batch_size=2).shape == (3, 16)
    assert encoder.encode(images[:0]).shape == (0, 16)
    with pytest.raises(TypeError, match="got a list with a PosixPath"):
        encoder.encode([Path("a.png")])


def test_models_say_what_they_embed(text_runs):
    texts, images = lookalike.load_model(text_runs["transformers"], device="cpu"), make_encoder("convnet", width=8)
    for model, wrong, sentence in (
        (texts, torch.zeros(2, 3, 8, 8), r"embeds texts, got a tensor \[2, 3, 8, 8\]"),
        (texts, ["a", 1], "embeds texts, got a list with a int"),
        (texts, None, "embeds texts, got a list with a NoneType"),
        (images, "a text", "embeds images, as one tensor .*, got a list with a str"),
        (images, ["a text"], "embeds images, as one tensor .*, got a list with a str"),
        (images, [torch.zeros(1, 32, 32)], "embeds images, as one tensor .*, got a list with a Tensor"),
        (images, torch.zeros(1, 32, 32), r"embeds images, as one tensor .*, got a tensor \[1, 32, 32\]"),
    ):
        with pytest.raises(TypeError, match=sentence):
            model.encode(wrong)


def test_a_network_of_our_own_is_exported_as_weights(tmp_path, monkeypatch, glyph_run):
    out = lookalike.export_model(glyph_run, tmp_path / "model")
    assert {path.name for path in out.iterdir()} == {"README.md", "model.safetensors"}
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(re.search(r"```python\n(.*?)```", (out / "README.md").read_text(), re.DOTALL)[1], names)
    images = torch.rand(2, 1, 32, 32)
    assert torch.equal(names["model"].encode(images), lookalike.load_model(glyph_run, device="cpu").encode(images))
    with pytest.raises(ValueError, match="ConvNet cannot be written for timm; leave out format="):
        lookalike.export_model(glyph_run, tmp_path / "other", format="timm")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("sampler", "shown"),
    [({}, "lsh:64"), ({"code": "scalar", "bits": 128}, "scalar:128"), ({"sampler": "random"}, "random")],
)
def test_the_card_names_the_sampler_as_train_takes_it(glyph_run, sampler, shown):
    model, result = lookalike.load_model(glyph_run, device="cpu"), RunFolder(glyph_run).read_result()
    result = dataclasses.replace(result, config=result.config | sampler)
    card = model_card(model, result, choose_format(model, "auto"), "my-model")
    assert f"lookalike composed the batches with its sampler `{shown}`." in card


@pytest.fixture(scope="module")
def glyph_run(tmp_path_factory):
    from tests.toys import write_glyph_file

    folder = tmp_path_factory.mktemp("glyphs")
    settings = lookalike.Settings(epochs=1, pairs_per_batch=8, bits=64)
    source = lookalike.DataSource(str(write_glyph_file(folder / "own.npz", classes=60)))
    lookalike.train(source, settings, out=folder / "run", model={"encoder": "convnet", "width": 8}, progress=False)
    return folder / "run"


def test_only_an_exported_model_is_overwritten(glyph_run, tmp_path):
    out = lookalike.export_model(glyph_run, tmp_path / "model")
    with pytest.raises(ValueError, match="model exists; force=True overwrites it, out= chooses another folder"):
        lookalike.export_model(glyph_run, out)
    (out / "extra").touch()
    lookalike.export_model(glyph_run, out, force=True)
    assert not (out / "extra").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    mined = front_matter({"tags": [TAG]}, DATA_SET)
    for name, card in (("mined", mined), ("trained", mined.partition("<!--")[0])):  # another trainer's card has our tag
        (tmp_path / name).mkdir()
        (tmp_path / name / "README.md").write_text(card)
    for holder in (tmp_path / "mine", tmp_path / "trained", tmp_path / "mined", glyph_run):
        for force in (False, True):
            with pytest.raises(ValueError, match="is not an exported model, so it is not overwritten"):
                lookalike.export_model(glyph_run, holder, force=force)


def test_an_export_that_fails_leaves_nothing(glyph_run, tmp_path, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("lookalike.training.export_formats.save_weights", fail)
    with pytest.raises(KeyboardInterrupt):
        lookalike.export_model(glyph_run, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_loaded_is_said_in_a_sentence(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent does not exist; name a run"):
        lookalike.load_model(tmp_path / "absent")
    with pytest.raises(FileNotFoundError, match=r"holds no run: run\.json is missing"):
        lookalike.load_model(tmp_path)
    stopped(tmp_path / "unfinished", 3)
    with pytest.raises(ValueError, match="holds no finished run"):
        lookalike.load_model(tmp_path / "unfinished")
    trained(tmp_path / "python")
    with pytest.raises(ValueError, match="made in Python, which cannot be rebuilt"):
        lookalike.load_model(tmp_path / "python")
    with pytest.raises(FileNotFoundError, match="is part of a run; name the run itself"):
        lookalike.load_model(tmp_path / "python" / "model")


def test_the_hub_receives_the_folder(glyph_run, tmp_path, monkeypatch):
    hub, calls = pytest.importorskip("huggingface_hub"), []

    class Api:
        def create_repo(self, name, **options):
            calls.append((name, options))
            return f"https://hub/{name}"

        def upload_folder(self, **options):
            assert (Path(options["folder_path"]) / "README.md").exists()
            calls.append(options["repo_id"])

    monkeypatch.setattr(hub, "HfApi", Api)
    lookalike.export_model(glyph_run, tmp_path / "model", push_to_hub="me/glyphs")
    assert calls == [("me/glyphs", {"private": True, "exist_ok": True}), "me/glyphs"]
    with pytest.raises(ValueError, match="push_to_hub= must be a repository such as me/my-model"):
        lookalike.export_model(glyph_run, tmp_path / "other", push_to_hub="a/b/c")
    monkeypatch.setattr(hub, "HfApi", types.SimpleNamespace)
    out = tmp_path / "a model"
    with pytest.raises(OSError, match="is written but cannot be uploaded") as failed:
        lookalike.export_model(glyph_run, out, push_to_hub="me/glyphs")
    assert str(failed.value).endswith(f"then hf upload me/glyphs '{out}' --private"), "or the repository is public"
    with pytest.raises(OSError, match=r"hf upload me/glyphs [^ ]+model$"):
        lookalike.export_model(glyph_run, tmp_path / "model", force=True, push_to_hub="me/glyphs", private=False)
