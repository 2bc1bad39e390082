"""The rules of `advise`: from what was measured on a sample to settings, and a sentence for each choice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lookalike.analysis.readiness import DECISIVE_RANK, ENOUGH
from lookalike.training.probe_measures import NEAR

if TYPE_CHECKING:
    from lookalike.analysis.bits import BitsPlan
    from lookalike.analysis.readiness import Readiness
    from lookalike.training.probe_measures import BatchHardness, FalseNegatives
    from lookalike.training.settings import Settings

LARGE_BATCH = 0.5  # of the training set, above which a random batch is as hard as any
CLEARLY_MORE = 0.01  # of the true neighbours, from which another centring is worth a remark
MANY_DUPLICATES = 0.01  # samples with a duplicate under another label, from which the guard is worth its time
MOSTLY_DUPLICATES = 0.5  # samples with a duplicate, from which the model probably does not fit the data
GUARD = 0.95


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What was measured on a sample."""

    paired: bool
    """Whether the data are pairs rather than labelled samples."""
    population: int
    """Samples, or pairs, of the training part; those without a positive do not count."""
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
    scalar: BitsPlan | None
    """What codes of several bits per dimension find at each length; None where codes are too short for them."""
    bits: int
    """The shortest codes that find enough of the true neighbours, centred as the settings say."""

    @property
    def things(self) -> str:
        """What the data consist of: "pairs" or "samples"."""
        return "pairs" if self.paired else "samples"


def choose(settings: Settings, found: Findings) -> tuple[Settings, tuple[str, ...]]:
    """Return the settings to train with, and why, in sentences.

    Sampler, bits, warm start and guard are chosen. Everything else stays as it is, the centring in particular: which
    one finds the most neighbours before training does not tell which one trains best.

    Args:
        settings: What would be used without advice.
        found: What was measured.
    """
    size = settings.pairs_per_batch
    per_batch = size if found.paired else 2 * size
    if per_batch - 1 >= LARGE_BATCH * (found.population - 1):
        reason = (
            f"A batch of {size:,} pairs holds {min(1, per_batch / found.population):.0%} of all {found.population:,} "
            f"{found.things}, and with them most hard negatives: random batches are as hard as any. Mining pays with "
            "smaller batches."
        )
        return replace(settings, sampler="random"), (reason,)
    mine = (
        f"Mine: the hardest negative in a batch has a cosine of {found.mined.cosine:.2f} if batches are composed from "
        f"bits, and {found.random.cosine:.2f} if they are random; the hardest of all has {found.hardest:.2f}."
    )
    reasons = [mine]
    beats = (
        f"the positive is nearer than the {DECISIVE_RANK}nd negative in {found.readiness.beats[DECISIVE_RANK]:.0%} of "
        f"cases (the threshold is {ENOUGH:.0%})"
    )
    if found.readiness.is_ready:
        warm_start = "auto" if settings.warm_start == "off" else settings.warm_start
        settings = replace(settings, sampler="lsh", bits=found.bits, warm_start=warm_start)
        hardness = min(settings.hardness, settings.warm_hardness)
        reasons.append(
            f"The model is ready for hard batches from the first step: {beats}. With a warm start the first epoch is "
            f"mined too, at a hardness of {hardness:g}."
        )
        reasons.append(f"{found.plans[settings.center].reason}.")
    else:
        settings = replace(settings, sampler="lsh", warm_start="off")
        reasons.append(
            f"The model is not ready for hard batches yet: {beats}, so the first epoch should be random. The "
            "neighbours that it sees now say little about those of the trained model, so the number of bits stays as "
            "it is."
        )
    overlap = {center: plan.predicted(found.bits)[0] for center, plan in found.plans.items()}
    best = max(overlap, key=lambda center: overlap[center])
    if overlap[best] - overlap[settings.center] > CLEARLY_MORE:
        reasons.append(
            f"With {found.bits} bits, a center of {best:g} finds {overlap[best]:.1%} of the true neighbours, and "
            f"{settings.center:g} finds {overlap[settings.center]:.1%}. Center stays {settings.center:g}: finding more "
            "neighbours before training has not made better models overall."
        )
    if found.random.cosine > NEAR * found.positive:
        reasons.append(
            f"All cosines are high, that of the positive being {found.positive:.2f}, so many negatives come within "
            f"{NEAR} of it without being positives: mask_above={NEAR}, or a filter at that fraction, would drop too "
            "many. The guard judges whole classes instead."
        )
    duplicates = found.false_negatives.identical
    if duplicates >= MOSTLY_DUPLICATES:
        reasons.append(
            f"{duplicates:.0%} of the {found.things} cannot be told from one with another label, so do not rely on any "
            "of this: check that the model can read the data, and the data for duplicates."
        )
    if found.readiness.is_ready and duplicates >= MANY_DUPLICATES:
        settings = replace(settings, guard=GUARD)
        reasons.append(
            f"{duplicates:.1%} of the {found.things} have a duplicate with another label: give duplicates one label, "
            "or let the guard keep them apart."
        )
    return settings, tuple(reasons)
