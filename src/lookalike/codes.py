"""A table of the codes of a training set by sample id: write, save, merge, truncate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lookalike.hashing import ScalarCodes, Scheme
from lookalike.utils.checks import checked_bits, checked_positive
from lookalike.utils.files import replacing
from lookalike.utils.tensors import checked_codes, checked_integers

if TYPE_CHECKING:
    import os

FORMAT = "lookalike.CodeTable"
VERSION = "1"
SCHEME = ("levels", "factors", "offsets")  # the tensors of a scheme; its plain values are among the metadata


class CodeTable:
    """The codes of n samples, and which samples have one.

    Memory grows with n by bits / 8 bytes of `codes` and 1 / 8 byte of `marks` per sample: bit i % 8 of byte i // 8 is
    set once sample i has been written.

    Args:
        n: Number of samples; ids are 0 to n - 1.
        bits: Length of the codes, a multiple of 8.
        scheme: What codes of several bits mean, `ScalarHasher.scheme`; None for sign codes. The table keeps it, and
            takes no other codes.

    Raises:
        ValueError: n is not positive, `bits` is not a multiple of 8, or the scheme has another length.

    Examples:
        >>> import torch
        >>> table = CodeTable(n=4, bits=16)
        >>> table.write([2, 0], torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8))
        >>> table.codes.tolist(), table.seen.tolist()
        ([[3, 4], [0, 0], [1, 2], [0, 0]], [True, False, True, False])

        Codes of several bits per dimension come with what they mean:

        >>> from lookalike import ScalarHasher
        >>> x = torch.randn(100, 16)
        >>> hasher = ScalarHasher(dim=16, bits=64)
        >>> hasher.update(x)
        >>> table = CodeTable(n=100, bits=64, scheme=hasher.scheme)
        >>> table.write(torch.arange(50), hasher.encode(x[:50]))
        >>> table.scalar[:50]  # for scalar_topk, hard_negatives and the like
        ScalarCodes(50 codes of 64 bits)
    """

    def __init__(self, n: int, bits: int, *, scheme: Scheme | None = None) -> None:
        if scheme is not None and scheme.bits != bits:
            raise ValueError(f"codes of this scheme have {scheme.bits} bits, got bits={bits}.")
        self.scheme = None if scheme is None else scheme.to("cpu")
        self.codes = torch.zeros(checked_positive("n", n), checked_bits(bits) // 8, dtype=torch.uint8)
        self.marks = torch.zeros((n + 7) // 8, dtype=torch.uint8)

    def __len__(self) -> int:
        return len(self.codes)

    def __repr__(self) -> str:
        kind = "" if self.scheme is None else ', code="scalar"'
        return f"CodeTable(n={len(self)}, bits={self.bits}{kind}, seen={self.num_seen})"

    @property
    def bits(self) -> int:
        """Length of the codes."""
        return self.codes.shape[1] * 8

    @property
    def scalar(self) -> ScalarCodes:
        """All codes with what they mean, which share the table's memory; rows that are not `seen` mean nothing.

        Raises:
            ValueError: The table holds sign codes.
        """
        if self.scheme is None:
            raise ValueError("this table holds sign codes: use table.codes.")
        return ScalarCodes(self.codes, self.scheme)

    @property
    def seen(self) -> Tensor:
        """Whether each sample has a code, bool `[n]`; computed on each call."""
        return marked(self.marks)[: len(self)]

    @property
    def num_seen(self) -> int:
        """Number of samples that have a code."""
        return int(self.seen.sum())

    @property
    def nbytes(self) -> int:
        """Size of the table in memory."""
        return self.codes.nbytes + self.marks.nbytes

    def write(self, ids: Any, codes: Any) -> None:
        """Set the codes of some samples, replacing older ones. An id may repeat only with the same code.

        Args:
            ids: Integers `[m]`.
            codes: uint8 `[m, bits / 8]`; `ScalarCodes` if the table has a scheme.

        Raises:
            TypeError: Ids are not integers, or codes are not of the table's kind.
            ValueError: An id is out of range or occurs twice with different codes, shapes do not fit, or codes were
                made with other statistics than the table's.
        """
        ids, codes = checked_integers("ids", ids).cpu(), self._packed(codes).cpu()
        if codes.shape != (len(ids), self.codes.shape[1]):
            raise ValueError(
                f"codes must have the shape [{len(ids)}, {self.codes.shape[1]}] (one code of {self.bits} bits per id), "
                f"got {list(codes.shape)}."
            )
        if len(ids) == 0:
            return
        lowest, highest = int(ids.min()), int(ids.max())
        if lowest < 0 or highest >= len(self):
            raise ValueError(
                f"ids must be between 0 and {len(self) - 1}, got {lowest if lowest < 0 else highest}; "
                "the table holds one code per sample of the training set."
            )
        _refuse_contradictions(ids, codes)
        self.put(ids, codes)

    def _packed(self, codes: Any) -> Tensor:
        """Return the bytes of codes of the table's kind and meaning."""
        if self.scheme is None:
            if isinstance(codes, ScalarCodes):
                raise TypeError(
                    "codes are of several bits per dimension, but the table is for sign codes: make it with "
                    "CodeTable(n, bits, scheme=hasher.scheme)."
                )
            return checked_codes("codes", codes)
        if not isinstance(codes, ScalarCodes):
            raise TypeError(
                f"the table is for codes of several bits per dimension: codes must be ScalarCodes, which "
                f"ScalarHasher.encode makes, got {type(codes).__name__}."
            )
        if codes.scheme.identity != self.scheme.identity:
            raise ValueError(
                "codes were made with other statistics than those in the table and mean different things: encode all "
                "of them with the same ScalarHasher, without a fit in between."
            )
        return codes.packed

    def has(self, ids: Tensor) -> Tensor:
        """Return whether each of some samples, by id, has a code, bool `[len(ids)]`."""
        numbers = ids.numpy()
        return torch.from_numpy((self.marks.numpy()[numbers >> 3] >> (numbers & 7) & 1).astype(np.bool_))

    def put(self, ids: Tensor, codes: Tensor) -> None:
        """Write without checks, for training steps; if an id repeats, its last code wins."""
        self.codes.numpy()[ids.numpy()] = codes.numpy()  # a fraction of the overhead of torch's indexing
        mark(self.marks, ids)

    def drop(self, ids: Tensor) -> None:
        """Forget the codes of some samples."""
        self.codes[ids] = 0
        marks, numbers = self.marks.numpy(), ids.numpy()
        np.bitwise_and.at(marks, numbers >> 3, ~(1 << (numbers & 7)).astype(np.uint8))

    def truncate(self, bits: int) -> CodeTable:
        """Return a table of the first `bits` bits of each code; sign codes are nested, so these are valid codes.

        Raises:
            ValueError: `bits` is not a multiple of 8, or more than the codes have; or they are not sign codes.
        """
        if self.scheme is not None:
            raise ValueError(
                f"codes of several bits per dimension are not nested, so a prefix means nothing: hash the embeddings "
                f"again with ScalarHasher(dim, {bits})."
            )
        if checked_bits(bits) > self.bits:
            raise ValueError(f"cannot truncate codes of {self.bits} bits to {bits} bits; hash with more bits instead.")
        return self._of(self.codes[:, : bits // 8].clone(), self.marks.clone())

    def merge(self, other: CodeTable) -> None:
        """Copy every code that `other` has, as ranks do with each other's tables.

        Raises:
            ValueError: The tables differ in size or bits, or in what their codes mean.
        """
        if other.codes.shape != self.codes.shape:
            raise ValueError(
                f"cannot merge tables of different size: {len(self)} samples of {self.bits} bits here, "
                f"{len(other)} of {other.bits} there."
            )
        if _identity(other) != _identity(self):
            raise ValueError(
                "cannot merge tables whose codes mean different things: they are of different kinds, or were made with "
                "different statistics."
            )
        self.codes[other.seen] = other.codes[other.seen]
        self.marks |= other.marks

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file. A crash while saving leaves the old file intact."""
        path = Path(path)
        metadata = {"format": FORMAT, "version": VERSION, "n": str(len(self))}
        tensors = {"codes": self.codes, "marks": self.marks}
        if self.scheme is not None:
            state = self.scheme.state_dict()
            tensors |= {name: state.pop(name) for name in SCHEME}
            metadata["scheme"] = json.dumps(state)
        with replacing(path) as temporary:
            save_file(tensors, temporary, metadata)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CodeTable:
        """Read a table that `save` wrote.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: The file is truncated, is not a code table, or has another version.
        """
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                if metadata.get("format") != FORMAT:
                    raise ValueError(f"{path} is a safetensors file but not a code table; CodeTable.save writes those.")
                if metadata.get("version") != VERSION:
                    raise ValueError(
                        f"{path} is a code table of version {metadata.get('version')}; this lookalike reads version "
                        f"{VERSION}: upgrade lookalike, or save the table again with a version that reads it."
                    )
                scheme = None
                if "scheme" in metadata:
                    tensors = {name: file.get_tensor(name) for name in SCHEME}
                    scheme = _scheme_of(metadata["scheme"], tensors)
                table = cls._of(file.get_tensor("codes"), file.get_tensor("marks"), scheme)
            if not _fits_together(table):
                raise ValueError(f"{path} is damaged: its parts do not fit together; restore it or write it again.")
            return table
        except SafetensorError as error:
            raise ValueError(
                f"{path} is truncated or not a safetensors file ({error}); restore it or hash the embeddings again."
            ) from error

    @classmethod
    def _of(cls, codes: Tensor, marks: Tensor, scheme: Scheme | None = None) -> CodeTable:
        table = cls.__new__(cls)
        table.codes, table.marks, table.scheme = codes, marks, scheme
        return table


def _scheme_of(values: str, tensors: dict[str, Tensor]) -> Scheme:
    """Make the scheme of a file from its plain values and its tensors."""
    try:
        state = json.loads(values)
    except json.JSONDecodeError:
        state = None
    return Scheme.from_state({**(state if isinstance(state, dict) else {}), **tensors})


def _fits_together(table: CodeTable) -> bool:
    codes, marks, scheme = table.codes, table.marks, table.scheme
    is_packed = codes.dtype == marks.dtype == torch.uint8 and codes.ndim == 2 and marks.ndim == 1
    return is_packed and len(marks) == (len(codes) + 7) // 8 and (scheme is None or scheme.bits == table.bits)


def _identity(table: CodeTable) -> str | None:
    return None if table.scheme is None else table.scheme.identity


def mark(marks: Tensor, ids: Tensor) -> None:
    """Set bit i % 8 of byte i // 8 for every id i."""
    numbers = ids.numpy()
    np.bitwise_or.at(marks.numpy(), numbers >> 3, (1 << (numbers & 7)).astype(np.uint8))


def marked(marks: Tensor) -> Tensor:
    """Unpack marks to bool [8 * len(marks)]."""
    shifts = torch.arange(8, dtype=torch.uint8)
    return ((marks[:, None] >> shifts) & 1).flatten().bool()


def _refuse_contradictions(ids: Tensor, codes: Tensor) -> None:
    order = ids.argsort()
    repeats = ids[order[1:]] == ids[order[:-1]]
    differ = (codes[order[1:]] != codes[order[:-1]]).any(1)
    contradictions = order[1:][repeats & differ]
    if len(contradictions):
        raise ValueError(
            f"id {int(ids[contradictions[0]])} occurs twice in one write with different codes; write one code per "
            "sample."
        )
