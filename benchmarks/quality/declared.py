"""The tables of the documentation, as plain dictionaries that `expanded` turns into cells."""

from typing import Any

from benchmarks.quality.cells import Cell, expanded
from benchmarks.quality.published import PAPER, PUBLISHED, entry
from benchmarks.quality.sources import UNTRAINED

SEEDS = 3
TEXTS = ("medquad", "debian")

LSH: dict[str, Any] = {**PAPER, "sampler": "lsh:512"}
RANDOM = {"random": {"sampler": "random"}}
# The size that "auto" stands for in large batches; smaller ones are one neighbourhood either way. Only batches of 64,
# which "auto" makes one neighbourhood, differ, and only if more than half of a batch is hard.
THIRTY_TWO = {"neighbourhood": 32}
DEFAULT: dict[str, dict[str, Any]] = {"default": THIRTY_TWO}
AT_64: dict[str, dict[str, Any]] = {"default": {}, "default, but neighbourhoods of 32": THIRTY_TWO}
COMBINED = {"default and 1 explicit negative": {"negatives": 1}}
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

DECISIVE = ("random", "the paper's LSH, 512 bits", "default")

# Data -> batch size -> what all rows of that batch size share, besides the settings that `SOURCES` declares.
QUALITY: dict[str, dict[int, dict[str, Any]]] = {
    "medquad": {64: {}, 256: {"learning_rate": 1e-4}},
    "debian": {64: {}, 512: {"learning_rate": 2e-4}},
    "emoji": {32: {}, 128: {}},
    "grocery": {16: {}, 32: {}},
    "glyphs": {32: {}, 128: {}},
    "cjk": {64: {"epochs": 8}, 256: {"epochs": 8}},
}
ONE_EPOCH: dict[str, dict[int, dict[str, Any]]] = {
    "medquad": {64: {}, 256: {"learning_rate": 1e-4}},
    "debian": {64: {}, 256: {"learning_rate": 1e-4}},
}
CURVES: dict[str, dict[str, dict[str, Any]]] = {
    "size": {f"neighbourhoods of {size}": {"neighbourhood": size, "warm_hardness": 1.0} for size in (8, 16, 64)},
    "share": {f"random share {share}": {**THIRTY_TWO, "warm_hardness": 1 - share} for share in (0.0, 0.25, 0.75)},
}
MASKED = {f"masked above {fraction}": {**THIRTY_TWO, "mask_above": fraction} for fraction in (0.95, 1.0)}
RATES = (1e-4, 3e-4, 1e-3)
MODELS: dict[str, dict[str, Any]] = {"pretrained": {}, "initialised at random": {**UNTRAINED, "weights": None}}
HIGH_RATE = 1e-3  # twenty times what suits the texts' encoder
SEVERAL_BITS: dict[str, dict[str, Any]] = {"glyphs": {}, "cjk": {"epochs": 8}, "emoji": {}, "debian": {}}
CODES = {
    "signs, 128 bits": {"sampler": "lsh:128"},
    "signs, 512 bits": {"sampler": "lsh:512"},
    "several bits per dimension, 128 bits": {"sampler": "scalar:128"},
}
ALONE = ("cost",)  # tables with times: one run at a time


def _batches(declared: dict[int, dict[str, Any]], **more: Any) -> list[dict[str, Any]]:
    return [{"pairs_per_batch": size, "evaluate_every": 0, **settings, **more} for size, settings in declared.items()]


def _quality(data: str) -> list[dict[str, Any]]:
    """Train the rows that decide first, then one run of every other, then more of them if there is time."""
    named = {name: ROWS[name] for name in DECISIVE}
    others = {name: row for name, row in ROWS.items() if name not in DECISIVE}
    others |= TRIPLETS if data in TEXTS else {}
    combined = {"data": data, "seeds": SEEDS, "rows": COMBINED, "turn": 1}
    return [{**combined, "settings": settings} for settings in _batches(QUALITY[data])[: data in TEXTS]] + [
        {"data": data, "seeds": seeds, "settings": settings, "rows": rows, "turn": turn}
        for settings in _batches(QUALITY[data])
        for decisive in ({**named, **AT_64} if settings["pairs_per_batch"] == 64 else named,)
        for turn, seeds, rows in ((0, SEEDS, decisive), *((1 + seed, [seed], others) for seed in range(SEEDS)))
    ]


