"""Measure what codes lose: overlap with exact mining, positions, similarities, bounds, and how many bits to choose."""

from lookalike.analysis.kinds import CODE_METHODS
from lookalike.analysis.measures import bound_usage, overlap, positional_distance
from lookalike.analysis.study import analyze

__all__ = ["CODE_METHODS", "analyze", "bound_usage", "overlap", "positional_distance"]
