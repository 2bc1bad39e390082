import importlib.metadata
import os
import re
import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn

from lookalike.training.encoders import make_encoder
from lookalike.training.encoders.images import ImageEncoder, load_weights
from tests.training.encoders.tiny import save_image_model, save_text_model

TEXTS = ["a short one", "and one that is a good deal longer", "x"]


@pytest.fixture(scope="session")
def text_model(tmp_path_factory):
    return save_text_model(tmp_path_factory.mktemp("text") / "model")


@pytest.fixture(scope="session")
def image_model(tmp_path_factory):
    return save_image_model(tmp_path_factory.mktemp("image") / "model")


def test_texts_are_averaged_over_their_own_tokens_alone(text_model):
    encoder = make_encoder(f"transformers:{text_model}").eval()
    together = encoder(TEXTS)
    assert together.shape == (3, encoder.dim)
    for text, row in zip(TEXTS, together, strict=True):
        tokens = encoder.tokenizer([text], return_tensors="pt")
        plain = encoder.network(**tokens).last_hidden_state[0].mean(0)
        torch.testing.assert_close(row, plain, rtol=1e-4, atol=1e-5)  # padding changes nothing
    prepared = encoder.prepare(TEXTS)
    assert torch.equal(encoder(prepared), together)
    assert make_encoder(f"transformers:{text_model}", max_length=4).prepare(TEXTS)["input_ids"].shape == (3, 4)


def test_sentence_transformers_gives_what_the_library_gives(text_model):
    library = pytest.importorskip("sentence_transformers")
    encoder = make_encoder(f"sentence-transformers:{text_model}").eval()
    expected = library.SentenceTransformer(str(text_model), device="cpu").encode(TEXTS, convert_to_tensor=True)
    torch.testing.assert_close(encoder(TEXTS), expected, rtol=1e-4, atol=1e-5)
    assert encoder.dim == 32
    assert make_encoder(f"sentence-transformers:{text_model}", max_length=4).prepare(TEXTS)["input_ids"].shape == (3, 4)


@pytest.mark.parametrize("kind", ["transformers", "sentence-transformers"])
def test_gradient_checkpointing_changes_no_gradient(text_model, kind):
    gradients = []
    for checkpointing in (False, True):
        torch.manual_seed(0)  # dropout
        encoder = make_encoder(f"{kind}:{text_model}", gradient_checkpointing=checkpointing).train()
        torch.manual_seed(0)
        encoder(TEXTS).square().sum().backward()
        gradients.append([p.grad for p in encoder.parameters() if p.grad is not None])
        assert any(getattr(module, "gradient_checkpointing", False) for module in encoder.modules()) == checkpointing
    assert len(gradients[0]) == len(gradients[1]) > 0
    for plain, checkpointed in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, checkpointed)


def test_images_are_normalised_as_the_model_says(image_model):
    encoder = make_encoder(f"transformers:{image_model}").eval()
    images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
    embeddings = encoder(images)
    assert embeddings.shape == (4, encoder.dim) == (4, 16)
    plain = encoder.network.network(pixel_values=(images / 255 - 0.5) / 0.25).pooler_output
    torch.testing.assert_close(embeddings, plain)
    torch.testing.assert_close(encoder(images / 255), plain)  # floats from 0 to 1
    random = make_encoder(f"transformers:{image_model}", pretrained=False)
    assert not torch.equal(next(random.parameters()), next(encoder.parameters()))


def test_frozen_batch_normalisation_does_not_depend_on_the_batch():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    images = torch.rand(6, 3, 8, 8)
    frozen = ImageEncoder(network, 4, [0.5] * 3, [0.5] * 3).train()
    torch.testing.assert_close(frozen(images)[:2], frozen(images[:2]))
    assert network[1].num_batches_tracked == 0
    assert network[1].weight.requires_grad  # scale and shift are trained
    free = ImageEncoder(network, 4, [0.5] * 3, [0.5] * 3, freeze_batch_norm=False).train()
    assert not torch.allclose(free(images)[:2], free(images[:2]))


def test_options_that_mean_nothing_are_refused(text_model, image_model):
    with pytest.raises(ValueError, match="takes images, for which the option max_length has no effect"):
        make_encoder(f"transformers:{image_model}", max_length=8)
    with pytest.raises(ValueError, match="takes texts, for which the option freeze_batch_norm has no effect"):
        make_encoder(f"transformers:{text_model}", freeze_batch_norm=True)
    with pytest.raises(ValueError, match=r"does not take the option 'weights'"):
        make_encoder(f"transformers:{text_model}", weights="x")


