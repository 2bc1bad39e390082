"""JSON files as they may be found on a disk: whole, damaged, or something else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lookalike.report.markup import printable

if TYPE_CHECKING:
    from pathlib import Path

LARGEST_FILE = 256 << 20  # bytes
DEEPEST = 50  # levels of nesting; our files have five
LONGEST = 4096  # characters of a text
DIGITS = 18  # of a whole number; a longer one is read as a float


class Damaged(ValueError):  # noqa: N818 - said of a file, not of a mistake
    """A file or a line that is no JSON object; says why."""


def read_bytes(path: Path) -> bytes:
    """Read a file.

    Raises:
        Damaged: It cannot be read, or is too large.
    """
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise Damaged(f"has more than {LARGEST_FILE >> 20} MiB")
        return path.read_bytes()
    except OSError as error:
        raise Damaged(f"cannot be read ({error.strerror or error})") from None


def parse_object(data: bytes) -> dict[str, Any]:
    """Parse a JSON object; texts come out printable and no longer than `LONGEST`.

    Raises:
        Damaged: It is something else.
    """
    try:
        content = json.loads(data.decode("utf-8-sig"), parse_int=_integer)
        content = _clean(content, DEEPEST)
    except RecursionError:
        raise Damaged("cannot be read (nested too deeply)") from None
    except ValueError as error:
        raise Damaged(f"cannot be read ({printable(str(error))[:200]})") from None
    if not isinstance(content, dict):
        raise Damaged(f"holds {type(content).__name__}, not an object")
    return content


def _integer(digits: str) -> float:
    return int(digits) if len(digits) <= DIGITS else float(digits)


def _clean(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return printable(value[:LONGEST])
    if not isinstance(value, dict | list):
        return value
    if depth == 0:
        raise ValueError("nested too deeply")
    if isinstance(value, list):
        return [_clean(inner, depth - 1) for inner in value]
    return {printable(name[:LONGEST]): _clean(inner, depth - 1) for name, inner in value.items()}
