"""The paper's recipes: encoder, epochs, batch size and learning rate of its experiments.

Image sizes are the readers' own defaults.
"""

from typing import Any

Recipe = dict[str, dict[str, Any]]

CONVNEXT = {"encoder": "timm:convnext_base.fb_in22k"}
DISTILROBERTA = {"encoder": "transformers:distilroberta-base"}

CROSS_VIEW: Recipe = {
    "settings": {"epochs": 40, "pairs_per_batch": 128, "learning_rate": 1e-3},
    "model": CONVNEXT,
}
PRODUCTS: Recipe = {
    "settings": {"epochs": 10, "pairs_per_batch": 128, "learning_rate": 1e-3},
    "model": CONVNEXT,
}
PASSAGES: Recipe = {
    "settings": {"epochs": 10, "pairs_per_batch": 128, "learning_rate": 1e-4},
    "model": DISTILROBERTA,
}
