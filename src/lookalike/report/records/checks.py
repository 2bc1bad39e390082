"""Take the values that fit from a JSON object, and record those that a report must ignore."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lookalike.report.records.kinds import OBJECT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lookalike.report.records.kinds import Kind

PLACES_NAMED = 3


class Checker:
    """Take the values that fit from one file, and record the others."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reasons: dict[str, list[str]] = {}  # where each reason applies

    def note(self, reason: str, place: str = "") -> None:
        """Record what is wrong and what the report does about it; `place` is a line or a row."""
        self._reasons.setdefault(reason, []).append(place)

    def kept(self, content: dict[str, Any], kinds: dict[str, Kind], place: str = "", of: str = "") -> dict[str, Any]:
        """Return the values that `kinds` names and that fit; `of` names the object that holds them."""
        found = {}
        for name, kind in kinds.items():
            if name not in content:
                continue
            if kind.fits(content[name]):
                found[name] = content[name]
            else:
                self.note(f"{of} {name}".strip() + f" is not {kind.expected}; ignored", place)
        return found

    def has(
        self, content: dict[str, Any], kinds: dict[str, Kind], otherwise: str, place: str = "", of: str = ""
    ) -> bool:
        """Return whether all values are there and fit; record the first that does not, and what happens `otherwise`."""
        for name, kind in kinds.items():
            if name not in content or not kind.fits(content[name]):
                problem = f"is not {kind.expected}" if name in content else "is missing"
                self.note(f"{of} {name}".strip() + f" {problem}; {otherwise}", place)
                return False
        return True

    def part(self, content: dict[str, Any], name: str, kinds: dict[str, Kind]) -> dict[str, Any]:
        """Return what fits of an object inside the content; empty if there is none."""
        return self.kept(self.kept(content, {name: OBJECT}).get(name, {}), kinds, of=name)

    def measured(self, row: dict[str, Any], name: str, kind: Kind, place: str) -> dict[str, Any] | None:
        """Return an object inside a row whose mean fits; None if there is no such object."""
        if name not in row or not self.has(row, {name: OBJECT}, "ignored", place):
            return None
        found: dict[str, Any] = row[name]
        return found if self.has(found, {"mean": kind}, "ignored", place, of=name) else None

    def rows(self, values: list[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the place and the content of every object in a list."""
        for number, value in enumerate(values, 1):
            if OBJECT.fits(value):
                yield f"row {number}", value
            else:
                self.note("the row is not an object; skipped it", f"row {number}")

    def notices(self) -> list[str]:
        """Return a sentence per reason."""
        sentences = []
        for reason, places in self._reasons.items():
            named = [place for place in places[:PLACES_NAMED] if place]
            more = f" and {len(places) - PLACES_NAMED} more" if len(places) > PLACES_NAMED else ""
            where = f", {', '.join(named)}{more}" if named else ""
            sentences.append(f"{self._path}{where}: {reason}.")
        return sentences
