"""What a reader expects to find on disk, said so that the user can put it there; and lists as numbers."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lookalike.utils.arrays import Array


def opened_root(name: str, root: str | Path | None, layout: str) -> Path:
    """The folder of a data set.

    Raises:
        ValueError: None was given.
        FileNotFoundError: There is no such folder.
    """
    if root is None:
        raise ValueError(f"{name} cannot be downloaded here: say where it is with root (--root on the command line).")
    folder = Path(root).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder; {name} is laid out as {_inline(layout)}.")
    return folder


def required(name: str, root: Path, candidates: str | Sequence[str], layout: str) -> Path:
    """The first of some paths below the root that is there.

    Raises:
        FileNotFoundError: None is: says which is expected where, and how the official archive is laid out.
    """
    choices = [candidates] if isinstance(candidates, str) else list(candidates)
    for candidate in choices:
        if (root / candidate).exists():
            return root / candidate
    raise FileNotFoundError(
        f"{root / choices[0]} is missing{''.join(f', and so is {root / other}' for other in choices[1:])}; "
        f"{name} is laid out as {_inline(layout)}."
    )


def _inline(layout: str) -> str:
    return "; ".join(line.strip() for line in layout.strip().splitlines())


def rows_of(path: Path, columns: int, *, separator: str | None = None, skip: int = 0) -> list[list[str]]:
    """The rows of a list, split into columns; blank lines do not count.

    Raises:
        ValueError: A line has fewer columns; says which.
    """
    rows = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if number <= skip or not line.strip():
                continue
            row = line.rstrip("\n").split(separator)
            if len(row) < columns:
                raise ValueError(
                    f"{path}, line {number}: expected {columns} columns, got {len(row)}: {line.strip()!r}."
                )
            rows.append(row)
    if not rows:
        raise ValueError(f"{path} lists nothing.")
    return rows


def numbered(names: Iterable[Any]) -> Tensor:
    """Names as numbers from 0 in their order of appearance: int64 [n]."""
    numbers: dict[Any, int] = {}
    return torch.tensor([numbers.setdefault(name, len(numbers)) for name in names], dtype=torch.int64)


def connected(first: Array, second: Array) -> Tensor:
    """Pairs that share a member, directly or through others, get one label: int64 [pairs].

    Two questions with the same answer, or two answers of one question, are no negatives of each other.

    Examples:
        >>> import numpy as np
        >>> connected(np.array([0, 0, 1, 2]), np.array([5, 6, 6, 7])).tolist()
        [0, 0, 0, 3]
    """
    _, first = np.unique(first, return_inverse=True)
    _, second = np.unique(second, return_inverse=True)
    labels = np.arange(len(first))
    while True:  # the smallest label spreads to both members of a pair until nothing changes
        smallest = labels.copy()
        for member in (first, second):
            least = np.full(int(member.max(initial=-1)) + 1, len(first))
            np.minimum.at(least, member, smallest)
            smallest = least[member]
        smallest = np.minimum(smallest, smallest[smallest])
        if np.array_equal(smallest, labels):
            return torch.from_numpy(labels.astype(np.int64))
        labels = smallest


def padded(lists: Sequence[Sequence[int]]) -> Tensor:
    """Lists of numbers as int64 [n, longest], filled up with -1."""
    width = max(map(len, lists), default=0)
    return torch.tensor([[*row, *[-1] * (width - len(row))] for row in lists], dtype=torch.int64).view(-1, width)


def is_test(name: str, share: float) -> bool:
    """Whether a class belongs to the test: decided by its name alone, whatever else is in the data set."""
    return zlib.crc32(name.encode()) < share * 2**32


def checksum(*parts: Any) -> str:
    """Of lists, arrays and settings: runs on the same data have the same."""
    value = 0
    for part in parts:
        raw = np.ascontiguousarray(part).tobytes() if isinstance(part, np.ndarray) else repr(part).encode()
        value = zlib.crc32(raw, value)
    return f"{value:08x}"
