"""Find the files that a user means: one, a list, a pattern such as "data/*.parquet", or a folder of shards."""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


def find_files(source: Any, suffixes: Sequence[str], what: str) -> list[Path]:
    """Return the files that a path, a list of paths, a pattern or a folder stands for.

    The files of a pattern or a folder are in the order of their names, numbers in them by their value. Those of a
    folder are directly in it, and all of one kind.

    Args:
        source: What the user gave.
        suffixes: The kinds of files that can be read.
        what: What they hold, for errors: "pairs".

    Raises:
        FileNotFoundError: There is no such file, or none that the pattern fits.
        ValueError: A list is empty, a folder holds no such files or several kinds, or a file is of another kind.

    Examples:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> for number in (10, 9):
        ...     _ = (folder / f"part-{number}.csv").write_text("")
        >>> [path.name for path in find_files(folder, [".csv"], "pairs")]
        ['part-9.csv', 'part-10.csv']
    """
    if isinstance(source, list | tuple):
        if not source:
            raise ValueError(f"an empty list names no files of {what}; give at least one.")
        return [path for each in source for path in find_files(each, suffixes, what)]
    path = Path(source).expanduser()
    if is_pattern(path):
        names = glob.glob(str(path), recursive=True)  # noqa: PTH207 - the pattern may be absolute
        found = sorted(map(Path, names), key=natural)
        files = [each for each in found if each.is_file()]
        if not files:
            raise FileNotFoundError(f"{source}: there are no files of {what} whose names fit this pattern.")
    elif path.is_dir():
        files = sorted((each for each in path.iterdir() if each.suffix.lower() in suffixes), key=natural)
        kinds = sorted({each.suffix.lower() for each in files})
        if not files:
            raise ValueError(
                f"the folder {source} holds no files of {what} ({', '.join(suffixes)}); name those further down with a "
                f"pattern, as in {path / '**' / ('*' + suffixes[-1])}."
            )
        if len(kinds) > 1:
            raise ValueError(
                f"the folder {source} holds files of several kinds ({', '.join(kinds)}); name one of them with a "
                f"pattern, as in {path / ('*' + kinds[-1])}."
            )
    elif not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file of {what}.")
    else:
        files = [path]
    for file in files:
        if file.suffix.lower() not in suffixes:
            raise ValueError(f"{file} must be one of {', '.join(suffixes)} to be read as {what}.")
    return files


def is_pattern(path: Path) -> bool:
    """Return whether a path is a pattern, and not the name of a file with a bracket in it."""
    return glob.has_magic(str(path)) and not path.exists()


def natural(path: Path) -> list[Any]:
    """Return a key that sorts paths by name, and numbers in them by their value.

    Examples:
        >>> [path.name for path in sorted([Path("a10"), Path("a9"), Path("a")], key=natural)]
        ['a', 'a9', 'a10']
    """
    parts = re.split(r"([0-9]+)", os.fspath(path))  # every second one is a number
    return [int(part) if i % 2 else part for i, part in enumerate(parts)]


def files_identity(files: Sequence[Path]) -> dict[str, Any]:
    """Describe files so that another process can tell, without reading them, whether they are the same."""
    about = [file.stat() for file in files]
    return {
        "files": [file.name for file in files],
        "sizes": [each.st_size for each in about],
        "modified": [each.st_mtime_ns for each in about],
    }
