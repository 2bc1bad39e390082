"""Measure how long the server of `lookalike explore` takes to answer, with 500,000 samples.

    python -m benchmarks.explore [--out FILE | --record]

Serve synthetic embeddings with labels and texts, and ask for everything that the page asks for, first while the search
for likely false negatives runs in the background, then after it. Times are those of whole requests over loopback.
"""

import http.client
import json
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import numpy as np
import torch
from PIL import Image
from tyro.conf import arg

from benchmarks import record
from lookalike.data.synthetic import clustered_embeddings
from lookalike.explore.server import Server
from lookalike.explore.session import Session
from lookalike.explore.sources import explored_file

N, DIM, BITS = 500_000, 256, 512
PER_LABEL = 4  # samples, on average
WORDS = 12  # of a text, from a vocabulary of as many words as below
VOCABULARY = 20_000
IMAGES = 64  # files that the images of the second server are links to


def main(
    n: Annotated[int, arg(help="Samples.")] = N,
    repeats: Annotated[int, arg(help="Requests of each kind.")] = 50,
    out: record.Out = None,
    committed: record.Record = False,
) -> None:
    """Measure, print and write the results."""
    path, step = record.destination("explore", out, committed, whole=n == N), record.Steps()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        step(f"drawing {n:,} embeddings and texts")
        files = _make(folder, n)
        result: dict[str, Any] = {
            "settings": {"n": n, "dim": DIM, "bits": BITS, "repeats": repeats, "threads": torch.get_num_threads()}
        }
        step("starting the server with texts")
        began = time.perf_counter()
        session = Session(explored_file(files["x"], labels=files["labels"], texts=files["texts"]))
        result["start_seconds"] = time.perf_counter() - began
        rows = _served(session, lambda ask: _texts(session, ask, n, repeats, step, result))
        step("starting the server with images")
        session = Session(explored_file(files["x"], images=files["images"]), folder / "images.same.jsonl")
        rows += _served(session, lambda ask: [_timed("an image", ask, _drawn("image/sample/{}", n, repeats))])
    result |= {"rows": rows, "peak_bytes": record.peak_bytes()}
    for row in rows:
        print(f"{row['request']:48} median {row['median_ms']:6.1f} ms, worst {row['worst_ms']:6.1f} ms", flush=True)
    record.finish(path, result)


def _texts(session: Session, ask: Any, n: int, repeats: int, step: Any, result: dict[str, Any]) -> list[dict[str, Any]]:
    began = time.perf_counter()
    common, rare, absent = "word00", "word19999 word", "nowhere to be found"
    kinds = {
        "search by id": _drawn("api/search?k=40&q=%23{}", n, repeats),
        "search by label": _drawn("api/search?k=40&q=label:{}", n // PER_LABEL, repeats),
        "search by text, common": [f"api/search?k=40&q={common}{i % 10}" for i in range(repeats)],
        "search by text, rare": [f"api/search?k=40&q={rare}{i % 10}".replace(" ", "+") for i in range(repeats)],
        "search by text, absent": [f"api/search?k=40&q={absent}+{i}".replace(" ", "+") for i in range(repeats)],
        "a sample with its negatives and positives": _drawn("api/sample/{}?k=40", n, repeats),
        "the same, filtered by distance": _drawn("api/sample/{}?k=40&min=180&max=220", n, repeats),
    }
    step("asking while the background works")
    rows = [_timed(f"{kind}, meanwhile", ask, paths) for kind, paths in kinds.items()]
    assert not session.wait(0), "the background has finished too early to be measured"
    step("waiting for the likely false negatives")
    session.wait(3600)
    result["suspects_seconds"] = time.perf_counter() - began
    result["suspects"] = session.suspects(0, 1)["total"]
    step("asking again")
    kinds["likely false negatives"] = [f"api/suspects?k=40&start={40 * i}" for i in range(repeats)]
    return [*(_timed(kind, ask, paths) for kind, paths in kinds.items()), *rows, _marks(ask, n, repeats)]


def _marks(ask: Any, n: int, repeats: int) -> dict[str, Any]:
    ids = np.random.default_rng(3).choice(n, (repeats, 2), replace=False).tolist()
    bodies = [json.dumps({"first": first, "second": second, "same": True}) for first, second in ids]
    return _timed("a mark, on disk", lambda body: ask("api/mark", body), bodies)


def _served(session: Session, measure: Any) -> list[dict[str, Any]]:
    """Serve in a thread while measuring."""
    server = Server(session)
    thread = threading.Thread(target=server.serve)
    thread.start()
    address = urlsplit(server.address)

    def ask(path: str, body: str | None = None) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        headers = {} if body is None else {"content-type": "application/json"}
        connection.request("GET" if body is None else "POST", f"{address.path}{path}", body, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        assert answer.status == 200, (path, answer.status, content[:200])

    try:
        while not server.has_started:
            time.sleep(0.05)
        ask("api/about")
        rows: list[dict[str, Any]] = measure(ask)
    finally:
        server.stop()
        thread.join()
    return rows


def _timed(kind: str, ask: Any, questions: list[str]) -> dict[str, Any]:
    times = []
    for question in questions:
        began = time.perf_counter()
        ask(question)
        times.append(1000 * (time.perf_counter() - began))
    return {"request": kind, "median_ms": statistics.median(times), "worst_ms": max(times)}


def _drawn(path: str, n: int, repeats: int) -> list[str]:
    return [path.format(i) for i in np.random.default_rng(1).integers(0, n, repeats).tolist()]


def _make(folder: Path, n: int) -> dict[str, Path]:
    """Write embeddings, labels, texts, and a list of images."""
    files = {name: folder / file for name, file in (("x", "x.npy"), ("labels", "labels.npy"), ("texts", "texts.txt"))}
    x, labels = clustered_embeddings(n, DIM, classes=n // PER_LABEL)
    np.save(files["x"], x.numpy())
    np.save(files["labels"], labels.numpy())
    words = np.random.default_rng(2).integers(0, VOCABULARY, (n, WORDS))
    files["texts"].write_text("".join(" ".join(f"word{i:05}" for i in row) + "\n" for row in words.tolist()))
    rng = np.random.default_rng(4)
    for i in range(IMAGES):
        Image.fromarray(rng.integers(0, 256, (256, 256, 3), np.uint8)).save(folder / f"{i}.jpg")
    files["images"] = folder / "images.txt"
    files["images"].write_text("".join(f"{i % IMAGES}.jpg\n" for i in range(n)))
    return files


if __name__ == "__main__":
    record.run(main)
