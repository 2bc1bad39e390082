"""What a run leaves in model/ is read by the library that the model is of."""

import json

import pytest
import torch

from lookalike.data import DataSource
from lookalike.training.embedding import load_run_model
from lookalike.training.encoders import make_encoder, save_model
from lookalike.training.run import train
from lookalike.training.run_folder import RunFolder
from lookalike.training.settings import Settings
from tests.training.encoders.tiny import save_image_model, save_text_model

TEXTS = ["a short one", "and one that is a good deal longer", "x"]


def trained_on_texts(tmp_path, encoder, **options):
    (tmp_path / "pairs.jsonl").write_text(
        "".join(json.dumps({"query": f"{c} {d}", "reference": f"{d} {c}"}) + "\n" for c in "abcdefgh" for d in "xyz")
    )
    source = DataSource("texts", str(tmp_path / "pairs.jsonl"), {"test_share": 0.4})
    settings = Settings(epochs=1, pairs_per_batch=4, bits=64, learning_rate=0.01)
    train(source, settings, out=tmp_path / "run", model={"encoder": encoder, **options}, progress=False)
    return RunFolder(tmp_path / "run")


def test_sentence_transformers_reads_its_model(tmp_path):
    library = pytest.importorskip("sentence_transformers")
    before = save_text_model(tmp_path / "before")
    run = trained_on_texts(tmp_path, f"sentence-transformers:{before}", max_length=8)
    model = load_run_model(run.path, run.read_config())
    expected = library.SentenceTransformer(str(run.model), device="cpu").encode(TEXTS, convert_to_tensor=True)
    torch.testing.assert_close(model(TEXTS), expected, rtol=0, atol=1e-6)
    untrained = library.SentenceTransformer(str(before), device="cpu").encode(TEXTS, convert_to_tensor=True)
    assert not torch.allclose(expected, untrained, atol=1e-3)
    assert not {path.name for path in run.path.iterdir()} & {"config.json", "modules.json", "model.safetensors"}


def test_transformers_reads_its_model(tmp_path):
    transformers = pytest.importorskip("transformers")
    run = trained_on_texts(tmp_path, f"transformers:{save_text_model(tmp_path / 'before')}")
    model = load_run_model(run.path, run.read_config())
    network = transformers.AutoModel.from_pretrained(run.model).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(run.model)
    tokens = tokenizer(TEXTS[:1], return_tensors="pt")
    expected = network(**tokens).last_hidden_state.mean(1)
    torch.testing.assert_close(model(TEXTS[:1]), expected, rtol=0, atol=1e-6)


def test_an_image_model_of_transformers_keeps_its_normalisation(tmp_path):
    pytest.importorskip("transformers")
    encoder = make_encoder(f"transformers:{save_image_model(tmp_path / 'before')}").eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.01)
    save_model(encoder, tmp_path / "after")
    images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
    again = make_encoder(f"transformers:{tmp_path / 'after'}").eval()
    assert torch.equal(again(images), encoder(images))


def test_timm_reads_its_model(tmp_path):
    try:
        import timm
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"timm cannot be imported here: {error}")
    encoder = make_encoder("timm:convnext_atto", pretrained=False).eval()
    save_model(encoder, tmp_path)
    images = torch.rand(2, 3, 64, 64)
    again = make_encoder(f"timm:{tmp_path}").eval()
    torch.testing.assert_close(again(images), encoder(images))
    theirs = timm.create_model(f"local-dir:{tmp_path}", pretrained=True, num_classes=0).eval()
    torch.testing.assert_close(theirs((images - encoder.mean) / encoder.std), encoder(images))


def test_other_models_leave_their_weights(tmp_path):
    model = torch.nn.Linear(3, 2)
    save_model(model, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: file.write_bytes(b"noise")])
def test_damaged_weights_are_said_in_one_sentence(tmp_path, damage):
    pytest.importorskip("sentence_transformers")
    run = trained_on_texts(tmp_path, f"sentence-transformers:{save_text_model(tmp_path / 'before')}")
    damage(run.model / "model.safetensors")
    with pytest.raises(ValueError, match="sentence-transformers cannot load") as raised:
        load_run_model(run.path, run.read_config())
    assert len(str(raised.value).splitlines()) == 1
