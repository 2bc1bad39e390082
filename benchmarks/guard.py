"""Measure the guard against false negatives on glyphs, with identical shapes labelled apart to make some.

    python -m benchmarks.guard [--out FILE | --record]

Train with and without the guard. Then take the embeddings of the run without it, and measure what fraction of the false
negatives each setting keeps apart, and what fraction of the true hard negatives it loses with them.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn
from tyro.conf import arg

from benchmarks import record
from lookalike.data import DataSource
from lookalike.data.glyphs import load_glyphs
from lookalike.data.retrieval import RetrievalData
from lookalike.data.scans import Scans, class_of, glyph_scans, is_training_class
from lookalike.hashing import SignHasher
from lookalike.negatives.spaces import HAMMING
from lookalike.samplers.guard import merged_labels, positive_distances, suspected
from lookalike.search import hamming_topk
from lookalike.training.comparison_results import summarize
from lookalike.training.embedding import load_run_model
from lookalike.training.recipes import recipe
from lookalike.training.run import train
from lookalike.training.run_folder import RunFolder

if TYPE_CHECKING:
    from lookalike.training.results import RunResult

GUARDS = (1.1, 1.05, 1.0, 0.95, 0.9, 0.8)
TRAINED = (None, 0.95)
BITS = (128, 512)
K = 32  # neighbours, as many as batches are composed from


def main(
    seeds: Annotated[int, arg(help="Runs per setting.")] = 3,
    epochs: Annotated[int | None, arg(help="Epochs per run.")] = None,
    width: Annotated[int | None, arg(help="Channels of the network.")] = None,
    runs: Annotated[Path, arg(help="Folder of the runs.")] = Path("runs/guard"),
    out: record.Out = None,
    committed: record.Record = False,
) -> None:
    """Train, measure, print and write the results."""
    path = record.destination("guard", out, committed)
    usual = recipe("glyphs")
    settings = replace(usual.settings, epochs=epochs or usual.settings.epochs)
    model = {**usual.model, "width": width or usual.model["width"]}
    result: dict[str, Any] = {"description": glyph_scans(merge_identical=False).description, "seeds": seeds}
    result |= {"settings": {"epochs": settings.epochs, "pairs_per_batch": settings.pairs_per_batch, "k": K, **model}}
    trained: dict[str, list[RunResult]] = {}
    contenders = {f"apart, guard {guard}": (False, guard) for guard in TRAINED} | {"merged (the truth)": (True, None)}
    for seed in range(seeds):
        for name, (merged, guard) in contenders.items():
            source = DataSource("glyphs", options={"merge_identical": merged})
            folder = runs / f"{name.split(' (')[0].replace(', ', '-').replace(' ', '')}-seed{seed}"
            run = train(source, replace(settings, guard=guard, seed=seed), out=folder, model=model, resume=True)
            trained.setdefault(name, []).append(run)
            print(name, seed, run.metrics["recall@1"], flush=True)
        result["trained"] = [row.as_json() for row in summarize(trained)]
        record.write(path, result)
    result["trade_off"] = trade_off(runs / "apart-guardNone-seed0", glyph_scans(merge_identical=False))
    record.finish(path, result)


def trade_off(folder: Path, data: RetrievalData) -> list[dict[str, Any]]:
    """Return the fractions of false negatives kept apart and of true hard negatives lost, per code length and guard."""
    network = load_run_model(folder, RunFolder(folder).read_config())
    part = data.train
    assert isinstance(part, Scans)
    glyphs = load_glyphs()
    truth = class_of(glyphs, merge_identical=True)
    truth = np.unique(truth[is_training_class(truth)], return_inverse=True)[1]
    x, labels = _embedded(network.eval(), part), part.labels
    rows = []
    for bits in BITS:
        hasher = SignHasher(x.shape[1], bits)
        hasher.update_mean(x)
        codes = hasher.encode(x)
        distances, near = hamming_topk(codes, codes, K, query_labels=labels)
        positives = positive_distances(HAMMING, codes, codes, labels)
        false = truth[near.numpy()] == truth[:, None]  # same shape, other label
        for guard in GUARDS:
            suspicious = suspected(HAMMING, distances, positives, bits // 8, guard).numpy()
            merged, number, _ = merged_labels(labels.numpy(), near.numpy(), suspicious, most=len(labels))
            apart = merged[near.numpy()] == merged[:, None]
            rows.append(
                {
                    "bits": bits,
                    "guard": guard,
                    "merged_labels": number,
                    "false_negatives_removed": float((apart & false).sum() / false.sum()),
                    "true_negatives_lost": float((apart & ~false).sum() / (~false).sum()),
                    "false_share_before": float(false.mean()),
                    "false_share_after": float((false & ~apart).sum() / (~apart).sum()),
                }
            )
            print(rows[-1], flush=True)
    return rows


@torch.no_grad()
def _embedded(network: nn.Module, part: Scans) -> Tensor:
    """Embed half of the samples as scans and half clean, as an epoch of training does."""
    parts = []
    for ids in torch.split(torch.arange(len(part)), 1024):
        clean, scanned = part.plain("reference", ids), part.queries(ids, seed=int(ids[0]))
        parts.append(network(torch.where((ids % 2 == 0)[:, None, None, None], scanned, clean)))
    return torch.nn.functional.normalize(torch.cat(parts), dim=1)


if __name__ == "__main__":
    record.run(main)
