"""Serve a page in a thread, and ask it over HTTP."""

import http.client
import json
import threading
from contextlib import contextmanager
from urllib.parse import urlsplit

import numpy as np
import torch

from lookalike.data import DataSource
from lookalike.explore import runs
from lookalike.explore.content import Content
from lookalike.explore.neighbours import Neighbours
from lookalike.explore.server import Server
from lookalike.explore.session import Session
from lookalike.explore.sources import Explored, explored_file

PATIENCE = 60  # seconds
ODD = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "Übergrößenträger  ΣΊΣΥΦΟΣ",
    "日本語 テキスト",
]


def write_embeddings(folder, n=60, per_label=3, dim=16):
    """Write clustered embeddings, labels and texts; the first two of label 1 lie with label 0: false negatives."""
    rng = np.random.default_rng(0)
    labels = np.arange(n) // per_label
    centres = rng.normal(size=(n // per_label + 1, dim))
    x = centres[labels] + 0.3 * rng.normal(size=(n, dim))
    for i in range(min(2, n - per_label)):
        x[per_label + i] = x[i] + 0.01 * rng.normal(size=dim)
    np.save(folder / "x.npy", x.astype(np.float32))
    (folder / "labels.txt").write_text("".join(f"label-{label:03}\n" for label in labels))
    texts = [*ODD, *(f"text number {i} of the set" for i in range(len(ODD), n))][:n]
    (folder / "texts.txt").write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    return folder


def write_many(folder, n):
    """Write embeddings, labels of four samples each, and texts, fast."""
    x = np.random.default_rng(0).normal(size=(n, 16)).astype(np.float32)
    np.save(folder / "x.npy", x)
    np.save(folder / "labels.npy", np.arange(n) // 4)
    (folder / "texts.txt").write_text("".join(f"text number {i} of the set\n" for i in range(n)))
    return folder


def explored(folder, **shown):
    return explored_file(folder / "x.npy", **{name: folder / file for name, file in shown.items()}, bits=64)


def paired_texts(folder, n=40):
    """Pairs of texts with codes of their own: no text model is needed."""
    rows = [{"query": f"question {i} about {i % 7}", "reference": f"answer {i}"} for i in range(n)]
    data = folder / "pairs.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    part = DataSource("texts", str(data), {"test_share": 0.2}).load().train
    codes = torch.randint(0, 256, (2, part.pairs, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    return Explored(
        title="pairs",
        content=Content(part.pairs, runs._views(part), None),
        neighbours=Neighbours(codes[0], codes[1], np.arange(part.pairs)),
        marks=data.with_suffix(".same.jsonl"),
        checksum=None,
        use="lookalike train texts ... --same",
    )


class Client:
    """Asks the server; `token` and `host` may be wrong."""

    def __init__(self, server, session):
        self.server, self.session, self.address = server, session, server.address
        self.prefix = urlsplit(server.address).path

    def ask(self, path, *, body=None, headers=None, prefix=None, method=None):
        """Return status, headers and content."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=PATIENCE)
        try:
            prefix = self.prefix if prefix is None else prefix
            method = method or ("GET" if body is None else "POST")
            connection.request(method, f"{prefix}{path}", body, headers or {})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def json(self, path):
        status, _, content = self.ask(path)
        assert status == 200, content
        return json.loads(content)

    def mark(self, **decision):
        headers = {"content-type": "application/json"}
        status, _, content = self.ask("api/mark", body=json.dumps(decision), headers=headers)
        return status, json.loads(content)


@contextmanager
def serving(explored, marks=None, *, waiting=True):
    """Serve until the block ends; likely false negatives are found before it begins, unless it is not waiting."""
    session = Session(explored, marks)
    server = Server(session)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        client = Client(server, session)
        assert client.ask("api/about")[0] == 200  # the socket listens already: the answer comes once it is served
        assert not waiting or session.wait(PATIENCE)
        yield client
    finally:
        server.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()
