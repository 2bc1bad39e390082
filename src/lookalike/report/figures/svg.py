"""SVG elements from Python; text and attributes are escaped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH, HEIGHT = 420.0, 260.0
LETTER = 7.0  # width of a letter


def element(name: str, *content: str, **attributes: object) -> Markup:
    """Build an element; `class_` is class, other underscores become hyphens.

    Examples:
        >>> str(element("text", "1 < 2", text_anchor="end", class_="tick", x=2.04))
        '<text text-anchor="end" class="tick" x="2">1 &lt; 2</text>'
        >>> str(element("rect", width=3))
        '<rect width="3"/>'
    """
    named = {key.rstrip("_").replace("_", "-"): _attribute(value) for key, value in attributes.items()}
    written = Markup("").join(Markup(' %s="%s"') % pair for pair in named.items())
    if not content:
        return Markup("<%s%s/>") % (name, written)
    return Markup("<%s%s>%s</%s>") % (name, written, Markup("").join(content), name)


def picture(parts: Sequence[Markup], summary: str, height: float = HEIGHT) -> Markup:
    """Put elements into an SVG that fills its container; `summary` describes it for screen readers."""
    box = f"0 0 {WIDTH:.0f} {height:.0f}"
    return element("svg", element("title", summary), *parts, viewBox=box, role="img", aria_label=summary)


def path(points: Sequence[tuple[float, float]]) -> str:
    """Return the `d` of a line through points."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def symbol(style: str) -> str:
    """Return the outline of a mark: samplers differ in shape as well as in colour."""
    if "c-batchhard" in style or "c-pca" in style:
        return "M0-4.6L4.6 0L0 4.6L-4.6 0Z"
    if "c-incremental" in style:
        return "M-3.6-3.6H3.6V3.6H-3.6Z"
    if "c-full" in style:
        return "M0-4.6L4.4 3.2H-4.4Z"
    return "M-3.6 0A3.6 3.6 0 1 1 3.6 0A3.6 3.6 0 1 1-3.6 0Z"


def _attribute(value: object) -> str:
    """Write coordinates to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
