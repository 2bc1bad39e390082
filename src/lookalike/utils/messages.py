"""Helpers for errors and warnings; imports no torch, so that `--help` stays fast."""

import difflib
import logging
from collections.abc import Iterable
from functools import cache

LONGEST_QUOTE = 200  # characters

logger = logging.getLogger("lookalike")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is spelled most like `name`, or None where none is close.

    Examples:
        >>> nearest("samples4geo", ["growth", "sample4geo"])
        'sample4geo'
    """
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name: a full stop, or the known name it resembles.

    Examples:
        >>> "there is no option 'widht'" + suggestion("widht", ["width", "height"])
        "there is no option 'widht'; did you mean 'width'?"
        >>> "there is no option 'x'" + suggestion("x", ["width", "height"])
        "there is no option 'x'."
    """
    known_name = nearest(name, known)
    return "." if known_name is None else f"; did you mean {known_name!r}?"


def first_line(error: BaseException) -> str:
    """Return the first line of another library's error, to quote it within a sentence.

    Examples:
        >>> first_line(ValueError("no such file.\\nCheck the path."))
        'no such file'
    """
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].strip().rstrip(".:")[:LONGEST_QUOTE]


@cache
def warn_once(sentence: str) -> None:
    """Log a warning the first time it is given."""
    logger.warning(sentence)
