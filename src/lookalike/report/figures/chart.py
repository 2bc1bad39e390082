"""Charts with axes. Text is text and colours are CSS variables, so that the page decides on light or dark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lookalike.report.figures.svg import HEIGHT, LETTER, WIDTH, element, path, picture, symbol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

    from lookalike.report.figures.axes import Axis

TOP, BOTTOM, LEFT, RIGHT = 12.0, 40.0, 46.0, 16.0  # margins
GAP = 15.0  # between labels, enough for the larger type of a phone
LONGEST_LABEL = 24  # letters; beyond that a legend is better than labels
Point = tuple[float, float]


class Chart:
    """Two axes, and everything between them in the order of the calls.

    Args:
        x: Horizontal axis.
        y: Vertical axis.
        labels: Names of the lines; the chart makes room for them on the right, unless `labelled` is False.
        left: Where the horizontal axis begins.
    """

    def __init__(self, x: Axis, y: Axis, *, labels: Sequence[str] = (), left: float = LEFT) -> None:
        self.x, self.y, self.left = x, y, left
        self.right = WIDTH - RIGHT
        longest = max(map(len, labels), default=0)
        self.labelled = 0 < longest <= LONGEST_LABEL and len(labels) * GAP <= HEIGHT - TOP - BOTTOM
        if self.labelled:
            self.right = WIDTH - 24 - LETTER * longest
        self._parts: list[Markup] = []
        self._ends: list[tuple[Point, str, str]] = []
        self._dots: list[tuple[Point, str]] = []

    def at(self, x: float, y: float) -> Point:
        """Return the coordinates of a value."""
        return (
            self.left + self.x.position(x) * (self.right - self.left),
            HEIGHT - BOTTOM - self.y.position(y) * (HEIGHT - BOTTOM - TOP),
        )

    def draw(self, part: Markup) -> None:
        """Add an element in the coordinates of `at`."""
        self._parts.append(part)

    def line(self, points: Sequence[Point], style: str, label: str = "") -> None:
        """Draw a line through values, with its label at the end."""
        placed = [self.at(*point) for point in points]
        self.draw(element("path", d=path(placed), class_=f"line {style}"))
        if label:
            self._ends.append((placed[-1], label, style))

    def band(self, low: Sequence[Point], high: Sequence[Point], style: str) -> None:
        """Fill the area between two lines."""
        outline = [self.at(*point) for point in [*low, *reversed(high)]]
        self.draw(element("path", d=path(outline) + "Z", class_=f"band {style}"))

    def dot(self, x: float, y: float, style: str, title: str, *, label: str = "") -> None:
        """Draw a value with a tooltip, and a label beside it if there is one."""
        px, py = self.at(x, y)
        where = f"translate({px:.1f} {py:.1f})"
        self.draw(element("path", element("title", title), d=symbol(style), class_=f"dot {style}", transform=where))
        self._dots.append(((px, py), label))

    def whisker(self, x: float, low: float, high: float, style: str) -> None:
        """Draw an interval around a value."""
        (px, bottom), (_, top) = self.at(x, low), self.at(x, high)
        self.draw(element("path", d=f"M{px:.1f} {bottom:.1f}V{top:.1f}", class_=f"whisker {style}"))

    def level(self, y: float, style: str, label: str) -> None:
        """Draw a horizontal line."""
        self.line([(self.x.low, y), (self.x.high, y)], style, label)

    def svg(self, summary: str) -> Markup:
        """Return the whole chart; `summary` describes it for screen readers."""
        return picture([*self._grid(), *self._parts, *self._end_labels(), *beside(self._dots)], summary)

    def _grid(self) -> list[Markup]:
        parts = []
        for value, text in self.y.ticks:
            _, py = self.at(self.x.low, value)
            parts.append(element("line", x1=self.left, x2=self.right, y1=py, y2=py, class_="grid"))
            parts.append(element("text", text, x=self.left - 7, y=py + 4, text_anchor="end", class_="tick"))
        base = HEIGHT - BOTTOM
        for value, text in self.x.ticks:
            px, _ = self.at(value, self.y.low)
            parts.append(element("line", x1=px, x2=px, y1=base, y2=base + 4, class_="axis"))
            parts.append(element("text", text, x=px, y=base + 18, text_anchor="middle", class_="tick"))
        parts.append(element("line", x1=self.left, x2=self.right, y1=base, y2=base, class_="axis"))
        middle = (self.left + self.right) / 2
        parts.append(element("text", self.x.label, x=middle, y=HEIGHT - 5, text_anchor="middle", class_="label"))
        return parts

    def _end_labels(self) -> list[Markup]:
        """Place names at the ends of lines, moved apart, each with a leader in the colour of its line."""
        if not self.labelled:
            return []
        ends = sorted(self._ends, key=lambda end: end[0][1])
        heights = spread([end[0][1] for end in ends], TOP, HEIGHT - BOTTOM)
        parts = []
        for ((px, py), label, style), height in zip(ends, heights, strict=True):
            leader = f"M{px + 4:.1f} {py:.1f}L{self.right + 9:.1f} {height:.1f}h5"
            parts.append(element("path", d=leader, class_=f"leader {style}"))
            parts.append(element("text", label, x=self.right + 18, y=height + 4, class_="name"))
        return parts


BESIDE: tuple[tuple[float, float, str], ...] = (
    (7, -7, "start"),
    (9, 4, "start"),
    (-9, 4, "end"),
    (7, 16, "start"),
    (7, -21, "start"),
    (7, 30, "start"),
)
SHIFT = {"start": 0.0, "end": 1.0}  # of a text's width to the left


def beside(dots: Sequence[tuple[Point, str]]) -> list[Markup]:
    """Place labels beside dots, each on the first side where it hides no dot and no other label."""
    taken = [(x - 5, x + 5, y - 5, y + 5) for (x, y), _ in dots]
    parts = []
    for (x, y), label in dots:
        if not label:
            continue
        options: list[tuple[int, int, tuple[float, float, float, float], tuple[float, float, str]]] = []
        for dx, dy, anchor in BESIDE:
            left = x + dx - SHIFT[anchor] * LETTER * len(label)
            box = (left, left + LETTER * len(label), y + dy - 10, y + dy + 3)
            hidden = sum(box[0] < r and a < box[1] and box[2] < b and t < box[3] for a, r, t, b in taken)
            outside = box[0] < 0 or box[1] > WIDTH or box[2] < 0 or box[3] > HEIGHT - BOTTOM
            options.append((hidden + 10 * outside, len(options), box, (dx, dy, anchor)))
        _, _, box, (dx, dy, anchor) = min(options)
        taken.append(box)
        parts.append(element("text", label, x=x + dx, y=y + dy, text_anchor=anchor, class_="value"))
    return parts


def spread(heights: Sequence[float], low: float, high: float, gap: float = GAP) -> list[float]:
    """Move ascending heights apart by at least `gap`, within limits.

    Examples:
        >>> spread([10, 12, 40], 0, 100, gap=10)
        [10, 20, 40]
    """
    placed = list(heights)
    for i in range(1, len(placed)):
        placed[i] = max(placed[i], placed[i - 1] + gap)
    limit = high
    for i in reversed(range(len(placed))):
        placed[i] = max(low + i * gap, min(placed[i], limit))
        limit = placed[i] - gap
    return placed
