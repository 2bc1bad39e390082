"""A model's folder may come from anywhere: whatever it names, no code from it is run."""

import importlib
import json
import os
import shutil

import pytest
import torch

from lookalike.data import DataSource
from lookalike.mining.sources import load_model
from lookalike.training.embedding import load_run_model
from lookalike.training.encoders import make_encoder, save_model
from lookalike.training.encoders.images import load_weights
from lookalike.training.run import train
from lookalike.training.run_folder import RunFolder
from lookalike.training.settings import Settings
from tests.training.encoders.tiny import save_text_model

EVIL = """
from pathlib import Path
Path({marker!r}).write_text("ran")
from transformers import BertConfig, BertModel, BertTokenizerFast
class EvilConfig(BertConfig): model_type = "evil"
class EvilModel(BertModel): config_class = EvilConfig
class EvilTokenizer(BertTokenizerFast): pass
class Evil(EvilModel): pass
def activation(x): return x
"""


class Touch:
    """A pickle that creates a file when it is loaded."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.fixture(scope="module")
def sentence_model(tmp_path_factory):
    """A sentence-transformers model with a module of every kind that may bring weights or names."""
    library = pytest.importorskip("sentence_transformers")
    folder = tmp_path_factory.mktemp("models")
    models = importlib.import_module("sentence_transformers.sentence_transformer.modules")
    encoder = models.Transformer(str(save_text_model(folder / "bert")))
    pooling = models.Pooling(encoder.get_embedding_dimension())
    dense = models.Dense(encoder.get_embedding_dimension(), 16)
    library.SentenceTransformer(modules=[encoder, pooling, dense], device="cpu").save_pretrained(str(folder / "st"))
    return folder / "st"


@pytest.fixture(autouse=True)
def someone_says_yes(monkeypatch):
    """transformers asks on the terminal unless it was told; nobody is to be asked."""
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def edited(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def code_in_modules(folder):
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["type"] = "evil.Evil"
    (folder / "modules.json").write_text(json.dumps(modules))


def code_in_configuration(folder):
    names = {"AutoConfig": "evil.EvilConfig", "AutoModel": "evil.EvilModel"}
    edited(folder / "config.json", model_type="evil", auto_map=names)


def code_in_tokenizer(folder):
    names = {"AutoTokenizer": ["evil.EvilTokenizer", "evil.EvilTokenizer"]}
    edited(folder / "tokenizer_config.json", tokenizer_class="EvilTokenizer", auto_map=names)


def pickled_weights(folder):
    (folder / "model.safetensors").unlink()
    torch.save({"embeddings.word_embeddings.weight": Touch(folder.parent / "marker")}, folder / "pytorch_model.bin")


def pickled_head(folder):
    dense = next(folder.glob("*_Dense"))
    (dense / "model.safetensors").unlink()
    torch.save({"linear.weight": Touch(folder.parent / "marker")}, dense / "pytorch_model.bin")


def poisoned(folder, tmp_path, poison):
    target = shutil.copytree(folder, tmp_path / "model")
    (target / "evil.py").write_text(EVIL.format(marker=str(tmp_path / "marker")))
    poison(target)
    return target


def loads_nothing(load, folder, marker):
    """Loading either fails with one sentence or ignores what the folder asks for."""
    said = None
    try:
        load(folder)
    except ValueError as error:
        said = str(error)
    assert not marker.exists()
    assert said is None or (len(said.splitlines()) == 1 and folder.name in said)
    return said is not None


LOADERS = {
    "sentence-transformers": lambda folder: make_encoder(f"sentence-transformers:{folder}"),
    "transformers": lambda folder: make_encoder(f"transformers:{folder}"),
    "mine": lambda folder: load_model(str(folder), "cpu"),
}


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(
    "poison", [code_in_modules, code_in_configuration, code_in_tokenizer, pickled_weights, pickled_head]
)
def test_no_code_of_a_folder_is_run(sentence_model, tmp_path, poison, loader):
    folder = poisoned(sentence_model, tmp_path, poison)
    refused = loads_nothing(LOADERS[loader], folder, tmp_path / "marker")
    only_libraries_own = {"transformers": (code_in_configuration, pickled_weights)}
    if poison is not code_in_tokenizer and (loader not in only_libraries_own or poison in only_libraries_own[loader]):
        assert refused  # the tokenizer is loaded by the library's own class


def test_the_sentence_says_that_code_is_not_run(sentence_model, tmp_path):
    folder = poisoned(sentence_model, tmp_path, code_in_modules)
    with pytest.raises(ValueError, match="without running code that comes with it, which lookalike never does"):
        make_encoder(f"sentence-transformers:{folder}")


@pytest.mark.parametrize("kind", ["sentence-transformers", "transformers"])
@pytest.mark.parametrize("poison", [code_in_configuration, pickled_weights])
def test_no_code_of_a_run_is_run(sentence_model, tmp_path, poison, kind):
    (tmp_path / "pairs.jsonl").write_text(
        "".join(json.dumps({"query": f"{c} {d}", "reference": f"{d} {c}"}) + "\n" for c in "abcdefgh" for d in "xyz")
    )
    source = DataSource("texts", str(tmp_path / "pairs.jsonl"), {"test_share": 0.4})
    options = {"encoder": f"{kind}:{sentence_model}"}
    train(source, Settings(epochs=1, pairs_per_batch=4, bits=64), out=tmp_path / "run", model=options)
    folder = RunFolder(tmp_path / "run")
    (folder.model / "evil.py").write_text(EVIL.format(marker=str(folder.path / "marker")))
    poison(folder.model)
    load = load_run_model
    assert loads_nothing(lambda _: load(folder.path, folder.read_config()), folder.model, folder.path / "marker")


@pytest.mark.parametrize("name", ["weights.pt", "weights.safetensors"])
def test_no_code_of_a_file_of_weights_is_run(tmp_path, name):
    torch.save({"weight": Touch(tmp_path / "marker")}, tmp_path / name)
    with pytest.raises(ValueError, match="is not a state dict"):
        load_weights(torch.nn.Linear(2, 2), tmp_path / name)
    assert not (tmp_path / "marker").exists()


def test_no_code_of_a_folder_of_timm_is_run(tmp_path):
    try:
        import timm  # noqa: F401 - to see whether it is there
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"timm cannot be imported here: {error}")
    save_model(make_encoder("timm:convnext_atto", pretrained=False), tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").unlink()
    torch.save({"stem.0.weight": Touch(tmp_path / "marker")}, tmp_path / "model" / "pytorch_model.bin")
    with pytest.raises(ValueError, match="is not a state dict"):
        make_encoder(f"timm:{tmp_path / 'model'}")
    assert not (tmp_path / "marker").exists()


def test_a_sentence_transformers_that_trusts_folders_is_refused(sentence_model, monkeypatch):
    monkeypatch.setattr("sentence_transformers.__version__", "5.4.1")
    for load in (LOADERS["sentence-transformers"], LOADERS["mine"]):
        with pytest.raises(ImportError, match=r"5\.4\.1 runs code .* pip install 'sentence-transformers>=6'"):
            load(sentence_model)
