"""Check numbers, names and options; imports no torch, so that `--help` stays fast.

Each error is one sentence: what was expected, what was given and, if it helps, what to do.
"""

import inspect
import math
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import Any, NamedTuple

from lookalike.utils.messages import suggestion

GIVEN_ALWAYS = {"path", "progress"}  # arguments that every call of a reader or builder passes: not options of the user


def checked_integer(name: str, value: Any, low: int = 0) -> int:
    """Return an integer of at least `low` that fits into 64 bits.

    Raises:
        TypeError: It is not an integer.
        ValueError: It is too small or too large.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}.")
    number = int(value)
    if not low <= number < 2**63:
        raise ValueError(f"{name} must be {f'at least {low}' if number < low else 'below 2**63'}, got {number}.")
    return number


def checked_positive(name: str, value: Any) -> int:
    """Return an integer of at least 1."""
    return checked_integer(name, value, low=1)


def checked_bits(bits: Any) -> int:
    """Return a code length: a positive multiple of 8."""
    length = checked_positive("bits", bits)
    if length % 8:
        raise ValueError(f"bits must be a multiple of 8, got {length}; the next one is {-(-length // 8) * 8}.")
    return length


SHORTEST_CODE = 32  # bits of a code of several bits per dimension: the header's 16, and as many for the levels


def check_code_length(code: str, bits: int) -> None:
    """Check that a kind of codes can have this length; only signs can be shorter than `SHORTEST_CODE`."""
    if code != "signs" and checked_bits(bits) < SHORTEST_CODE:
        raise ValueError(f'code="{code}" needs at least {SHORTEST_CODE} bits, got {bits}; fewer take code="signs".')


class Range(NamedTuple):
    """Numbers from `low` to `high`; each end may be left out.

    Examples:
        >>> Range(0, 1, with_low=False).check("share", 0.5)
        0.5
    """

    low: float
    high: float = math.inf
    with_low: bool = True
    with_high: bool = False

    def check(self, name: str, value: Any) -> float:
        """Return a number of the range.

        Raises:
            TypeError: It is not a number.
            ValueError: It is out of range, or NaN.
        """
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError(f"{name} must be a number, got {type(value).__name__}.")
        number = float(value)
        above = number >= self.low if self.with_low else number > self.low
        below = number <= self.high if self.with_high else number < self.high
        if not (above and below):
            upper = "" if self.high == math.inf else f" and {'at most' if self.with_high else 'below'} {self.high}"
            raise ValueError(
                f"{name} must be {'at least' if self.with_low else 'above'} {self.low}{upper}, got {value}."
            )
        return number


TEMPERATURES = Range(0.01, 1.0, with_high=True)  # of InfoNCE: outside, gradients vanish or logits overflow
MASKS = Range(0, 1, with_low=False, with_high=True)  # of the positive's similarity: `mask_above` of InfoNCE


def check_choice(name: str, value: Any, known: Iterable[str]) -> None:
    """Check that a value is one of the known names.

    Raises:
        ValueError: It is not; the message suggests the nearest one.
    """
    known = list(known)
    if value not in known:
        end = suggestion(value, known) if isinstance(value, str) else "."
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}{end}")


def check_options(taker: str, function: Callable[..., Any], options: Iterable[str]) -> None:
    """Check that a function takes these options: keyword arguments that have a default.

    Args:
        taker: What the function stands for, for the error: "the encoder convnet".
        function: What the options are for; one with `**options` checks them itself.
        options: Their names.

    Raises:
        ValueError: It does not take one of them; the message suggests the nearest one that it takes.
    """
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind == inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = {p.name for p in parameters if p.default is not inspect.Parameter.empty} - GIVEN_ALWAYS
    for name in options:
        if name not in known:
            raise ValueError(f"{taker} does not take the option {name!r}{suggestion(name, known)}")
