"""Real embeddings for benchmarks: made once from the inputs of the comparisons, and kept beside them.

The inputs are those of `benchmarks.prepare`, or what it makes them from; `medquad_minilm_emb.npz`, fp16 arrays
`queries` and `passages`, may stand in for the encoding of MedQuAD.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.prepare.inputs import make_from_folder
from benchmarks.quality.sources import MINILM, SOURCES
from lookalike.data import load_data
from lookalike.data.embeddings import load_embeddings
from lookalike.training import run
from lookalike.training.embedding import load_run_model
from lookalike.training.encoders import make_encoder
from lookalike.training.loading import embed
from lookalike.training.run_folder import RunFolder
from lookalike.training.settings import Settings

NETWORK = {"encoder": "convnet", "width": 16}
MOST = 40_000  # samples of a data set, drawn at random
MEDQUAD = "medquad_minilm_emb.npz"
GLYPHS = Settings(sampler="random", epochs=2, evaluate_every=2)  # trains an encoder of characters, on other ones


class Embedded(NamedTuple):
    """A set of embeddings."""

    title: str
    encoder: str
    make: Callable[[], Tensor]
    """Computes them in the folder of inputs, float32 [n, dim]."""


def embeddings(name: str, inputs: Path) -> Tensor:
    """Return the normalised embeddings of a data set, float32 [n, dim], from the folder of inputs.

    Raises:
        FileNotFoundError: The folder has neither the inputs nor what they are made from.
    """
    path = inputs / f"embedded_{name}.npy"
    if not path.exists():
        here = Path.cwd()
        os.chdir(inputs)  # data and weights are named relative to it
        try:
            made = EMBEDDED[name].make()
        finally:
            os.chdir(here)
        np.save(path, made.half().numpy())
    return normalize(torch.from_numpy(np.load(path)).float(), dim=1)


def _medquad() -> Tensor:
    if Path(MEDQUAD).exists():
        return torch.cat([torch.from_numpy(load_embeddings(f"{MEDQUAD}:{part}")) for part in ("queries", "passages")])
    return _embedded("medquad", ("query", "reference"))


def _debian() -> Tensor:
    return _embedded("debian", ("query",), test_share=0.1)


def _emoji() -> Tensor:
    return _embedded("emoji", ("reference",))


def _grocery() -> Tensor:
    return _embedded("grocery", ("reference",), test_share=0.1)


def _cjk() -> Tensor:
    folder = RunFolder(Path("glyphs_encoder"))
    if not folder.is_finished:
        run.train("glyphs", GLYPHS, out=folder.path, model=NETWORK, resume=True, progress=True)
    part = load_data(str(make_from_folder("cjk", Path()))).train
    n = len(part.labels) if part.labels is not None else 0
    drawn = torch.from_numpy(np.random.default_rng(0).choice(n, min(n, MOST), replace=False))
    model = load_run_model(folder.path, folder.read_config())
    return embed(model, lambda ids: part.plain("reference", drawn[ids]), len(drawn), progress=True)


def _embedded(name: str, towers: tuple[str, ...], **options: float) -> Tensor:
    """Embed the training part of a data set with its encoder, untrained on it."""
    source = SOURCES[name]
    for need in source.needs:
        make_from_folder(need, Path())
    data = source.data
    part = load_data(data.name, data.root, **{**data.options, **options}).train
    n = part.pairs if part.pairs is not None else len(part.labels) if part.labels is not None else 0
    model = make_encoder(**{**(source.model or {}), **({"max_length": 64} if source.model is MINILM else {})})
    made = [embed(model, partial(part.plain, tower), n, tower=tower, progress=True) for tower in towers]
    found = torch.cat(made)
    return found[torch.from_numpy(np.random.default_rng(0).permutation(len(found))[:MOST])]


EMBEDDED = {
    "medquad": Embedded("MedQuAD questions and passages", "MiniLM", _medquad),
    "debian": Embedded("short descriptions of Debian packages", "MiniLM", _debian),
    "emoji": Embedded("emoji", "EfficientNet-Lite0, ImageNet", _emoji),
    "grocery": Embedded("photographs of groceries", "EfficientNet-Lite0, ImageNet", _grocery),
    "cjk": Embedded("Chinese characters", "small CNN trained on other characters", _cjk),
}
