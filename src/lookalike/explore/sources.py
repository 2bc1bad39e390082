"""RUN or FILE -> what the page explores: content, codes and, for a run, batches."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import normalize

from lookalike.data.embeddings import READERS, load_embeddings
from lookalike.data.labels import load_named_labels
from lookalike.data.readers.folder import SUFFIXES as IMAGES
from lookalike.data.table_files import SUFFIXES as TABLES
from lookalike.data.table_files import read_lines, read_table
from lookalike.data.text_pairs import text_problem
from lookalike.explore.content import Content
from lookalike.explore.neighbours import Neighbours
from lookalike.hashing import SignHasher
from lookalike.utils.progress import working

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from torch import Tensor

    from lookalike.explore.mates import Mates
    from lookalike.utils.arrays import Array

BITS = 512
TEXT_COLUMNS = ("text", "texts", "sentence", "title")


@dataclass(frozen=True, kw_only=True)
class Explored:
    """Everything that the page shows."""

    title: str
    content: Content
    neighbours: Neighbours
    marks: Path
    """The file of marks, unless another is chosen."""
    checksum: str | None
    use: str
    """The command that uses the marks, up to their file."""
    compose: Callable[[], Mates] | None = None
    """Composes the batches of an epoch, which takes a while for a large data set."""
    mates_note: str = ""
    """What these batches are, in a sentence."""
    details: list[str] = field(default_factory=list)


def explored_file(
    path: Path,
    *,
    labels: Path | None = None,
    texts: Path | None = None,
    images: Path | None = None,
    bits: int = BITS,
    progress: bool = False,
) -> Explored:
    """Read a file of embeddings, hash them, and find what to show of each.

    Args:
        path: Embeddings: .npy, .npz, .safetensors or .parquet.
        labels: Their labels: a .npy file, or one label per line.
        texts: Their texts: one per line, or a table with a column `text`.
        images: Their images: a folder, in the order of the names, or a file with one path per line.
        bits: Length of the codes.
        progress: Show what takes long.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is not what it should be, or two do not fit together.
    """
    file = path.with_name(path.name.split(":")[0]) if not path.exists() else path
    if file.suffix in (".jsonl", ".json", ".csv", ".tsv", ".txt"):
        raise ValueError(
            f"{file} holds texts, and the page compares embeddings: give a run, or embeddings "
            f"({', '.join(READERS)}) with texts={file.name}."
        )
    x = load_embeddings(path)
    n = len(x)
    numbers, names = (None, None) if labels is None else load_named_labels(labels, n)
    if texts is not None and images is not None:
        raise ValueError("texts= and images= both say what to show of a sample; give one of them.")
    items: Sequence[Any] = [None] * n
    if texts is not None:
        items = _read_texts(texts, n)
    elif images is not None:
        items = _list_images(images, n)
    with working(f"hashing {n:,} embeddings", shown=progress):
        codes = encode(_unit_rows(x, path), bits)
    content = Content(n, {"sample": lambda ids: [items[i] for i in ids.tolist()]}, numbers, names)
    own = np.arange(n) if numbers is None else numbers
    command = ["lookalike", "mine", "--embeddings", str(path), *(["--labels", str(labels)] if labels else [])]
    return Explored(
        title=file.name,
        content=content,
        neighbours=Neighbours(codes, None, own),
        marks=file.with_name(f"{file.name}.same.jsonl"),
        checksum=None,
        use=shlex.join([*command, "--output", "negatives.npy", "--same"]),
    )


def encode(x: Tensor, bits: int, seed: int = 0) -> Tensor:
    """Hash one side of a data set, less its mean."""
    hasher = SignHasher(x.shape[1], bits, seed=seed)
    hasher.update_mean(x)
    return hasher.encode(x)


def _unit_rows(x: Array, path: Path) -> Tensor:
    rows = torch.from_numpy(np.array(x, np.float32))
    norms = rows.norm(dim=1)
    if bool((norms == 0).any()):
        raise ValueError(
            f"{path}, row {int((norms == 0).nonzero()[0])} is zero, which has no neighbours; leave it out."
        )
    return normalize(rows, dim=1)


def _read_texts(path: Path, n: int) -> Sequence[str]:
    """Read one text per embedding.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It holds another number of texts, or something else.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file of texts.")
    values: Sequence[Any]
    if path.suffix.lower() in TABLES:
        table = read_table(path)
        named = [name for name in table.names if name.lower() in TEXT_COLUMNS]
        if not named and len(table.names) != 1:
            raise ValueError(f"{path} has no column called text, but {', '.join(table.names)}; rename the right one.")
        values = table.values((named or list(table.names))[0])
        for row, value in enumerate(values):
            if problem := text_problem(value):
                raise ValueError(f"{table.place(row)}: the text {problem}.")
    else:
        values = [line for _, line in read_lines(path)]
    if len(values) != n:
        raise ValueError(f"{path} must hold one text per embedding, {n}, got {len(values)}.")
    return values


def _list_images(path: Path, n: int) -> list[Path]:
    """List one image file per embedding.

    Raises:
        FileNotFoundError: There is no such folder or list.
        ValueError: There is another number of images.
    """
    if path.is_dir():
        found = sorted(each for each in path.rglob("*") if each.suffix.lower() in IMAGES and each.is_file())
    elif path.is_file():
        found = [path.parent / line.strip() for _, line in read_lines(path)]
    else:
        raise FileNotFoundError(f"{path}: there is no such folder of images, and no list of their paths.")
    if len(found) != n:
        raise ValueError(f"{path} must hold one image per embedding, {n}, got {len(found)}.")
    return found
