"""Settings that suit a data set: functions that return a configuration."""

from typing import Any

from lookalike.data import DATA_SETS
from lookalike.settings import Settings

GLYPH_NETWORK = {"width": 24, "dim": 256}


def recipe(data: str) -> tuple[Settings, dict[str, Any]]:
    """The settings and the network's options for a data set by its name.

    Raises:
        ValueError: The built-in network cannot read that data set.
    """
    if data.startswith("glyphs"):
        return glyphs()
    if data in DATA_SETS:
        raise ValueError(
            f"the command line trains a network for glyphs, which cannot read {data}; train it from Python: "
            f"lookalike.training.train(model, load_data({data!r}, ROOT), Settings(...), OUT)."
        )
    return glyph_file()


def glyphs() -> tuple[Settings, dict[str, Any]]:
    """Few classes, so small batches: in a large one random negatives are hard enough. Minutes on two cores."""
    return Settings(epochs=10, batch_size=32), GLYPH_NETWORK


def glyph_file() -> tuple[Settings, dict[str, Any]]:
    """Many classes, as in Chinese and Japanese; a GPU is advisable."""
    return Settings(epochs=12, batch_size=64), {**GLYPH_NETWORK, "width": 32}
