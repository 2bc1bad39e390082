"""Encoders of images."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lookalike.utils.imports import import_timm
from lookalike.utils.messages import first_line


class ImageEncoder(nn.Module):
    """Images -> pooled features of a network, the images normalised as it was trained with.

    Args:
        network: Turns floats `[n, 3, height, width]` into features `[n, dim]`.
        dim: Length of the features.
        mean: Of the three channels, subtracted from values between 0 and 1.
        std: What they are divided by.
        freeze_batch_norm: Normalise by the statistics of the pretraining, and leave them. Batch normalisation would
            subtract what the lookalikes in a batch have in common, and so undo mining.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, dim: int, mean: Any, std: Any, *, freeze_batch_norm: bool = True) -> None:
        super().__init__()
        self.network, self.dim, self.freeze_batch_norm = network, dim, freeze_batch_norm
        for name, value in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(value, dtype=torch.float32).view(1, -1, 1, 1), persistent=False)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: Tensor) -> Tensor:
        """uint8, or floats from 0 to 1, [n, 3, height, width] -> embeddings [n, dim]."""
        floats = images.float() / 255 if images.dtype == torch.uint8 else images
        floats = (floats - self.mean) / self.std
        embeddings: Tensor = self.network(floats.contiguous(memory_format=torch.channels_last))
        return embeddings

    def train(self, mode: bool = True) -> ImageEncoder:
        """Training mode, but for batch normalisation where it is frozen."""
        super().train(mode)
        if self.freeze_batch_norm:
            for module in self.network.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):  # noqa: SLF001 - their common base
                    module.eval()
        return self


class TimmEncoder(ImageEncoder):
    """An `ImageEncoder` around a model of timm."""

    def save_pretrained(self, folder: str) -> None:
        """Write the model as `timm.create_model(f"local-dir:{folder}")` reads it."""
        plain = copy.deepcopy(self.network).to("cpu", memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        import_timm().models.save_for_hf(plain, folder, safe_serialization=True)


def timm_encoder(
    name: str,
    *,
    pretrained: bool = True,
    weights: str | None = None,
    gradient_checkpointing: bool = False,
    freeze_batch_norm: bool | None = None,
) -> ImageEncoder:
    """An image model of timm, without its classifier.

    Args:
        name: As timm calls it, such as `convnext_base.fb_in22k`, or a local folder that timm saved.
        pretrained: Begin with its pretrained weights, from timm's own cache.
        weights: Begin with these instead: a file of a state dict with timm's names, .safetensors or as torch saves it.
        gradient_checkpointing: Compute activations twice and keep fewer: slower, less memory.
        freeze_batch_norm: As in `ImageEncoder`; by default where there are trained statistics to keep.

    Raises:
        ImportError: timm or its torchvision is missing.
        ValueError: There is no such model, or its weights cannot be loaded.
    """
    timm = import_timm()
    local = Path(name).expanduser()
    is_trained = pretrained or weights is not None
    if local.is_dir():
        name = f"local-dir:{local}"
        if pretrained and weights is None:
            # Read here: some versions of timm unpickle whatever a local file holds.
            weights, pretrained = str(_weights_in(local)), False
    try:
        network = timm.create_model(name, pretrained=pretrained and weights is None, num_classes=0)
    except Exception as error:
        raise ValueError(
            f"timm cannot make {name!r}: {first_line(error)}; timm.list_models() has the names, and where weights "
            "cannot be downloaded, weights=FILE loads a copy and pretrained=False begins without."
        ) from error
    if weights is not None:
        load_weights(network, Path(weights).expanduser())
    if gradient_checkpointing:
        network.set_grad_checkpointing(True)
    settings = network.pretrained_cfg
    return TimmEncoder(
        network,
        network.num_features,
        settings["mean"],
        settings["std"],
        freeze_batch_norm=is_trained if freeze_batch_norm is None else freeze_batch_norm,
    )


def _weights_in(folder: Path) -> Path:
    """Find the weights in a folder that timm wrote."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (folder / name).is_file():
            return folder / name
    raise ValueError(f"{folder} holds no weights of timm: model.safetensors is missing.")


def load_weights(network: nn.Module, path: Path) -> None:
    """Load a state dict from a file; what the network has no place for, such as a classifier, is left.

    Raises:
        ValueError: The file is missing, damaged, or of another network.
    """
    if not path.is_file():
        raise ValueError(f"weights: there is no file {path}.")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file  # noqa: PLC0415 - only here

            state = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ValueError(f"weights: {path} is not a state dict: {first_line(error)}.") from error
    try:
        missing = network.load_state_dict(state, strict=False).missing_keys
    except RuntimeError as error:
        raise ValueError(f"weights: {path} is of another network: {str(error).splitlines()[-1].strip()}") from None
    if missing:
        raise ValueError(f"weights: {path} is of another network: it lacks {missing[0]} and {len(missing) - 1} others.")
