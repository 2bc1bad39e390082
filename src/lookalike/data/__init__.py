"""Data sets to train and to test on."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lookalike.data.registry import DataSet, data_set, data_sets
from lookalike.data.retrieval import RetrievalData

__all__ = ["DataSet", "DataSource", "RetrievalData", "data_set", "data_sets", "load_data"]


@dataclass(frozen=True)
class DataSource:
    """A data set by name: everything needed to load it, here or in another process.

    Args:
        name: One of `data_sets()`, or the path of a file of glyphs, FILE.npz.
        root: The folder or file to read, if the data set needs one.
        options: Options of its reader, such as the size of images.

    Examples:
        >>> DataSource("texts", "pairs.jsonl", {"test_share": 0.1}).name
        'texts'
    """

    name: str
    root: str | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def is_table(self) -> bool:
        """Whether the data are rows of one file, read within seconds, whose columns users may have to name."""
        return data_set(self.name).is_table

    def load(self, *, progress: bool = False) -> RetrievalData:
        """Load the data set; see `load_data`.

        Raises:
            ValueError: There is no such data set, it needs a root, or its reader does not take an option.
            FileNotFoundError: A file is missing; the message says which one is expected where.
        """
        data = data_set(self.name).load(self.name, self.root, self.options, progress=progress)
        return replace(data, source=self)

    def check(self) -> None:
        """Check name, root and options without reading any data.

        Raises:
            ValueError: There is no such data set, it needs a root, or its reader does not take an option.
            FileNotFoundError: There is nothing at the root.
        """
        entry = data_set(self.name)
        entry.check_options(self.options)
        entry.open(self.name, self.root)

    def as_config(self) -> dict[str, Any]:
        """Return the entries that identify the data in the configuration of a run."""
        return {"data": self.name, "data_root": self.root, "data_options": self.options}

    @classmethod
    def of_run(cls, config: dict[str, Any]) -> "DataSource":
        """Return the data that a run was trained on, from its configuration."""
        return cls(str(config.get("data")), config.get("data_root"), config.get("data_options") or {})


def load_data(name: str, root: str | Path | None = None, *, progress: bool = False, **options: Any) -> RetrievalData:
    """Load a data set by name, or a file of glyphs by its path.

    Args:
        name: One of `data_sets()`, or FILE.npz.
        root: The folder or file to read, if the data set needs one.
        progress: Show progress bars on a terminal.
        options: Options of the data set's reader, such as the size of images.

    Raises:
        ValueError: There is no such data set, it needs a root, or its reader does not take an option.
        FileNotFoundError: A file is missing; the message says which one is expected where.
    """
    return DataSource(name, None if root is None else str(root), options).load(progress=progress)
