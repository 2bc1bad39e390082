"""Find texts by a part of them, in any case: one folded copy of all texts that `bytes.find` scans."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lookalike.utils.arrays import Array

SEPARATOR = b"\n"  # folding leaves none inside a text


class TextIndex:
    r"""All texts in one block of bytes, folded to one case and with single spaces.

    Args:
        texts: The texts, in the order of their numbers.

    Examples:
        >>> index = TextIndex(["A red  bicycle", "blue\ncar", "Red car"])
        >>> index.find("red", 10), index.find("blue car", 10), index.find("", 10)
        ([0, 2], [1], [])
    """

    def __init__(self, texts: Iterable[str]) -> None:
        block, starts = bytearray(), []
        for text in texts:
            starts.append(len(block))
            block += _folded(text) + SEPARATOR
        self._block, self._starts = bytes(block), np.array(starts, np.int64)

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self._starts)

    def find(self, part: str, most: int) -> list[int]:
        """Return the numbers of the first texts that contain `part`; none for an empty one."""
        wanted = _folded(part)
        found: list[int] = []
        place = self._block.find(wanted) if wanted else -1
        while place >= 0 and len(found) < most:
            found.append(int(np.searchsorted(self._starts, place, side="right")) - 1)
            if found[-1] + 1 == len(self):
                break
            place = self._block.find(wanted, int(self._starts[found[-1] + 1]))
        return found


def members_of(labels: Array) -> tuple[Array, Array]:
    """Return the ids in the order of their labels, and the sorted labels, in which a label is searched for."""
    order = np.argsort(labels, kind="stable")
    return order, labels[order]


def _folded(text: str) -> bytes:
    return " ".join(text.casefold().split()).encode("utf-8", "replace")
