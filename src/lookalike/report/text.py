"""Prepare any text for display."""

import re

UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def printable(text: str) -> str:
    """Replace what neither UTF-8 nor HTML can hold: control characters and halves of surrogate pairs.

    Examples:
        >>> printable("one\\x00two")
        'one\ufffdtwo'
    """
    return UNPRINTABLE.sub("\ufffd", text)


def shortened(text: str, longest: int) -> str:
    """Cut a text to a number of characters, the last of them an ellipsis.

    Examples:
        >>> shortened("lookalike", 5)
        'look…'
    """
    return text if len(text) <= longest else text[: longest - 1] + "\u2026"


def counted(number: int, noun: str) -> str:
    """Write a number with its noun.

    Examples:
        >>> counted(1, "seed"), counted(2000, "run")
        ('1 seed', '2,000 runs')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
