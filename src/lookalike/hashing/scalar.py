"""Codes of several bits per dimension: principal components, each rounded to as many levels as it is worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, cast

import torch
from torch import Tensor

from lookalike.hashing.encoder import Encoder, fitted
from lookalike.hashing.moments import Moments, checked_sums
from lookalike.hashing.scheme import Scheme
from lookalike.hashing.signs import refuse_non_finite
from lookalike.utils.checks import SHORTEST_CODE, checked_bits, checked_integer, checked_positive
from lookalike.utils.tensors import as_tensor, checked_codes

if TYPE_CHECKING:
    from lookalike.hashing.moments import Spectrum

TILE_ELEMENTS = 1 << 21  # projections in memory at a time
DEVICE_TILE_ELEMENTS = 1 << 26  # the same on a GPU, where small tiles would cost more launches than work


@dataclass(frozen=True, eq=False)
class ScalarCodes:
    """Codes of several bits per dimension, with the scheme that reads them.

    Codes of different schemes mean different things; searches refuse to compare them.

    Examples:
        >>> x = torch.randn(100, 16)
        >>> hasher = ScalarHasher(dim=16, bits=64)
        >>> hasher.update(x)
        >>> codes = hasher.encode(x)
        >>> len(codes[:10]), codes[:10].packed.dtype, codes.scheme.bits
        (10, torch.uint8, 64)
    """

    packed: Tensor
    """uint8 `[n, bits / 8]`"""
    scheme: Scheme

    def __post_init__(self) -> None:
        if checked_codes("packed", self.packed).shape[1] * 8 != self.scheme.bits:
            raise ValueError(
                f"codes of this scheme have {self.scheme.bits} bits, got {self.packed.shape[1] * 8} per row."
            )

    def __len__(self) -> int:
        return len(self.packed)

    def __repr__(self) -> str:
        return f"ScalarCodes({len(self)} codes of {self.scheme.bits} bits)"

    def __getitem__(self, rows: Any) -> ScalarCodes:
        """Return some of the rows: a slice, a mask or ids."""
        return ScalarCodes(self.packed[rows], self.scheme)

    @property
    def device(self) -> torch.device:
        """Where the codes are."""
        return self.packed.device

    def to(self, device: torch.device | str) -> ScalarCodes:
        """Move the codes to another device."""
        return ScalarCodes(self.packed.to(device), self.scheme)


class ScalarHasher:
    """Hash embeddings to codes of several bits per dimension, for similarity by cosine.

    The principal components of the embeddings' directions share out the bits: each gets as many as it is worth, up to
    6, or none. The kept components are rotated at random among those of equal width, rounded to the best levels for a
    normal distribution, and followed by two bytes per vector that correct its length and its place along the mean.
    Everything counts towards `bits`, so codes cost what sign codes of the same length do. They tell more: on real
    embeddings, half of the bits or fewer find as many of the true neighbours.

    Codes of other lengths must be encoded anew; they are not nested.

    Args:
        dim: Dimension of the embeddings.
        bits: Length of a code in bits, a multiple of 8, at least 32.
        seed: Seed of the rotations.

    Raises:
        TypeError: `dim`, `bits` or `seed` is not an integer.
        ValueError: `bits` is not a multiple of 8 from 32 on, `dim` is not positive or `seed` is negative.

    Examples:
        >>> import torch
        >>> x = torch.randn(500, 32)
        >>> hasher = ScalarHasher(dim=32, bits=128)
        >>> hasher.update(x)
        >>> codes = hasher.encode(x)
        >>> len(codes), codes.packed.shape, codes.packed.dtype
        (500, torch.Size([500, 16]), torch.uint8)
        >>> bool((hasher.decode(codes) - torch.nn.functional.normalize(x, dim=1)).norm(dim=1).mean() < 0.4)
        True
    """

    def __init__(self, dim: int, bits: int, *, seed: int = 0) -> None:
        self.dim, self.bits = checked_positive("dim", dim), checked_bits(bits)
        self.seed = checked_integer("seed", seed)
        if bits < SHORTEST_CODE:
            raise ValueError(f"codes of several bits have at least {SHORTEST_CODE} bits, got {bits}; use a SignHasher.")
        self.moments = Moments(dim)
        self._fitted: tuple[Scheme, Encoder] | None = None

    @classmethod
    def of_moments(cls, moments: Moments, bits: int, *, seed: int = 0) -> Self:
        """Make a hasher from statistics that were collected elsewhere, and fit it.

        Raises:
            ValueError: As for the constructor, or no embeddings were seen.
        """
        hasher = cls(moments.dim, bits, seed=seed)
        hasher.moments = moments
        hasher.fit()
        return hasher

    @torch.no_grad()
    def update(self, x: Any) -> None:
        """Add embeddings `[n, dim]` to the statistics. Codes change only at the next `fit`.

        Raises:
            TypeError: The embeddings are not floats.
            ValueError: The shape is wrong or a value is not finite.
        """
        x = self._checked(x)
        if not bool(torch.isfinite(x).all()):
            refuse_non_finite(x)
        self.moments.add(x)

    @property
    def scheme(self) -> Scheme:
        """How the codes are read; the first use fits it.

        Raises:
            ValueError: No embeddings were seen.
        """
        return self.fit() if self._fitted is None else self._fitted[0]

    @torch.no_grad()
    def fit(self, spectrum: Spectrum | None = None) -> Scheme:
        """Choose components and levels from all embeddings seen so far; codes of an earlier scheme are void.

        Args:
            spectrum: What `moments.spectrum()` returns, if it was computed before.

        Raises:
            ValueError: No embeddings were seen.
        """
        if spectrum is None:
            if self.moments.count == 0:
                raise ValueError("codes of several bits need statistics: pass embeddings to update() before encode().")
            spectrum = self.moments.spectrum()
        with torch.autocast("cpu", enabled=False):  # where the components are computed
            self._fitted = fitted(spectrum, self.bits, self.seed)
        return self._fitted[0]

    @torch.no_grad()
    def encode(self, x: Any) -> ScalarCodes:
        """Hash embeddings `[n, dim]` of any float dtype and device, on their device.

        Raises:
            TypeError: The embeddings are not floats.
            ValueError: The shape is wrong, a value is not finite, or no embeddings were passed to `update` before.
        """
        x = self._checked(x)
        packed, finite = self.encode_flagged(x)
        if not bool(finite.all()):
            refuse_non_finite(x)
        return ScalarCodes(packed, self.scheme)

    @torch.no_grad()
    def encode_flagged(self, x: Any) -> tuple[Tensor, Tensor]:
        """Hash without waiting for the device: return packed codes and bool `[n]`, whether a row is finite.

        The code of a row that is not finite is meaningless.
        """
        x = self._checked(x)
        scheme, encoder = self._on(x.device)
        codes = torch.empty(len(x), self.bits // 8, dtype=torch.uint8, device=x.device)
        finite = torch.empty(len(x), dtype=torch.bool, device=x.device)
        tile = max(1, (TILE_ELEMENTS if x.device.type == "cpu" else DEVICE_TILE_ELEMENTS) // (self.bits + self.dim))
        with torch.autocast(x.device.type, enabled=False):
            for first in range(0, len(x), tile):
                part = slice(first, first + tile)
                codes[part], finite[part] = encoder.encode(x[part], scheme)
        return codes, finite

    @torch.no_grad()
    def decode(self, codes: ScalarCodes) -> Tensor:
        """Return the directions that codes stand for, float32 `[n, dim]`, to compare floats with.

        Their dot products with normalised embeddings estimate cosines better than two codes do: only one side is
        rounded.

        Raises:
            TypeError: They are not `ScalarCodes`.
            ValueError: The codes are of another scheme.
        """
        self.check(codes)
        scheme, encoder = self._on(codes.device)
        return encoder.decode(codes.packed, scheme)

    def read(self, packed: Tensor) -> ScalarCodes:
        """Take bytes for codes of the present scheme, which the caller knows they are; longer rows have padding."""
        return ScalarCodes(packed[:, : self.bits // 8], self.scheme)

    def check(self, codes: ScalarCodes) -> None:
        """Check that codes are of the present scheme."""
        if not isinstance(codes, ScalarCodes):
            raise TypeError(f"codes must be ScalarCodes, which encode makes, got {type(codes).__name__}.")
        if codes.scheme.identity != self.scheme.identity:
            raise ValueError("these codes were made with other statistics: encode their embeddings again.")

    def state_dict(self) -> dict[str, Any]:
        """Return statistics and scheme, for `load_state_dict` of a hasher of the same dimension and length."""
        sums = self.moments.sums.clone()  # not what later updates add to
        state: dict[str, Any] = {"dim": self.dim, "bits": self.bits, "seed": self.seed, "sums": sums}
        if self._fitted is not None:
            scheme, encoder = self._fitted
            state |= {"scheme": scheme.state_dict(), "encoder": encoder.state_dict()}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the statistics and the scheme of another hasher.

        Raises:
            ValueError: The state is of another dimension or length, or is not one.
        """
        for name in ("dim", "bits"):
            there = state.get(name)
            if not isinstance(there, int) or there != getattr(self, name):
                raise ValueError(f"the state is of a hasher with {name}={there}, not {getattr(self, name)}.")
        if not isinstance(state.get("seed"), int):
            raise ValueError("the state has no seed: it is damaged or from another version.")
        if not checked_sums(state.get("sums"), self.dim):
            raise ValueError("the state has no statistics: it is damaged or from another version.")
        found = None
        if "scheme" in state:
            scheme = Scheme.from_state(state["scheme"])
            found = scheme, Encoder.from_state(state.get("encoder"), scheme, self.dim)
            if scheme.bits != self.bits:
                raise ValueError(f"the state holds a scheme of {scheme.bits} bits, not {self.bits}: it is damaged.")
        self.seed, self.moments = state["seed"], Moments.of(state["sums"].clone())
        self._fitted = found

    def _on(self, device: torch.device) -> tuple[Scheme, Encoder]:
        """Return scheme and encoder, moved to a device."""
        if self._fitted is None:
            self.fit()
        scheme, encoder = cast("tuple[Scheme, Encoder]", self._fitted)
        self._fitted = scheme.to(device), encoder.to(device)
        return self._fitted

    def _checked(self, embeddings: Any) -> Tensor:
        x = as_tensor(embeddings, "embeddings", "floats")
        if not x.is_floating_point():
            raise TypeError(f"embeddings must be floats, got {x.dtype}.")
        if x.ndim != 2 or x.shape[1] != self.dim:
            raise ValueError(
                f"embeddings must have the shape [n, {self.dim}], because dim={self.dim}, got {list(x.shape)}."
            )
        return x.detach()

    def __repr__(self) -> str:
        return f"ScalarHasher(dim={self.dim}, bits={self.bits}, seed={self.seed})"
