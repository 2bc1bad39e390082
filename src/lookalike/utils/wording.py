"""What is said of options that a function does not take, and of errors that other libraries word.

Without torch, so that commands which only list or explain start at once.
"""

import inspect
from collections.abc import Callable, Iterable
from typing import Any


def unknown_option(function: Callable[..., Any], options: Iterable[str]) -> str | None:
    """The first of some options that a function does not take; what every call gives it is no option.

    Examples:
        >>> unknown_option(lambda root, *, size=3, progress=False: None, ["size", "width"])
        'width'
    """
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind == inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return None  # it says so itself
    known = {p.name for p in parameters if p.default is not inspect.Parameter.empty} - {"progress", "path"}
    return next((name for name in options if name not in known), None)


def first_line(error: Exception) -> str:
    """What an error of another library says first, to be quoted within a sentence.

    Examples:
        >>> first_line(ValueError("no such file.\\nCheck the path."))
        'no such file'
    """
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].strip().rstrip(".:")[:200]
