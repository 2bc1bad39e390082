"""The tables of the documentation, as plain dictionaries that `expanded` turns into cells."""

from typing import Any

from benchmarks.quality.cells import Cell, expanded
from benchmarks.quality.published import PAPER, PUBLISHED, entry
from benchmarks.quality.sources import UNTRAINED

SEEDS = 3
TEXTS = ("medquad", "debian")

LSH: dict[str, Any] = {**PAPER, "sampler": "lsh:512"}
RANDOM = {"random": {"sampler": "random"}}
DEFAULT: dict[str, dict[str, Any]] = {"default": {}}
TRIPLETS = {
    "offline triplets, 1 negative": {"sampler": "random", "negatives": 1},
    "offline triplets, 3 negatives": {"sampler": "random", "negatives": 3},
}
ROWS = {
    **RANDOM,
    "exact incremental": {**PAPER, "sampler": "incremental"},
    "the paper's LSH, 512 bits": LSH,
    "Sample4Geo's shuffle": {**PAPER, "sampler": "incremental", "method": "sample4geo"},
    **DEFAULT,
}

# Data -> batch size -> what all rows of that batch size share, besides the settings that `SOURCES` declares.
QUALITY: dict[str, dict[int, dict[str, Any]]] = {
    "medquad": {64: {}, 256: {"learning_rate": 1e-4}},
    "debian": {64: {}, 512: {"learning_rate": 2e-4}},
    "emoji": {32: {}, 128: {}},
    "grocery": {16: {}, 32: {}},
    "glyphs": {32: {}, 128: {}},
    "cjk": {64: {}, 256: {}},
}
ONE_EPOCH: dict[str, dict[int, dict[str, Any]]] = {
    "medquad": {64: {}},
    "debian": {64: {}, 256: {"learning_rate": 1e-4}},
}
CURVES: dict[str, dict[str, dict[str, Any]]] = {
    "size": {f"neighbourhoods of {size}": {"neighbourhood": size, "hardness": 1.0} for size in (8, 16, 32, 64)},
    "share": {f"random share {share}": {"neighbourhood": 32, "hardness": 1 - share} for share in (0.0, 0.25, 0.5)},
}
RATES = (1e-4, 3e-4, 1e-3)
WARM_STARTS: dict[str, dict[str, Any]] = {"paper": LSH, "auto": {"warm_start": "auto"}, "on": {"warm_start": "on"}}
ALONE = ("cost",)  # tables with times: one run at a time


def _batches(declared: dict[int, dict[str, Any]], **more: Any) -> list[dict[str, Any]]:
    return [{"pairs_per_batch": size, "evaluate_every": 0, **settings, **more} for size, settings in declared.items()]


def _quality(data: str) -> list[dict[str, Any]]:
    rows = {**ROWS, **TRIPLETS} if data in TEXTS else ROWS
    return [{"data": data, "seeds": SEEDS, "settings": each, "rows": rows} for each in _batches(QUALITY[data])]


def _one_epoch(data: str) -> list[dict[str, Any]]:
    entries = []
    for settings in _batches(ONE_EPOCH[data], epochs=1):
        shared = {"data": data, "settings": settings}
        entries.append({**shared, "seeds": SEEDS, "rows": {**RANDOM, **TRIPLETS, **DEFAULT}})
        entries.append({**shared, "seeds": 2, "rows": {**CURVES["size"], **CURVES["share"]}})
    return entries


def _emoji_rates() -> list[dict[str, Any]]:
    models: dict[str, dict[str, Any]] = {"pretrained": {}, "initialised at random": {**UNTRAINED, "weights": None}}
    return [
        {
            "data": "emoji",
            "part": f"{model}, learning rate {rate:g}",
            "model_options": options,
            "seeds": SEEDS,
            "settings": {"learning_rate": rate, "pairs_per_batch": 32, "epochs": 8},
            "rows": WARM_STARTS,
        }
        for model, options in models.items()
        for rate in (3e-4, 1e-3)
    ]


def _rates(data: str) -> list[dict[str, Any]]:
    size = min(QUALITY[data])
    return [
        {
            "data": data,
            "part": f"learning rate {rate:g}",
            "seeds": 2,
            "settings": {"learning_rate": rate, "pairs_per_batch": size, "validation_share": 0.2},
            "rows": {**RANDOM, **DEFAULT},
        }
        for rate in RATES
    ]


def _cost() -> list[dict[str, Any]]:
    return [
        {
            "data": data,
            "part": data,
            "settings": {"pairs_per_batch": 64, "epochs": 2, "evaluate_every": 0},
            "rows": {**RANDOM, **DEFAULT, "default, refreshed every 100 steps": {"refresh_every": 100}},
        }
        for data in TEXTS
    ]


TABLES: dict[str, list[dict[str, Any]]] = {
    **{f"quality_{data}": _quality(data) for data in QUALITY},
    **{f"one_epoch_{data}": _one_epoch(data) for data in ONE_EPOCH},
    "emoji_rates": _emoji_rates(),
    **{f"rates_{data}": _rates(data) for data in ("emoji", "grocery")},
    "cost": _cost(),
    **{f"compare_{data}": [entry(data)] for data in PUBLISHED},
}


def cells_of(table: str) -> list[Cell]:
    """Return the cells of a table."""
    return [cell for entry in TABLES[table] for cell in expanded(table, entry)]
