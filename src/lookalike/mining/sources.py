"""What the command line mines from: pairs in a file or a Hugging Face data set, further texts, a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lookalike.data.folders import optional
from lookalike.data.tables import SUFFIXES, read_table
from lookalike.data.texts import QUERIES, REFERENCES
from lookalike.encoders.libraries import sentence_transformers
from lookalike.mining.options import FROM_TEXTS
from lookalike.mining.pairs import checked_texts
from lookalike.wording import first_line

if TYPE_CHECKING:
    from collections.abc import Sequence

POSITIVES = (*REFERENCES, "pos")
TEXTS = ("text", "passage", "document", "contents", "body")


@dataclass(frozen=True)
class Columns:
    """Pairs of texts, and what their columns are called."""

    anchor: str
    positive: str
    anchors: list[str]
    positives: list[str]


def read_pairs(source: str, anchor: str | None, positive: str | None, split: str | None) -> Columns:
    """Pairs from .jsonl, .parquet, .tsv or .csv, a data set that was saved to disk, or one by its name.

    A positive may be a list of texts: one pair each.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: There are no such columns, or a text is empty.
    """
    table = read_columns(source, split)
    names = list(table)
    for name, option in ((anchor, "--anchor-column"), (positive, "--positive-column")):
        if name is not None and name not in names:
            raise ValueError(f"{option} is {name!r}, but {source} has the columns {', '.join(names)}.")
    first = anchor or _known(names, QUERIES)
    second = positive or _known(names, POSITIVES)
    if (first is None or second is None) and Path(source).suffix in (".tsv", ".csv"):
        table = read_table(Path(source), heading=False)
        first, second = ("0", "1") if len(table) == 2 and not (anchor or positive) else (None, None)
    if first is None or second is None:
        raise ValueError(
            f"{source} must have the columns query and positive (or anchor and positive), got {', '.join(names)}; "
            "--anchor-column and --positive-column say what they are called."
        )
    pairs = [
        (query, text)
        for query, answers in zip(table[first], table[second], strict=True)
        for text in (answers if isinstance(answers, list) else [answers])
    ]
    if not pairs:
        raise ValueError(f"{source} has no rows; mining needs pairs of a query and a positive.")
    headed = first in names
    return Columns(
        first if headed else "anchor",
        second if headed else "positive",
        checked_texts(f"{source}, {first if headed else 'the first column'},", [query for query, _ in pairs]),
        checked_texts(f"{source}, {second if headed else 'the second column'},", [text for _, text in pairs]),
    )


def read_corpus(path: str, column: str | None) -> list[str]:
    """Further texts: one per line of a .txt file, or a column of a table; of `id<TAB>text` lines, the text.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: There is no such column, or a text is empty.
    """
    if Path(path).suffix == ".txt" and Path(path).is_file():
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        return checked_texts(path, [line for line in lines if line.strip()])
    table = read_columns(path, None)
    found = column or _known(list(table), (*TEXTS, *POSITIVES))
    if found is None and Path(path).suffix == ".tsv":
        table = read_table(Path(path), heading=False)
        found = "1" if len(table) == 2 else None
    if found is None or found not in table:
        raise ValueError(
            f"{path} must have a column of texts, {column or ' or '.join(TEXTS)}, got {', '.join(table)}; "
            "--corpus-column says what it is called."
        )
    return checked_texts(f"{path}, {found},", table[found])


def read_columns(source: str, split: str | None) -> dict[str, list[Any]]:
    """All columns of a file or data set, by their names."""
    path = Path(source).expanduser()
    if path.is_file():
        if path.suffix not in SUFFIXES:
            raise ValueError(f"{path} must be one of {', '.join(SUFFIXES)}, or the folder of a saved data set.")
        return read_table(path)
    if path.suffix in SUFFIXES or (path.is_absolute() and not path.exists()):
        raise FileNotFoundError(f"{path}: there is no such file.")
    datasets = optional("datasets", *FROM_TEXTS)
    try:
        found = datasets.load_from_disk(str(path)) if path.is_dir() else datasets.load_dataset(source, split=split)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        what = "the data set in the folder" if path.is_dir() else "there is no such file, and the data set of the name"
        raise ValueError(f"{what} {source} cannot be loaded: {first_line(error)}.") from error
    if isinstance(found.column_names, dict):  # several splits
        chosen = split or ("train" if "train" in found else next(iter(found)))
        if chosen not in found:
            raise ValueError(f"{source} has no split {chosen!r}; it has {', '.join(found)}.")
        found = found[chosen]
    return {name: list(found[name]) for name in found.column_names}


def load_model(name: str, device: str | None, kind: str = "SentenceTransformer") -> Any:
    """A model by the name of its folder, or of a repository.

    Raises:
        ImportError: sentence-transformers is not installed.
        ValueError: It cannot be loaded.
    """
    with sentence_transformers() as library:
        try:
            return getattr(library, kind)(name, device=device, trust_remote_code=False)
        except Exception as error:
            raise ValueError(
                f"the model {name!r} cannot be loaded as a {kind} ({first_line(error)}); give the folder that its "
                "save wrote, or its name on the Hugging Face Hub."
            ) from error


def _known(names: Sequence[str], candidates: Sequence[str]) -> str | None:
    return next((name for name in candidates if name in names), None)
