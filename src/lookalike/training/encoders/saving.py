"""Save trained models in the format of the library they come from, so that the library can read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor, nn

WEIGHTS = "model.safetensors"


def save_model(model: nn.Module, folder: Path) -> None:
    """Write a model into a folder with its own `save_pretrained`, if it has one; otherwise write its weights alone."""
    own: Any = getattr(model, "save_pretrained", None)
    if callable(own):
        own(str(folder))
    else:
        save_weights(model.state_dict(), folder / WEIGHTS)


def save_weights(weights: dict[str, Tensor], path: Path) -> None:
    """Write a state dict; write tied weights once per name."""
    from safetensors.torch import save_file  # noqa: PLC0415 - needed only here

    seen: set[int] = set()
    tensors = {}
    for name, tensor in weights.items():
        here = tensor.cpu().contiguous()
        shared = here.untyped_storage().data_ptr() in seen
        seen.add(here.untyped_storage().data_ptr())
        tensors[name] = here.clone() if shared else here
    save_file(tensors, path)
