"""What the bits do: overlap with exact mining, positions, similarities, bounds, and how other codes compare."""

from lookalike.analysis.measures import bound_usage, overlap, positional_distance
from lookalike.analysis.methods import METHODS
from lookalike.analysis.study import analyze

__all__ = ["METHODS", "analyze", "bound_usage", "overlap", "positional_distance"]
