"""Axes of charts: their ranges and tick marks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MOST_TICKS = 6  # of a logarithmic axis
RELATIVE_SPAN = 0.02  # of the largest value, for scales without a span of their own,
NARROWEST = 1e-4  # but no less than this
UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


class Axis(NamedTuple):
    """A range with its tick marks."""

    low: float
    high: float
    ticks: list[tuple[float, str]]
    label: str = ""
    log: bool = False

    def position(self, value: float) -> float:
        """Return where a value lies, from 0 at `low` to 1 at `high`."""
        if self.log:
            return (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return (value - self.low) / (self.high - self.low)


class Scale(NamedTuple):
    """The numbers of an axis: their format, their range, and how far an axis may zoom in."""

    unit: float = 1.0
    suffix: str = ""
    low: float = -math.inf
    high: float = math.inf
    span: float = 0.0
    """The least that an axis covers, so that noise does not look like a difference."""
    abbreviated: bool = False
    """Write 12,000 as 12k."""

    def texts(self, values: Sequence[float], step: float) -> list[str]:
        """Write tick marks `step` apart, with enough decimals to tell them apart."""
        unit, suffix = self.unit, self.suffix
        if self.abbreviated:
            largest = max(map(abs, values))
            unit, suffix = next(((size, name) for size, name in UNITS if largest >= 10 * size), (1.0, ""))
        decimals = next((d for d in range(12) if math.isclose(round(step / unit, d), step / unit, rel_tol=1e-6)), 12)
        return [f"{value / unit:,.{decimals}f}{suffix}" for value in values]


FRACTIONS = Scale(0.01, "%", 0.0, 1.0, span=0.02)
COSINES = Scale(low=-1.0, high=1.0, span=0.02)
PLAIN = Scale(abbreviated=True)
INTEGERS = Scale(span=4, abbreviated=True)


def linear(values: Iterable[float], scale: Scale = PLAIN, label: str = "", *, zero: bool = False) -> Axis:
    """Make an axis between round numbers, within the scale and no narrower than its span; `zero` includes 0."""
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
    """Make an axis of epochs, marked at integers."""
    known = list(values)
    low, high = min(known), max(known)
    step = next(s for s in (f * 10**d for d in range(10) for f in (1, 2, 5)) if (high - low) / s <= 9)
    ticks = [float(i) for i in range(math.ceil(low), math.floor(high) + 1) if i % step == 0 or low == high]
    # Put a single epoch at the end, beside its label: from the beginning, the leader would look like a curve.
    return Axis(low if high > low else low - 1, high, [(i, f"{i:.0f}") for i in ticks], "epoch")


def marked(values: Iterable[float], text: Callable[[float], str], label: str) -> Axis:
    """Make a logarithmic axis marked at the values themselves, such as numbers of bits."""
    known = sorted(set(values))
    return Axis(known[0] / 1.15, known[-1] * 1.15, [(value, text(value)) for value in known], label, log=True)


def logarithmic(values: Iterable[float], text: Callable[[float], str], label: str) -> Axis:
    """Make a logarithmic axis marked at powers of ten, or more often if it is short."""
    known = list(values)
    low, high = min(known) / 1.3, max(known) * 1.3
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = math.ceil(len(decades) / MOST_TICKS)
    for factors, stride in (((1, 2, 5), 1), ((1, 3), 1), ((1,), 1), ((1,), every)):
        ticks = [f * 10.0**d for d in decades if d % stride == 0 for f in factors]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= MOST_TICKS:
            break
    by_text = {text(tick): tick for tick in (ticks if len(ticks) > 1 else (min(known), max(known)))}
    return Axis(low, high, [(tick, said) for said, tick in by_text.items()], label, log=True)
