"""Open embeddings in one file or in shards, as rows that stay on disk."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from lookalike.data.embeddings import READERS, open_embeddings, parquet_column, split_name, too_few_rows
from lookalike.data.table_batches import BUFFER
from lookalike.data.table_files import TABLES, readable_parquet
from lookalike.mining.job import waiting_for
from lookalike.mining.rows import FileRows, ShardRows, rows_of
from lookalike.mining.shard_files import files_identity, find_files, is_pattern
from lookalike.utils.arrays import write_array
from lookalike.utils.files import remove_leftovers, replacing, room_for, writable
from lookalike.utils.imports import optional_import

if TYPE_CHECKING:
    from lookalike.mining.rows import Rows
    from lookalike.utils.arrays import Array

SHARDS = (".npy", ".parquet")
FORMAT = 1  # of converted files
ROWS = 8192  # to convert at a time


def open_shards(source: Any, *, cache: str | Path | None = None, min_rows: int = 1) -> Rows:
    """Open embeddings that are larger than memory.

    Rows of `.npy` files are read where they are. Parquet cannot be read row by row, so its columns are converted once,
    into files of floats in the `cache` folder, which are used again next time. Shards without rows are skipped.

    Args:
        source: A file as `open_embeddings` opens it, or `.npy` or `.parquet` shards: a list, a pattern, or a folder.
            Shards in Parquet have one column of lists.
        cache: A folder for converted files. Without it, a single Parquet file is read into memory.
        min_rows: The fewest rows that the caller can use.

    Raises:
        FileNotFoundError: There is no such file.
        ImportError: A file is Parquet and pyarrow is not installed.
        TypeError: A file does not hold floats.
        ValueError: A file is damaged, or holds something else than rows of one length, or shards differ in it.
        DiskFullError: There is no room for converted files.
        UnwritableError: The cache folder cannot be written to.

    Examples:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> for number in (1, 2):
        ...     np.save(folder / f"{number}.npy", np.full((number, 4), number, np.float32))
        >>> rows = open_shards(folder)
        >>> rows.shape, rows.read_range(0, 3)[:, 0].tolist()
        ((3, 4), [1.0, 2.0, 2.0])
    """
    several = isinstance(source, list | tuple) or Path(source).is_dir() or is_pattern(Path(source).expanduser())
    if not several:
        path, name = split_name(Path(source).expanduser())
        if path.suffix.lower() == ".parquet" and path.is_file() and cache is not None and not _is_empty(path):
            return _long_enough(_converted(path, Path(cache), name), source, min_rows)
        return rows_of(open_embeddings(Path(source).expanduser(), min_rows=min_rows))
    found = find_files(source, SHARDS, "embeddings")
    files = [file for file in found if not _is_empty(file)]
    if not files:
        raise ValueError(f"none of the files of embeddings has any rows; the first is {found[0]}.")
    converted = next((file for file in files if file.suffix.lower() == ".parquet"), None)
    if cache is None and converted is not None:
        raise ValueError(
            f"{converted}: shards in Parquet are converted first, beside the output: give one, or convert them to .npy."
        )
    shards = [
        _converted(file, Path(cache))
        if cache is not None and file.suffix.lower() == ".parquet"
        else rows_of(open_embeddings(file, min_rows=1))
        for file in files
    ]
    widths = [shard.shape[1] for shard in shards]
    for file, width in zip(files, widths, strict=True):
        if width != widths[0]:
            raise ValueError(
                f"{file} has the dimension {width}, but {files[0]} has {widths[0]}; shards must come from one model."
            )
    rows = shards[0] if len(shards) == 1 else ShardRows(shards)
    return _long_enough(rows, source, min_rows)


def embeddings_identity(source: Any) -> dict[str, Any]:
    """Describe the files of embeddings so that a resumed run can tell, without reading them, whether they changed."""
    several = isinstance(source, list | tuple)
    file, _ = (None, None) if several else split_name(Path(source).expanduser())
    if file is None or not file.is_file():
        return files_identity(find_files(source, SHARDS, "embeddings"))
    return files_identity(find_files(file, list(READERS), "embeddings"))


def _long_enough(rows: Rows, source: Any, min_rows: int) -> Rows:
    if rows.shape[0] < min_rows:
        raise ValueError(too_few_rows(source, rows.shape[0], min_rows))
    return rows


def _is_empty(file: Path) -> bool:
    """Return whether a shard is whole and has no rows."""
    if file.suffix.lower() == ".parquet":
        parquet = optional_import("pyarrow.parquet", "reading parquet", TABLES)
        with readable_parquet(file), parquet.ParquetFile(file) as opened:
            return bool(opened.metadata.num_rows == 0)
    try:
        with file.open("rb") as opened:
            if np.lib.format.read_magic(opened) != (1, 0):
                return False
            return np.lib.format.read_array_header_1_0(opened)[0][:1] == (0,)
    except ValueError:  # `open_embeddings` says what is wrong
        return False


def _converted(file: Path, cache: Path, name: str | None = None) -> FileRows:
    """Return the rows of a Parquet file, converted to floats the first time.

    A converted file is named after what it was converted from, and takes its name when it is complete. Processes that
    need it at once wait for the one that converts.
    """
    parquet = optional_import("pyarrow.parquet", "reading parquet", TABLES)
    with readable_parquet(file):
        opened = parquet.ParquetFile(file, buffer_size=BUFFER, pre_buffer=False)  # and not a whole row group at once
    with opened:
        column = parquet_column(file, opened.schema_arrow, name)
        about = [FORMAT, str(file.resolve()), files_identity([file]), column]
        place = cache / f"{file.stem}-{hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]}.floats.npy"
        if (there := _read_back(place)) is not None:
            return there
        with writable(cache):
            cache.mkdir(parents=True, exist_ok=True)
        with waiting_for(cache / "converting"):  # shards that start together must not clear each other's files
            if (there := _read_back(place)) is not None:
                return there
            remove_leftovers(place)
            with (
                room_for("converted embeddings", f"make room in {cache} and run it again"),
                replacing(place) as temporary,
                temporary.open("wb") as out,
            ):
                _convert(file, opened, column, out)
    if (there := _read_back(place)) is None:
        raise RuntimeError(f"{place} cannot be read back; check the disk.")
    return there


def _read_back(place: Path) -> FileRows | None:
    """Return the rows of a converted file; None if it is missing or was truncated."""
    try:
        rows = rows_of(np.load(place, mmap_mode="r"))
    except (OSError, ValueError, EOFError):
        return None
    return rows if isinstance(rows, FileRows) else None


def _convert(file: Path, opened: Any, column: str, out: BinaryIO) -> None:
    """Write the rows of a column behind the header of a .npy file."""
    shape: tuple[int, int] = (opened.metadata.num_rows, 0)
    dtype, first = np.dtype(np.float32), 0
    batches = opened.iter_batches(batch_size=ROWS, columns=[column])
    while True:
        with readable_parquet(file):
            batch = next(batches, None)
        if batch is None:
            return
        rows = _values(file, batch.column(0), first)
        if first == 0:
            shape, dtype = (shape[0], rows.shape[1]), rows.dtype
            header = {"shape": shape, "fortran_order": False, "descr": np.lib.format.dtype_to_descr(dtype)}
            np.lib.format.write_array_header_1_0(out, header)
        if rows.shape[1] != shape[1]:
            raise ValueError(f"{file}: the rows of a column of embeddings must have the same length.")
        write_array(out, rows.astype(dtype, copy=False))
        first += len(rows)


def _values(file: Path, column: Any, first: int) -> Array:
    """Return a part of a column as floats [n, dim]: float16 as they are, wider ones as float32."""
    if column.null_count:
        missing = first + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise ValueError(f"{file} must hold one embedding per row, but row {missing} is missing (null).")
    values = column.flatten()
    compute = optional_import("pyarrow.compute", "reading parquet", TABLES)
    lengths = np.unique(compute.list_value_length(column).to_numpy(zero_copy_only=False))
    if len(lengths) != 1 or not lengths[0]:
        raise ValueError(f"{file}: the rows of a column of embeddings must have the same length.")
    if values.null_count:
        raise ValueError(f"{file} must hold finite embeddings, but one of the rows from {first} on has a null in it.")
    array: Array = values.to_numpy(zero_copy_only=False)
    if array.dtype.kind != "f":
        raise TypeError(f"{file} must hold floats, got {array.dtype}; codes and labels are not embeddings.")
    dtype = np.float16 if array.dtype == np.float16 else np.float32
    return array.astype(dtype, copy=False).reshape(len(column), -1)
