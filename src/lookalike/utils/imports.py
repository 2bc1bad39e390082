"""Import libraries that come with an extra, and name the command that installs them."""

from __future__ import annotations

import importlib
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

OLDEST_SENTENCE_TRANSFORMERS = 6


class MissingLibraryError(ImportError):
    """A library that comes with an extra is not installed."""


def optional_import(module: str, needed_for: str, package: str | None = None) -> Any:
    """Import a module that is not a core dependency.

    Args:
        module: Its dotted name.
        needed_for: What needs it, for the error.
        package: What to install, where that is not the first part of `module`: "scipy", "'lookalike[text]'".

    Raises:
        MissingLibraryError: It is not installed; names the pip command.
    """
    name = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if error.name not in (name, module):  # the module is installed; one of its own dependencies is not
            raise
        raise MissingLibraryError(f"{needed_for} needs {name}: pip install {package or name}.") from None


@contextmanager
def needed_for(purpose: str, extra: str) -> Iterator[None]:
    """Name the extra to install if an import in the block fails.

    Raises:
        MissingLibraryError: An import failed.
    """
    try:
        yield
    except ImportError as error:
        raise MissingLibraryError(
            f"{purpose} needs more than is installed ({error}): pip install 'lookalike[{extra}]'"
        ) from error


def import_timm() -> Any:
    """Import timm, which imports torchvision.

    Raises:
        MissingLibraryError: timm is not installed.
        ImportError: torchvision is missing, or was built for another torch.
    """
    try:
        return optional_import("timm", "an image model of timm", "'lookalike[images]'")
    except MissingLibraryError:
        raise
    except (ImportError, RuntimeError, OSError, AttributeError) as error:
        raise ImportError(
            f"timm cannot be imported, because it needs a torchvision that fits torch {_version('torch')} ({error}); "
            "install the torchvision released with this torch, from where this torch came (torchvision built with CUDA "
            "does not work next to a torch built without it), or choose a transformers: model, which needs none."
        ) from error


def _version(package: str) -> str:
    """Return the version of an installed package; the module that knows it is imported only for errors."""
    return str(importlib.import_module("importlib.metadata").version(package))


@contextmanager
def text_library(name: str) -> Iterator[Any]:
    """Import transformers or sentence-transformers with torchvision hidden, and their progress bars off.

    Both import torchvision wherever it is installed, and one that was built for another torch makes them fail. Encoding
    texts does not need it. A torchvision that is imported already works, and stays.

    Raises:
        MissingLibraryError: The library is not installed.
    """
    hidden = "torchvision" not in sys.modules
    if hidden:
        sys.modules["torchvision"] = None  # type: ignore[assignment]  # imports of it fail as if it were not installed
    try:
        library = optional_import(name, f"a model of {name.replace('_', '-')}", "'lookalike[text]'")
        with _quiet():
            yield library
    finally:
        if hidden:
            del sys.modules["torchvision"]


@contextmanager
def sentence_transformers() -> Iterator[Any]:
    """Import sentence-transformers as `text_library` does, in a version that runs no code from a model's folder.

    Raises:
        ImportError: It is missing, or older than 6: older ones import classes that a local folder names, whatever
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
    """Hide the bars for weights that are read from disk in a moment; a download keeps its own."""
    logging = importlib.import_module("transformers.utils.logging")
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