def test_weights_from_a_file(tmp_path):
    trained, fresh = (nn.Linear(3, 2) for _ in range(2))
    torch.save({**trained.state_dict(), "classifier.weight": torch.zeros(5)}, tmp_path / "w.pt")
    load_weights(fresh, tmp_path / "w.pt")
    assert torch.equal(fresh.weight, trained.weight)
    with pytest.raises(ValueError, match=r"belongs to another network: it lacks 0\.weight and 1 others"):
        load_weights(nn.Sequential(nn.Linear(3, 2)), tmp_path / "w.pt")
    with pytest.raises(ValueError, match="belongs to another network: size mismatch for weight"):
        load_weights(nn.Linear(4, 2), tmp_path / "w.pt")
    with pytest.raises(ValueError, match="there is no file"):
        load_weights(fresh, tmp_path / "absent.pt")
    (tmp_path / "bad.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="is not a state dict"):
        load_weights(fresh, tmp_path / "bad.safetensors")


@pytest.mark.parametrize(
    ("encoder", "sentence"),
    [
        ("resnet", "there is no encoder 'resnet'; there are the built-in network for glyphs; an image model of timm"),
        ("timm", "'timm' is not an encoder: give an image model of timm, such as timm:"),
        ("convnet:32", "'convnet:32' is not an encoder"),
        ("transformers:absent/folder", "transformers cannot load 'absent/folder'"),
        ("sentence-transformers:absent/folder", "sentence-transformers cannot load 'absent/folder'"),
    ],
)
def test_what_there_is_not(monkeypatch, encoder, sentence):
    pytest.importorskip("sentence_transformers")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # the variable is read at import
    with pytest.raises(ValueError, match=re.escape(sentence)) as caught:
        make_encoder(encoder)
    assert len(str(caught.value).splitlines()) == 1


@pytest.fixture
def broken_torchvision(tmp_path):
    """As pip finds it: torchvision built for another torch, and a timm that imports it."""
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')\n")
    metadata = tmp_path / "torchvision-0.99.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: torchvision\nVersion: 0.99\n")
    (tmp_path / "timm.py").write_text("import torchvision\n")
    return tmp_path


def run_beside(packages, code):
    paths = os.pathsep.join([str(packages), *sys.path])
    environment = {**os.environ, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_texts_never_import_torchvision(broken_torchvision, text_model):
    pytest.importorskip("sentence_transformers")
    done = run_beside(
        broken_torchvision,
        f"""
        import importlib.util, sys
        from lookalike.training.encoders import make_encoder
        assert importlib.util.find_spec("torchvision") is not None
        for kind in ("transformers", "sentence-transformers"):  # the second imports the first
            encoder = make_encoder(f"{{kind}}:{text_model}")
            print(encoder(["some text"]).shape[1], "torchvision" in sys.modules)
        """,
    )
    assert done.stdout.split() == ["32", "False"] * 2, done.stderr


def test_a_torchvision_that_does_not_fit_is_explained(broken_torchvision):
    code = """
        from lookalike.training.encoders import make_encoder
        try:
            make_encoder("timm:convnext_base.fb_in22k")
        except ImportError as error:
            print(error)
    """
    said = run_beside(broken_torchvision, code).stdout
    assert said.startswith(
        f"timm cannot be imported, because it needs a torchvision that fits torch {importlib.metadata.version('torch')}"
    )
    assert "operator torchvision::nms does not exist" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("encoder", "extra"),
    [("timm:resnet18", "images"), ("transformers:any", "text"), ("sentence-transformers:any", "text")],
)
def test_a_missing_library_names_the_command(monkeypatch, encoder, extra):
    def refuse(name, *_):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("lookalike.utils.imports.importlib.import_module", refuse)
    with pytest.raises(ImportError, match=rf"pip install 'lookalike\[{extra}\]'"):
        make_encoder(encoder)


def test_timm_models_lose_their_classifier(tmp_path):
    try:
        import timm
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"timm cannot be imported here: {error}")
    encoder = make_encoder("timm:convnext_atto", pretrained=False, gradient_checkpointing=True)
    assert encoder(torch.zeros(2, 3, 64, 64, dtype=torch.uint8)).shape == (2, encoder.dim) == (2, 320)
    weights = timm.create_model("convnext_atto").state_dict()
    torch.save(weights, tmp_path / "w.pt")
    loaded = make_encoder("timm:convnext_atto", weights=str(tmp_path / "w.pt"))
    assert torch.equal(loaded.network.state_dict()["stem.0.weight"], weights["stem.0.weight"])
    assert not make_encoder("timm:resnet18", pretrained=False).freeze_batch_norm  # there are no statistics to keep
    with pytest.raises(ValueError, match="timm cannot make 'no_such_model'"):
        make_encoder("timm:no_such_model")
