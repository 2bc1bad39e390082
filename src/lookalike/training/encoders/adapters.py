"""LoRA adapters of peft: add them to a model of transformers, and merge them into its weights to save it."""

from __future__ import annotations

import copy
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lookalike.utils.checks import Range, checked_positive
from lookalike.utils.imports import optional_import, text_library
from lookalike.utils.messages import first_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import nn

OPTIONS = ("lora", "lora_alpha", "lora_dropout", "lora_targets")
ALL_LINEAR = "all-linear"  # peft's word for all linear layers
UNUSED = r"(.*\.)?pooler\..*"  # what embeddings here do not pass through
ALPHAS, DROPOUTS = Range(0, with_low=False), Range(0, 1)


def check_lora(options: Mapping[str, Any]) -> None:
    """Check the adapters among the options of an encoder, without the model.

    Raises:
        TypeError: A value has the wrong type.
        ValueError: A value is impossible, or belongs to adapters where there are none.
        MissingLibraryError: peft is not installed.
    """
    given = {name: options[name] for name in OPTIONS if options.get(name) is not None}
    if not given:
        return
    if "lora" not in given:
        raise ValueError(f"{next(iter(given))} has no effect without lora=RANK, such as lora=16.")
    checked_positive("lora", given["lora"])
    for name, allowed in (("lora_alpha", ALPHAS), ("lora_dropout", DROPOUTS)):
        if name in given:
            allowed.check(name, given[name])
    targets = given.get("lora_targets", ALL_LINEAR)
    if not isinstance(targets, str) and not (
        isinstance(targets, list | tuple) and targets and all(isinstance(each, str) for each in targets)
    ):
        raise TypeError(f'lora_targets must be names of layers, such as ["query","value"], got {targets!r}.')
    _import_peft()


def add_lora(
    network: nn.Module,
    name: str,
    *,
    rank: int,
    alpha: float | None = None,
    dropout: float = 0.0,
    targets: str | Sequence[str] | None = None,
) -> None:
    """Add adapters to a model in place; of all its parameters, only those of the adapters are trained.

    An adapter adds alpha / rank * B A x to the output of a layer with the input x, where A is a random matrix with
    `rank` rows and B, at the beginning, zero: the model computes what it did before.

    Args:
        network: A model of transformers.
        name: What errors call it.
        rank: The rank of the adapters.
        alpha: By default twice the rank.
        dropout: Probability of dropping an input of an adapter.
        targets: Names of layers, the ends of their full names, as a list or with commas between them; by default all
            linear layers that the embeddings pass through.

    Raises:
        MissingLibraryError: peft is not installed.
        ValueError: The model has no such layers, or peft knows no adapters for them.
    """
    peft = _import_peft()
    if isinstance(targets, str) and targets != ALL_LINEAR:
        targets = [each.strip() for each in targets.split(",")]
    config = peft.LoraConfig(
        r=rank,
        lora_alpha=2 * rank if alpha is None else alpha,
        lora_dropout=dropout,
        target_modules=ALL_LINEAR if targets is None else targets,
        exclude_modules=UNUSED if targets is None and _has_pooler(network) else None,
    )
    try:
        peft.inject_adapter_in_model(config, network)
    except (ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(
            f"{name} takes no adapters: {first_line(error)}; choose layers with lora_targets=, or leave out lora=."
        ) from error


@contextmanager
def merged(model: nn.Module) -> Iterator[None]:
    """Replace layers that have adapters by plain ones that compute the same, to save a model; undo it afterwards.

    The plain layers are on the CPU, so that merging takes no memory on a device.
    """
    layers: list[tuple[nn.Module, str, Any]] = [
        (parent, name, layer)
        for parent in model.modules()
        for name, layer in parent.named_children()
        if hasattr(layer, "get_base_layer")
    ]
    try:
        for parent, name, layer in layers:
            plain = copy.deepcopy(layer).cpu()
            plain.merge(safe_merge=True)
            setattr(parent, name, plain.get_base_layer())
        yield
    finally:
        for parent, name, layer in layers:
            setattr(parent, name, layer)


def _has_pooler(network: nn.Module) -> bool:
    return any(re.fullmatch(UNUSED, name) for name, _ in network.named_modules())


def _import_peft() -> Any:
    with text_library("transformers"):  # which peft imports
        return optional_import("peft", "lora=", "'lookalike[lora]'")
