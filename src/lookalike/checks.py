"""Checks of user input: one sentence that says what was expected, what came and what to do."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def checked_positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}.")
    if value <= 0:
        raise ValueError(f"{name} must be at least 1, got {value}.")
    return int(value)


def checked_bits(bits: Any) -> int:
    bits = checked_positive("bits", bits)
    if bits % 8:
        raise ValueError(f"bits must be a multiple of 8, got {bits}; the next one is {-(-bits // 8) * 8}.")
    return bits


def checked_codes(name: str, codes: Any) -> Tensor:
    """A contiguous uint8 tensor [n, bytes]."""
    codes = torch.as_tensor(codes)
    if codes.dtype != torch.uint8:
        raise TypeError(f"{name} must be packed codes of dtype uint8, got {codes.dtype}; SignHasher.encode makes them.")
    if codes.ndim != 2 or codes.shape[1] == 0:
        raise ValueError(f"{name} must have the shape [n, bits / 8], got {list(codes.shape)}.")
    return codes.detach().contiguous()


def checked_integers(name: str, values: Any) -> Tensor:
    """A contiguous int64 tensor [n]."""
    values = torch.as_tensor(values)
    if values.numel() == 0:
        values = values.to(torch.int64)  # an empty list has no dtype of its own
    if values.dtype not in _INTEGERS:
        raise TypeError(f"{name} must be integers, got {values.dtype}; number other values with numpy.unique.")
    if values.ndim != 1:
        raise ValueError(f"{name} must have one dimension, got the shape {list(values.shape)}.")
    return values.detach().to(torch.int64).contiguous()


def checked_labels(name: str, labels: Any, n: int) -> Tensor:
    labels = checked_integers(name, labels)
    if len(labels) != n:
        raise ValueError(f"{name} must have one label per code, {n}, got {len(labels)}.")
    return labels
