"""What codes of several bits mean: how a row of bytes unpacks into integers, and how two rows compare."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from lookalike.hashing.signs import pack_bits, unpack_bits

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADER = 2  # bytes before the levels: the factor and the offset of a row
ONE = 1 << 14  # cosine 1 in the integers that rows are compared in, if these are not finer
MOST_ZOOM = 16  # beyond it, float32 embeddings hold no more digits
FARTHEST = (1 << 15) - 1  # the largest distance, so that one fits into an int16
FACTOR_ONE = 1 << 12  # a factor of 1
FACTORS_SHIFT = 14  # of the product of two factors, which leaves 10 bits after the point
LARGEST_FACTOR = round(FACTOR_ONE * 2**0.8)
PRODUCTS = ((1 << 31) - 1) // (LARGEST_FACTOR**2 >> FACTORS_SHIFT)  # dot products up to this times factors fit an int32
UNPACKED = 1 << 22  # bits unpacked at a time


class Integers(NamedTuple):
    """Rows, unpacked."""

    values: Tensor  # int8 [n, dims]
    factors: Tensor  # int32 [n]
    offsets: Tensor  # int32 [n]


@dataclass(frozen=True, eq=False)
class Scheme:
    """How the codes of a `ScalarHasher` are read.

    A code holds a byte that stands for a factor F, one that stands for an offset A, and one of a few integers for each
    of its dimensions, v. Two codes are as far apart as `16384 - ((F F' >> 14) (v . v') >> shift) - A - A'`, clipped to
    0..32767: 16384 << zoom times one minus the estimated cosine.
    """

    bits: int  # length of a code, a multiple of 8
    groups: tuple[tuple[int, int], ...]  # (bits of a dimension, how many dimensions), in the order of the code
    levels: Tensor  # int8 [sum of 2^width]: the integers of each group, one group after another
    factors: Tensor  # int32 [256]
    offsets: Tensor  # int32 [256]
    shift: int
    identity: str  # equal only where codes may be compared
    zoom: int = 0  # above 0 where embeddings all lie close together, so that distances tell them apart

    @property
    def dims(self) -> int:
        """Number of integers in a code."""
        return sum(count for _, count in self.groups)

    def to(self, device: torch.device | str) -> Scheme:
        """Move the tables to another device."""
        if self.levels.device == torch.device(device):
            return self
        tables = {name: getattr(self, name).to(device) for name in ("levels", "factors", "offsets")}
        return replace(self, **tables)

    def unpack(self, codes: Tensor) -> Integers:
        """Unpack codes, uint8 [..., bytes], into integers [..., dims] and [...], on the device of the codes."""
        here, flat = self.to(codes.device), codes.reshape(-1, codes.shape[-1])
        values = torch.empty(len(flat), self.dims, dtype=torch.int8, device=codes.device)
        rows = max(1, UNPACKED // self.bits)
        for first in range(0, len(flat), rows):
            bits = unpack_bits(flat[first : first + rows, HEADER:])
            for width, fields, level, place in here.fields():
                places = bits[:, fields].reshape(len(bits), -1, width)
                number = places[..., 0].clone()
                for i in range(1, width):
                    number += places[..., i] << i
                values[first : first + rows, place] = level[number.int()]
        head = flat[:, :HEADER].int()
        shape = codes.shape[:-1]
        factors, offsets = here.factors[head[:, 0]], here.offsets[head[:, 1]]
        return Integers(values.reshape(*shape, self.dims), factors.reshape(shape), offsets.reshape(shape))

    def fields(self) -> Iterator[tuple[int, slice, Tensor, slice]]:
        """Yield, group by group, the bits of a dimension, where its bits lie after the header, its levels, its dims."""
        bit = level = dim = 0
        for width, count in self.groups:
            fields = slice(bit, bit + width * count)
            yield width, fields, self.levels[level : level + (1 << width)], slice(dim, dim + count)
            bit, level, dim = bit + width * count, level + (1 << width), dim + count

    def distances(self, products: Tensor, a: Integers, b: Integers) -> Tensor:
        """Turn dot products of the values of rows into distances, int32; all three broadcast."""
        return distances(products, a.factors, b.factors, a.offsets, b.offsets, self.shift)

    def compare(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the distances of pairs of codes, [..., bytes] and [..., bytes] -> int32 [...]; both broadcast."""
        rows, others = self.unpack(a), self.unpack(b)
        # Exact: values are small integers, and so are their sums. Broadcast dimensions become a matrix product.
        with torch.autocast(a.device.type, enabled=False):
            products = torch.einsum("...d,...d->...", rows.values.float(), others.values.float())
        return self.distances(products.int(), rows, others)

    def cosines(self, distances: Tensor) -> Tensor:
        """Return the cosines that distances stand for, float64."""
        return 1 - distances.double() / (ONE << self.zoom)

    def signs(self, codes: Tensor) -> Tensor:
        """Return the sign of each dimension, packed like the codes of a `SignHasher`: uint8 [n, bytes]."""
        negative = self.unpack(codes).values < 0
        return pack_bits(torch.nn.functional.pad(~negative, (0, -self.dims % 8)))

    def state_dict(self) -> dict[str, Any]:
        """Return what makes the scheme again, in tensors and plain values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Scheme:
        """Make the scheme that `state_dict` described.

        Raises:
            ValueError: The state is not one.
        """
        try:
            scheme = cls(**{**state, "groups": tuple((int(width), int(count)) for width, count in state["groups"])})
            used = 8 * HEADER + sum(width * count for width, count in scheme.groups)
            valid = (
                all(isinstance(each, int) for each in (scheme.bits, scheme.shift, scheme.zoom))
                and all(0 < width <= 8 and count > 0 for width, count in scheme.groups)
                and used <= scheme.bits
                and scheme.bits % 8 == 0
                and 0 <= scheme.shift < 32
                and 0 <= scheme.zoom <= MOST_ZOOM
                and isinstance(scheme.identity, str)
                and _is_table(scheme.levels, torch.int8, sum(1 << width for width, _ in scheme.groups))
                and all(_is_table(table, torch.int32, 256) for table in (scheme.factors, scheme.offsets))
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            valid = False
        if not valid:
            raise ValueError("this is not the state of a scheme of codes: it is damaged or from another version.")
        return scheme


def _is_table(table: Tensor, dtype: torch.dtype, length: int) -> bool:
    return table.dtype == dtype and list(table.shape) == [length]


def distances(
    products: Tensor, factors: Tensor, others: Tensor, offsets: Tensor, offsets_of_others: Tensor, shift: int
) -> Tensor:
    """Return the distances that dot products stand for: integers only, so that every backend finds the same."""
    scaled = (products * ((factors * others) >> FACTORS_SHIFT)) >> shift
    return (ONE - scaled - offsets - offsets_of_others).clamp(0, FARTHEST)


def digest(*parts: Any) -> str:
    """Return a short name for tensors and plain values that differs where any of them does."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part.cpu().numpy().tobytes() if isinstance(part, Tensor) else repr(part).encode())
    return found.hexdigest()[:16]
