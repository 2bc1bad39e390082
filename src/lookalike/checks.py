"""Checks of user input: one sentence that says what was expected, what came and what to do."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

_INTEGERS = (
    torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.uint64, torch.int64,
)  # fmt: skip


def checked_positive(name: str, value: Any) -> int:
    """An integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}.")
    if value <= 0:
        raise ValueError(f"{name} must be at least 1, got {value}.")
    return int(value)


def checked_bits(bits: Any) -> int:
    """A code length: a positive multiple of 8."""
    length = checked_positive("bits", bits)
    if length % 8:
        raise ValueError(f"bits must be a multiple of 8, got {length}; the next one is {-(-length // 8) * 8}.")
    return length


def as_tensor(values: Any) -> Tensor:
    """Tensors, NumPy arrays and lists as a tensor."""
    tensor: Tensor = torch.as_tensor(values)
    return tensor


def checked_codes(name: str, codes: Any) -> Tensor:
    """A contiguous uint8 tensor [n, bytes]."""
    tensor = as_tensor(codes)
    if tensor.dtype != torch.uint8:
        raise TypeError(
            f"{name} must be packed codes of dtype uint8, got {tensor.dtype}; SignHasher.encode makes them."
        )
    if tensor.ndim != 2 or tensor.shape[1] == 0:
        raise ValueError(f"{name} must have the shape [n, bits / 8], got {list(tensor.shape)}.")
    return tensor.contiguous()


def checked_integers(name: str, values: Any) -> Tensor:
    """A contiguous int64 tensor [n]."""
    tensor = as_tensor(values)
    if tensor.numel() == 0:
        tensor = tensor.to(torch.int64)  # an empty list has no dtype of its own
    if tensor.dtype not in _INTEGERS:
        raise TypeError(f"{name} must be integers, got {tensor.dtype}; number other values with numpy.unique.")
    if tensor.ndim != 1:
        raise ValueError(f"{name} must have one dimension, got the shape {list(tensor.shape)}.")
    return tensor.to(torch.int64).contiguous()


def check_embeddings(name: str, x: Tensor, expected: int) -> None:
    """Floats [expected, dim], or an error."""
    if not x.is_floating_point() or x.ndim != 2:
        raise TypeError(f"{name} must be floats of the shape [{expected}, dim], got {x.dtype} {list(x.shape)}.")
    if len(x) != expected:
        raise ValueError(f"{name} must have one row per id, {expected}, got {len(x)}.")


def check_one_dimension(towers: dict[str, Any]) -> int:
    """Return the dimension of embeddings `[n, dim]` that are to be compared, or raise an error."""
    dims = {name: int(as_tensor(x).shape[1]) for name, x in towers.items()}
    if len(set(dims.values())) > 1:
        found = " and ".join(f"{name} has {dim} dimensions" for name, dim in dims.items())
        raise ValueError(f"{found}; towers that are compared need embeddings of one dimension.")
    return next(iter(dims.values()))


def checked_labels(name: str, labels: Any, n: int) -> Tensor:
    """One integer per code: int64 [n]."""
    checked = checked_integers(name, labels)
    if len(checked) != n:
        raise ValueError(f"{name} must have one label per code, {n}, got {len(checked)}.")
    return checked
