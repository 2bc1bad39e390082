"""Show what a model confuses: anchors with their positive, the hard negatives found in bits, and the exact ones."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import normalize

from lookalike.hashing import ScalarCodes, ScalarHasher, SignHasher
from lookalike.negatives import hard_negatives, hardest_positives
from lookalike.report.text import shortened
from lookalike.search.cosine import cosine_topk
from lookalike.training.embedding import embed_part, load_run_data, load_run_model
from lookalike.training.run_folder import MODEL
from lookalike.training.settings import CODES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lookalike.data.retrieval import TrainingPart
    from lookalike.report.records.runs import Run

ANCHORS, NEGATIVES = 12, 6
LONGEST_TEXT = 240  # characters of a sample
LONGEST_REASON = 500  # characters of an error
DEFAULT_BITS = 512  # for runs that do not mine in bits


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A sample as the page shows it: a picture or a text."""

    id: int
    image: str = ""
    """A data URL."""
    is_ink: bool = False
    """Whether the picture is black on white, and inverted on a dark page."""
    text: str = ""
    cosine: float | None = None
    """Cosine with the anchor."""
    shared: bool = True
    """Whether bits and floats both choose it."""


@dataclass(frozen=True)
class Example:
    """An anchor and its neighbours."""

    anchor: Sample
    positive: Sample
    by_bits: list[Sample]
    exact: list[Sample]


@dataclass(frozen=True)
class Gallery:
    """Examples from one run."""

    run: Run
    bits: int
    examples: list[Example]

    @property
    def is_text(self) -> bool:
        """Whether the samples are shown as text."""
        return not self.examples[0].anchor.image

    @property
    def caption(self) -> str:
        """How to read it."""
        config = self.run.config
        seed = "" if config.seed is None else f" (seed {config.seed})"
        shared = sum(sample.shared for example in self.examples for sample in example.by_bits)
        total = sum(len(example.by_bits) for example in self.examples)
        return (
            f"{len(self.examples)} random anchors from the training set, the most confusable first, as the model of "
            f"{config.strategy}{seed} sees them: the positive farthest from the anchor, the hard negatives found in "
            f"{self.bits} bits, and the exact ones, each with its cosine to the anchor. A bar marks what both find, "
            f"{shared} of {total}."
        )


@dataclass(frozen=True)
class NoGallery:
    """Why there is no gallery, in a sentence."""

    reason: str


def try_gallery(runs: Sequence[Run], *, progress: bool = False) -> Gallery | NoGallery:
    """Make the gallery of the best run that mines in bits, else of the best run."""
    finished = [(run, run.result) for run in runs if run.result is not None and run.weights.exists()]
    if not finished:
        return NoGallery(f"No finished run has kept its model ({MODEL}/), so there is no gallery.")
    best, _ = max(finished, key=lambda pair: (pair[0].config.sampler == "lsh", pair[1].metrics["recall@1"]))
    try:
        return make_gallery(best, progress=progress)
    except Exception as error:  # noqa: BLE001 - whatever data or weights raise, the rest of the page is worth having
        return NoGallery(f"The gallery could not be made: {shortened(str(error), LONGEST_REASON)}")


def make_gallery(run: Run, *, progress: bool = False) -> Gallery:
    """Load the run's data and model, embed the training set, and find the neighbours of a dozen anchors.

    Raises:
        ValueError: The data have changed since the run, or the model cannot be rebuilt.
        FileNotFoundError: The data are missing.
    """
    part = load_run_data(run.config.content, progress=progress)
    model = load_run_model(run.path, run.config.content)
    reference = embed_part(model, part, "reference", progress=progress)
    bits, is_paired = _bits(run), part.pairs is not None
    query = embed_part(model, part, "query", progress=progress) if is_paired else reference
    query_codes, codes = _encode(run, bits, query, reference)
    labels = torch.arange(len(reference)) if part.labels is None else part.labels.cpu()
    anchors = _draw_anchors(labels, need_positive=not is_paired)
    query_codes = query_codes[anchors]
    if is_paired:
        positives = anchors
    else:
        positives = hardest_positives(query_codes, labels[anchors], reference=codes, reference_labels=labels)
    by_bits = hard_negatives(query_codes, labels[anchors], NEGATIVES, reference=codes, reference_labels=labels)
    exact = cosine_topk(query[anchors], reference, NEGATIVES, query_labels=labels[anchors], reference_labels=labels)
    cosines = normalize(query[anchors], dim=1) @ normalize(reference, dim=1).T  # [anchors, n]

    def neighbours(row: int, ids: list[int], others: list[int]) -> list[Sample]:
        samples = _samples(part, "reference", [i for i in ids if i >= 0])
        return [replace(each, cosine=float(cosines[row, each.id]), shared=each.id in others) for each in samples]

    examples = []
    for row, anchor in enumerate(anchors.tolist()):
        found, true, positive = by_bits.indices[row].tolist(), exact.indices[row].tolist(), int(positives[row])
        examples.append(
            Example(
                _samples(part, "query" if is_paired else "reference", [anchor])[0],
                neighbours(row, [positive], [positive])[0],
                neighbours(row, found, true),
                neighbours(row, true, found),
            )
        )
    examples.sort(key=lambda example: -max((sample.cosine or -1 for sample in example.exact), default=-1))
    return Gallery(run, bits, examples)


