"""Training settings: everything that decides the outcome of a run, apart from data and model.

`Settings` is their only declaration. Options of the command line, YAML files and the documentation's tables are made
from its fields and the docstring under each. This module does not import torch, so that `--help` is fast.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from lookalike.utils.checks import (
    MASKS,
    TEMPERATURES,
    Range,
    check_choice,
    check_code_length,
    checked_bits,
    checked_integer,
)
from lookalike.utils.messages import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Sampler = Literal["random", "batchhard", "full", "incremental", "lsh"]
Method = Literal["growth", "sample4geo"]
WarmStart = Literal["auto", "on", "off"]
Code = Literal["signs", "scalar", "auto"]

CODES = ("scalar", "auto")  # kinds of codes other than signs
SAMPLERS: dict[Sampler, str] = {
    "random": "random batches",
    "batchhard": "random batches, with only the hardest half of the negatives in the loss",
    "full": "hard negatives by exact cosine, with the training set embedded again before every epoch",
    "incremental": "hard negatives by exact cosine of the embeddings that training produced",
    "lsh": "hard negatives from bits of the embeddings that training produced",
}
WITHOUT_MINING = ("random", "batchhard")
Preset = Literal["paper"]
PRESETS: dict[Preset, dict[str, Any]] = {
    "paper": {"neighbourhood": None, "warm_start": "off", "center": 1.0, "hardness": 1.0, "method": "growth"},
}
RANGES = {
    "center": Range(0, 1, with_high=True),
    "target_overlap": Range(0, 1, with_low=False, with_high=True),
    "learning_rate": Range(0, with_low=False),
    "weight_decay": Range(0),
    "warmup": Range(0, 1),
    "clip": Range(0),
    "temperature": TEMPERATURES,
    "label_smoothing": Range(0, 1),
    "hardness": Range(0, 1, with_high=True),
    "warm_hardness": Range(0, 1, with_high=True),
    "guard": Range(0, 2, with_low=False, with_high=True),
    "validation_share": Range(0, 1),
    "mask_above": MASKS,
}
MAY_BE_NONE = ("guard", "mask_above")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that decides the outcome of a run, apart from data and model.

    Raises:
        ValueError: A value is impossible.
        TypeError: A value has the wrong type.

    Examples:
        >>> Settings(bits=256, epochs=5).strategy
        'lsh:256'
        >>> Settings.from_dict({"sampler": "lsh:auto", "learning_rate": 1e-4}).bits
        'auto'
    """

    sampler: Sampler = "lsh"
    """How to choose negatives: random, batchhard, full, incremental or lsh; on the command line and in files, lsh:BITS,
    lsh:auto, scalar:BITS, scalar:auto and auto:auto set code and bits as well, where lsh stands for signs."""
    bits: int | Literal["auto"] = 512
    """Code length, or "auto" to choose it after every epoch; ignored unless the sampler is "lsh"."""
    code: Code = "signs"
    """What the bits hold: signs, one bit per rotated dimension as in the paper, or scalar, several bits for each
    principal component, which find as many true neighbours with fewer bits; with bits="auto" also auto, whichever takes
    fewer bits; ignored unless the sampler is "lsh"."""
    center: float = 1.0
    """Fraction of the mean embedding to subtract before hashing to signs; ignored unless the sampler is "lsh"."""
    target_overlap: float = 0.5
    """Fraction of the true neighbours that bits="auto" aims to find; ignored for other bits."""
    epochs: int = 10
    """Passes over the training set."""
    pairs_per_batch: int = 128
    """Pairs of query and reference per batch; of all processes together where several train one model."""
    chunk: int | None = None
    """Pairs that each process embeds at a time. The loss and its gradient are still those of the whole batch, but it is
    embedded twice, and activations take the memory of a chunk; batch normalisation, if the model has any, sees chunks.
    By default the batch is not divided."""
    learning_rate: float = 1e-3
    """Highest learning rate; it rises linearly during the warm-up and falls to zero along a cosine."""
    weight_decay: float = 0.01
    """Weight decay of AdamW; norms, biases and the temperature do not decay."""
    warmup: float = 0.05
    """Fraction of all steps in which the learning rate rises."""
    clip: float = 1.0
    """Largest norm of the gradient; 0 turns clipping off."""
    temperature: float = 0.07
    """Initial temperature of InfoNCE; it is learned."""
    label_smoothing: float = 0.1
    """Fraction of the target that InfoNCE spreads over the whole batch."""
    mask_above: float | None = None
    """Leave likely false negatives out of the loss: those whose similarity exceeds this fraction of the positive's,
    such as 0.95."""
    hardness: float = 1.0
    """Fraction of a batch that consists of hard negatives; ignored by "random" and "batchhard"."""
    neighbourhood: int | Literal["auto"] | None = "auto"
    """Pairs per neighbourhood: a larger batch holds several neighbourhoods of lookalikes, a smaller one is a single
    neighbourhood. "auto" makes a batch of up to 64 pairs a single one and fills larger batches with neighbourhoods of
    32; None makes every batch a single one. Ignored by "random", "batchhard" and the method "sample4geo"."""
    warm_start: WarmStart = "auto"
    """Embed the training set once before the first epoch, so that it is mined too: on, off, or auto, which uses the
    codes only if they show that the model is ready for hard batches. Ignored unless the sampler is "lsh"."""
    warm_hardness: float = 0.5
    """Hardness of a first epoch that is composed from a warm start, unless hardness is lower still; ignored unless the
    sampler is "lsh"."""
    method: Method = "growth"
    """How to compose batches from neighbours: growth or sample4geo; ignored by "random" and "batchhard"."""
    guard: float | None = None
    """Keep classes apart for an epoch that are likely one: most of their samples see the other class at more than this
    fraction of the cosine of their own positive, such as 0.95; ignored unless the sampler is "lsh"."""
    track_overlap: bool = False
    """Measure after every epoch how many true hard negatives bits find; keeps the epoch's embeddings in memory."""
    evaluate_every: int = 1
    """Epochs between evaluations; 0 evaluates only before the first and after the last epoch."""
    validation_share: float = 0.0
    """Fraction of the training classes, or pairs, to hold out for validation: the weights of the epoch with the best
    MRR@10 on them are kept, and the test is evaluated only before training and with these weights."""
    patience: int | None = None
    """Evaluations in a row without a better MRR@10 on the validation part after which training stops early."""
    seed: int = 0
    """Seed of weights, batches and rotation."""
    mixed_precision: bool = True
    """Compute in bfloat16 or float16 on a GPU."""

    def __post_init__(self) -> None:
        check_choice("sampler", self.sampler, get_args(Sampler))
        check_choice("method", self.method, get_args(Method))
        check_choice("warm_start", self.warm_start, get_args(WarmStart))
        check_choice("code", self.code, get_args(Code))
        if self.bits != "auto":
            checked_bits(self.bits)
            if self.code == "auto":
                raise ValueError(
                    f'code="auto" chooses what takes fewer bits, so it needs bits="auto", got {self.bits}.'
                )
            check_code_length(self.code, self.bits)
        for name, low in (("epochs", 1), ("pairs_per_batch", 2), ("evaluate_every", 0), ("seed", 0)):
            checked_integer(name, getattr(self, name), low)
        if self.neighbourhood not in (None, "auto"):
            checked_integer("neighbourhood", self.neighbourhood, 1)
        for name, allowed in RANGES.items():
            if name not in MAY_BE_NONE or getattr(self, name) is not None:
                allowed.check(name, getattr(self, name))
        if self.chunk is not None:
            checked_integer("chunk", self.chunk, 1)
        if self.patience is not None:
            checked_integer("patience", self.patience, 1)
            if self.evaluate_every == 0:
                raise ValueError(
                    "patience= counts evaluations, and evaluate_every=0 has none between epochs: set it to 1 or more."
                )
        for name in ("track_overlap", "mixed_precision"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be true or false, got {getattr(self, name)!r}.")

    @property
    def strategy(self) -> str:
        """Name of the sampler in tables; that of lsh says which codes of how many bits."""
        return strategy_name(self.sampler, self.code, self.bits)

    @classmethod
    def from_dict(cls, options: Mapping[str, Any], usual: Self | None = None) -> Self:
        """Make settings from a dictionary, such as a recipe, a YAML file or options of the command line.

        Args:
            options: Settings by name; the sampler may be a strategy, such as "lsh:128".
            usual: Settings to start from; the defaults if None.

        Raises:
            ValueError: There is no setting of that name, two settings contradict each other, or a value is impossible.
            TypeError: A value has the wrong type.
        """
        known = [each.name for each in fields(cls)]
        if unknown := [name for name in options if name not in known]:
            raise ValueError(f"there is no setting {unknown[0]!r}{suggestion(unknown[0], known)}")
        changes = dict(options)
        if isinstance(changes.get("sampler"), str):
            changes |= parse_strategy(changes["sampler"])
            for name in ("bits", "code"):
                if options.get(name, changes.get(name)) != changes.get(name):
                    raise ValueError(
                        f"sampler={options['sampler']} and {name}={options[name]} contradict each other: set one of "
                        "them."
                    )
        return replace(usual or cls(), **changes)

    def check_used(self, names: Iterable[str]) -> None:
        """Check that none of the settings of these names would be ignored.

        Raises:
            ValueError: The sampler, or another setting, leaves no use for one of them.
        """
        asked, is_lsh, mines = set(names), self.sampler == "lsh", self.sampler not in WITHOUT_MINING
        used = {
            "bits": is_lsh,
            "code": is_lsh,
            "guard": is_lsh,
            "center": is_lsh,
            "warm_start": is_lsh,
            "warm_hardness": is_lsh,
            "target_overlap": is_lsh and self.bits == "auto",
            "hardness": mines,
            "neighbourhood": mines,
            "method": mines,
        }
        if unused := [name for name in used if name in asked and not used[name]]:
            raise ValueError(f"{unused[0]}= has no effect with the sampler {self.strategy}.")
        for name, other, value in (("warm_hardness", "warm_start", "off"), ("neighbourhood", "method", "sample4geo")):
            if name in asked and getattr(self, other) == value:
                raise ValueError(f"{name}= has no effect with {other}={value}.")


def strategy_name(sampler: str, code: str | None, bits: int | str | None) -> str:
    """Name a sampler and its codes, as tables do and `parse_strategy` reads it.

    Examples:
        >>> strategy_name("lsh", "signs", 512), strategy_name("lsh", "scalar", 128), strategy_name("random", None, None)
        ('lsh:512', 'scalar:128', 'random')
    """
    if sampler != "lsh":
        return sampler
    return f"{code if code in CODES else 'lsh'}:{bits or '?'}"


def parse_strategy(text: str) -> dict[str, Any]:
    """Return the settings of a strategy: the name of a sampler, or KIND:BITS with the kind "lsh", "scalar" or "auto".

    Raises:
        ValueError: There is no such strategy.

    Examples:
        >>> parse_strategy("lsh:128")
        {'sampler': 'lsh', 'code': 'signs', 'bits': 128}
        >>> parse_strategy("scalar:128")
        {'sampler': 'lsh', 'code': 'scalar', 'bits': 128}
    """
    name, _, bits = text.partition(":")
    if name not in (*SAMPLERS, *CODES):
        raise ValueError(
            f"there is no sampler {name!r} among {', '.join(SAMPLERS)}, lsh:BITS, lsh:auto, scalar:BITS, scalar:auto "
            f"and auto:auto{suggestion(name, [*SAMPLERS, *CODES])}"
        )
    if not bits:
        return {"sampler": "lsh", "code": name} if name in CODES else {"sampler": name}
    if name not in ("lsh", *CODES) or not (bits == "auto" or bits.isdigit()):
        raise ValueError(
            f"{text!r} is not a sampler: only lsh and scalar take a number of bits, as in lsh:512, or choose it, as in "
            "lsh:auto."
        )
    code = name if name in CODES else "signs"
    return {"sampler": "lsh", "code": code, "bits": bits if bits == "auto" else int(bits)}
