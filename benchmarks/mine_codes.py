"""Compare mining without floats with sentence-transformers' own function: what codes of each length find.

    python -m benchmarks.mine_codes --root FOLDER_OR_ZIP --embeddings FILE.npz [--out FILE | --record]

Texts are in MS MARCO's layout, as for `benchmarks.mine`. The file holds their embeddings: `queries` and `passages`, one
row per id. Everything mines with these, so that nothing but the search differs. Overlaps do not depend on the machine.
"""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from tyro.conf import arg

from benchmarks import record
from benchmarks.mine import Remembered, compared, mined, read_files, read_pairs

BYTES = (64, 96, 128, 192)
CASES: dict[str, dict[str, Any]] = {"default": {}, "margin": {"relative_margin": 0.05}}
CODES = ("signs", "scalar")


def main(
    root: Annotated[Path, arg(help="A folder or zip file in MS MARCO's layout.")],
    embeddings: Annotated[Path, arg(help="A .npz file with their embeddings: queries and passages, a row per id.")],
    pairs: Annotated[int | None, arg(help="Use only this many pairs, and twice as many passages.")] = None,
    out: record.Out = None,
    committed: record.Record = False,
) -> None:
    """Mine the same pairs with both functions, without floats with codes of every kind and length."""
    path = record.destination("mine_codes", out, committed, whole=pairs is None)
    columns, model = read_pairs(root, pairs), remembered(root, embeddings)
    rows = []
    for case, options in CASES.items():
        expected = mined("theirs", columns, model, options)
        for size in BYTES:
            for code in CODES:
                got = mined("ours", columns, model, {**options, "bits": 8 * size, "code": code, "rescore": "codes"})
                rows.append({"case": case, "bytes": size, "code": code, **compared(expected, got)})
                print(rows[-1], flush=True)
    settings = {
        "embeddings": embeddings.name,
        "dim": model.dim,
        "cases": CASES,
        "pairs": len(columns["query"]),
        "query": len(set(columns["query"])),
        "corpus": len({*columns["corpus"], *columns["answer"]}),
    }
    record.finish(path, {"settings": settings, "rows": rows})


def remembered(root: Path, embeddings: Path) -> Remembered:
    """Return a stand-in for the model that made the embeddings."""
    files, found = read_files(root), np.load(embeddings)
    kept: dict[str, dict[str, Any]] = {"query": {}, "corpus": {}}
    for kind, name, prefix in (("query", "queries", "queries."), ("corpus", "passages", "collection.")):
        x = torch.nn.functional.normalize(torch.from_numpy(found[name]).float(), dim=1).numpy()
        rows = (row for file, lines in files.items() if file.startswith(prefix) for row in lines)
        kept[kind] = {row[1]: x[int(row[0])] for row in rows}
    return Remembered(kept)


if __name__ == "__main__":
    record.run(main)
