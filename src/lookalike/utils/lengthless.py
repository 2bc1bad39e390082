"""Recognise streams, which have neither ids nor a length, where one cannot be used, and say what to do instead."""

import sys
from typing import Any


def is_stream(data: Any) -> bool:
    """Return whether data are a torch `IterableDataset` or a stream of Hugging Face; imports neither library.

    Examples:
        >>> is_stream([1, 2, 3])
        False
    """
    homes = {
        "torch.utils.data": ("IterableDataset",),
        "datasets": ("IterableDataset", "IterableDatasetDict"),
    }
    loaded = [(sys.modules[home], names) for home, names in homes.items() if home in sys.modules]
    kinds = [kind for module, names in loaded for name in names if (kind := getattr(module, name, None)) is not None]
    return isinstance(data, tuple(kinds))


def refuse_stream(name: str, data: Any, purpose: str) -> None:
    """Raise an error if data are a stream.

    Args:
        name: What the caller calls them.
        data: What was given.
        purpose: What needs rows by number: "mining needs rows by number".

    Raises:
        TypeError: They are.
    """
    if is_stream(data):
        raise TypeError(
            f"{purpose}, and {name} is a stream ({type(data).__name__}), which has no ids and no length: write it to "
            "disk with datasets.Dataset.from_generator(lambda: iter(stream)), or train your own loop on "
            "lookalike.StreamBatches, which mines streams window by window."
        )
