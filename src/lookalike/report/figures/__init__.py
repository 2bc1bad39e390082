"""Figures: hand-drawn SVG charts with a caption and a table of their numbers. They draw checked records as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from markupsafe import Markup


class Figure(NamedTuple):
    """A chart, and the same in words and in numbers."""

    title: str
    note: str
    """How to read it."""
    svg: Markup
    headings: list[str]
    rows: list[list[str]]
    legend: tuple[tuple[str, str], ...] = ()
    """Labels and CSS classes, if the chart has no room for labels."""


def percent(value: float) -> str:
    """Format a fraction as a table cell.

    Examples:
        >>> percent(0.5)
        '50.00%'
    """
    return f"{value:.2%}"


def decimal(value: float) -> str:
    """Format a number with three significant digits, or all before the point.

    Examples:
        >>> decimal(0.12345), decimal(12345.6)
        ('0.123', '12,346')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def thousands(value: float) -> str:
    """Format a large number with a suffix.

    Examples:
        >>> thousands(1200), thousands(3.4e6)
        ('1.2k', '3.4M')
    """
    for unit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:.3g}{suffix}"
    return f"{value:.3g}"
