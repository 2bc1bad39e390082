"""Load embeddings from NumPy, safetensors or Parquet files, and check them before anything is computed."""

from __future__ import annotations

import lzma
import struct
import tokenize
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lookalike.data.table_files import TABLES
from lookalike.utils.imports import optional_import

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from lookalike.utils.arrays import Array


HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
DAMAGE = (
    ValueError,
    TypeError,
    OverflowError,
    RuntimeError,
    SyntaxError,
    tokenize.TokenError,
    zlib.error,
    lzma.LZMAError,
    struct.error,
)
CHECKED_ROWS = 1 << 14  # at a time, because a mapped file may not fit into memory


def load_embeddings(path: str | os.PathLike[str], *, min_rows: int = 2) -> Array:
    """Load embeddings as float32 `[n, dim]`.

    A `.npy` file of float32 is mapped, not read. If a `.npz`, `.safetensors` or `.parquet` file holds several arrays,
    name the right one after a colon: `vectors.npz:passages`.

    Args:
        path: The file, with or without the name of an array.
        min_rows: The fewest rows that the caller can use, such as k + 1 for k neighbours.

    Raises:
        FileNotFoundError: There is no such file.
        ImportError: The file is Parquet and pyarrow is not installed.
        ValueError: The file is of another kind, damaged or ambiguous, or the array is not two-dimensional, too short,
            not finite, all zeros, or one row repeated.
        TypeError: The array does not hold floats.

    Examples:
        >>> import tempfile, numpy as np
        >>> with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        ...     np.save(file.name, np.eye(3, 8, dtype=np.float16))
        ...     load_embeddings(file.name).shape
        (3, 8)
    """
    x = open_embeddings(path, min_rows=min_rows)
    _check_values(x, str(path))
    return x.astype(np.float32, copy=False)


