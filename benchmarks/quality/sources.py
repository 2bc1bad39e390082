"""The data sets that cells are trained on, with their models, as `benchmarks.prepare` lays them out."""

from typing import Any, NamedTuple

from lookalike.data import DataSource

MINILM = {"encoder": "sentence-transformers:all-MiniLM-L6-v2", "max_length": 128}
EFFICIENTNET = {"encoder": "timm:tf_efficientnet_lite0", "weights": "tf_efficientnet_lite0.safetensors"}
UNTRAINED = {"encoder": "timm:tf_efficientnet_lite0", "pretrained": False}


class Source(NamedTuple):
    """A data set with the model to train on it; paths are relative to the folder of inputs."""

    data: DataSource
    model: dict[str, Any] | None
    """Arguments of `make_encoder`; the data set's recipe if None."""
    settings: dict[str, Any]
    """Settings that differ from the data set's recipe; `rates_emoji` and `rates_grocery` chose two learning rates."""
    seconds: float
    """Rough time of an epoch while sixteen processes share a GPU; decides which cells start first."""
    needs: tuple[str, ...] = ()
    """Inputs of `benchmarks.prepare`."""


SOURCES = {
    "medquad": Source(
        DataSource("msmarco", "medquad", {"split": "test"}),
        MINILM,
        {"epochs": 3, "pairs_per_batch": 64, "learning_rate": 5e-5},
        16,
        ("medquad", "minilm"),
    ),
    "debian": Source(
        DataSource("texts", "debian_descriptions.tsv", {"test_share": 0.5}),
        MINILM,
        {"epochs": 3, "pairs_per_batch": 64, "learning_rate": 5e-5},
        35,
        ("debian", "minilm"),
    ),
    "emoji": Source(
        DataSource("sop", "emoji_sop", {"size": 128}),
        EFFICIENTNET,
        {"epochs": 8, "pairs_per_batch": 32, "learning_rate": 3e-4},
        10,
        ("emoji", "efficientnet"),
    ),
    "grocery": Source(
        DataSource("folder", "grocery128", {"size": 128}),
        EFFICIENTNET,
        {"epochs": 8, "pairs_per_batch": 16, "learning_rate": 1e-4},
        5,
        ("grocery", "efficientnet"),
    ),
    "glyphs": Source(DataSource("glyphs"), None, {"epochs": 10, "pairs_per_batch": 32}, 4),
    "cjk": Source(DataSource("cjk_glyphs32.npz"), None, {"epochs": 12, "pairs_per_batch": 64}, 10, ("cjk",)),
}
