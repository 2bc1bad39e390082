"""Image encoders: models of timm, and what all image encoders have in common."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lookalike.training.encoders.encoding import Encoder
from lookalike.utils.imports import import_timm
from lookalike.utils.messages import first_line


class ImageEncoder(Encoder):
    """Embed images as the pooled features of a network, after normalising them as in its pretraining.

    Args:
        network: Turns floats `[n, 3, height, width]` into features `[n, dim]`.
        dim: Length of the features.
        mean: Means of the three channels, for values between 0 and 1.
        std: Standard deviations of the three channels.
        freeze_batch_norm: Keep the statistics of the pretraining in batch normalisation. Statistics of the batch would
            subtract what the lookalikes in it have in common, and so undo mining.
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
        """Turn uint8, or floats from 0 to 1, `[n, 3, height, width]` into embeddings `[n, dim]`."""
        floats = images.float() / 255 if images.dtype == torch.uint8 else images
        floats = (floats - self.mean) / self.std
        embeddings: Tensor = self.network(floats.contiguous(memory_format=torch.channels_last))
        return embeddings

    def train(self, mode: bool = True) -> ImageEncoder:
        """Switch to training mode, except for frozen batch normalisation."""
        super().train(mode)
        if self.freeze_batch_norm:
            for module in self.network.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):  # noqa: SLF001 - the common base of all of them
                    module.eval()
        return self


class TimmEncoder(ImageEncoder):
    """Wrap a model of timm."""

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
    """Build an image model of timm, without its classifier.

    Args:
        name: timm's name, such as `convnext_base.fb_in22k`, or a local folder that timm saved.
        pretrained: Start from the pretrained weights, in timm's own cache.
        weights: Start from the weights in this file instead: a state dict with timm's names, written by safetensors or
            by torch.
        gradient_checkpointing: Compute activations twice and keep fewer: slower, less memory.
        freeze_batch_norm: See `ImageEncoder`; by default, true if there are trained statistics to keep.

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
            f"timm cannot make {name!r}: {first_line(error)}; timm.list_models() lists the names; if weights "
            "cannot be downloaded, weights=FILE loads a copy and pretrained=False starts without."
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
    """Return the file of weights in a folder that timm wrote."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (folder / name).is_file():
            return folder / name
    raise ValueError(f"{folder} holds no weights of timm: model.safetensors is missing.")


def load_weights(network: nn.Module, path: Path) -> None:
    """Load a state dict from a file; ignore weights that the network does not have, such as a classifier's.

    Raises:
        ValueError: The file is missing or damaged, or belongs to another network.
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
        raise ValueError(f"weights: {path} belongs to another network: {str(error).splitlines()[-1].strip()}") from None
    if missing:
        raise ValueError(
            f"weights: {path} belongs to another network: it lacks {missing[0]} and {len(missing) - 1} others."
        )