def _encode(run: Run, bits: int, query: Tensor, reference: Tensor) -> tuple[Tensor | ScalarCodes, Tensor | ScalarCodes]:
    """Hash queries and references as the run's sampler does."""
    dim, seed, sides = reference.shape[1], run.config.seed or 0, (query, reference)
    if run.config.code in CODES:  # "auto" chooses signs for low targets only
        scalar = ScalarHasher(dim, bits, seed=seed)
        for x in sides:
            scalar.update(x)
        return scalar.encode(query), scalar.encode(reference)
    codes = []
    for x in sides:
        hasher = SignHasher(dim, bits, seed=seed)
        hasher.update_mean(x)
        codes.append(hasher.encode(x))
    return codes[0], codes[1]


def _bits(run: Run) -> int:
    """Return the code length of the run, or the one it had chosen at its end."""
    if run.config.bits not in (None, "auto"):
        return int(run.config.bits)
    return next((epoch.bits for epoch in reversed(run.epochs) if epoch.bits is not None), DEFAULT_BITS)


def _draw_anchors(labels: Tensor, *, need_positive: bool) -> Tensor:
    """Draw a dozen samples of different labels, the same ones for the same labels.

    Raises:
        ValueError: Positives are needed, and no label has two samples.
    """
    order = np.random.default_rng(0).permutation(len(labels))
    _, inverse, counts = np.unique(labels.numpy(), return_inverse=True, return_counts=True)
    drawn: dict[int, int] = {}
    for i in order.tolist():
        if len(drawn) == ANCHORS:
            break
        if not need_positive or counts[inverse[i]] > 1:
            drawn.setdefault(int(labels[i]), i)
    if not drawn:
        raise ValueError("no label has two samples, so there are no positives.")
    return torch.tensor(list(drawn.values()))


def _samples(part: TrainingPart, tower: str, ids: list[int]) -> list[Sample]:
    """Show samples as pictures or text; a data set whose inputs are neither defines `shown`."""
    view: Callable[[str, Tensor], Any] = getattr(part, "shown", part.plain)
    shown = view(tower, torch.tensor(ids, dtype=torch.int64)) if ids else []
    return [as_sample(i, item) for i, item in zip(ids, shown, strict=True)]


def as_sample(i: int, item: Any) -> Sample:
    """Show an image `[channels, height, width]` as a picture, and anything else as text."""
    if not isinstance(item, Tensor) or item.ndim != 3:
        return Sample(id=i, text=shortened(" ".join(str(item).split()), LONGEST_TEXT))
    png, is_ink = picture(item)
    return Sample(id=i, image="data:image/png;base64," + base64.b64encode(png).decode(), is_ink=is_ink)


def picture(image: Tensor) -> tuple[bytes, bool]:
    """Encode an image `[channels, height, width]` as PNG; return it with whether it is black on white."""
    pixels = image.float().cpu()
    is_ink = len(pixels) == 1
    if is_ink:  # 1 is black
        levels = ((1 - pixels[0].clamp(0, 1)) * 15).round().mul(17).byte().numpy()
        drawn = Image.fromarray(levels).convert("P", palette=Image.Palette.ADAPTIVE, colors=16)
    else:
        low, high = pixels.amin(), pixels.amax()
        levels = ((pixels[:3] - low) / (high - low).clamp(min=1e-9) * 255).byte().permute(1, 2, 0).numpy()
        drawn = Image.fromarray(levels)
        drawn.thumbnail((128, 128))
    file = io.BytesIO()
    drawn.save(file, "PNG", optimize=True)
    return file.getvalue(), is_ink
