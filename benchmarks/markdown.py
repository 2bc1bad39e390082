"""Write tables in Markdown."""

from typing import Any


def markdown(header: list[str], rows: list[list[Any]]) -> str:
    """Return a table.

    Examples:
        >>> print(markdown(["bits", "time"], [[128, "1 s"]]))
        | bits | time |
        | --- | --- |
        | 128 | 1 s |
    """
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
