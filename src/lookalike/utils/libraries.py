"""The libraries that encoders come from: imported when they are needed, and what it takes if they cannot be."""

from __future__ import annotations

import importlib
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

OLDEST_SENTENCE_TRANSFORMERS = 6


def import_timm() -> Any:
    """timm, which imports torchvision.

    Raises:
        ImportError: One of them is missing, or torchvision was built for another torch.
    """
    try:
        return importlib.import_module("timm")
    except (ImportError, RuntimeError, OSError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "timm":
            raise ImportError("image models of timm need timm: pip install 'lookalike[images]'.") from None
        raise ImportError(
            f"timm cannot be imported, because it needs a torchvision that fits torch {torch.__version__} ({error}); "
            "install the torchvision that was released with this torch, from where this torch came, for torchvision "
            "built with CUDA does not work next to a torch without; or use a transformers: model, which needs none."
        ) from error


@contextmanager
def text_library(name: str) -> Iterator[Any]:
    """transformers or sentence-transformers, for texts: whatever they import meanwhile, torchvision is not there.

    They import torchvision wherever it is installed, texts or not, and one that was built for another torch makes
    them fail. Where it has been imported already, it works and stays.

    Raises:
        ImportError: The library is missing.
    """
    hidden = "torchvision" not in sys.modules
    if hidden:
        sys.modules["torchvision"] = None  # type: ignore[assignment]  # as if it were not installed
    try:
        try:
            library = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            called = name.replace("_", "-")
            raise ImportError(f"models of {called} need it: pip install 'lookalike[text]'.") from None
        with _quiet():
            yield library
    finally:
        if hidden:
            del sys.modules["torchvision"]


@contextmanager
def sentence_transformers() -> Iterator[Any]:
    """Import sentence-transformers, as `text_library` does, in a version that keeps its promise to run no code.

    Raises:
        ImportError: It is missing, or older than 6: that one imports classes which a local folder names, whatever
            `trust_remote_code` says.
    """
    with text_library("sentence_transformers") as library:
        if int(str(library.__version__).partition(".")[0]) < OLDEST_SENTENCE_TRANSFORMERS:
            raise ImportError(
                f"sentence-transformers {library.__version__} runs code that comes with a model's folder: "
                "pip install 'sentence-transformers>=6'."
            )
        yield library


@contextmanager
def _quiet() -> Iterator[None]:
    """Without a bar for weights that are read from disk in a moment; a download keeps its own."""
    logging = importlib.import_module("transformers.utils.logging")
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
