"""Pages of codes: parts of a reference that is larger than memory, read from a file one after the other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lookalike.utils.checks import checked_bits, checked_integer, checked_positive
from lookalike.utils.tensors import checked_codes, checked_labels

if TYPE_CHECKING:
    import os
    from collections.abc import Generator, Iterable, Iterator
    from typing import BinaryIO

PAGE_BYTES = {"cuda": 1 << 28, "cpu": 1 << 24}  # per page, by default
ALIGNED = 512  # pages of a multiple of this many rows need no padding


class Page(NamedTuple):
    """Codes of consecutive ids."""

    first: int  # id of the first code
    codes: Any  # uint8 [m, bytes], a tensor on any device or a NumPy array
    labels: Any = None  # integers [m]


class CodePages:
    """Read the codes of a file page by page, as often as it is iterated over.

    Two buffers take turns, so a page is valid until the one after next is read; `streamed_topk` needs no more. The file
    is read rather than mapped, because mapped pages count as memory of the process.

    Args:
        path: An .npy file of codes, uint8 `[n, bits / 8]`, or a file that holds nothing but codes.
        bits: Length of the codes; an .npy file knows its own.
        start: Row of the file to begin at.
        stop: Row to end before; by default the end of the file.
        first: Id of the first row that is read; by default `start`.
        labels: Integers, one for each row that is read.
        page_rows: Rows per page; by default 256 MiB of codes on a GPU and 16 MiB on a CPU.
        device: Where the codes will be searched: for a GPU, buffers are page-locked.

    Raises:
        ValueError: The file does not hold such codes, or has fewer rows.

    Examples:
        >>> import tempfile, numpy as np
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     np.arange(10, dtype=np.uint8).tofile(file.name)
        ...     pages = CodePages(file.name, bits=16, start=1, page_rows=3)
        ...     [(page.first, page.codes.tolist()) for page in pages]
        [(1, [[2, 3], [4, 5], [6, 7]]), (4, [[8, 9]])]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        bits: int | None = None,
        *,
        start: int = 0,
        stop: int | None = None,
        first: int | None = None,
        labels: Any = None,
        page_rows: int | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        self.path = Path(path)
        rows, self.width, self._offset = _npy_layout(self.path, bits) or _raw_layout(self.path, bits)
        self.start = checked_integer("start", start)
        self.stop = rows if stop is None else checked_integer("stop", stop)
        if not self.start <= self.stop <= rows:
            raise ValueError(f"{path} has {rows} codes; rows {start} to {self.stop} are not a part of them.")
        self.first = self.start if first is None else checked_integer("first", first)
        if labels is not None and len(labels) != len(self):
            raise ValueError(f"labels must have one label per row that is read, {len(self)}, got {len(labels)}.")
        self.labels = labels
        self.device = torch.device(device)
        self.page_rows = default_rows(self.width, self.device)
        if page_rows is not None:
            self.page_rows = checked_positive("page_rows", page_rows)

    def __len__(self) -> int:
        """Return the number of codes that are read."""
        return self.stop - self.start

    def __iter__(self) -> Iterator[Page]:
        step, locked = min(self.page_rows, max(1, len(self))), self.device.type == "cuda"
        number = min(2, -(-len(self) // step))
        buffers = [torch.empty(step, self.width, dtype=torch.uint8, pin_memory=locked) for _ in range(number)]
        with self.path.open("rb", buffering=0) as file:
            file.seek(self._offset + self.start * self.width)
            for begin in range(0, len(self), step):
                codes = buffers[begin // step % 2][: len(self) - begin]
                self._fill(file, codes)
                labels = None if self.labels is None else self.labels[begin : begin + len(codes)]
                yield Page(self.first + begin, codes, labels)

    def _fill(self, file: BinaryIO, codes: Tensor) -> None:
        left = codes.numpy().data.cast("B")
        while len(left):
            read = file.readinto(left)  # type: ignore[attr-defined]
            if not read:
                raise ValueError(f"{self.path} became shorter while it was read; write it again and start anew.")
            left = left[read:]


def default_rows(width: int, device: torch.device) -> int:
    """Return how many codes of `width` bytes make a page by default."""
    return max(ALIGNED, PAGE_BYTES["cuda" if device.type == "cuda" else "cpu"] // width // ALIGNED * ALIGNED)


def read_ahead(pages: Iterable[Page], width: int, device: torch.device) -> Generator[Page, None, None]:
    """Yield checked pages on `device`; a thread reads the next one meanwhile.

    The page after that is not read before the caller asks for the next one, so two are in memory if the caller has let
    go of a page by then. The thread ends with the iterator, which the caller closes.

    Raises:
        TypeError: Codes are not uint8, or labels are not integers.
        ValueError: Pages are not in ascending order of id, or shapes do not fit.
    """
    make_stream: Any = torch.cuda.Stream
    stream = make_stream(device) if device.type == "cuda" else None
    source, end = iter(pages), 0

    def read() -> Page | None:
        nonlocal end
        page = next(source, None)
        if page is None:
            return None
        page = _checked_page(page, width, end)
        end = page.first + len(page.codes)
        with nullcontext() if stream is None else torch.cuda.stream(stream):
            codes = page.codes.to(device, non_blocking=True)
            labels = None if page.labels is None else page.labels.to(device, non_blocking=True)
        if stream is not None:
            stream.synchronize()
        return Page(page.first, codes, labels)

    with ThreadPoolExecutor(1, "lookalike-pages") as reader:
        ahead = reader.submit(read)
        while (page := ahead.result()) is not None:
            ahead = reader.submit(read)
            yield page


def _checked_page(page: Page, width: int, end: int) -> Page:
    first = checked_integer("first of a page", page.first)
    name = f"the page from id {first}"
    codes = checked_codes(f"codes of {name}", page.codes)
    if codes.shape[1] != width:
        raise ValueError(f"{name} has codes of {codes.shape[1] * 8} bits, and the queries have {width * 8} bits.")
    if first < end:
        raise ValueError(f"pages must come in ascending order of id: {name} follows one that ends with id {end - 1}.")
    labels = None if page.labels is None else checked_labels(f"labels of {name}", page.labels, len(codes))
    return Page(first, codes, labels)


def _npy_layout(path: Path, bits: int | None) -> tuple[int, int, int] | None:
    """Return rows, bytes per row and the offset of the first row of an .npy file; None for other files."""
    read = np.lib.format
    with path.open("rb") as file:
        if file.read(len(read.MAGIC_PREFIX)) != read.MAGIC_PREFIX:
            return None
        file.seek(0)
        header = read.read_array_header_1_0 if read.read_magic(file) == (1, 0) else read.read_array_header_2_0
        shape, fortran, dtype = header(file)
        offset = file.tell()
    if dtype != np.uint8 or len(shape) != 2 or fortran or shape[1] == 0:
        raise ValueError(f"{path} must hold codes, uint8 [n, bits / 8] row by row, got {dtype} {list(shape)}.")
    if bits is not None and checked_bits(bits) != 8 * shape[1]:
        raise ValueError(f"{path} holds codes of {8 * shape[1]} bits, not {bits}.")
    missing = offset + shape[0] * shape[1] - path.stat().st_size
    if missing > 0:
        raise ValueError(f"{path} is truncated: {missing} bytes are missing at its end; write it again.")
    return shape[0], shape[1], offset


def _raw_layout(path: Path, bits: int | None) -> tuple[int, int, int]:
    if bits is None:
        raise ValueError(f"{path} is not an .npy file: bits, the length of its codes, must be given.")
    width, size = checked_bits(bits) // 8, path.stat().st_size
    if size % width:
        raise ValueError(f"{path} has {size} bytes, which is no multiple of a code of {bits} bits; is it truncated?")
    return size // width, width, 0
