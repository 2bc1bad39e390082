"""Kinds of values in the files that a report reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

LARGEST, SMALLEST = 1e12, 1e-9  # nothing that a report shows lies beyond
SLACK = 1e-6  # fractions and cosines may be rounded
LONGEST_NAME = 80  # characters of a sampler or a method


class Kind(NamedTuple):
    """What a value must be: in words, and as a check."""

    expected: str
    fits: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and _is_number(value)


def _within(low: float, high: float) -> Callable[[Any], bool]:
    return lambda value: _is_number(value) and low <= value <= high


NUMBER = Kind("a number", _is_number)
FRACTION = Kind("a fraction between 0 and 1", _within(-SLACK, 1 + SLACK))
COSINE = Kind("a cosine", _within(-1 - SLACK, 1 + SLACK))
POSITIVE = Kind("a number above 0", _within(SMALLEST, LARGEST))
NOT_NEGATIVE = Kind("a number of at least 0", _within(0, LARGEST))
INTEGER = Kind("an integer", _is_integer)
COUNT = Kind("an integer above 0", lambda value: _is_integer(value) and value > 0)
SIZE = Kind("an integer of at least 0", lambda value: _is_integer(value) and value >= 0)
BITS = Kind('a number of bits or "auto"', lambda value: value == "auto" or COUNT.fits(value))
TEXT = Kind("text", lambda value: isinstance(value, str))
NAME = Kind(
    f"a name of 1 to {LONGEST_NAME} characters", lambda value: TEXT.fits(value) and 0 < len(value) <= LONGEST_NAME
)
OBJECT = Kind("an object", lambda value: isinstance(value, dict))
LIST = Kind("a list", lambda value: isinstance(value, list))


def optional(kind: Kind) -> Kind:
    """Accept null as well."""
    return Kind(f"{kind.expected} or null", lambda value: value is None or kind.fits(value))


def list_of(kind: Kind) -> Kind:
    """Accept a list in which every value fits."""
    return Kind(f"a list, each value {kind.expected}", lambda value: LIST.fits(value) and all(map(kind.fits, value)))


def is_bits(key: str) -> bool:
    """Return whether a key of an object is a number of bits.

    Examples:
        >>> is_bits("512"), is_bits("0"), is_bits("many")
        (True, False, False)
    """
    return key.isascii() and key.isdigit() and len(key) <= 7 and int(key) > 0
