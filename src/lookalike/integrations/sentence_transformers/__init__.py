"""Hard negatives inside sentence-transformers' trainer: one call before `train`.

trainer.py        HardNegatives: gives the trainer mined batches, observes its embeddings, joins its checkpoints
numbering.py      rows that carry their number from the data set to the loss
embedding.py      embeds anchors and positives as the loss would, before the first epoch
recording.py      records the embeddings that a loss computes
equal_texts.py    keeps pairs with a text in common apart
dealing.py        batches for loaders that deal whole batches to the ranks
"""

from lookalike.utils.imports import needed_for

with needed_for("training with sentence-transformers", "text"):
    from lookalike.integrations.sentence_transformers.trainer import HardNegatives

__all__ = ["HardNegatives"]
