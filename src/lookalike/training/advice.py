"""Advise on a strategy before hours are spent: measure a sample of the data with the model as it is, and choose.

from lookalike import advise

advice = advise("glyphs")
print(advice.text)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from lookalike.analysis.bits import MAX_BITS, MIN_ROWS, TARGET, plan_from_codes, plan_scalar
from lookalike.analysis.measures import NEIGHBOURS
from lookalike.analysis.readiness import ENOUGH, measure_readiness
from lookalike.samplers.warmup import compile_kernels
from lookalike.training.advice_rules import Findings, choose
from lookalike.training.encoders import model_name
from lookalike.training.model_checks import check_prompts
from lookalike.training.probe import Probe, draw, embed_sample, is_augmented
from lookalike.training.probe_measures import count_false_negatives, find_nearest, measure_batches
from lookalike.training.run import Plan
from lookalike.training.strategies import step_precision
from lookalike.training.whole_parts import warm_start_seed
from lookalike.utils.checks import SHORTEST_CODE, checked_bits, checked_integer
from lookalike.utils.machine import checked_device
from lookalike.utils.progress import working

if TYPE_CHECKING:
    from lookalike.training.run import Data, Model
    from lookalike.training.settings import Settings

SAMPLE = 8192
CENTERS = (0.0, 0.5, 1.0)  # fractions of the mean to show


@dataclass(frozen=True, kw_only=True)
class Advice(Findings):
    """What a sample of the data says about strategies, and the choice."""

    data: str
    """Name of the data set."""
    model: str
    """The model that embedded the sample."""
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
    warm_start: bool
    """Whether to compose the first epoch from embeddings of the model as it is, as "auto" will."""
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
            "readiness": asdict(self.readiness) | {"is_ready": self.readiness.is_ready, "enough": ENOUGH},
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
    check_prompts(encoder, loaded.train, loaded.name)
    how: dict[str, Any] = {"device": place, "precision": step_precision(settings, place), "progress": progress}
    seed = warm_start_seed(settings.seed)
    probe = plain = embed_sample(encoder, loaded, drawn, seed=seed, **how)
    if is_augmented(loaded.train, drawn.ids, seed):  # which would hide duplicates
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
    scalar = None
    if max_bits >= SHORTEST_CODE:
        scalar = plan_scalar(
            probe.query,
            probe.reference,
            None,
            probe.classes,
            n=probe.population,
            k=min(k, probe.population // 2),
            target=target,
            max_bits=max_bits,
            seed=settings.seed,
        )
    bits = plans[settings.center].bits
    codes = probe.codes(bits, settings.center, settings.seed)
    readiness = measure_readiness(
        codes[0],
        probe.classes,
        reference=codes[1] if probe.paired else None,
        population=probe.population,
        seed=settings.seed,
    )
    nearest = find_nearest(probe)
    found = Findings(
        paired=probe.paired,
        population=probe.population,
        readiness=readiness,
        positive=float(nearest.positive.mean()),
        hardest=float(nearest.negative[nearest.row >= 0].mean()),
        random=measure_batches(probe, nearest, settings, None),
        mined=measure_batches(probe, nearest, settings, codes),
        false_negatives=count_false_negatives(plain, find_nearest(plain)),
        plans=plans,
        scalar=scalar,
        bits=bits,
    )
    chosen, reasons = choose(settings, found)
    return Advice(
        **vars(found),
        **names,
        sample=len(probe),
        whole_classes=probe.whole_classes,
        dim=probe.query.shape[1],
        seconds=probe.seconds,
        pairs_per_batch=settings.pairs_per_batch,
        warm_start=chosen.sampler == "lsh" and readiness.is_ready,
        settings=chosen,
        reasons=reasons,
    )
