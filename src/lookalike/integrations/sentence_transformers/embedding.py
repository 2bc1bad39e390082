"""Embed the anchors and positives of a data set as the trainer's loss would: same collator, prompts and precision."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sentence_transformers.util import batch_to_device
from torch.utils.data import DataLoader

from lookalike.integrations.warm_start import embedding_batch, own_batches

if TYPE_CHECKING:
    from datasets import Dataset
    from torch import Tensor

    from lookalike.integrations.sentence_transformers.numbering import NumberedRows

ROWS = 10_000  # read at a time to learn how long texts are
DATASET_NAME = "dataset_name"  # a column of the trainer's, by which the collator chooses prompts


def pairs_loader(trainer: Any, dataset: NumberedRows) -> DataLoader[Any]:
    """Read this rank's share of the anchors and positives, texts of similar length together."""
    arguments = trainer.args
    order = np.argsort(_lengths(dataset), kind="stable").tolist()
    batches = own_batches(order, embedding_batch(arguments.per_device_train_batch_size))
    return DataLoader(
        dataset,
        batch_sampler=batches,
        collate_fn=partial(_collated, trainer.data_collator, dataset.number_column),
        num_workers=arguments.dataloader_num_workers,
        pin_memory=arguments.dataloader_pin_memory,
        prefetch_factor=arguments.dataloader_prefetch_factor,
    )


def embed_pairs(trainer: Any, model: Any, batch: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the numbers of a batch's rows and the embeddings of their anchors and positives."""
    numbers = batch["label"]  # before it is moved: nothing needs to wait for the device
    features, _ = trainer.collect_features(batch_to_device(batch, trainer.args.device))
    with trainer.compute_loss_context_manager(), trainer.accelerator.autocast():
        anchors, positives = (model(side)["sentence_embedding"] for side in features[:2])
    return numbers, anchors, positives


def _collated(collator: Any, number_column: str, rows: list[dict[str, Any]]) -> Any:
    """Collate anchors and positives alone, without further columns of negatives."""
    others = [column for column in rows[0] if column not in (number_column, DATASET_NAME)][2:]
    return collator([{column: value for column, value in row.items() if column not in others} for row in rows])


def _lengths(dataset: Dataset) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return how many characters each pair has; what is not text has none."""
    features = dataset.features
    texts = [column for column in features if getattr(features[column], "dtype", "").endswith("string")][:2]
    lengths, plain = np.zeros(len(dataset), np.int64), dataset.with_format(None)
    for column in texts:
        only = plain.select_columns([column])
        for start in range(0, len(dataset), ROWS):
            lengths[start : start + ROWS] += [len(text or "") for text in only[start : start + ROWS][column]]
    return lengths
