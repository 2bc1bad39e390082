"""A process that mines until it is about to encode some chunk, and waits there to be killed."""

import multiprocessing
from contextlib import contextmanager

from lookalike.mining.store import Store
from tests.processes import Child, wait_until

CHUNK = 16


def mine_until(chunk, model_folder, columns, work):
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

    from lookalike import mine_hard_negatives

    Store.CHUNK = CHUNK
    model = SentenceTransformer(str(model_folder), device="cpu")
    encode, calls = model.encode_document, []

    def stopping(texts, **options):
        calls.append(len(texts))
        if len(calls) == chunk:
            work.with_name("waiting").touch()
            multiprocessing.parent_process().join()  # ends with the tests at the latest
        return encode(texts, **options)

    model.encode_document = stopping
    mine_hard_negatives(Dataset.from_dict(columns), model, verbose=False, cache_folder=work)


@contextmanager
def mining_until(chunk, *arguments):
    """Mine until the process is about to encode a chunk, counted from 1; kill it in the end."""
    with Child(mine_until, chunk, *arguments) as process:
        wait_until(arguments[-1].with_name("waiting").exists, process)
        yield process
