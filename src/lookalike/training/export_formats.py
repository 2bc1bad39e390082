"""Write a trained encoder in the format of a library that loads it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch

from lookalike.training.encoders.images import ImageEncoder, TimmEncoder
from lookalike.training.encoders.prompts import by_their_names
from lookalike.training.encoders.saving import WEIGHTS, save_model, save_weights
from lookalike.training.encoders.sentences import SentenceEncoder
from lookalike.training.encoders.transformers import PooledImageEncoder, TextEncoder
from lookalike.utils.checks import check_choice
from lookalike.utils.imports import sentence_transformers

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

Format = Literal["auto", "sentence-transformers", "timm", "transformers", "safetensors"]
PLAIN = "safetensors"  # the weights alone, which every model has
SENTENCES = "sentence-transformers"


@dataclass(frozen=True)
class Exported:
    """A format that a model can be written in."""

    name: str
    write: Callable[[Any, Path], None]
    takes: Literal["texts", "images"]


def formats_of(model: nn.Module) -> list[Exported]:
    """Return the formats that a model can be written in, the most natural one first."""
    takes: Literal["texts", "images"] = "texts" if hasattr(model, "prepare") else "images"
    found = []
    if isinstance(model, TextEncoder):
        found = [
            Exported(SENTENCES, save_as_sentence_transformer, takes),
            Exported("transformers", save_model, takes),
        ]
    elif isinstance(model, SentenceEncoder):
        found = [Exported(SENTENCES, save_model, takes)]
    elif isinstance(model, TimmEncoder):
        found = [Exported("timm", save_model, takes)]
    elif isinstance(model, PooledImageEncoder):
        found = [Exported("transformers", save_model, takes)]
    return [*found, Exported(PLAIN, _save_weights, takes)]


def choose_format(model: nn.Module, name: str) -> Exported:
    """Return the format of this name, or the most natural one for "auto".

    Raises:
        ValueError: There is no such format, or the model cannot be written in it.
    """
    check_choice("format", name, get_args(Format))
    known = formats_of(model)
    if name == "auto":
        return known[0]
    if found := next((each for each in known if each.name == name), None):
        return found
    names = " or ".join(each.name for each in known)
    raise ValueError(f"a {type(model).__name__} cannot be written for {name}; leave out format=, or choose {names}.")


def save_as_sentence_transformer(encoder: TextEncoder, folder: Path) -> None:
    """Write a text encoder of transformers as `SentenceTransformer(folder)` reads it.

    Its modules do what training did: the transformer, the mean over the tokens of a text, and unit length, because
    training compares by cosine.
    """
    with sentence_transformers() as library, tempfile.TemporaryDirectory() as plain:
        from sentence_transformers.sentence_transformer import modules  # noqa: PLC0415 - with torchvision hidden

        save_model(encoder, Path(plain))
        transformer = modules.Transformer(
            plain,
            max_seq_length=encoder.max_length,
            model_kwargs={"dtype": torch.float32, "trust_remote_code": False},
            config_kwargs={"trust_remote_code": False},
        )
        whole = library.SentenceTransformer(
            modules=[transformer, modules.Pooling(encoder.dim, "mean"), modules.Normalize()],
            device="cpu",
            prompts=by_their_names(encoder.tower_prompts),
            similarity_fn_name="cosine",
        )
        whole.save_pretrained(str(folder), create_model_card=False)


def _save_weights(model: nn.Module, folder: Path) -> None:
    save_weights(model.state_dict(), folder / WEIGHTS)


def image_size(model: nn.Module, config: dict[str, Any]) -> list[int] | None:
    """Return channels, height and width of the images that a run trained on, as far as they are known."""
    size = (config.get("data_options") or {}).get("size")
    if not isinstance(model, ImageEncoder):
        return None
    if isinstance(size, int):
        return [3, size, size]
    return [3, *size] if isinstance(size, list | tuple) and len(size) == 2 else None