def open_embeddings(path: str | os.PathLike[str], *, min_rows: int = 2) -> Array:
    """Open embeddings without looking at the values, as floats of any precision; a `.npy` file stays on disk.

    Raises:
        FileNotFoundError: There is no such file.
        ImportError: The file is Parquet and pyarrow is not installed.
        ValueError: The file is of another kind, damaged or ambiguous, or the array is not two-dimensional or too short.
        TypeError: The array does not hold floats.
    """
    file, name = split_name(Path(path))
    if not file.is_file():
        raise FileNotFoundError(f"{file}: there is no such file of embeddings.")
    if file.suffix not in READERS:
        raise ValueError(f"{file}: embeddings are read from {', '.join(READERS)} files; convert it with numpy.save.")
    try:
        x = READERS[file.suffix](file, name)
    except (OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{file} is damaged or of another kind ({error}); write it again.") from error
    if x.dtype.kind in "USO":
        raise TypeError(
            f"{path} holds text, not embeddings: embed it with a model first, as in "
            "numpy.save('embeddings.npy', model.encode(texts))."
        )
    if x.ndim != 2 or 0 in x.shape:
        raise ValueError(f"{path} must hold embeddings of the shape [n, dim], got {list(x.shape)}.")
    if x.dtype.kind != "f":
        raise TypeError(f"{path} must hold floats, got {x.dtype}; codes and labels are not embeddings.")
    if len(x) < min_rows:
        raise ValueError(too_few_rows(path, len(x), min_rows))
    return x


def too_few_rows(source: Any, rows: int, min_rows: int) -> str:
    """Return the sentence that says so; fewer than two rows have no neighbours, whatever k is."""
    advice = "give more rows" if min_rows <= 2 else "give more rows or a smaller k"
    return f"{source} has {rows} {'row' if rows == 1 else 'rows'} and at least {min_rows} are needed; {advice}."


def split_name(path: Path) -> tuple[Path, str | None]:
    """Split "a.npz:b" into a.npz and b, unless there is a file with a colon in its name."""
    stem, colon, name = path.name.rpartition(":")
    if colon and not path.exists() and Path(stem).suffix in READERS:
        return path.with_name(stem), name
    return path, None


def _read_npy(file: Path, _name: str | None) -> Array:
    if holds_objects(file):
        raise TypeError(
            f"{file} holds Python objects, which are never unpickled here; save floats of the shape [n, dim] with "
            "numpy.save."
        )
    with _damage_reported():
        array: Array = np.lib.format.open_memmap(file, mode="r")
    return array


def holds_objects(file: Path) -> bool:
    """Return whether a .npy file is an array of Python objects, which only pickle could read."""
    with file.open("rb") as opened:
        beginning = opened.read(256)
    return beginning.startswith(b"\x93NUMPY") and b"|O" in beginning.partition(b"}")[0]


def _read_npz(file: Path, name: str | None) -> Array:
    with _damage_reported():
        archive = zipfile.ZipFile(file)
    with archive:
        if name is None or not _is_matrix(archive, name):
            names = [each.removesuffix(".npy") for each in archive.namelist() if each.endswith(".npy")]
            name = _one_of(file, name, [each for each in names if _is_matrix(archive, each)])
        with _damage_reported(), archive.open(f"{name}.npy") as member:
            array: Array = np.lib.format.read_array(member, allow_pickle=False)
    return array


def _is_matrix(archive: zipfile.ZipFile, name: str) -> bool:
    """Return, from its header, whether an array in an archive could be embeddings."""
    if f"{name}.npy" not in archive.namelist():
        return False
    with _damage_reported(), archive.open(f"{name}.npy") as member:
        version = np.lib.format.read_magic(member)
        if version not in HEADERS:  # named fields
            return False
        shape, _, dtype = HEADERS[version](member)
    return len(shape) == 2 and dtype.kind == "f"


@contextmanager
def _damage_reported() -> Iterator[None]:
    """Turn whatever NumPy and zipfile raise on damaged or encrypted files into an OSError."""
    try:
        yield
    except DAMAGE as error:
        words = " ".join(map(str, error.args)).split()
        raise OSError(" ".join(words) or type(error).__name__) from error


def _read_safetensors(file: Path, name: str | None) -> Array:
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415 - loads torch, because NumPy has no bfloat16

    try:
        with safe_open(file, framework="pt") as tensors:
            wide = [each for each in tensors.keys() if len(tensors.get_slice(each).get_shape()) == 2]  # noqa: SIM118 - not a dictionary
            tensor = tensors.get_tensor(_one_of(file, name, wide))
    except SafetensorError as error:
        raise OSError(error) from error
    array: Array = (tensor.float() if tensor.is_floating_point() else tensor).numpy()
    return array


def _read_parquet(file: Path, name: str | None) -> Array:
    pa, pq = (optional_import(module, "reading parquet", TABLES) for module in ("pyarrow", "pyarrow.parquet"))
    try:
        chosen = parquet_column(file, pq.read_schema(file), name)
        column = pq.read_table(file, columns=[chosen]).column(0).combine_chunks()
    except pa.ArrowInvalid as error:
        raise OSError(error) from error
    values = column.flatten().to_numpy(zero_copy_only=False)
    if len(column) == 0 or len(values) % len(column):
        raise ValueError(f"{file}: the rows of a column of embeddings must have the same length.")
    array: Array = values.reshape(len(column), -1)
    return array


def parquet_column(file: Path, schema: Any, name: str | None) -> str:
    """Return the column of a Parquet file that holds embeddings: the given one, or the only one of lists.

    Raises:
        ValueError: There is none, or there are several.
    """
    types = optional_import("pyarrow", "reading parquet", TABLES).types
    lists = [
        field.name
        for field in schema
        if types.is_list(field.type) or types.is_large_list(field.type) or types.is_fixed_size_list(field.type)
    ]
    return _one_of(file, name, lists)


READERS: dict[str, Callable[[Path, str | None], Array]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".safetensors": _read_safetensors,
    ".parquet": _read_parquet,
}


def _one_of(file: Path, name: str | None, names: list[str]) -> str:
    """Return the name of the array to read: the given one, or the only one."""
    if name is not None and name in names:
        return name
    if name is None and len(names) == 1:
        return names[0]
    if not names:
        raise ValueError(f"{file} holds no two-dimensional array of floats.")
    wrong = "several arrays" if name is None else f"no array {name!r}"
    raise ValueError(f"{file} holds {wrong}: say which, as in {file.name}:{names[0]}; there are {', '.join(names)}.")


def _check_values(x: Array, path: str) -> None:
    constant = True
    for start in range(0, len(x), CHECKED_ROWS):
        rows = x[start : start + CHECKED_ROWS]
        finite = np.isfinite(rows).all(axis=1)
        if not finite.all():
            raise ValueError(
                f"{path} must hold finite embeddings, but row {start + int(np.argmin(finite))} has NaN or infinity; "
                "remove such rows or find their cause."
            )
        constant = constant and bool((rows == x[0]).all())
    if constant and not np.any(x[0]):
        raise ValueError(f"{path} holds nothing but zeros, which have no neighbours; embed the data again.")
    if constant:
        raise ValueError(f"{path} holds the same embedding {len(x)} times; the model has probably collapsed.")
