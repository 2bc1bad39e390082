"""Convert and check tensors that a user passes.

Each error is one sentence: what was expected, what was given and, if it helps, what to do.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

LONGEST_QUOTE = 40  # characters
_INTEGERS = (
    torch.uint8,
    torch.int8,
    torch.uint16,
    torch.int16,
    torch.uint32,
    torch.int32,
    torch.uint64,
    torch.int64,
)


def as_tensor(values: Any, name: str = "values", expected: str = "numbers", advice: str = "") -> Tensor:
    """Convert a tensor, an array, a column of a table or a list to a tensor.

    Args:
        values: What to convert.
        name: What the caller calls it.
        expected: What it should hold, for the error.
        advice: What to do about it, as the end of the error's sentence.

    Raises:
        TypeError: It does not hold numbers, or lists of different lengths.
    """
    try:
        if hasattr(values, "__array__") and not isinstance(values, Tensor):
            values = np.asanyarray(values)
            if values.dtype == object:
                values = np.array(values.tolist())
            elif not values.flags.writeable and not isinstance(values, np.memmap):
                values = values.copy()  # columns of tables are often read-only, and torch warns about that
        tensor: Tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} must be {expected}, got {_described(values)}{advice}.") from None
    return tensor


def _described(values: Any) -> str:
    """Describe values that a tensor cannot hold."""
    first = values
    while isinstance(first, (list, tuple, np.ndarray)):
        items = first.tolist() if isinstance(first, np.ndarray) else first
        first = next((item for item in items if not isinstance(item, (int, float))), None)
    if isinstance(first, (str, bytes)):
        shown = repr(first)
        return f"text such as {shown if len(shown) <= LONGEST_QUOTE else shown[: LONGEST_QUOTE - 2] + '...'}"
    return "lists of different lengths" if first is None and _is_nested(values) else type(first).__name__


def _is_nested(values: Any) -> bool:
    return any(isinstance(item, (list, tuple)) for item in values)


def checked_codes(name: str, codes: Any) -> Tensor:
    """Return packed codes as a contiguous uint8 tensor [n, bytes]."""
    expected, advice = "packed codes of dtype uint8", "; SignHasher.encode makes them"
    tensor = as_tensor(codes, name, expected, advice)
    if tensor.dtype != torch.uint8:
        raise TypeError(f"{name} must be {expected}, got {tensor.dtype}{advice}.")
    if tensor.ndim != 2 or tensor.shape[1] == 0:
        raise ValueError(f"{name} must have the shape [n, bits / 8], got {list(tensor.shape)}.")
    return tensor.contiguous()


def checked_integers(name: str, values: Any) -> Tensor:
    """Return integers of any kind as a contiguous int64 tensor [n]."""
    numbered = "; number other values with numpy.unique(labels, return_inverse=True)[1]"
    advice = numbered if "label" in name else ""
    tensor = as_tensor(values, name, "integers", advice)
    if tensor.numel() == 0:
        tensor = tensor.to(torch.int64)  # torch makes floats of an empty list
    if tensor.dtype not in _INTEGERS:
        raise TypeError(f"{name} must be integers, got {tensor.dtype}{advice}.")
    if tensor.ndim != 1:
        raise ValueError(f"{name} must have one dimension, got the shape {list(tensor.shape)}.")
    return tensor.to(torch.int64).contiguous()


def check_embeddings(name: str, x: Tensor, expected: int) -> None:
    """Check that embeddings are floats [expected, dim]."""
    if not x.is_floating_point() or x.ndim != 2:
        raise TypeError(f"{name} must be floats of the shape [{expected}, dim], got {x.dtype} {list(x.shape)}.")
    if len(x) != expected:
        raise ValueError(f"{name} must have one row per id, {expected}, got {len(x)}.")


def check_one_dimension(towers: dict[str, Any]) -> int:
    """Return the dimension of embeddings `[n, dim]` that will be compared with each other.

    Raises:
        ValueError: They differ in it.
    """
    dims = {name: int(as_tensor(x).shape[1]) for name, x in towers.items()}
    if len(set(dims.values())) > 1:
        found = " and ".join(f"{name} has {dim} dimensions" for name, dim in dims.items())
        raise ValueError(f"{found}; embeddings that are compared must have the same dimension.")
    return next(iter(dims.values()))


def checked_labels(name: str, labels: Any, n: int) -> Tensor:
    """Return one integer per code, int64 [n]."""
    checked = checked_integers(name, labels)
    if len(checked) != n:
        raise ValueError(f"{name} must have one label per code, {n}, got {len(checked)}.")
    return checked


def both_labels(query: Tensor, labels: Any, reference: Tensor, reference_labels: Any) -> tuple[Tensor, Tensor]:
    """Return the labels of queries and references, int64, on the device of the queries.

    Without labels every query is a class of its own; without labels of their own, references have those of the queries.
    """
    if reference_labels is not None and reference is query:
        raise ValueError("reference_labels were given without a reference.")
    labels = torch.arange(len(query)) if labels is None else checked_labels("labels", labels, len(query))
    if reference_labels is None:
        reference_labels = checked_labels("reference_labels (by default the labels)", labels, len(reference))
    reference_labels = checked_labels("reference_labels", reference_labels, len(reference))
    return labels.to(query.device), reference_labels.to(query.device)


def checked_towers(given: dict[str, Any], names: tuple[str, ...], method: str = "observe") -> dict[str, Tensor]:
    """Return the embeddings by tower; a sampler takes all of its towers and no other."""
    if any((x is None) == (name in names) for name, x in given.items()):
        kind, expected = ("paired", "query=... and reference=...") if len(names) > 1 else ("labelled", "embeddings")
        ids = "ids and " if method == "observe" else ""
        raise ValueError(f"{method}() of {kind} data takes {ids}{expected}.")
    return {name: as_tensor(given[name], name) for name in names}


def checked_ids(ids: Any, towers: dict[str, Tensor], num_samples: int) -> Tensor:
    """Return the ids as int64 on the host, one for each row of every tower."""
    numbers = checked_integers("ids", ids).cpu()
    for name, x in towers.items():
        check_embeddings(name, x, len(numbers))
    if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < num_samples:
        raise ValueError(
            f"ids must be between 0 and {num_samples - 1}, got {int(numbers.min())} to {int(numbers.max())}."
        )
    return numbers
