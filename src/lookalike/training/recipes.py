"""Recipes: the settings and the model that suit a data set, from its entry in the registry."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from lookalike.data import data_set
from lookalike.training.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that `lookalike train DATA` decides, except where the data are."""

    settings: Settings
    model: dict[str, Any]
    """Arguments of `make_encoder`."""
    data: dict[str, Any] = field(default_factory=dict)
    """Options of the data set's reader that differ from its defaults."""

    def changed(self, settings: dict[str, Any], model: dict[str, Any], data: dict[str, Any] | None = None) -> Recipe:
        """Return the recipe with some values changed; another encoder drops the options of the recipe's own."""
        same = model.get("encoder", self.model.get("encoder")) == self.model.get("encoder")
        return Recipe(
            settings=replace(self.settings, **settings),
            model={**self.model, **model} if same else model,
            data={**self.data, **(data or {})},
        )


def recipe(data: str) -> Recipe:
    """Return the recipe for a data set by name, or for a file of glyphs by its path.

    Raises:
        ValueError: There is no such data set.

    Examples:
        >>> recipe("sop").settings.epochs
        10
    """
    declared = data_set(data).recipe
    return Recipe(
        settings=Settings(**declared["settings"]),
        model=dict(declared["model"]),
        data=dict(declared.get("data", {})),
    )
