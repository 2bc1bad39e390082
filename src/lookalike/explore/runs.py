"""A finished run -> what the page explores; its codes are kept in its folder, so that the second start is quick."""

from __future__ import annotations

import contextlib
import shlex
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lookalike.data.fingerprints import checksum
from lookalike.explore.content import Content
from lookalike.explore.mates import compose_mates
from lookalike.explore.neighbours import Neighbours
from lookalike.explore.sources import BITS, Explored, encode
from lookalike.training.embedding import embed_part, load_run_data_set, load_run_model
from lookalike.training.run_folder import RunFolder
from lookalike.training.settings import WITHOUT_MINING, Settings
from lookalike.utils.files import replacing
from lookalike.utils.progress import working

if TYPE_CHECKING:
    from torch import Tensor

    from lookalike.data.retrieval import TrainingPart

Codes = tuple["Tensor", "Tensor | None"]  # of queries or samples, and of references in paired data


def explored_run(path: Path, *, bits: int | None = None, progress: bool = False) -> Explored:
    """Load the data and the model of a finished run, and embed its training set unless its codes are kept.

    Args:
        path: The folder.
        bits: Length of the sign codes; by default that of the run's own, or 512 if it has none. Runs with codes of
            several bits are shown in sign codes as well, so that every distance of the page counts bits.
        progress: Show what takes long.

    Raises:
        FileNotFoundError: The folder holds no run, or the data are missing.
        ValueError: The run is not finished, its model cannot be rebuilt, or the data have changed.
    """
    folder = RunFolder(path)
    config = folder.read_config()
    settings = _settings(config)
    has_signs = settings.sampler == "lsh" and settings.code == "signs"
    length = bits or (settings.bits if isinstance(settings.bits, int) and has_signs else BITS)
    data = load_run_data_set(config, progress=progress)
    part = data.train
    query, reference = _codes(folder, config, part, data.checksum, length, settings.seed, progress=progress)
    labels = None if part.labels is None else part.labels.cpu().numpy()
    with working("indexing texts", shown=progress):
        content = Content(len(query), _views(part), labels)
    own = np.arange(len(query)) if labels is None else labels
    neighbours = Neighbours(query, reference, own, data.train_exclude)
    return Explored(
        title=path.resolve().name,
        content=content,
        neighbours=neighbours,
        marks=_marks(folder, config),
        checksum=data.checksum,
        use=f"lookalike train {shlex.quote(config['data'])} ... --same",
        compose=lambda: compose_mates(part, settings, neighbours),
        mates_note=f"From one epoch that is {_composed(settings)}, {settings.pairs_per_batch} pairs per batch: what "
        "the trained model would meet next.",
        details=[data.description, f"trained with {settings.strategy}, seed {settings.seed}"],
    )


def _composed(settings: Settings) -> str:
    """Say how an epoch of these settings is composed here, and where that differs from what the run itself did."""
    if settings.sampler in WITHOUT_MINING:
        return "random"
    if settings.sampler == "lsh" and settings.code == "signs":
        return "composed from these codes with the run's settings"
    own = "codes of several bits" if settings.sampler == "lsh" else "floats"
    return f"composed from these sign codes with the run's settings (the run itself compared {own})"


def _marks(folder: RunFolder, config: dict[str, Any]) -> Path:
    """Return the file of marks: the one that the run was trained with goes on, so that one file holds all of them."""
    used = Path(config.get("same_file") or folder.same)
    return used if used.suffix.lower() == ".jsonl" and used.is_file() else folder.same


def _settings(config: dict[str, Any]) -> Settings:
    return Settings.from_dict({each.name: config[each.name] for each in fields(Settings) if each.name in config})


def _views(part: TrainingPart) -> dict[str, Any]:
    """Return what shows the samples of each tower; a data set whose inputs are neither texts nor images has `shown`."""
    view = getattr(part, "shown", part.plain)
    if part.pairs is None:
        return {"sample": lambda ids: view("reference", ids)}
    return {tower: (lambda ids, tower=tower: view(tower, ids)) for tower in ("query", "reference")}


def _codes(
    folder: RunFolder,
    config: dict[str, Any],
    part: TrainingPart,
    data_checksum: str,
    bits: int,
    seed: int,
    *,
    progress: bool,
) -> Codes:
    """Return the codes of the training set: those that the folder keeps, or new ones, which it keeps from now on."""
    model = load_run_model(folder.path, config) if not folder.is_finished else None  # says what is missing
    key = checksum(data_checksum, bits, seed, _model_files(folder))
    kept = _read(folder.codes, key)
    if kept is not None:
        return kept
    model = model or load_run_model(folder.path, config)
    towers = ("reference",) if part.pairs is None else ("query", "reference")
    codes = [encode(embed_part(model, part, tower, progress=progress).cpu(), bits, seed) for tower in towers]
    with contextlib.suppress(OSError), replacing(folder.codes) as temporary, temporary.open("wb") as file:
        arrays: dict[str, Any] = dict(zip(towers, (each.numpy() for each in codes), strict=True))
        np.savez(file, key=np.array(key), **arrays)
    return (codes[0], None) if part.pairs is None else (codes[0], codes[1])


def _model_files(folder: RunFolder) -> list[str]:
    """Tell the model's files by name, size and time: contents would take seconds to read."""
    files = sorted(each for each in folder.model.rglob("*") if each.is_file())
    return [f"{each.relative_to(folder.model)} {each.stat().st_size} {each.stat().st_mtime_ns}" for each in files]


def _read(path: Path, key: str) -> Codes | None:
    """Read codes that were kept under this key; None where there are none, or others, or they are damaged."""
    try:
        with np.load(path, allow_pickle=False) as kept:
            if str(kept["key"]) != key:
                return None
            reference = torch.from_numpy(kept["reference"])
            return (torch.from_numpy(kept["query"]), reference) if "query" in kept else (reference, None)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
