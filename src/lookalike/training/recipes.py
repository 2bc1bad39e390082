"""Settings that suit a data set: functions that return a configuration.

Those of the paper's sets are the paper's: encoder, image sizes (the readers' own), batch size, epochs, learning rate.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lookalike.data import DATA_SETS
from lookalike.training.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

CONVNEXT = {"encoder": "timm:convnext_base.fb_in22k"}
DISTILROBERTA = {"encoder": "transformers:distilroberta-base"}
GLYPH_NETWORK = {"encoder": "convnet", "width": 24, "dim": 256}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that `lookalike train DATA` decides, but for where the data are."""

    settings: Settings
    model: dict[str, Any]
    """Of `make_encoder`."""
    data: dict[str, Any] = field(default_factory=dict)
    """Options of the data set's reader, where they differ from its own."""

    def changed(self, settings: dict[str, Any], model: dict[str, Any], data: dict[str, Any] | None = None) -> Recipe:
        """The recipe with some things otherwise; options of another encoder than the given one are dropped."""
        same = model.get("encoder", self.model["encoder"]) == self.model["encoder"]
        return Recipe(
            settings=replace(self.settings, **settings),
            model={**self.model, **model} if same else model,
            data={**self.data, **(data or {})},
        )


def recipe(data: str) -> Recipe:
    """The recipe for a data set by its name, or for a file of glyphs.

    Raises:
        ValueError: There is no such data set.
    """
    if data.endswith(".npz"):
        return glyph_file()
    if data not in RECIPES:
        raise ValueError(
            f"there is no data set {data!r}; there are {', '.join(DATA_SETS)}, and files of glyphs, FILE.npz."
        )
    return RECIPES[data]()


def glyphs() -> Recipe:
    """Few classes, so small batches: in a large one random negatives are hard enough. Minutes on two cores."""
    return Recipe(settings=Settings(epochs=10, pairs_per_batch=32), model=GLYPH_NETWORK)


def glyph_file() -> Recipe:
    """Many classes, as in Chinese and Japanese; a GPU is advisable."""
    return Recipe(settings=Settings(epochs=12, pairs_per_batch=64), model={**GLYPH_NETWORK, "width": 32})


def cross_view() -> Recipe:
    """The paper's for CVUSA, CVACT and VIGOR."""
    return Recipe(settings=Settings(epochs=40, pairs_per_batch=128, learning_rate=1e-3), model=CONVNEXT)


def products() -> Recipe:
    """The paper's for SOP and InShop; also for images of one's own."""
    return Recipe(settings=Settings(epochs=10, pairs_per_batch=128, learning_rate=1e-3), model=CONVNEXT)


def passages() -> Recipe:
    """The paper's for MS MARCO; its 8.8 million passages are embedded once, after the last epoch."""
    settings = Settings(epochs=10, pairs_per_batch=128, learning_rate=1e-4, evaluate_every=0)
    return Recipe(settings=settings, model=DISTILROBERTA)


def texts() -> Recipe:
    """The same for texts of one's own, evaluated after every epoch."""
    return passages().changed({"evaluate_every": 1}, {})


RECIPES: dict[str, Callable[[], Recipe]] = {
    "glyphs": glyphs,
    "glyphs-paired": glyphs,
    "sop": products,
    "inshop": products,
    "msmarco": passages,
    "cvusa": cross_view,
    "cvact": cross_view,
    "cvact-test": cross_view,
    "vigor-same": cross_view,
    "vigor-cross": cross_view,
    "folder": products,
    "table": products,
    "texts": texts,
}
