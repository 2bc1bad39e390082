"""LoRA: only adapters are trained, runs resume as ever, and saved models have them merged into their weights."""

import os
import signal

import pytest
import torch

import lookalike
from lookalike.data import load_data
from lookalike.training.encoders import check_encoder, load_saved, make_encoder, save_model
from lookalike.training.encoders.adapters import merged
from lookalike.training.errors import Interrupted
from lookalike.training.loop import TrainingLoop
from lookalike.training.run import train
from tests.ranks import on_ranks
from tests.training.encoders.test_saving import TEXTS, trained_on_texts
from tests.training.encoders.tiny import save_image_model, save_text_model
from tests.training.runs import brief, metrics, quick, weights

pytest.importorskip("peft")
KINDS = ["sentence-transformers", "transformers"]
SETTINGS = {"pairs_per_batch": 4, "epochs": 2, "learning_rate": 0.01}


@pytest.fixture(scope="module")
def text_model(tmp_path_factory):
    return save_text_model(tmp_path_factory.mktemp("text") / "model")


def adapted(encoder, **options):
    torch.manual_seed(0)
    return make_encoder(encoder, **{"lora": 4, **options})


def disturbed(encoder, **options):
    """An encoder whose adapters have something to say."""
    model = adapted(encoder, **options)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    return model.eval()


def trained_names(model):
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


@pytest.fixture(scope="module")
def data(text_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    trained_on_texts(folder, f"transformers:{text_model}")  # writes pairs.jsonl
    return load_data("texts", folder / "pairs.jsonl", test_share=0.4)


@pytest.mark.parametrize("kind", KINDS)
def test_before_training_it_is_the_same_model_and_only_adapters_are_trained(text_model, data, kind):
    plain, model = make_encoder(f"{kind}:{text_model}"), adapted(f"{kind}:{text_model}")
    assert torch.equal(plain.encode(TEXTS), model.encode(TEXTS))
    names = trained_names(model)
    assert names
    assert all("lora_" in name and "pooler" not in name for name in names)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    loop = TrainingLoop(model, data, brief(**SETTINGS), torch.device("cpu"))
    loop.train_epoch()
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == names


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_computes_the_same_without_peft(text_model, tmp_path, kind):
    library = pytest.importorskip("sentence_transformers")
    run = trained_on_texts(tmp_path, f"{kind}:{text_model}", lora=4, lora_dropout=0.1)
    model = lookalike.load_model(run.path, device="cpu")
    untrained = make_encoder(f"{kind}:{text_model}")
    assert set(model.state_dict()) == set(untrained.state_dict())
    assert not torch.allclose(model.encode(TEXTS), untrained.encode(TEXTS), atol=1e-4)
    out = lookalike.export_model(run.path, tmp_path / "exported")
    theirs = library.SentenceTransformer(str(out), device="cpu").encode(TEXTS, convert_to_tensor=True)
    theirs = torch.nn.functional.normalize(theirs, dim=1)
    torch.testing.assert_close(theirs, model.encode(TEXTS), rtol=0, atol=1e-6)
    assert not [path for path in out.rglob("*") if "adapter" in path.name]
    assert "Its adapters, LoRA of rank 4, are merged into the weights." in (out / "README.md").read_text()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("targets", [None, ["query", "dense"], "word_embeddings,value"])
def test_merging_changes_neither_embeddings_nor_the_model(text_model, tmp_path, kind, targets):
    model = disturbed(f"{kind}:{text_model}", lora_targets=targets, lora_alpha=3)
    before, state = model.encode(TEXTS), {name: tensor.clone() for name, tensor in model.state_dict().items()}
    save_model(model, tmp_path / "saved")
    assert torch.equal(model.encode(TEXTS), before)
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    saved = load_saved(tmp_path / "saved", f"{kind}:{text_model}", lora=4, lora_targets=targets, lora_alpha=3)
    torch.testing.assert_close(saved.encode(TEXTS), before, rtol=0, atol=1e-6)
    assert not torch.allclose(before, make_encoder(f"{kind}:{text_model}").encode(TEXTS), atol=1e-3)


def interrupted_while_merged(model):
    with merged(model):
        assert not [name for name, _ in model.named_modules() if "lora" in name]
        raise KeyboardInterrupt


def test_a_failure_while_saving_leaves_the_adapters_in_place(text_model):
    model = disturbed(f"transformers:{text_model}")
    names = [name for name, _ in model.named_modules()]
    with pytest.raises(KeyboardInterrupt):
        interrupted_while_merged(model)
    assert [name for name, _ in model.named_modules()] == names


def test_images_take_adapters_too(tmp_path):
    name = f"transformers:{save_image_model(tmp_path / 'before')}"
    model, images = disturbed(name), torch.rand(2, 3, 32, 32)
    assert all("lora_" in each for each in trained_names(model))
    before = model.encode(images)
    save_model(model, tmp_path / "saved")
    torch.testing.assert_close(load_saved(tmp_path / "saved", name, lora=4).encode(images), before)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_reach_adapters_through_checkpointed_activations(text_model, kind):
    gradients = []
    for checkpointing in (False, True):
        encoder = disturbed(f"{kind}:{text_model}", gradient_checkpointing=checkpointing).train()
        torch.manual_seed(0)
        encoder(TEXTS).square().sum().backward()
        gradients.append({name: p.grad for name, p in encoder.named_parameters() if p.grad is not None})
    assert set(gradients[0]) == trained_names(encoder)
    for name, plain in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], plain)


