"""The registry of data sets.

Each module in `lookalike/data/readers` declares its data sets in a tuple `DATA_SETS`. To add a data set, add a module
there: nothing else lists them. All of these modules are imported to list the names, so they import torch and NumPy
inside their functions only.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import KW_ONLY, dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lookalike.utils.checks import check_options
from lookalike.utils.messages import suggestion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lookalike.data.retrieval import RetrievalData
    from lookalike.data.roots import FileRoot, FolderRoot

READERS = "lookalike.data.readers"


@dataclass(frozen=True)
class DataSet:
    """Everything the library knows about a data set before reading it."""

    name: str
    """What users call it."""
    description: str
    """One line for `lookalike data list`."""
    reader: Callable[..., RetrievalData]
    """Called with the path to read, if any, with `progress`, and with users' options: its parameters with a default."""
    recipe: Mapping[str, Mapping[str, Any]]
    """Default "settings" (of `Settings`), "model" (of `make_encoder`) and "data" (options of the reader)."""
    _: KW_ONLY
    root: FolderRoot | FileRoot | None = None
    """What `root=` must be; None for a data set that takes no root."""
    official: Mapping[str, int] = field(default_factory=dict)
    """The published counts, named as in `RetrievalData.counts`."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the reader, without a default, that distinguish this data set from others with the same reader."""
    suffix: str | None = None
    """Files with this suffix are data sets themselves: users give a path instead of a name."""
    is_table: bool = False
    """Whether the data are rows of one file, read within seconds, whose columns users may have to name."""

    def check_options(self, options: Iterable[str]) -> None:
        """Check that the reader takes these options.

        Raises:
            ValueError: It does not take one of them; the message suggests the closest one that it takes.
        """
        check_options(f"the data set {self.name}", self.reader, options)

    def open(self, name: str, root: str | Path | None) -> list[Path]:
        """Return what the reader reads: one path, or none.

        Args:
            name: The name, or the path of a file with the `suffix`.
            root: Where the user says the data are.

        Raises:
            ValueError: A root is missing, or given where none is taken.
            FileNotFoundError: There is nothing to read there.
        """
        if self.root is None or self.suffix is not None:
            if root is not None:
                raise ValueError(f"{name} is not read from a folder and takes no root=, got {root}.")
            return [] if self.root is None else [self.root.open(Path(name).expanduser())]
        if root is None:
            kind = self.root.kind
            raise ValueError(f"{name} is read from a {kind}: give its path with root={kind.upper()}.")
        return [self.root.open(Path(root).expanduser())]

    def load(
        self, name: str, root: str | Path | None, options: Mapping[str, Any], *, progress: bool = False
    ) -> RetrievalData:
        """Read the data set, after checking name, root and options as `check_options` and `open` do."""
        self.check_options(options)
        return self.reader(*self.open(name, root), progress=progress, **self.fixed, **options)


def data_set(name: str) -> DataSet:
    """Find a data set by its name, or by the path of a file that is one.

    Raises:
        ValueError: There is no such data set; the message suggests the closest name and lists all of them.
    """
    known = data_sets()
    for entry in known.values():
        if name == entry.name or (entry.suffix is not None and name.endswith(entry.suffix)):
            return entry
    raise ValueError(f"there is no data set {name!r}; there are {', '.join(known)}{suggestion(name, known)}")


def data_names() -> list[str]:
    """Return the names of data sets as they are typed, without those that a path stands for."""
    return [entry.name for entry in data_sets().values() if entry.suffix is None]


@cache
def data_sets() -> dict[str, DataSet]:
    """Return all data sets by name: first those that need no files, then published ones, then users' own data."""
    package = importlib.import_module(READERS)
    found: dict[str, DataSet] = {}
    for module in pkgutil.iter_modules(package.__path__, f"{READERS}."):
        for entry in importlib.import_module(module.name).DATA_SETS:
            if entry.name in found:
                raise ValueError(
                    f"{module.name} declares the data set {entry.name!r}, which another module declares too."
                )
            found[entry.name] = entry
    order = sorted(found.values(), key=lambda entry: (entry.root is not None, not entry.official, entry.name))
    return {entry.name: entry for entry in order}
