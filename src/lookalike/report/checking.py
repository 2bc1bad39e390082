"""What a report expects of the values in its files, and a record of what did not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LARGEST, SMALLEST = 1e12, 1e-9  # beyond that nothing here was measured
SLACK = 1e-6  # shares and cosines are rounded
PLACES_NAMED = 3


class Kind(NamedTuple):
    """What a value should be: in words, and as a check."""

    expected: str
    fits: Callable[[Any], bool]


def is_number(value: Any) -> bool:
    """Whether this is a finite number of a size that can be drawn."""
    return isinstance(value, float | int) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST


def _within(low: float, high: float) -> Callable[[Any], bool]:
    return lambda value: is_number(value) and low <= value <= high


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and is_number(value)


NUMBER = Kind("a number", is_number)
SHARE = Kind("a share between 0 and 1", _within(-SLACK, 1 + SLACK))
COSINE = Kind("a cosine", _within(-1 - SLACK, 1 + SLACK))
POSITIVE = Kind("a number above 0", _within(SMALLEST, LARGEST))
NOT_NEGATIVE = Kind("a number of at least 0", _within(0, LARGEST))
INTEGER = Kind("a whole number", _is_whole)
COUNT = Kind("a whole number above 0", lambda value: _is_whole(value) and value > 0)
BITS = Kind('a number of bits or "auto"', lambda value: value == "auto" or (_is_whole(value) and value > 0))
TEXT = Kind("text", lambda value: isinstance(value, str))
OBJECT = Kind("an object", lambda value: isinstance(value, dict))
LIST = Kind("a list", lambda value: isinstance(value, list))


def optional(kind: Kind) -> Kind:
    """Accept null as well."""
    return Kind(f"{kind.expected} or null", lambda value: value is None or kind.fits(value))


def list_of(kind: Kind) -> Kind:
    """Accept a list in which every value fits."""
    return Kind(
        f"a list of which each is {kind.expected}", lambda value: LIST.fits(value) and all(map(kind.fits, value))
    )


class Checker:
    """Takes what fits from the content of one file, and says what it left out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._left_out: dict[str, list[str]] = {}  # reasons and where each applies

    def leave_out(self, reason: str, place: str = "") -> None:
        """Record why something is left out; `place` is a line or a row."""
        self._left_out.setdefault(reason, []).append(place)

    def kept(self, content: dict[str, Any], kinds: dict[str, Kind], place: str = "", of: str = "") -> dict[str, Any]:
        """Return the content without the values that do not fit; `of` names the object that holds them."""
        kept = dict(content)
        for name, kind in kinds.items():
            if name in content and not kind.fits(content[name]):
                del kept[name]
                self.leave_out(f"{of} {name}".strip() + f" is not {kind.expected} and left out", place)
        return kept

    def has(
        self, content: dict[str, Any], kinds: dict[str, Kind], otherwise: str, place: str = "", of: str = ""
    ) -> bool:
        """Whether all of these are there and fit; record the first that does not, and what happens `otherwise`."""
        for name, kind in kinds.items():
            if name not in content or not kind.fits(content[name]):
                known = f"is not {kind.expected}" if name in content else "is missing"
                self.leave_out(f"{of} {name}".strip() + f" {known}: {otherwise}", place)
                return False
        return True

    def part(self, content: dict[str, Any], name: str, kinds: dict[str, Kind]) -> dict[str, Any]:
        """Return an object inside the content, checked; empty where there is none."""
        return self.kept(self.kept(content, {name: OBJECT}).get(name, {}), kinds, of=name)

    def objects(self, values: list[Any], what: str = "row") -> list[tuple[str, dict[str, Any]]]:
        """Return the objects of a list with the places they have there."""
        found = []
        for number, value in enumerate(values, 1):
            if OBJECT.fits(value):
                found.append((f"{what} {number}", value))
            else:
                self.leave_out(f"the {what} is not an object and left out", f"{what} {number}")
        return found

    def notices(self) -> list[str]:
        """Return a sentence for every reason."""
        sentences = []
        for reason, places in self._left_out.items():
            named = [place for place in places[:PLACES_NAMED] if place]
            more = f" and {len(places) - PLACES_NAMED} more" if len(places) > PLACES_NAMED else ""
            where = f", {', '.join(named)}{more}" if named else ""
            sentences.append(f"{self._path}{where}: {reason}.")
        return sentences
