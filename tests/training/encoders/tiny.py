"""Models of a few thousand parameters, saved as their libraries save them."""

import json
import string

import pytest


def words():
    return [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *string.ascii_lowercase,
        *(f"##{c}" for c in string.ascii_lowercase),
    ]


def save_text_model(folder):
    """A BERT of two layers that reads letters; returns its folder."""
    transformers = pytest.importorskip("transformers")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(words()) + "\n")
    tokenizer = (
        transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt"))
        if _takes_vocab(transformers)
        else (transformers.BertTokenizerFast(vocab_file=str(folder / "vocab.txt")))
    )
    config = transformers.BertConfig(
        vocab_size=len(words()),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    transformers.set_seed(0)
    transformers.BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_image_model(folder):
    """A ConvNeXt of four narrow stages; returns its folder."""
    transformers = pytest.importorskip("transformers")
    config = transformers.ConvNextConfig(hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], image_size=32)
    transformers.set_seed(0)
    transformers.ConvNextModel(config).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.5] * 3, "image_std": [0.25] * 3}))
    return folder


def _takes_vocab(transformers):
    return int(transformers.__version__.split(".")[0]) >= 5
