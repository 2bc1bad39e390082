"""What a reader expects at `root=`: a folder in a known layout, or a file of a known kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class FolderRoot:
    """A folder laid out like the data set's official archive.

    Args:
        title: What errors call the data set.
        layout: The files in the folder, described line by line; errors about a missing file quote it.
    """

    title: str
    layout: str
    kind = "folder"

    def open(self, path: Path) -> Path:
        """Return the folder.

        Raises:
            FileNotFoundError: There is no such folder.
        """
        if not path.is_dir():
            raise FileNotFoundError(f"{path} is not a folder; {self._expected}.")
        return path

    def find(self, folder: Path, *candidates: str) -> Path:
        """Return the first of some relative paths that exists in the folder.

        Raises:
            FileNotFoundError: None exists; the message names them and quotes the layout.
        """
        for candidate in candidates:
            if (folder / candidate).exists():
                return folder / candidate
        others = "".join(f", and so is {folder / other}" for other in candidates[1:])
        raise FileNotFoundError(f"{folder / candidates[0]} is missing{others}; {self._expected}.")

    @property
    def _expected(self) -> str:
        lines = "; ".join(line.strip() for line in self.layout.strip().splitlines())
        return f"{self.title} is laid out as {lines}"


@dataclass(frozen=True)
class FileRoot:
    """A file with one of some suffixes; `what` is what errors call it."""

    suffixes: tuple[str, ...]
    what: str = "file"
    kind = "file"

    def open(self, path: Path) -> Path:
        """Return the path of the file.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: Its name ends in something else.
        """
        if not path.is_file():
            raise FileNotFoundError(f"{path}: there is no such {self.what}.")
        if path.suffix.lower() not in self.suffixes:
            raise ValueError(f"{path} must be one of {', '.join(self.suffixes)}.")
        return path


def read_rows(path: Path, columns: int, *, separator: str | None = None, skip: int = 0) -> list[list[str]]:
    """Read an official list: split its lines into columns, skipping blank lines.

    Args:
        path: The list, a text file in UTF-8.
        columns: How many columns each line must have at least.
        separator: What separates them; white space by default.
        skip: Lines to skip at the beginning.

    Raises:
        ValueError: A line has fewer columns, or there are no lines.
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