def stopping(model, passes):
    """Let a model stop its own process in the given forward pass of training."""
    calls = 0

    def count(module, _inputs):
        nonlocal calls
        calls += module.training
        if module.training and calls == passes:
            os.kill(os.getpid(), signal.SIGTERM)

    model.register_forward_pre_hook(count)
    return model


@pytest.mark.parametrize("chunk", [None, 2])
def test_a_stopped_and_resumed_run_ends_with_the_same_weights(text_model, data, tmp_path, chunk):
    name, settings = f"transformers:{text_model}", quick(**{**SETTINGS, "chunk": chunk})
    how = {"device": "cpu", "progress": False}
    dropout = {"lora_dropout": 0.2}
    train(data, settings, out=tmp_path / "whole", model=adapted(name, **dropout), **how)
    with pytest.raises(Interrupted):
        train(data, settings, out=tmp_path / "stopped", model=stopping(adapted(name, **dropout), 9), **how)
    train(data, settings, out=tmp_path / "stopped", model=adapted(name, **dropout), resume=True, **how)
    assert weights(tmp_path / "stopped") == weights(tmp_path / "whole")
    assert metrics(tmp_path / "stopped") == metrics(tmp_path / "whole")


def train_here(_rank, out, name, data, settings):
    model = adapted(name)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    train(data, settings, out=out, model=model, device="cpu", progress=False)


@pytest.mark.parametrize("chunk", [None, 1])
def test_two_ranks_train_adapters_as_one_process_does(text_model, data, tmp_path, chunk):
    from safetensors.torch import load_file

    name, settings = f"transformers:{text_model}", brief(**{**SETTINGS, "chunk": chunk, "epochs": 1})
    train_here(0, tmp_path / "one", name, data, settings)
    on_ranks(2, train_here, tmp_path / "two", name, data, settings)
    one, two = (load_file(tmp_path / run / "model" / "model.safetensors") for run in ("one", "two"))
    for key, tensor in one.items():
        torch.testing.assert_close(two[key], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "kind", "sentence"),
    [
        ({"lora": 0}, ValueError, "lora must be at least 1, got 0"),
        ({"lora": True}, TypeError, "lora must be an integer, got bool"),
        ({"lora_alpha": 3}, ValueError, "lora_alpha has no effect without lora=RANK, such as lora=16"),
        ({"lora": 4, "lora_alpha": 0}, ValueError, "lora_alpha must be above 0"),
        ({"lora": 4, "lora_dropout": 1}, ValueError, "lora_dropout must be at least 0 and below 1"),
        ({"lora": 4, "lora_targets": [3]}, TypeError, r'lora_targets must be names of layers, such as \["query'),
    ],
)
def test_options_are_checked_before_anything_is_loaded(options, kind, sentence):
    for name in KINDS:
        with pytest.raises(kind, match=sentence):
            check_encoder(f"{name}:absent", **options)


def test_what_takes_no_adapters(text_model, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer import modules

    with pytest.raises(ValueError, match="convnet does not take the option 'lora'"):
        check_encoder("convnet", lora=4)
    with pytest.raises(ValueError, match=r"takes no adapters: .*nothing.*; choose layers with lora_targets=, or leave"):
        make_encoder(f"transformers:{text_model}", lora=4, lora_targets="nothing")
    tokenizer = make_encoder(f"transformers:{text_model}").tokenizer
    static = modules.StaticEmbedding(tokenizer.backend_tokenizer, embedding_dim=8)
    library.SentenceTransformer(modules=[static], device="cpu").save_pretrained(str(tmp_path / "static"))
    with pytest.raises(ValueError, match="static holds no model of transformers, so lora= has nothing to adapt"):
        make_encoder(f"sentence-transformers:{tmp_path / 'static'}", lora=4)


def test_a_missing_peft_names_the_command_before_anything_is_loaded(monkeypatch):
    import importlib

    real = importlib.import_module

    def refuse(name, *arguments):
        if name == "peft":
            raise ModuleNotFoundError("No module named 'peft'", name="peft")
        return real(name, *arguments)

    monkeypatch.setattr("lookalike.utils.imports.importlib.import_module", refuse)
    with pytest.raises(ImportError, match=r"lora= needs peft: pip install 'lookalike\[lora\]'"):
        check_encoder("transformers:absent", lora=4)
