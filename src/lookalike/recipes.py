"""Settings that suit a data set: functions that return a configuration."""

from typing import Any

from lookalike.settings import Settings

GLYPH_NETWORK = {"width": 24, "dim": 256}


def recipe(data: str) -> tuple[Settings, dict[str, Any]]:
    """The settings and the network's options for a data set by its name."""
    if data.startswith("glyphs"):
        return glyphs()
    return glyph_file()


def glyphs() -> tuple[Settings, dict[str, Any]]:
    """Few classes, so small batches: in a large one random negatives are hard enough. Minutes on two cores."""
    return Settings(epochs=10, batch_size=32), GLYPH_NETWORK


def glyph_file() -> tuple[Settings, dict[str, Any]]:
    """Many classes, as in Chinese and Japanese; a GPU is advisable."""
    return Settings(epochs=12, batch_size=64), {**GLYPH_NETWORK, "width": 32}