def _one_epoch(data: str) -> list[dict[str, Any]]:
    entries = []
    for settings in _batches(ONE_EPOCH[data], epochs=1):
        shared = {"data": data, "settings": settings}
        entries.append({**shared, "seeds": SEEDS, "rows": {**RANDOM, **DEFAULT}})
        if settings["pairs_per_batch"] == min(ONE_EPOCH[data]):
            entries.append({**shared, "seeds": 1, "rows": {**TRIPLETS, **CURVES["size"], **CURVES["share"]}, "turn": 1})
    return entries


def _masked() -> list[dict[str, Any]]:
    return [
        {
            "data": "glyphs",
            "part": "glyphs, identical shapes labelled apart",
            "data_options": {"merge_identical": False},
            "seeds": SEEDS,
            "settings": {"evaluate_every": 0},
            "rows": {**DEFAULT, **MASKED},
            "turn": 1,
        }
    ]


def _high_rate() -> list[dict[str, Any]]:
    settings = {"learning_rate": HIGH_RATE, "epochs": 1, "evaluate_every": 0}
    rows = {**RANDOM, "auto": {**THIRTY_TWO, "warm_start": "auto"}, "on": {**THIRTY_TWO, "warm_start": "on"}}
    shared = {"settings": settings, "rows": rows, "seeds": 1, "turn": 1}
    return [{"data": data, "part": data, **shared} for data in TEXTS]


def _emoji_rates() -> list[dict[str, Any]]:
    shared = {"data": "emoji", "turn": 1}
    entries = []
    for rate in (3e-4, 1e-3):
        settings = {"learning_rate": rate, "pairs_per_batch": 32, "epochs": 8, "evaluate_every": 0}
        for model, options in MODELS.items() if rate < 1e-3 else [("pretrained", {})]:
            part = {"part": f"{model}, learning rate {rate:g}", "model_options": options, "settings": settings}
            entries.append(
                {**shared, **part, "seeds": SEEDS, "rows": {"paper": LSH, "auto": {**THIRTY_TWO, "warm_start": "auto"}}}
            )
            if not options:
                entries.append({**shared, **part, "seeds": 1, "rows": {"on": {**THIRTY_TWO, "warm_start": "on"}}})
    return entries


def _rates(data: str) -> list[dict[str, Any]]:
    size = min(QUALITY[data])
    return [
        {
            "data": data,
            "part": f"learning rate {rate:g}",
            "seeds": 1,
            "settings": {"learning_rate": rate, "pairs_per_batch": size, "validation_share": 0.2, "evaluate_every": 4},
            "rows": {**RANDOM, **DEFAULT},
        }
        for rate in RATES
    ]


def _cost() -> list[dict[str, Any]]:
    return [
        {
            "data": data,
            "part": data,
            "settings": {"pairs_per_batch": 64, "epochs": 1, "evaluate_every": 0},
            "rows": {**RANDOM, **DEFAULT},
        }
        for data in TEXTS
    ]


def _several_bits(data: str) -> list[dict[str, Any]]:
    """Compare codes of several bits with as many signs, and with four times as many."""
    settings = {**PAPER, "evaluate_every": 0, **SEVERAL_BITS[data]}
    options = {"size": 64} if data == "emoji" else {}  # as the drawings are: a CPU trains on these in minutes
    return [{"data": data, "part": data, "data_options": options, "seeds": SEEDS, "settings": settings, "rows": CODES}]


TABLES: dict[str, list[dict[str, Any]]] = {
    **{f"quality_{data}": _quality(data) for data in QUALITY},
    **{f"one_epoch_{data}": _one_epoch(data) for data in ONE_EPOCH},
    "emoji_rates": _emoji_rates(),
    "high_rate": _high_rate(),
    "masked": _masked(),
    **{f"rates_{data}": _rates(data) for data in ("emoji", "grocery")},
    "cost": _cost(),
    **{f"several_bits_{data}": _several_bits(data) for data in SEVERAL_BITS},
    **{f"compare_{data}": [entry(data)] for data in PUBLISHED},
}


def cells_of(table: str) -> list[Cell]:
    """Return the cells of a table, in the order in which it shows them."""
    order = [*ROWS, *AT_64, *TRIPLETS, *COMBINED, *CODES]
    cells = [cell for entry in TABLES[table] for cell in expanded(table, entry)]
    return sorted(cells, key=lambda cell: order.index(cell.row) if cell.row in order else len(order))
