"""Data sets to train and to test on."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from lookalike.data.retrieval import RetrievalData
from lookalike.utils.checks import check_options

DRAWN = {
    "glyphs": "scans of characters, labelled: drawn here, no download",
    "glyphs-paired": "the same, one pair of faces per character",
}
READ = {  # from a folder or file of the user's
    "sop": "Stanford Online Products: photographs, 22,634 classes",
    "inshop": "In-shop Clothes Retrieval: photographs, 7,982 classes, query and gallery",
    "msmarco": "MS MARCO passages: questions and 8.8 million passages",
    "cvusa": "CVUSA: street panoramas and aerial images, 44,416 pairs",
    "cvact": "CVACT: the same in Canberra, tested on its validation set",
    "cvact-test": "CVACT, tested on its test set of 92,802 pairs",
    "vigor-same": "VIGOR: panoramas off centre, training and test in the same four cities",
    "vigor-cross": "VIGOR, training in two cities, test in two others",
    "folder": "your images, a folder per class",
    "table": "your images in a CSV or parquet file: path and label, or query and reference",
    "texts": "your pairs of texts in a jsonl, parquet, tsv or csv file",
}
DATA_SETS = DRAWN | READ
MODULES = {
    "cvact-test": "cvact",
    "vigor-same": "vigor",
    "vigor-cross": "vigor",
    "table": "tables",
}  # where a reader is not called as its data set


@dataclass(frozen=True)
class DataSource:
    """A data set by name: what it takes to load it, here or in another process.

    Examples:
        >>> DataSource("texts", "pairs.jsonl", {"test_share": 0.1}).name
        'texts'
    """

    name: str
    root: str | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def is_table(self) -> bool:
        """Whether the data are rows of a file, read within seconds, whose columns a user may have to name."""
        return self.name == "texts"

    def load(self, *, progress: bool = False) -> RetrievalData:
        """The data set; as `load_data`.

        Raises:
            ValueError: There is no such data set, or its reader does not take an option.
        """
        return replace(load_data(self.name, self.root, progress=progress, **self.options), source=self)

    def check(self) -> None:
        """Raise what `load` raises for name, root and options alone, without reading any data.

        Raises:
            ValueError: There is no such data set, it needs a root, or its reader does not take an option.
            FileNotFoundError: There is nothing at the root.
        """
        reader = _reader(self.name, self.root)
        _check_options(self.name, reader, self.options)
        if self.name in READ and self.root is None:
            raise ValueError(
                f"{self.name} is read from a file or folder of yours: say where it is with root (--root on the command "
                "line)."
            )
        path = Path(self.root or self.name).expanduser()
        if self.name not in DRAWN and not path.exists():
            self.load()  # the reader itself says what it expects there

    def as_config(self) -> dict[str, Any]:
        """As a run keeps it."""
        return {"data": self.name, "data_root": self.root, "data_options": self.options}

    @classmethod
    def of_run(cls, config: dict[str, Any]) -> "DataSource":
        """What a run was trained on, by its configuration."""
        return cls(str(config.get("data")), config.get("data_root"), config.get("data_options") or {})


def load_data(name: str, root: str | Path | None = None, *, progress: bool = False, **options: Any) -> RetrievalData:
    """A data set by its name, or a file of glyphs by its path.

    Args:
        name: One of `DATA_SETS`, or FILE.npz.
        root: The folder or file of a data set that is read and not drawn.
        progress: Show bars on a terminal.
        options: What the reader of the data set takes, such as the size of images.

    Raises:
        ValueError: There is no such data set, or its reader does not take an option.
        FileNotFoundError: The folder is incomplete; says which file is expected where.
    """
    reader = _reader(name, root)
    _check_options(name, reader, options)
    if name in READ:
        return reader(root, progress=progress, **options)
    if name in DRAWN:
        return reader(paired=name.endswith("-paired"), progress=progress, **options)
    from lookalike.data.scans import POOR  # noqa: PLC0415 - the names above are needed without it

    return reader(Path(name), degradation=POOR, progress=progress, **options)


def _reader(name: str, root: str | Path | None) -> Callable[..., RetrievalData]:
    """Find what reads a data set.

    Raises:
        ValueError: There is no such data set, or it takes no root.
    """
    if name in DRAWN or name.endswith(".npz"):
        if root is not None:
            raise ValueError(f"{name} is not read from a folder and takes no root, got {root}.")
        module, function = "scans", "glyph_scans"
    elif name in READ:
        module, function = MODULES.get(name, name), name.replace("-", "_")
    else:
        raise ValueError(
            f"there is no data set {name!r}; there are {', '.join(DATA_SETS)}, and files of glyphs, FILE.npz."
        )
    reader: Callable[..., RetrievalData] = getattr(import_module(f"lookalike.data.{module}"), function)
    return reader


def _check_options(name: str, reader: Callable[..., RetrievalData], options: dict[str, Any]) -> None:
    check_options(f"the data set {name}", reader, options)
