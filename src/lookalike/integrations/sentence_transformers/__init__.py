"""Hard negatives inside sentence-transformers' trainer: one call before `train`.

trainer.py        HardNegatives: gives the trainer mined batches, observes its embeddings, joins its checkpoints
numbering.py      rows that carry their number from the data set to the loss
recording.py      the embeddings that a loss computes, caught while it does
equal_texts.py    pairs with a text in common kept apart
dealing.py        batches for loaders that deal whole batches to the ranks
"""

from lookalike.utils.imports import needed_for

with needed_for("training with sentence-transformers", "text"):
    from lookalike.integrations.sentence_transformers.trainer import HardNegatives

__all__ = ["HardNegatives"]
