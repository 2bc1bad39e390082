"""Check a model before training: does it take what the data set returns, and does it suit mining?"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from lookalike.training.encoders import model_name
from lookalike.training.loading import embed, read

if TYPE_CHECKING:
    from lookalike.data.retrieval import TrainingPart

logger = logging.getLogger("lookalike")


def check_model(model: nn.Module, part: TrainingPart, data: str, precision: torch.dtype) -> None:
    """Check that a model turns samples into embeddings.

    Args:
        model: The model.
        part: The training part, on the model's device.
        data: Name of the data set.
        precision: Precision of the computation.

    Raises:
        ValueError: It does not, or it has different prompts for the one tower of labelled data.
    """
    check_prompts(model, part, data)
    x = read(part.plain, "query", torch.arange(2))
    try:
        shape = list(embed(model, lambda _: x, 2, tower="query", batch_size=2, precision=precision).shape)
    except (RuntimeError, ValueError, TypeError, AttributeError, IndexError) as error:
        given = f"{x.dtype} {list(x.shape)}" if isinstance(x, Tensor) else "a list of texts"
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"{model_name(model)} cannot embed what {data} gives, {given}: {reason}; choose another model with model=."
        ) from error
    if len(shape) != 2 or shape[0] != 2:
        raise ValueError(f"a model must turn n samples into embeddings [n, dim], got {shape} from 2 samples.")


def check_prompts(model: nn.Module, part: TrainingPart, data: str) -> None:
    """Check that labelled data, whose samples are queries and references in turns, get one prompt.

    Raises:
        ValueError: The model has one prompt for queries and another for documents.
    """
    prompts = getattr(model, "tower_prompts", {})
    query, document = prompts.get("query", ""), prompts.get("reference", "")
    if part.pairs is None and query != document:
        raise ValueError(
            f"{data} has labels and no pairs, so the same texts are queries and documents, but the model has the "
            f"prompt {query!r} for queries and {document!r} for documents: set the model's options query_prompt and "
            "document_prompt to the same text, or to an empty one."
        )


def normalises_batches(model: nn.Module) -> bool:
    """Return whether a model in training mode normalises batches."""
    batch_norm = nn.modules.batchnorm._BatchNorm  # noqa: SLF001 - the common base of all of them
    return any(isinstance(each, batch_norm) and each.training for each in model.modules())


def warn_of_batch_norm(model: nn.Module) -> None:
    """Warn if a model normalises batches, which hides what mined batches are made for."""
    if normalises_batches(model.train()):
        logger.warning(
            "the model normalises batches: in a batch of lookalikes that removes what they have in common, and "
            "embeddings of different batches cannot be compared; group or layer normalisation suits mining better."
        )
