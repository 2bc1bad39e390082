"""Read pairs of texts from a file or a Hugging Face data set, read further texts, and load models by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lookalike.data.table_files import SUFFIXES, Table
from lookalike.data.text_pairs import (
    REFERENCES,
    listed,
    match_column,
    text_problem,
)
from lookalike.utils.imports import optional_import, sentence_transformers
from lookalike.utils.machine import checked_device
from lookalike.utils.messages import first_line
from lookalike.utils.progress import working

if TYPE_CHECKING:
    from collections.abc import Sequence

LINES = ".txt"  # one text per line
HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")  # a repository, with or without its owner
TEXTS = ("text", "passage", "document", "contents", "body")  # columns of a corpus
FROM_TEXTS = ("mining from texts", "'lookalike[text]'")  # what needs a library, and what installs it


def checked_texts(name: str, texts: Sequence[Any], first: int = 0) -> list[str]:
    """Return texts that a model can encode; `first` is the number of the first row.

    Raises:
        TypeError: One is not a text.
        ValueError: One is empty, or is not valid Unicode.
    """
    for row, text in enumerate(texts, first):
        if not isinstance(text, str):
            raise TypeError(f"{name} must hold texts, but row {row} is {type(text).__name__}; convert or remove it.")
        if not text.strip():
            raise ValueError(f"{name} must not hold empty texts, but row {row} is empty; remove such rows.")
        if (problem := text_problem(text)) is not None:
            raise ValueError(f"{name} must hold texts, but row {row} {problem}; correct or remove it.")
    return list(texts)


def _holds_lines(path: Path) -> bool:
    return path.suffix.lower() == LINES and path.is_file()


def _refuse_missing(path: Path) -> None:
    """Refuse a file that does not exist, unless it may be the name of a data set."""
    is_path = path.suffix.lower() in (*SUFFIXES, LINES) or path.is_absolute()
    if is_path and not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file.")


def text_column(table: Table, column: str | None) -> str:
    """Return the column of a table that holds texts to search.

    Raises:
        ValueError: The names do not settle it; the message lists the columns.
    """
    names = list(table.names)
    if column is not None and (match := match_column(column, names)) is not None:
        return match
    known = [name for name in names if name.strip().lower() in (*TEXTS, *REFERENCES)]
    if column is None and len(known) == 1:
        return known[0]
    if column is None and len(names) == 1 and not table.header:
        return names[0]
    what = f"no column {column!r}" if column is not None else "several columns of texts" if known else "no known column"
    hint = ""
    if table.separated and table.header:
        number = "" if len(names) == 1 else "corpus_column=2 "
        hint = f", or {number}corpus_header=False if its first line holds data"
    raise ValueError(
        f"{table.source} has {what}, but {listed(names)}; corpus_column= says which one holds the texts{hint}."
    )


def find_dataset(source: str, split: str | None, *, header: bool = True) -> Any:
    """Load a Hugging Face data set from the folder that it was saved to, or by its name.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It cannot be loaded, or has no rows.
    """
    path = Path(source).expanduser()
    _refuse_missing(path)
    if not header:
        raise ValueError(f"{source} is a data set, which names its columns itself; leave out header=False.")
    datasets = optional_import("datasets", *FROM_TEXTS)
    try:
        found = datasets.load_from_disk(str(path)) if path.is_dir() else datasets.load_dataset(source, split=split)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        what = "the data set in the folder" if path.is_dir() else "there is no such file, and the data set"
        raise ValueError(f"{what} {source} cannot be loaded: {first_line(error)}.") from error
    if isinstance(found.column_names, dict):  # several splits
        chosen = split or ("train" if "train" in found else next(iter(found)))
        if chosen not in found:
            raise ValueError(f"{source} has no split {chosen!r}; it has {', '.join(found)}.")
        found = found[chosen]
    if len(found) == 0:
        raise ValueError(f"{source} has no rows; mining needs pairs of a query and a positive.")
    return found


def check_model_path(name: str) -> None:
    """Refuse a model that does not exist and that, by its name, cannot be on the Hugging Face Hub either.

    Raises:
        FileNotFoundError: There is no such folder.
    """
    if not HUB_NAME.fullmatch(name) and not Path(name).exists():
        raise FileNotFoundError(f"{name}: there is no such model folder.")


def load_model(name: str, device: str | None = None, kind: str = "SentenceTransformer") -> Any:
    """Load a sentence-transformers model from a folder or by the name of a repository, without running its code.

    Args:
        name: The folder or the name.
        device: Where to put it; by default the library chooses.
        kind: The class of the model: "SentenceTransformer" or "CrossEncoder".

    Raises:
        ImportError: sentence-transformers is not installed.
        FileNotFoundError: There is no such folder.
        ValueError: It cannot be loaded.
    """
    check_model_path(name)
    with sentence_transformers() as library:
        try:
            return getattr(library, kind)(name, device=device, trust_remote_code=False)
        except Exception as error:
            raise ValueError(
                f"the model {name!r} cannot be loaded as a {kind} ({first_line(error)}); give the folder that its "
                "save wrote, or its name on the Hugging Face Hub."
            ) from error


def check_models(model: Any, others: Sequence[Any], device: str | None, *prompt_names: str | None) -> None:
    """Refuse models that are not there, without loading those that are given by name.

    Args:
        model: What encodes.
        others: What scores pairs of texts.
        device: Where to put them.
        prompt_names: Prompts of the model.

    Raises:
        FileNotFoundError: There is no such folder.
        ValueError: There is no such device or prompt.
    """
    if device is not None:
        checked_device(device)
    for each in (model, *others):
        if isinstance(each, str):
            check_model_path(each)
    if not isinstance(model, str):
        check_prompts(model, *prompt_names)


def check_prompts(model: Any, *prompt_names: str | None) -> None:
    """Check that a model has these prompts.

    Raises:
        ValueError: It does not.
    """
    for name in prompt_names:
        if name is not None and name not in model.prompts:
            known = ", ".join(map(repr, model.prompts)) or "none"
            raise ValueError(f"the model has no prompt named {name!r}; it has {known}. Give the prompt itself instead.")


def load_models(model: Any, cross_encoder: Any, device: str | None, *, progress: bool) -> tuple[Any, Any]:
    """Load the models that are given by name."""
    if isinstance(model, str):
        with working(f"loading {model}", shown=progress):
            model = load_model(model, device)
    if isinstance(cross_encoder, str):
        with working(f"loading {cross_encoder}", shown=progress):
            cross_encoder = load_model(cross_encoder, device, "CrossEncoder")
    return model, cross_encoder
