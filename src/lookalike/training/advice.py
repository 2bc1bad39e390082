"""Advise on a strategy before hours are spent: measure a sample of the data with the model as it is, and choose.

from lookalike import advise

advice = advise("glyphs")
print(advice.text)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from lookalike.analysis.bits import MAX_BITS, MIN_ROWS, TARGET, BitsPlan, plan_from_codes
from lookalike.analysis.measures import NEIGHBOURS
from lookalike.analysis.readiness import DECISIVE_RANK, Readiness, measure_readiness
from lookalike.samplers.warmup import compile_kernels
from lookalike.training.encoders import model_name
from lookalike.training.probe import Probe, draw, embed_sample, is_augmented
from lookalike.training.probe_measures import (
    NEAR,
    BatchHardness,
    FalseNegatives,
    count_false_negatives,
    find_nearest,
    measure_batches,
)
from lookalike.training.run import Plan
from lookalike.training.strategies import step_precision
from lookalike.training.whole_parts import warm_start_seed
from lookalike.utils.checks import checked_bits, checked_integer
from lookalike.utils.machine import checked_device
from lookalike.utils.progress import working

if TYPE_CHECKING:
    from lookalike.training.run import Data, Model
    from lookalike.training.settings import Settings

SAMPLE = 8192
CENTERS = (0.0, 0.5, 1.0)  # fractions of the mean to compare
WORTH_IT = 0.01  # of the true neighbours that another centring must find in addition
LARGE_BATCH = 0.5  # of the training set, above which a random batch is as hard as any
MANY_DOUBLES = 0.01  # samples with a double under another label, from which the guard is worth its time
MOSTLY_DOUBLES = 0.5  # samples with a double, from which model and data hardly fit each other
GUARD = 0.95


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What a sample of the data says about strategies, and the choice."""

    data: str
    """Name of the data set."""
    model: str
    """The model that embedded the sample."""
    paired: bool
    """Whether the data are pairs rather than labelled samples."""
    population: int
    """Samples, or pairs, of the training part; those without a positive do not count."""
    sample: int
    """How many of them were embedded."""
    whole_classes: bool
    """Whether all samples of the drawn classes were embedded."""
    dim: int
    """Dimension of the embeddings."""
    seconds: float
    """Time it took to embed the sample, augmented as in training."""
    pairs_per_batch: int
    """Size of the batches that were measured."""
    readiness: Readiness
    """How often a positive is nearer than the k-th negative, in bits; ranks are scaled to the population."""
    positive: float
    """Mean cosine of the nearest positive."""
    hardest: float
    """Mean cosine of the nearest negative in the sample."""
    random: BatchHardness
    """Hardness of random batches."""
    mined: BatchHardness
    """Hardness of batches composed from codes; among all samples they are at least as hard as in a part of them."""
    false_negatives: FalseNegatives
    """Negatives that may be positives; among all samples there are at least as many as in a part of them."""
    plans: dict[float, BitsPlan]
    """For each fraction of the mean to subtract, what each code length finds."""
    bits: int
    """The shortest codes that find enough of the true neighbours."""
    center: float
    """The fraction of the mean with which they find most."""
    warm_start: bool
    """Whether to compose the first epoch from embeddings of the model as it is."""
    settings: Settings
    """The settings to train with."""
    reasons: tuple[str, ...]
    """Why, in sentences."""

    @property
    def text(self) -> str:
        """The reasons as one paragraph."""
        return " ".join(self.reasons)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for a JSON file."""
        return asdict(self) | {
            "readiness": asdict(self.readiness) | {"is_ready": self.readiness.is_ready},
            "plans": [{"center": center} | asdict(plan) for center, plan in self.plans.items()],
        }


def advise(
    data: Data,
    settings: Settings | None = None,
    *,
    model: Model | None = None,
    sample: int = SAMPLE,
    k: int = NEIGHBOURS,
    target: float = TARGET,
    max_bits: int = MAX_BITS,
    device: str | None = None,
    progress: bool = True,
) -> Advice:
    """Embed a sample of the training part without gradients, measure it, and choose a strategy.

    Samples are augmented as in training, except to look for false negatives.

    Args:
        data: As in `train`.
        settings: Batch size, composition and seed; the data set's recipe by default.
        model: As in `train`.
        sample: The most samples, or pairs, to embed. Labelled data are drawn by whole classes.
        k: Hard negatives per sample that codes should find.
        target: Fraction of the true k nearest to find.
        max_bits: The longest codes to consider.
        device: Device of torch; by default a GPU if there is one.
        progress: Draw progress bars if stderr is a terminal.

    Raises:
        ValueError: An argument is impossible, or the sample is too small.
        UnreadableSampleError: A sample cannot be read.

    Examples:
        >>> from lookalike import Settings, advise
        >>> advice = advise("glyphs", Settings(pairs_per_batch=32), sample=2048)  # doctest: +SKIP
        >>> advice.settings.strategy, advice.warm_start  # doctest: +SKIP
        ('lsh:512', False)
    """
    checked_integer("sample", sample, 2 * MIN_ROWS)  # whole classes may fill only half of it
    checked_integer("k", k, 1)
    checked_bits(max_bits)
    plan = Plan.of(data, settings, model)
    plan.check(resume=False, force=False)
    place, settings = torch.device(checked_device(device)), plan.settings
    loaded = plan.load_data(progress=progress)
    drawn = draw(loaded.train, sample, settings.pairs_per_batch, settings.seed)
    encoder = plan.build_model()
    how: dict[str, Any] = {"device": place, "precision": step_precision(settings, place), "progress": progress}
    seed = warm_start_seed(settings.seed)
    probe = plain = embed_sample(encoder, loaded, drawn, seed=seed, **how)
    if is_augmented(loaded.train, drawn.ids, seed):  # which would hide doubles
        plain = embed_sample(encoder, loaded, drawn, seed=None, **how)
    with working("comparing the sample with itself", shown=progress):
        compile_kernels()
        names = {"data": loaded.name, "model": model_name(encoder)}
        return _measured(probe, plain, settings, names, k=k, target=target, max_bits=max_bits)


def _measured(
    probe: Probe, plain: Probe, settings: Settings, names: dict[str, Any], *, k: int, target: float, max_bits: int
) -> Advice:
    plans = {}
    for center in sorted({*CENTERS, settings.center}):
        codes = probe.codes(max_bits, center, settings.seed)
        plans[center] = plan_from_codes(
            probe.query,
            probe.reference,
            *codes,
            probe.classes,
            n=probe.population,
            k=min(k, probe.population // 2),
            target=target,
        )
    bits, center = _choose_code(plans, settings.center)
    codes = probe.codes(bits, center, settings.seed)
    readiness = measure_readiness(
        codes[0],
        probe.classes,
        reference=codes[1] if probe.paired else None,
        population=probe.population,
        seed=settings.seed,
    )
    nearest = find_nearest(probe)
    facts: dict[str, Any] = {
        "population": probe.population,
        "readiness": readiness,
        "positive": float(nearest.positive.mean()),
        "hardest": float(nearest.negative[nearest.row >= 0].mean()),
        "random": measure_batches(probe, nearest, settings, None),
        "mined": measure_batches(probe, nearest, settings, codes),
        "false_negatives": count_false_negatives(plain, find_nearest(plain)),
        "plans": plans,
        "bits": bits,
        "center": center,
    }
    chosen, reasons = _choose(settings, probe.paired, **facts)
    return Advice(
        **names,
        paired=probe.paired,
        sample=len(probe),
        whole_classes=probe.whole_classes,
        dim=probe.query.shape[1],
        seconds=probe.seconds,
        pairs_per_batch=settings.pairs_per_batch,
        warm_start=chosen.sampler == "lsh" and readiness.is_ready,
        settings=chosen,
        reasons=reasons,
        **facts,
    )


def _choose_code(plans: dict[float, BitsPlan], usual: float) -> tuple[int, float]:
    """Return the fewest bits that any centring needs, and the centring that finds most with them.

    The usual centring is kept unless another one finds clearly more.
    """
    bits = min(plan.bits for plan in plans.values())
    found = {center: plan.predicted(bits)[0] for center, plan in plans.items()}
    best = max(found, key=lambda center: found[center])
    return bits, best if found[best] - found[usual] > WORTH_IT else usual


def _choose(
    settings: Settings,
    paired: bool,
    *,
    population: int,
    readiness: Readiness,
    positive: float,
    hardest: float,
    random: BatchHardness,
    mined: BatchHardness,
    false_negatives: FalseNegatives,
    plans: dict[float, BitsPlan],
    bits: int,
    center: float,
) -> tuple[Settings, tuple[str, ...]]:
    """Return the settings to train with, and why."""
    things, size = "pairs" if paired else "samples", settings.pairs_per_batch
    per_batch = size if paired else 2 * size
    if per_batch - 1 >= LARGE_BATCH * (population - 1):
        reason = (
            f"A batch of {size:,} pairs holds {min(1, per_batch / population):.0%} of all {population:,} {things}, and "
            "with them most hard negatives: random batches are as hard as any. Mining pays with smaller batches."
        )
        return replace(settings, sampler="random"), (reason,)
    mine = (
        f"Mine: the hardest negative in a batch has a cosine of {mined.cosine:.2f} if batches are composed from bits, "
        f"and {random.cosine:.2f} if they are random; the hardest of all has {hardest:.2f}."
    )
    reasons = [mine]
    beats = readiness.beats[DECISIVE_RANK]
    ordinal = f"{DECISIVE_RANK}nd negative in {beats:.0%} of cases"
    if readiness.is_ready:
        reasons.append(
            f"The model is ready for hard batches from the first step: the positive is nearer than the {ordinal}."
        )
        settings = replace(settings, sampler="lsh", bits=bits, center=center)
        reasons.append(f"{plans[center].reason}." if bits == plans[center].bits else _bits_reason(plans[center], bits))
    else:
        reasons.append(
            f"The model is not ready for hard batches yet: the positive is nearer than the {ordinal}, so the first "
            "epoch should be random. What its neighbours are says little about those of the trained model, so the "
            "bits stay as they are."
        )
        settings = replace(settings, sampler="lsh", warm_start="off")
    if random.cosine > NEAR * positive:
        reasons.append(
            f"All cosines are high, that of the positive being {positive:.2f}, so that many negatives come within "
            f"{NEAR} of it without being positives: a threshold there, in a filter or in the loss, would drop too many."
        )
    doubles = false_negatives.identical
    if doubles >= MOSTLY_DOUBLES:
        reasons.append(
            f"{doubles:.0%} of the {things} cannot be told from one with another label, so little of this can be "
            "relied on: check that the model can read the data, and the data for duplicates."
        )
    if readiness.is_ready and doubles >= MANY_DOUBLES:
        settings = replace(settings, guard=GUARD)
        reasons.append(
            f"{doubles:.1%} of the {things} have a double with another label: give doubles one label, or let the guard "
            "keep them apart."
        )
    return settings, tuple(reasons)


def _bits_reason(plan: BitsPlan, bits: int) -> str:
    found, error = plan.predicted(bits)
    return f"{bits} bits are predicted to find {found:.1%} ± {error:.1%} of the true {plan.k} nearest."
