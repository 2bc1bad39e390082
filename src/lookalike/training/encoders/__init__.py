"""Encoders: networks that turn samples into embeddings, by name or from a local folder.

An encoder is any `nn.Module` that turns what a data set returns (images, lists of texts) into embeddings `[n, dim]`.
Both towers share its weights. Two methods are optional: `prepare` does what needs no GPU, such as tokenising, and
training calls it ahead of the step; `save_pretrained(folder)` saves the trained model.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lookalike.training.encoders.adapters import OPTIONS as LORA_OPTIONS
from lookalike.training.encoders.adapters import check_lora
from lookalike.training.encoders.convnet import ConvNet
from lookalike.training.encoders.prompts import check_prompts
from lookalike.training.encoders.saving import WEIGHTS, save_model
from lookalike.utils.checks import check_options

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import nn

__all__ = ["ENCODERS", "ConvNet", "check_encoder", "load_saved", "make_encoder", "model_name", "save_model"]

ENCODERS = {  # kind: what it is, module, function
    "convnet": ("the built-in network for glyphs", "convnet", "ConvNet"),
    "timm": ("an image model of timm, such as timm:convnext_base.fb_in22k", "images", "timm_encoder"),
    "transformers": (
        "a text or image model of transformers, such as transformers:distilroberta-base",
        "transformers",
        "load_encoder",
    ),
    "sentence-transformers": (
        "a text model of sentence-transformers, such as sentence-transformers:all-MiniLM-L6-v2",
        "sentences",
        "SentenceEncoder",
    ),
}


def make_encoder(encoder: str = "convnet", **options: Any) -> nn.Module:
    """Build an encoder by name.

    Args:
        encoder: `convnet`, `timm:NAME`, `transformers:NAME` or `sentence-transformers:NAME`, where NAME is the
            library's name for a model, or a local folder.
        options: Options of that kind of encoder, such as `gradient_checkpointing=True`.

    Raises:
        ValueError: There is no such encoder, it cannot be loaded, or it does not take an option.
        ImportError: The library is missing or broken; the message says what to install.

    Examples:
        >>> make_encoder("convnet", width=8, dim=64).dim
        64
    """
    build, name = _builder(encoder, options)
    built: nn.Module = build(*[name] if name else [], **options)
    return built


def check_encoder(encoder: str = "convnet", **options: Any) -> None:
    """Check the arguments of `make_encoder` without loading anything.

    Raises:
        ValueError: There is no such kind of encoder, or it does not take an option or its value.
        TypeError: The value of an option has the wrong type.
        MissingLibraryError: An option needs a library that is not installed.
    """
    _builder(encoder, options)


def load_saved(folder: Path, encoder: str = "convnet", **options: Any) -> nn.Module:
    """Load an encoder that `make_encoder` built with these arguments and `save_model` wrote into a folder.

    Raises:
        ValueError: The folder holds no such encoder, or it cannot be loaded.
        ImportError: The library is missing or broken.
    """
    kind = encoder.partition(":")[0]
    if kind != "convnet":
        rest = {name: value for name, value in options.items() if name not in ("pretrained", "weights", *LORA_OPTIONS)}
        return make_encoder(f"{kind}:{folder}", **rest)
    from lookalike.training.encoders.images import load_weights  # noqa: PLC0415 - only here

    model = make_encoder(encoder, **options)
    load_weights(model, folder / WEIGHTS)
    return model


def model_name(model: nn.Module) -> str:
    """Return the class and the size of a model, as results name it."""
    return f"{type(model).__name__} of {sum(p.numel() for p in model.parameters()):,} parameters"


def _builder(encoder: str, options: dict[str, Any]) -> tuple[Callable[..., nn.Module], str]:
    """Return the function that builds an encoder, and the library's name for it."""
    kind, _, name = encoder.partition(":")
    if kind not in ENCODERS:
        raise ValueError(
            f"there is no encoder {encoder!r}; there are {'; '.join(about for about, _, _ in ENCODERS.values())}."
        )
    if (kind == "convnet") == bool(name):
        raise ValueError(f"{encoder!r} is not an encoder: give {ENCODERS[kind][0]}.")
    _, module, function = ENCODERS[kind]
    build: Callable[..., nn.Module] = getattr(import_module(f"lookalike.training.encoders.{module}"), function)
    check_options(encoder, build, options)
    check_prompts(options)
    check_lora(options)
    return build, name
