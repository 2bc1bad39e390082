"""Small problems in many cells: what a run should find, by comparing everything, and runs of them."""

import numpy as np
import torch
from torch.nn.functional import normalize

from lookalike.hashing import SignHasher
from lookalike.mining import CENTER, Search, Selection, mine_embeddings
from lookalike.mining.cells import Grid
from lookalike.mining.embeddings import NormalizedRows
from lookalike.mining.engines import InProcess
from lookalike.mining.fitting import row_fitting
from lookalike.mining.pipeline import MISSING, Pipeline
from lookalike.mining.run import AnswersInMemory, Run
from lookalike.mining.stages import fitted
from lookalike.negatives import Filters
from lookalike.utils.lists import make_lists

BITS = 64


def embeddings(n, dim=12, seed=0, distinct=None):
    """Random rows; with `distinct`, only so many different ones, which gives ties and duplicates."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((distinct or n, dim)).astype(np.float32)
    return x if distinct is None else x[rng.integers(0, distinct, n)]


def make_run(folder, x, y=None, *, block=16, labels=None, positives=None, exclude=None, **options):
    """Return a run, as `mine_embeddings` makes one; `options` are those of Selection, Filters and Search."""
    queries = NormalizedRows("embeddings", x, min_rows=1)
    reference = queries if y is None else NormalizedRows("reference", y, min_rows=1)
    lists = make_lists(positives if positives is not None else [[] for _ in x])
    chosen = [
        kind(**{name: options.pop(name) for name in list(options) if name in kind.__dataclass_fields__})
        for kind in (Selection, Filters, Search)
    ]
    assert not options
    folder.mkdir(parents=True, exist_ok=True)
    search = chosen[2]
    scalar = fitted(row_fitting(folder, reference, search.length), InProcess()) if search.is_scalar else None
    return Run(
        folder=folder,
        finished=folder / "finished",
        grid=Grid(len(x), len(reference.rows.read_range(0, reference.shape[0])), y is None, encodes=False, block=block),
        sides={"query": queries, "reference": reference},
        pipeline=Pipeline(*chosen, 1 if labels is not None else int(lists[0].diff().max()), has_floats=True),
        positives=None if labels is not None else AnswersInMemory(lists),
        labels=None if labels is None else torch.as_tensor(labels),
        exclude=None if exclude is None else make_lists(exclude),
        device="cpu",
        scalar=scalar,
    )


def plain_codes(x, y):
    """The codes of both sides: those of rows at unit length, centred by a part of the mean of the references."""
    x, y = (normalize(torch.from_numpy(each), dim=1) for each in (x, y))
    hasher = SignHasher(y.shape[1], BITS, center=CENTER)
    hasher.set_mean(y.mean(0, dtype=torch.float64), len(y))
    return hasher.encode(x), hasher.encode(y)


def plain_neighbours(x, y, k, left_out):
    """The nearest k of each query by (distance, id), one pair after another; -1 where there are fewer."""
    a, b = (codes.tolist() for codes in plain_codes(x, y))
    found = torch.full((2, len(a), k), -1)
    for i, query in enumerate(a):
        keys = sorted(
            (sum((p ^ q).bit_count() for p, q in zip(query, code, strict=True)), j)
            for j, code in enumerate(b)
            if j not in left_out[i]
        )[:k]
        if keys:
            found[:, i, : len(keys)] = torch.tensor(keys).T
    return found[0].int(), found[1]


def plain_negatives(x, y, k, left_out):
    """Ids and cosines of the k nearest references of each query, by comparing everything."""
    cosines = normalize(torch.from_numpy(x), dim=1) @ normalize(torch.from_numpy(y), dim=1).T
    for i, ids in enumerate(left_out):
        cosines[i, list(ids)] = MISSING
    scores, ids = cosines.sort(dim=1, descending=True, stable=True)
    scores, ids = (
        torch.nn.functional.pad(each[:, :k], (0, max(0, k - len(y))), value=pad)
        for each, pad in ((scores, MISSING), (ids, -1))
    )
    return ids.masked_fill(scores == MISSING, -1), scores


def contents(folder):
    """The bytes of all files in a folder and below, by name, without the folder of a job."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".cache" not in str(path.relative_to(folder))
    }


def rows_of(folder):
    """As `contents`, without summaries and cards, which say how long a run took."""
    return {n: data for n, data in contents(folder).items() if not n.endswith(("summary.json", "README.md"))}


def mine(x, **options):
    return mine_embeddings(x, bits=BITS, verbose=False, **{"block": 16, **options})
