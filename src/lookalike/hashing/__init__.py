"""Embeddings -> codes: signs of rotated dimensions, or several bits for each principal component."""

from lookalike.hashing.scalar import ScalarCodes, ScalarHasher
from lookalike.hashing.scheme import Scheme
from lookalike.hashing.signs import CENTER, SignHasher, column_sums, implied_cosine, pack_bits

__all__ = [
    "CENTER",
    "ScalarCodes",
    "ScalarHasher",
    "Scheme",
    "SignHasher",
    "column_sums",
    "implied_cosine",
    "pack_bits",
]
