"""Charts as SVG by hand: the text is text, colours are CSS variables, so that the page decides on light or dark."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from lookalike.report.markup import Markup, tag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

WIDTH, HEIGHT = 420.0, 260.0
TOP, BOTTOM, LEFT, RIGHT = 12.0, 40.0, 46.0, 16.0  # margins
GAP = 15.0  # between labels, so that they stay apart in the larger type of a phone
LETTER = 7.0  # width of one
MOST_TICKS = 6  # of a logarithmic axis
LONGEST_LABEL = 24  # letters; beyond that a legend is better than labels
Point = tuple[float, float]


class Axis(NamedTuple):
    """What an axis spans and where it is marked."""

    low: float
    high: float
    ticks: list[tuple[float, str]]
    label: str = ""
    log: bool = False


class Scale(NamedTuple):
    """What the numbers of an axis are: how they are written, what they can be, and how far an axis zooms in."""

    unit: float = 1.0
    suffix: str = ""
    low: float = -math.inf
    high: float = math.inf
    span: float = 0.0  # the least that an axis covers, so that noise does not look like a difference
    abbreviated: bool = False  # 12,000 as 12k

    def texts(self, values: Sequence[float], step: float) -> list[str]:
        """Write the marks of an axis, `step` apart, with as many decimals as tell them apart."""
        unit, suffix = self.unit, self.suffix
        if self.abbreviated:
            largest = max(map(abs, values))
            unit, suffix = next(((size, name) for size, name in UNITS if largest >= 10 * size), (1.0, ""))
        decimals = next((d for d in range(12) if math.isclose(round(step / unit, d), step / unit, rel_tol=1e-6)), 12)
        return [f"{value / unit:,.{decimals}f}{suffix}" for value in values]


UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
SHARES = Scale(0.01, "%", 0.0, 1.0, span=0.02)
COSINES = Scale(low=-1.0, high=1.0, span=0.02)
PLAIN = Scale(abbreviated=True)
WHOLE = Scale(span=4, abbreviated=True)
RELATIVE_SPAN = 0.02  # of the largest value, where a scale names no span,
NARROWEST = 1e-4  # but no less than this


def linear(values: Iterable[float], scale: Scale = PLAIN, label: str = "", *, zero: bool = False) -> Axis:
    """An axis that begins and ends at round numbers, within the scale and no narrower than its span."""
    known = [*values, *([0.0] if zero else [])]
    low, high = min(known), max(known)
    span = scale.span or max(NARROWEST, RELATIVE_SPAN * max(abs(low), abs(high)) or 1.0)
    if high - low < span:
        middle = (low + high) / 2
        low, high = (low, low + span) if zero and low >= 0 else (middle - span / 2, middle + span / 2)
    low, high = max(scale.low, min(low, scale.high - span)), min(scale.high, max(high, scale.low + span))
    rough = (high - low) / 4
    unit = 10.0 ** math.floor(math.log10(rough))
    step = unit * min((1, 2, 2.5, 5, 10), key=lambda x: abs(math.log(x * unit / rough)))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    marks = [i * step for i in range(first, last + 1)]
    return Axis(marks[0], marks[-1], list(zip(marks, scale.texts(marks, step), strict=True)), label)


def epochs(values: Iterable[float]) -> Axis:
    """An axis of whole numbers."""
    known = list(values)
    low, high = min(known), max(known)
    step = next(s for s in (f * 10**d for d in range(10) for f in (1, 2, 5)) if (high - low) / s <= 9)
    ticks = [float(i) for i in range(math.ceil(low), math.floor(high) + 1) if i % step == 0 or low == high]
    # A single epoch stands at the end, beside its label: from the beginning a leader would look like a curve.
    return Axis(low if high > low else low - 1, high, [(i, f"{i:.0f}") for i in ticks], "epoch")


def marked(values: Iterable[float], text: Callable[[float], str], label: str) -> Axis:
    """A logarithmic axis marked at the values themselves: numbers of bits."""
    known = sorted(set(values))
    return Axis(known[0] / 1.15, known[-1] * 1.15, [(value, text(value)) for value in known], label, log=True)


def logarithmic(values: Iterable[float], text: Callable[[float], str], label: str) -> Axis:
    """A logarithmic axis marked at powers of ten, or more often where it is short."""
    known = list(values)
    low, high = min(known) / 1.3, max(known) * 1.3
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = math.ceil(len(decades) / MOST_TICKS)
    for factors, stride in (((1, 2, 5), 1), ((1, 3), 1), ((1,), 1), ((1,), every)):
        ticks = [f * 10.0**d for d in decades if d % stride == 0 for f in factors]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= MOST_TICKS:
            break
    texts = {text(tick): tick for tick in (ticks if len(ticks) > 1 else (min(known), max(known)))}
    return Axis(low, high, [(tick, said) for said, tick in texts.items()], label, log=True)


class Chart:
    """Axes, and what is drawn between them, in the order of the calls."""

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
        """Where a value is drawn."""
        return (
            self.left + _share(self.x, x) * (self.right - self.left),
            HEIGHT - BOTTOM - _share(self.y, y) * (HEIGHT - BOTTOM - TOP),
        )

    def draw(self, part: Markup) -> None:
        """Anything else, in the coordinates of `at`."""
        self._parts.append(part)

    def line(self, points: Sequence[Point], style: str, label: str = "") -> None:
        """A line through values, labelled where it ends."""
        placed = [self.at(*point) for point in points]
        self.draw(tag("path", d=_path(placed), class_=f"line {style}"))
        if label:
            self._ends.append((placed[-1], label, style))

    def band(self, low: Sequence[Point], high: Sequence[Point], style: str) -> None:
        """The area between two lines."""
        outline = [self.at(*point) for point in [*low, *reversed(high)]]
        self.draw(tag("path", d=_path(outline) + "Z", class_=f"band {style}"))

    def dot(self, x: float, y: float, style: str, title: str, *, label: str = "") -> None:
        """A value, which says what it is when pointed at; a label stands beside it."""
        px, py = self.at(x, y)
        where = f"translate({px:.1f} {py:.1f})"
        self.draw(tag("path", tag("title", title), d=symbol(style), class_=f"dot {style}", transform=where))
        self._dots.append(((px, py), label))

    def whisker(self, x: float, low: float, high: float, style: str) -> None:
        """An interval around a value."""
        (px, bottom), (_, top) = self.at(x, low), self.at(x, high)
        self.draw(tag("path", d=f"M{px:.1f} {bottom:.1f}V{top:.1f}", class_=f"whisker {style}"))

    def level(self, y: float, style: str, label: str) -> None:
        """A horizontal line: a floor."""
        self.line([(self.x.low, y), (self.x.high, y)], style, label)

    def svg(self, summary: str) -> Markup:
        """The whole picture; `summary` is what it says to those who do not see it."""
        return picture([*self._grid(), *self._parts, *self._end_labels(), *beside(self._dots)], summary)

    def _grid(self) -> list[Markup]:
        parts = []
        for value, text in self.y.ticks:
            _, py = self.at(self.x.low, value)
            parts.append(tag("line", x1=self.left, x2=self.right, y1=py, y2=py, class_="grid"))
            parts.append(tag("text", text, x=self.left - 7, y=py + 4, text_anchor="end", class_="tick"))
        base = HEIGHT - BOTTOM
        for value, text in self.x.ticks:
            px, _ = self.at(value, self.y.low)
            parts.append(tag("line", x1=px, x2=px, y1=base, y2=base + 4, class_="axis"))
            parts.append(tag("text", text, x=px, y=base + 18, text_anchor="middle", class_="tick"))
        parts.append(tag("line", x1=self.left, x2=self.right, y1=base, y2=base, class_="axis"))
        middle = (self.left + self.right) / 2
        parts.append(tag("text", self.x.label, x=middle, y=HEIGHT - 5, text_anchor="middle", class_="label"))
        return parts

    def _end_labels(self) -> list[Markup]:
        """Names at the ends of lines, moved apart, each with a leader in the colour of its line."""
        if not self.labelled:
            return []
        ends = sorted(self._ends, key=lambda end: end[0][1])
        heights = spread([end[0][1] for end in ends], TOP, HEIGHT - BOTTOM)
        parts = []
        for ((px, py), label, style), height in zip(ends, heights, strict=True):
            leader = f"M{px + 4:.1f} {py:.1f}L{self.right + 9:.1f} {height:.1f}h5"
            parts.append(tag("path", d=leader, class_=f"leader {style}"))
            parts.append(tag("text", label, x=self.right + 18, y=height + 4, class_="name"))
        return parts


def picture(parts: Sequence[Markup], summary: str, height: float = HEIGHT) -> Markup:
    """An SVG that takes the width it is given."""
    box = f"0 0 {WIDTH:.0f} {height:.0f}"
    return tag("svg", tag("title", summary), *parts, viewBox=box, role="img", aria_label=summary)


def symbol(style: str) -> str:
    """The outline of a mark: samplers differ in shape as well as in colour."""
    if "c-batchhard" in style or "c-pca" in style:
        return "M0-4.6L4.6 0L0 4.6L-4.6 0Z"
    if "c-incremental" in style:
        return "M-3.6-3.6H3.6V3.6H-3.6Z"
    if "c-full" in style:
        return "M0-4.6L4.4 3.2H-4.4Z"
    return "M-3.6 0A3.6 3.6 0 1 1 3.6 0A3.6 3.6 0 1 1-3.6 0Z"


BESIDE: tuple[tuple[float, float, str], ...] = (
    (7, -7, "start"),
    (9, 4, "start"),
    (-9, 4, "end"),
    (7, 16, "start"),
    (7, -21, "start"),
    (7, 30, "start"),
)
SHIFT = {"start": 0.0, "middle": 0.5, "end": 1.0}  # of a text's width to the left


def beside(dots: Sequence[tuple[Point, str]]) -> list[Markup]:
    """Labels beside dots, each on the first side where it hides no dot and no other label."""
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
        parts.append(tag("text", label, x=x + dx, y=y + dy, text_anchor=anchor, class_="value"))
    return parts


def spread(heights: Sequence[float], low: float, high: float, gap: float = GAP) -> list[float]:
    """Ascending heights moved apart by at least `gap`, within limits.

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


def _share(axis: Axis, value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} cannot be drawn")
    if axis.log:
        return (math.log(value) - math.log(axis.low)) / (math.log(axis.high) - math.log(axis.low))
    return (value - axis.low) / (axis.high - axis.low)


def _path(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
