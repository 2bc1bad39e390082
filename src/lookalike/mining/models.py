"""Any model that encodes: a SentenceTransformer as it is, other encoders behind the same two methods."""

from __future__ import annotations

import importlib
import json
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from lookalike.data.image_files import ImageFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

POOL = "pool them, or mine with a model of single vectors and let this one judge"
OTHER_KINDS = {  # models of the library that have the same methods
    "MultiVectorEncoder": f"returns several vectors per text, and mining compares one of each: {POOL}",
    "SparseEncoder": "returns sparse vectors, and mining compares dense ones: mine with a SentenceTransformer",
}
OF_THE_LIBRARY = ("encode_query", "encode_document", "prompts")  # what a SentenceTransformer has


class AnyEncoder:
    """An encoder that is a callable, or has `encode`: texts in, embeddings out, which are compared by cosine.

    Args:
        given: Called with a list of texts, or its `encode` is; returns floats [n, dim]. If it has `encode_query` and
            `encode_document`, those encode queries and references.
        name: What tells it, besides its weights, from other encoders; by default what `name_of` says.
    """

    prompts: dict[str, str] = {}  # noqa: RUF012 - stays empty
    similarity_fn_name = "cosine"
    device = torch.device("cpu")

    def __init__(self, given: Any, name: str | None = None) -> None:
        self.given = given
        self.name = name or name_of(given)
        either = getattr(given, "encode", given)
        self._query: Callable[[list[str]], Any] = getattr(given, "encode_query", either)
        self._document: Callable[[list[str]], Any] = getattr(given, "encode_document", either)

    def encode_query(self, texts: Sequence[str], **_: Any) -> Tensor:
        """Encode queries."""
        return self._encoded(self._query, list(texts))

    def encode_document(self, texts: Sequence[str], **_: Any) -> Tensor:
        """Encode references."""
        return self._encoded(self._document, list(texts))

    def _encoded(self, encode: Callable[[list[str]], Any], texts: list[str]) -> Tensor:
        """Return unit vectors, float32 [n, dim].

        Raises:
            TypeError: The encoder returned something else than floats.
            ValueError: It returned several vectors per text, or not one for each.
        """
        found = encode(texts)
        lists = isinstance(found, list | tuple) and len(found) > 0 and np.ndim(_plain(found[0])) > 1
        try:
            x = torch.empty(0, 0, 0) if lists else torch.as_tensor(np.asarray(_plain(found)))
        except (TypeError, ValueError):
            raise TypeError(
                f"the encoder {self.name} must return floats [n, dim], got {type(found).__name__}."
            ) from None
        if x.ndim == 3:
            raise ValueError(f"the encoder {self.name} {OTHER_KINDS['MultiVectorEncoder']}.")
        if not x.is_floating_point():
            raise TypeError(f"the encoder {self.name} must return floats [n, dim], got {x.dtype} {list(x.shape)}.")
        if x.ndim != 2 or len(x) != len(texts):
            raise ValueError(
                f"the encoder {self.name} must return one vector per text, [{len(texts)}, dim], got {list(x.shape)}."
            )
        return normalize(x.detach().float().cpu(), dim=1)


class OfImages:
    """An encoder of images, as one of texts: the texts are the paths of images.

    Args:
        encoder: Takes a tensor of images, uint8 [n, 3, height, width], in `encode`.
        size: Height and width to resize images to.
        root: The folder that paths are relative to.
    """

    def __init__(self, encoder: Any, size: int | tuple[int, int], root: str | Path = ".") -> None:
        self.encoder, self.size, self.root = encoder, size, Path(root)
        self.name = f"{type(encoder).__qualname__} of images"

    def encode(self, paths: list[str]) -> Tensor:
        """Read images and encode them."""
        images = ImageFiles([self.root / path for path in paths], self.size, kept_bytes=0)
        found: Tensor = self.encoder.encode(images.read(np.arange(len(paths))))
        return found


def as_model(given: Any) -> Any:
    """Return a model with `encode_query` and `encode_document`; names are left for `load_model`.

    Raises:
        TypeError: It cannot encode.
        ValueError: Its embeddings are not single dense vectors.
    """
    for kind in type(given).__mro__:
        if kind.__name__ in OTHER_KINDS and kind.__module__.startswith("sentence_transformers"):
            raise ValueError(f"a {kind.__name__} {OTHER_KINDS[kind.__name__]}.")
    if isinstance(given, str | AnyEncoder) or all(hasattr(given, name) for name in OF_THE_LIBRARY):
        return given
    has = [callable(getattr(given, name, None)) for name in ("encode", "encode_query", "encode_document")]
    if not isinstance(given, type) and (callable(given) or has[0] or all(has[1:])):
        return AnyEncoder(given)
    raise TypeError(
        "model must be a SentenceTransformer or the name of one, a function that encodes a list of texts, or an object "
        f"with encode, got {type(given).__name__}."
    )


def imported(name: str) -> Any:
    """Import what "package.module:attribute" names; a class is called without arguments.

    Raises:
        ValueError: There is no such module or attribute.
    """
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"{name!r} names nothing that can be imported ({error}); write package.module:function."
        ) from error
    return found() if isinstance(found, type) else found


def name_of(given: Any) -> str:
    """Name what encodes or judges: as it calls itself, or by its function or class and the Python module of that.

    Examples:
        >>> from functools import partial
        >>> name_of(OfImages.encode), name_of(partial(imported, name="a:b"))
        ('lookalike.mining.models.OfImages.encode', 'lookalike.mining.models.imported({"name": "a:b"})')
    """
    if getattr(given, "name", None):
        return str(given.name)
    if isinstance(given, partial):
        return f"{name_of(given.func)}({', '.join(map(_said, [*given.args, given.keywords]))})"
    named = given if hasattr(given, "__qualname__") else type(given)
    return f"{named.__module__}.{named.__qualname__}"


def module_of(given: Any) -> torch.nn.Module | None:
    """Return the module whose weights encode or judge, if there is one to be seen.

    It is the object itself, owns the method, reads images for it, or is an argument of a `functools.partial`.
    """
    holders = [given, getattr(given, "__self__", None), getattr(given, "encoder", None)]
    if isinstance(given, partial):
        holders += [*given.args, *given.keywords.values(), module_of(given.func)]
    return next((each for each in holders if isinstance(each, torch.nn.Module)), None)


def _said(value: Any) -> str:
    """Write an argument as another process would; objects, whose text may hold an address, by name."""
    return json.dumps(value, default=lambda each: str(each) if isinstance(each, PurePath) else name_of(each))


def _plain(found: Any) -> Any:
    if isinstance(found, Tensor):
        return found.detach().float().cpu().numpy()
    if isinstance(found, list | tuple) and len(found) and isinstance(found[0], Tensor):
        return [each.detach().float().cpu().numpy() for each in found]
    return found
