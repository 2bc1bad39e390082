"""Neighbours -> hard negatives: the nearest samples of another label that pass the filters."""

import importlib
from typing import TYPE_CHECKING, Any

from lookalike.negatives.filters import Filters

if TYPE_CHECKING:
    from lookalike.negatives.hard import exact_hard_negatives as exact_hard_negatives
    from lookalike.negatives.hard import hard_negatives as hard_negatives
    from lookalike.negatives.positives import hardest_positives as hardest_positives

__all__ = ["Filters", "exact_hard_negatives", "hard_negatives", "hardest_positives"]

# Imported at first use: `lookalike mine --help` shows the filters and should not wait for torch.
_HOMES = {
    "exact_hard_negatives": "lookalike.negatives.hard",
    "hard_negatives": "lookalike.negatives.hard",
    "hardest_positives": "lookalike.negatives.positives",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
