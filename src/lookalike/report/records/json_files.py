"""Read JSON files that may be damaged, truncated or something else entirely."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LARGEST_FILE = 256 << 20  # bytes
DEEPEST = 50  # levels of nesting; our files have five
LONGEST = 4096  # characters of a text
DIGITS = 18  # of an integer; a longer one is read as a float


class DamagedError(ValueError):
    """A file or a line that holds no JSON object; the message completes a sentence that begins with its path."""


def read_object(path: Path) -> dict[str, Any]:
    """Read a file that holds one JSON object.

    Raises:
        DamagedError: The file cannot be read, is too large, or holds something else.
    """
    return _parse(_read(path))


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yield the number and the JSON object of every line that is not blank; None for a damaged line.

    Raises:
        DamagedError: The file cannot be read, or is too large.
    """
    for number, line in enumerate(_read(path).split(b"\n"), 1):
        if line.strip():
            try:
                yield number, _parse(line)
            except DamagedError:
                yield number, None


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise DamagedError(f"is larger than {LARGEST_FILE >> 20} MiB")
        return path.read_bytes()
    except OSError as error:
        raise DamagedError(f"cannot be read ({error.strerror or error})") from None


def _parse(data: bytes) -> dict[str, Any]:
    try:
        content = json.loads(data.decode("utf-8-sig"), parse_int=_integer)
        content = _limit(content, DEEPEST)
    except RecursionError:
        raise DamagedError("cannot be read (nested too deeply)") from None
    except ValueError as error:
        raise DamagedError(f"cannot be read ({str(error)[:200]})") from None
    if not isinstance(content, dict):
        raise DamagedError(f"holds a JSON {type(content).__name__} instead of an object")
    return content


def _integer(digits: str) -> float:
    return int(digits) if len(digits) <= DIGITS else float(digits)


def _limit(value: Any, depth: int) -> Any:
    """Cut long texts and refuse deep nesting."""
    if isinstance(value, str):
        return value[:LONGEST]
    if not isinstance(value, dict | list):
        return value
    if depth == 0:
        raise ValueError("nested too deeply")
    if isinstance(value, list):
        return [_limit(inner, depth - 1) for inner in value]
    return {name[:LONGEST]: _limit(inner, depth - 1) for name, inner in value.items()}
