"""What a model confuses: anchors with their positive, the hard negatives that the bits choose, and the exact ones."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it
from torch import Tensor

from lookalike.hashing import SignHasher
from lookalike.negatives import hard_negatives, hardest_positives
from lookalike.report.markup import Markup, shortened, tag
from lookalike.search.cosine import cosine_topk
from lookalike.training.embedding import embed_part, load_run_data, load_run_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from lookalike.data.retrieval import TrainingPart
    from lookalike.report.sources import Run

ANCHORS, NEGATIVES = 12, 6
LONGEST_TEXT = 240  # letters


@dataclass(frozen=True)
class Shown:
    """A sample as the page shows it."""

    id: int
    content: Markup
    cosine: float | None = None  # with the anchor
    shared: bool = True  # chosen by both, bits and floats


@dataclass(frozen=True)
class Example:
    """An anchor with what is near it."""

    anchor: Shown
    positive: Shown
    by_bits: list[Shown]
    exact: list[Shown]


@dataclass(frozen=True)
class Gallery:
    """Examples, and the run that they are from."""

    run: Run
    bits: int
    examples: list[Example]
    is_text: bool


def run_for_gallery(runs: list[Run]) -> Run | None:
    """The finished run to look into: of those that mine in bits the best, otherwise the best."""
    finished = [run for run in runs if run.result and run.weights.exists()]
    return max(finished, key=lambda run: (run.config["sampler"] == "lsh", _recall(run)), default=None)


def make_gallery(run: Run, *, progress: bool = False) -> Gallery:
    """Load the run's data and model, embed the training part, and look up the neighbours of a dozen anchors.

    Raises:
        ValueError: The data are others than the run's, or the model is not one that can be rebuilt.
        FileNotFoundError: The data are not there.
    """
    part, model = load_run_data(run.config, progress=progress), load_run_model(run.path, run.config)
    reference = embed_part(model, part, "reference", progress=progress)
    query = reference if part.pairs is None else embed_part(model, part, "query", progress=progress)
    labels = torch.arange(len(reference)) if part.labels is None else part.labels.cpu()
    bits = _bits(run)
    codes = _hashed(run, bits, reference)
    anchors = _draw_anchors(labels, single=part.pairs is not None)
    if part.pairs is None:
        positives = hardest_positives(codes[anchors], labels[anchors], reference=codes, reference_labels=labels)
    else:
        positives = anchors
    query_codes = codes[anchors] if part.pairs is None else _hashed(run, bits, query)[anchors]
    found = hard_negatives(query_codes, labels[anchors], NEGATIVES, reference=codes, reference_labels=labels).indices
    exact = cosine_topk(
        query[anchors], reference, NEGATIVES, query_labels=labels[anchors], reference_labels=labels
    ).indices
    cosines = F.normalize(query[anchors], dim=1) @ F.normalize(reference, dim=1).T  # [anchors, n]

    def show(row: int, ids: list[int], others: list[int]) -> list[Shown]:
        kept = [i for i in ids if i >= 0]
        contents = _contents(part, "reference", kept)
        return [
            Shown(i, content, float(cosines[row, i]), i in others) for i, content in zip(kept, contents, strict=True)
        ]

    tower = "reference" if part.pairs is None else "query"
    examples = []
    for row, anchor in enumerate(anchors.tolist()):
        chosen, true = found[row].tolist(), exact[row].tolist()
        positive = show(row, [int(positives[row])], [int(positives[row])])[0]
        examples.append(
            Example(
                Shown(anchor, _contents(part, tower, [anchor])[0]),
                positive,
                show(row, chosen, true),
                show(row, true, chosen),
            )
        )
    examples.sort(key=lambda example: -max((shown.cosine or -1 for shown in example.exact), default=-1))
    return Gallery(run, bits, examples, is_text=not examples[0].anchor.content.startswith("<img"))


def _hashed(run: Run, bits: int, embeddings: Tensor) -> Tensor:
    """Codes as the run's sampler makes them of a tower."""
    hasher = SignHasher(embeddings.shape[1], bits, seed=int(run.config.get("seed", 0)))
    hasher.update_mean(embeddings)
    return hasher.encode(embeddings)


def _draw_anchors(labels: Tensor, *, single: bool) -> Tensor:
    """A dozen samples of different labels at random, each with a positive; the same ones for the same labels."""
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(labels)))
    _, inverse, counts = np.unique(labels.numpy(), return_inverse=True, return_counts=True)
    drawn: dict[int, int] = {}
    for i in order.tolist():
        if len(drawn) == ANCHORS:
            break
        if single or counts[inverse[i]] > 1:
            drawn.setdefault(int(labels[i]), i)
    if not drawn:
        raise ValueError("no label has two samples, so there are no positives.")
    return torch.tensor(list(drawn.values()))


def _contents(part: TrainingPart, tower: str, ids: list[int]) -> list[Markup]:
    """Samples as pictures or text; a data set whose inputs are neither says by `shown` how to show them."""
    view: Callable[[str, Tensor], Any] = getattr(part, "shown", part.plain)
    return [as_markup(item) for item in view(tower, torch.tensor(ids, dtype=torch.int64))] if ids else []


def as_markup(item: Any) -> Markup:
    """A picture of an image [channels, height, width], otherwise text."""
    if not isinstance(item, Tensor) or item.ndim != 3:
        text = " ".join(str(item).split())
        return tag("span", shortened(text, LONGEST_TEXT), class_="text")
    from PIL import Image  # noqa: PLC0415 - only here

    pixels = item.float().cpu()
    if len(pixels) == 1:  # ink on paper: 1 is black, and white where the page is dark
        levels = ((1 - pixels[0].clamp(0, 1)) * 15).round().mul(17).byte().numpy()
        picture = Image.fromarray(levels).convert("P", palette=Image.Palette.ADAPTIVE, colors=16)
    else:
        low, high = pixels.amin(), pixels.amax()
        levels = ((pixels[:3] - low) / (high - low).clamp(min=1e-9) * 255).byte().permute(1, 2, 0).numpy()
        picture = Image.fromarray(levels)
        picture.thumbnail((128, 128))
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)
    source = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    return tag("img", src=source, alt="", class_="ink" if len(pixels) == 1 else None)


def _bits(run: Run) -> int:
    """The number of bits in use at the end."""
    for value in (run.config.get("bits"), *(epoch.get("bits") for epoch in reversed(run.epochs))):
        if isinstance(value, int):
            return value
    return 512


def _recall(run: Run) -> float:
    return float(run.result["metrics"]["recall@1"]) if run.result else 0.0
