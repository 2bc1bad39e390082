"""How to train: everything that decides the outcome of a run, but for data and model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lookalike.utils.checks import Range, check_choice, checked_bits, checked_integer, checked_positive

STRATEGIES = {
    "random": "random batches",
    "batchhard": "random batches, of which only the hardest half of the negatives counts",
    "full": "hard negatives by exact cosine, the training set embedded anew before every epoch",
    "incremental": "hard negatives by exact cosine of the embeddings that training produced",
    "lsh": "hard negatives from bits of the embeddings that training produced",
}
METHODS = ("growth", "sample4geo")


RANGES = {
    "target_overlap": Range(0, 1, with_low=False, with_high=True),
    "learning_rate": Range(0, with_low=False),
    "weight_decay": Range(0),
    "warmup": Range(0, 1),
    "clip": Range(0),
    "temperature": Range(0, with_low=False),
    "label_smoothing": Range(0, 1),
    "hardness": Range(0, 1, with_high=True),
    "guard": Range(0, 2, with_low=False, with_high=True),
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that decides the outcome of a run, but for data and model."""

    sampler: str = "lsh"
    """One of random, batchhard, full, incremental, lsh."""
    bits: int | str = 512
    """Length of the codes, or "auto": chosen at the end of every epoch; ignored unless the sampler is "lsh"."""
    target_overlap: float = 0.5
    """The share of the true neighbours that "auto" aims for."""
    epochs: int = 10
    pairs_per_batch: int = 128
    """Pairs per batch."""
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    """Not on norms, biases and the temperature."""
    warmup: float = 0.05
    """Share of all steps in which the learning rate rises."""
    clip: float = 1.0
    """Largest norm of the gradient; 0 for none."""
    temperature: float = 0.07
    """At the beginning; it is learned."""
    label_smoothing: float = 0.1
    hardness: float = 1.0
    """Share of a batch that is made of hard negatives."""
    clusters: int = 1
    """Neighbourhoods per batch."""
    method: str = "growth"
    """How batches are composed: growth or sample4geo."""
    guard: float | None = None
    """Keep likely false negatives apart (lsh only): share of the positive's cosine beyond which a negative is one."""
    track_overlap: bool = False
    """Measure every epoch what bits find of the true hard negatives; keeps the epoch's embeddings."""
    evaluate_every: int = 1
    """Epochs between evaluations; 0: only before training and after the last epoch, as always."""
    seed: int = 0
    mixed_precision: bool = True
    """On a GPU."""

    def __post_init__(self) -> None:
        if not isinstance(self.sampler, str):
            raise TypeError(f"sampler must be a name, got {type(self.sampler).__name__}.")
        parse_strategy(self.sampler)
        if self.bits != "auto":
            checked_bits(self.bits)
        for name in ("epochs", "pairs_per_batch", "clusters"):
            checked_positive(name, getattr(self, name))
        if self.pairs_per_batch < 2:
            raise ValueError("pairs_per_batch must be at least 2: a pair alone has no negative.")
        for name in ("evaluate_every", "seed"):
            checked_integer(name, getattr(self, name))
        for name, allowed in RANGES.items():
            if getattr(self, name) is not None or name != "guard":
                allowed.check(name, getattr(self, name))
        check_choice("method", self.method, METHODS)
        for name in ("track_overlap", "mixed_precision"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be true or false, got {getattr(self, name)!r}.")

    @property
    def strategy(self) -> str:
        """The sampler as it is named in tables: lsh with its bits."""
        return f"lsh:{self.bits}" if self.sampler == "lsh" else self.sampler


def parse_strategy(text: str) -> dict[str, Any]:
    """Settings for a strategy by its name; a number of bits, or "auto", may follow "lsh".

    Raises:
        ValueError: There is no such strategy.

    Examples:
        >>> parse_strategy("lsh:128")
        {'sampler': 'lsh', 'bits': 128}
    """
    name, _, bits = text.partition(":")
    if name not in STRATEGIES:
        raise ValueError(f"there is no sampler {name!r}; there are {', '.join(STRATEGIES)}, lsh:BITS and lsh:auto.")
    if not bits:
        return {"sampler": name}
    if name != "lsh" or not (bits == "auto" or bits.isdigit()):
        raise ValueError(
            f"{text!r} is not a sampler: only lsh takes a number of bits, as in lsh:512, or chooses it, as in lsh:auto."
        )
    return {"sampler": name, "bits": bits if bits == "auto" else int(bits)}
