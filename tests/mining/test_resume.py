"""Mining that was stopped goes on with what it has encoded, whatever stopped it."""

import os
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from lookalike import mine_hard_negatives
from lookalike.files import DiskFullError
from lookalike.mining import encoding, store
from lookalike.mining.encoding import checksum, fingerprint
from lookalike.mining.store import Store

pytest.importorskip("sentence_transformers")
datasets = pytest.importorskip("datasets")


class Counting:
    """Counts what a model really encodes."""

    def __init__(self, model, stop_after=None):
        self.model, self.stop_after = model, stop_after
        self.encoded = 0

    def __getattr__(self, name):
        return getattr(self.model, name)

    def __repr__(self):
        return repr(self.model)

    def encode_query(self, texts, **options):
        return self._count(self.model.encode_query, texts, options)

    def encode_document(self, texts, **options):
        return self._count(self.model.encode_document, texts, options)

    def _count(self, encode, texts, options):
        if self.stop_after is not None and self.encoded + len(texts) > self.stop_after:
            raise KeyboardInterrupt
        self.encoded += len(texts)
        return encode(texts, **options)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    for module in (store, encoding):
        monkeypatch.setattr(module, "CHUNK", 16)


def mined(dataset, model, folder, **options):
    return mine_hard_negatives(dataset, model, verbose=False, output_scores=True, cache_folder=folder, **options)


@pytest.mark.parametrize("rescore", [True, False])
def test_a_stopped_run_goes_on_and_ends_the_same(dataset, model, tmp_path, rescore):
    whole = Counting(model)
    expected = mined(dataset, whole, tmp_path / "whole", rescore=rescore)
    stopped = Counting(model, stop_after=40)
    with pytest.raises(KeyboardInterrupt):
        mined(dataset, stopped, tmp_path / "work", rescore=rescore)
    assert 0 < stopped.encoded <= 40
    later = Counting(model)
    assert mined(dataset, later, tmp_path / "work", rescore=rescore).to_dict() == expected.to_dict()
    assert later.encoded == whole.encoded - stopped.encoded
    again = Counting(model)
    assert mined(dataset, again, tmp_path / "work", rescore=rescore).to_dict() == expected.to_dict()
    assert again.encoded == 0


def test_other_filters_and_bits_encode_nothing_other_texts_prompts_and_models_do(dataset, model, tmp_path, more_texts):
    mined(dataset, model, tmp_path)
    for options in ({"bits": 128}, {"num_negatives": 1, "relative_margin": 0.1}, {"rescore": 9}):
        counting = Counting(model)
        mined(dataset, counting, tmp_path, **options)
        assert counting.encoded == 0, options
    for options in ({"query_prompt": "bal "}, {"corpus": more_texts}, {"corpus_prompt_name": "ask"}):
        counting = Counting(model)
        mined(dataset, counting, tmp_path, **options)
        assert counting.encoded > 0, options
    with torch.no_grad():
        weight = next(model.parameters())
        weight[7, 3] += 1  # trained further: the same name, one value differs
    try:
        counting = Counting(model)
        mined(dataset, counting, tmp_path)
        assert counting.encoded > 0
    finally:
        with torch.no_grad():
            weight[7, 3] -= 1


KILLED = """
import sys, time
from lookalike.mining import encoding, store
store.CHUNK = encoding.CHUNK = 16
from datasets import load_from_disk
from sentence_transformers import SentenceTransformer
from lookalike import mine_hard_negatives
model = SentenceTransformer(sys.argv[1], device="cpu")
encode = model.encode_document
def slow(*arguments, **options):
    time.sleep(0.3)
    return encode(*arguments, **options)
model.encode_document = slow
mine_hard_negatives(load_from_disk(sys.argv[2]), model, verbose=False, cache_folder=sys.argv[3])
"""


def test_killed_for_good_a_run_loses_one_chunk_at_most(dataset, model, model_folder, tmp_path):
    dataset.save_to_disk(tmp_path / "data")
    work = tmp_path / "work"
    command = [sys.executable, "-c", KILLED, str(model_folder), str(tmp_path / "data"), str(work)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while not list(work.glob("document-*/done.json")) and time.monotonic() < deadline:
            assert process.poll() is None, "ended before it could be killed"
            time.sleep(0.01)
        time.sleep(0.35)  # into the next chunk, or the one after
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    (folder,) = work.glob("document-*")
    corpus = len(set(dataset["answer"]))
    kept = Store(folder, corpus, np.float32)
    assert 1 <= kept.done < kept.num_chunks == 4
    counting = Counting(model)
    got = mined(dataset, counting, work)
    missing = sum(len(kept.chunk(j)) for j in range(kept.done, 4))
    assert counting.encoded == missing + len(set(dataset["query"]))
    assert got.to_dict() == mined(dataset, model, tmp_path / "fresh").to_dict()


def test_what_is_damaged_is_encoded_again(dataset, model, tmp_path, caplog):
    expected = mined(dataset, model, tmp_path)
    for damage in ("cut", "nonsense", "gone"):
        (folder,) = tmp_path.glob("document-*")
        if damage == "cut":
            os.truncate(folder / "rows.bin", 100)
        elif damage == "nonsense":
            (folder / "done.json").write_text("{")
        else:
            (folder / "rows.bin").unlink()
        caplog.clear()
        counting = Counting(model)
        assert mined(dataset, counting, tmp_path).to_dict() == expected.to_dict()
        assert counting.encoded == len(set(dataset["answer"]))
        assert "is damaged and is encoded again" in caplog.text


def test_a_full_disk_loses_nothing(dataset, model, tmp_path):
    """The system refuses files beyond some chunks, as it does where a disk is full."""
    expected = mined(dataset, model, tmp_path / "fresh")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 * 32 * 4 * 2 + 500, limits[1]))
    try:
        with pytest.raises(DiskFullError) as caught:
            mined(dataset, model, tmp_path / "work")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    sentence = str(caught.value)
    assert "no room left for what was encoded" in sentence
    assert "32 of 64 texts are kept in" in sentence
    counting = Counting(model)
    assert mined(dataset, counting, tmp_path / "work").to_dict() == expected.to_dict()
    assert counting.encoded == 64 - 32 + len(set(dataset["query"]))


@pytest.mark.parametrize("n", [1, 15, 16, 17, 31, 33, 100])
def test_rows_are_found_by_the_number_of_their_text(tmp_path, n):
    kept = Store(tmp_path / "store", n, np.float32)
    values = np.arange(n * 3, dtype=np.float32).reshape(n, 3)
    for j in range(kept.num_chunks):
        assert len(kept.chunk(j)) <= 16
        kept.append(values[list(kept.chunk(j))])
    ids = np.random.default_rng(0).integers(0, n, 50)
    assert np.array_equal(kept.rows().read(ids).numpy(), values[ids])
    reopened = Store(tmp_path / "store", n, np.float32)
    assert (reopened.done, reopened.width) == (kept.num_chunks, 3)
    for j in range(kept.num_chunks):
        assert np.array_equal(reopened.read(j), values[list(reopened.chunk(j))])


def test_checksums_tell_texts_and_weights_apart():
    assert checksum(["ab", "c"]) != checksum(["a", "bc"]) != checksum(["a", "b", "c"])
    first, second = torch.nn.Linear(70, 70), torch.nn.Linear(70, 70)
    assert fingerprint(first) != fingerprint(second)
    second.load_state_dict(first.state_dict())
    assert fingerprint(first) == fingerprint(second)
    with torch.no_grad():
        second.weight[1, 2] += 1e-3  # between the values that are sampled
    assert fingerprint(first) != fingerprint(second)
