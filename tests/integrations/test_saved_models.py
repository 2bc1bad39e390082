"""A model trained with mined batches is saved as ever, and its card says how it was trained."""

import pytest
import torch

pytest.importorskip("sentence_transformers")

from sentence_transformers import SentenceTransformer

from lookalike import __version__
from lookalike.integrations.sentence_transformers import HardNegatives
from tests.integrations.texts import losses, make_trainer, pairs, save_tiny_model


def test_saved_and_loaded_it_computes_the_same_embeddings(tmp_path):
    dataset = pairs(48)
    folder = save_tiny_model(tmp_path / "before")
    trainer = make_trainer(folder, tmp_path, dataset, losses.MultipleNegativesRankingLoss, num_train_epochs=1)
    HardNegatives(bits=64).attach(trainer)
    trainer.train()
    trainer.model.save_pretrained(str(tmp_path / "model"))
    texts = dataset["anchor"][:8]
    expected = trainer.model.encode(texts, convert_to_tensor=True)
    again = SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(texts, convert_to_tensor=True)
    torch.testing.assert_close(again, expected, rtol=0, atol=1e-6)
    card = (tmp_path / "model" / "README.md").read_text()
    assert {"- lookalike", "- hard-negatives"} <= set(card.splitlines())
    assert f"- `hard_negatives`: mined by lookalike {__version__}, bits=64" in card
