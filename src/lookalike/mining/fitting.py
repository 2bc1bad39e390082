"""A sample of the references -> what codes of several bits mean: fitted once for all processes of a job, and kept."""

from __future__ import annotations

import io
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lookalike.hashing import ScalarHasher
from lookalike.hashing.moments import Moments, checked_sums
from lookalike.mining import SAMPLED_TEXTS
from lookalike.mining.cells import CHECKSUM, Cell, is_whole, write_cell
from lookalike.mining.encoding import checksum
from lookalike.mining.job import waiting_for
from lookalike.mining.run import SAMPLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from torch import Tensor

    from lookalike.mining.embeddings import NormalizedRows
    from lookalike.mining.encoding import Encoder, Prompt
    from lookalike.mining.text_files import TextFile

TRUSTED = 4  # rows per dimension that a sample counts for, at least
STATISTICS = "statistics"  # how the names of files begin


@dataclass(frozen=True)
class Fitting:
    """Work of a single cell, which any process can do: it comes before all others, because codes depend on it.

    Statistics are computed once and never again where their file is: a model may return other last digits next time,
    and codes of different statistics cannot be compared. They serve codes of any length.

    Args:
        folder: Where to keep what was fitted.
        name: Tells the sample and its model from others.
        bits: Length of the codes.
        number: Number of rows in the sample.
        sample: Returns the embeddings of the sample, [n, dim].
    """

    folder: Path
    name: str
    bits: int
    number: int
    sample: Callable[[Callable[[float], None]], Tensor]

    @property
    def finished(self) -> Path:
        """Where a finished cell leaves its file."""
        return self.folder

    @property
    def cell(self) -> Cell:
        """The one cell: to encode the sample."""
        return Cell("encode", "reference", range(self.number))

    def lacks(self, cell: Cell) -> bool:  # noqa: ARG002 - there is only one
        """Return whether the hasher is not there."""
        return self.fitted() is None

    def do(self, cell: Cell, advance: Callable[[float], None] = lambda _: None) -> None:
        """Fit the hasher, unless another process has done so meanwhile."""
        with waiting_for(self.folder / f"{STATISTICS}-lock"):
            if self.lacks(cell):
                moments = self._moments(advance)
                # A hasher does not trust a few rows, which are usually followed by others; these are all, or enough.
                moments.sums *= max(1.0, TRUSTED * moments.dim / moments.count)
                with _on_one_thread():
                    hasher = ScalarHasher.of_moments(moments, self.bits)
                state = {**hasher.state_dict(), "sums": Moments(0).sums}  # in a file of their own
                write_cell(self._path(f"{self.bits}-bits"), _saved(state))

    def fitted(self) -> ScalarHasher | None:
        """Return the hasher; None if it is not there."""
        state = _read(self._path(f"{self.bits}-bits"))
        try:
            dim = state["encoder"]["rows"].shape[1]
            hasher = ScalarHasher(dim, self.bits)
            hasher.load_state_dict({**state, "sums": Moments(dim).sums})
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            return None
        return hasher

    def _moments(self, advance: Callable[[float], None]) -> Moments:
        path = self._path("moments")
        there = _read(path)
        sums = there.get("sums") if isinstance(there, dict) else None
        if sums is not None and checked_sums(sums, len(sums) - 1):
            return Moments.of(sums)
        x = self.sample(advance).cpu()
        moments = Moments(x.shape[1])
        with _on_one_thread():
            moments.add(x)
        write_cell(path, _saved({"sums": moments.sums}))
        return moments

    def _path(self, what: str) -> Path:
        return self.folder / f"{STATISTICS}-{self.name}-{what}"


def text_fitting(folder: Path, texts: TextFile, encoder: Encoder, prompt: Prompt, bits: int) -> Fitting:
    """Fit to texts, evenly spaced, that the model encodes for this."""
    ids = _spaced(len(texts), SAMPLED_TEXTS)
    name = checksum(["document", encoder.fingerprint, repr(prompt), *texts.take(ids)])[:24]
    return Fitting(folder, name, bits, len(ids), partial(_encoded, texts, ids, encoder, prompt))


def row_fitting(folder: Path, rows: NormalizedRows, bits: int) -> Fitting:
    """Fit to rows, evenly spaced."""
    ids = _spaced(rows.shape[0], SAMPLE)
    return Fitting(folder, checksum([rows.identity])[:24], bits, len(ids), partial(_finite, rows, ids))


def _encoded(texts: TextFile, ids: Any, encoder: Encoder, prompt: Prompt, advance: Callable[[float], None]) -> Tensor:
    return encoder.encode_finite("document", texts.take(ids), prompt, advance)


def _finite(rows: NormalizedRows, ids: Any, advance: Callable[[float], None]) -> Tensor:
    """Read rows without those that are not finite, which are found, and named, when they are hashed."""
    x = rows.read(ids)
    finite = torch.isfinite(x).all(1)
    if not bool(finite.any()):
        raise ValueError(rows.name_row(int(ids[0])))
    advance(len(x))
    return x[finite]


def _spaced(n: int, most: int) -> Any:
    return np.linspace(0, n - 1, min(most, n)).astype(np.int64)


@contextmanager
def _on_one_thread() -> Iterator[None]:
    """Compute on one thread: sums, and what follows from them, are then the same on any number of processors."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _saved(state: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def _read(path: Path) -> Any:
    """Read what `_saved` wrote; None if it is missing or damaged."""
    if not is_whole(path):
        return None
    try:
        return torch.load(io.BytesIO(path.read_bytes()[:-CHECKSUM]), weights_only=True)
    except (OSError, RuntimeError, ValueError):
        return None
