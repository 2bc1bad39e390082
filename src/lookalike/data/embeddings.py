"""Embeddings from a file: NumPy, safetensors or parquet, checked before anybody computes with them."""

from __future__ import annotations

import lzma
import struct
import tokenize
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

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
CHECKED_ROWS = 1 << 14  # at a time, so that a mapped file need not fit into memory


def load_embeddings(path: str | os.PathLike[str], *, min_rows: int = 2) -> Array:
    """Read embeddings as float32 `[n, dim]`.

    A `.npy` of float32 is mapped, not read. Where a `.npz`, `.safetensors` or `.parquet` file holds several arrays, the
    name of the right one follows the path after a colon: `vectors.npz:passages`.

    Args:
        path: The file, with or without a name.
        min_rows: The fewest rows that make sense for what is to be done, such as one more than neighbours asked for.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is of another kind, damaged, ambiguous, not two-dimensional, too short or not finite, or all of
            its rows are zero or the same.
        TypeError: It does not hold floats.

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
    """The same without looking at the values, as floats of any kind: a `.npy` stays on disk, however large.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is of another kind, damaged, ambiguous, not two-dimensional or too short.
        TypeError: It does not hold floats.
    """
    file, name = _split(Path(path))
    if not file.is_file():
        raise FileNotFoundError(f"{file}: there is no such file of embeddings.")
    if file.suffix not in READERS:
        raise ValueError(f"{file}: embeddings are read from {', '.join(READERS)} files; convert it with numpy.save.")
    try:
        x = READERS[file.suffix](file, name)
    except (OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{file} is damaged or of another kind ({error}); write it anew.") from error
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
        raise ValueError(f"{path} has {len(x)} rows and at least {min_rows} are needed; give more rows or a smaller k.")
    return x


def _split(path: Path) -> tuple[Path, str | None]:
    """ "a.npz:b" -> a.npz, b; a file whose name really has a colon is left alone."""
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
    """Say whether a .npy file is an array of Python objects, which only pickle could read."""
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
    """Say whether an array of an archive could be embeddings, from its header alone."""
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
    """Raise an OSError for whatever NumPy and zipfile raise on damaged or encrypted files."""
    try:
        yield
    except DAMAGE as error:
        words = " ".join(map(str, error.args)).split()
        raise OSError(" ".join(words) or type(error).__name__) from error


def _read_safetensors(file: Path, name: str | None) -> Array:
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415 - loads torch, because NumPy has no bfloat16

    try:
        with safe_open(file, framework="pt") as tensors:
            wide = [each for each in tensors.keys() if len(tensors.get_slice(each).get_shape()) == 2]  # noqa: SIM118
            tensor = tensors.get_tensor(_one_of(file, name, wide))
    except SafetensorError as error:
        raise OSError(error) from error
    array: Array = (tensor.float() if tensor.is_floating_point() else tensor).numpy()
    return array


def _read_parquet(file: Path, name: str | None) -> Array:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra of the user's
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError:
        raise ValueError(f"{file} is a parquet file, which takes pyarrow to read: pip install pyarrow.") from None
    try:
        schema = pq.read_schema(file)
        lists = [
            field.name for field in schema if pa.types.is_list(field.type) or pa.types.is_fixed_size_list(field.type)
        ]
        column = pq.read_table(file, columns=[_one_of(file, name, lists)]).column(0).combine_chunks()
    except pa.ArrowInvalid as error:
        raise OSError(error) from error
    values = column.flatten().to_numpy(zero_copy_only=False)
    if len(column) == 0 or len(values) % len(column):
        raise ValueError(f"{file}: the rows of a column of embeddings must have the same length.")
    array: Array = values.reshape(len(column), -1)
    return array


READERS: dict[str, Callable[[Path, str | None], Array]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".safetensors": _read_safetensors,
    ".parquet": _read_parquet,
}


def _one_of(file: Path, name: str | None, names: list[str]) -> str:
    """The array that is meant."""
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
                "remove such rows or find out where they come from."
            )
        constant = constant and bool((rows == x[0]).all())
    if constant and not np.any(x[0]):
        raise ValueError(f"{path} holds nothing but zeros, which have no neighbours; embed the data anew.")
    if constant:
        raise ValueError(f"{path} holds the same embedding {len(x)} times; a model that has collapsed gives those.")
