"""A run that was stopped resumes with what it has encoded, whatever stopped it."""

import os
import resource

import pytest
import torch

from lookalike import mine_hard_negatives
from lookalike.mining.encoding import checksum, fingerprint
from lookalike.mining.store import Store
from lookalike.utils.files import DiskFullError, UnwritableError
from lookalike.utils.locks import FolderInUseError, locked
from tests.mining.killed import CHUNK, mining_until

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
    monkeypatch.setattr(Store, "CHUNK", CHUNK)


def mined(dataset, model, folder, **options):
    return mine_hard_negatives(dataset, model, verbose=False, output_scores=True, cache_folder=folder, **options)


FLOATS = {"rescore": "floats"}
SIGNS = {"rescore": "codes", "code": "signs"}
SCALAR = {"rescore": "codes"}


@pytest.mark.parametrize("options", [FLOATS, SIGNS, SCALAR], ids=["floats", "signs", "scalar"])
def test_a_stopped_run_goes_on_and_ends_the_same(dataset, model, tmp_path, options):
    whole = Counting(model)
    expected = mined(dataset, whole, tmp_path / "whole", **options)
    sampled = 64 if options is SCALAR else 0  # which codes are fitted to
    stopped = Counting(model, stop_after=sampled + 40)
    with pytest.raises(KeyboardInterrupt):
        mined(dataset, stopped, tmp_path / "work", **options)
    assert sampled < stopped.encoded <= sampled + 40
    later = Counting(model)
    assert mined(dataset, later, tmp_path / "work", **options).to_dict() == expected.to_dict()
    assert later.encoded == whole.encoded - stopped.encoded
    again = Counting(model)
    assert mined(dataset, again, tmp_path / "work", **options).to_dict() == expected.to_dict()
    assert again.encoded == 0


def test_other_filters_and_bits_encode_nothing_other_texts_prompts_and_models_do(
    dataset, model, other_model, tmp_path, more_texts
):
    mined(dataset, model, tmp_path)
    for options in ({"bits": 128}, {"num_negatives": 1, "relative_margin": 0.1}, {"oversampling": 9}):
        counting = Counting(model)
        mined(dataset, counting, tmp_path, **options)
        assert counting.encoded == 0, options
    for options in ({"query_prompt": "bal "}, {"corpus": more_texts}, {"corpus_prompt_name": "ask"}):
        counting = Counting(model)
        mined(dataset, counting, tmp_path, **options)
        assert counting.encoded > 0, options
    with torch.no_grad():
        next(other_model.parameters())[7, 3] += 1  # trained further: the same name, one value differs
    counting = Counting(other_model)
    mined(dataset, counting, tmp_path)
    assert counting.encoded > 0


def test_killed_for_good_a_run_loses_one_chunk_at_most(dataset, model, model_folder, pairs, tmp_path):
    work = tmp_path / "work"
    with mining_until(3, model_folder, pairs, work):
        pass
    counting = Counting(model)
    got = mined(dataset, counting, work)
    assert counting.encoded == 64 - 2 * 16 + len(set(dataset["query"]))
    assert got.to_dict() == mined(dataset, model, tmp_path / "fresh").to_dict()


def store_of(folder, kind):
    (found,) = folder.glob(f"{kind}-*")
    return found


def flipped(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(content)


@pytest.mark.parametrize("options", [FLOATS, SIGNS, SCALAR], ids=["floats", "signs", "scalar"])
@pytest.mark.parametrize("place", [0, 16 * 4, 16 * 4 * 2 + 5, -1])
def test_a_damaged_chunk_is_encoded_again_and_no_other(dataset, model, tmp_path, caplog, options, place):
    expected = mined(dataset, model, tmp_path, **options, bits=32)
    place *= 32 if options is FLOATS and place > 0 else 1  # rows of 32 floats, or of 4 bytes
    flipped(store_of(tmp_path, "document") / "rows.bin", place)
    flipped(store_of(tmp_path, "query") / "rows.bin", place)
    for encoded in (32, 0):  # one chunk of 16 in each; afterwards nothing is damaged
        caplog.clear()
        counting = Counting(model)
        assert mined(dataset, counting, tmp_path, **options, bits=32).to_dict() == expected.to_dict()
        assert abs(counting.encoded - encoded) <= 1  # 62 queries make chunks of 15 and 16
        assert ("is damaged" in caplog.text) == bool(encoded)


def test_a_hole_of_zeros_is_found(dataset, model, tmp_path):
    expected = mined(dataset, model, tmp_path)
    rows = store_of(tmp_path, "document") / "rows.bin"
    content = rows.read_bytes()
    rows.write_bytes(content[: 16 * 128] + bytes(16 * 128) + content[2 * 16 * 128 :])
    counting = Counting(model)
    assert mined(dataset, counting, tmp_path).to_dict() == expected.to_dict()
    assert counting.encoded == 16


@pytest.mark.parametrize(
    ("damage", "encoded"),
    [("cut", 64), ("cut in the middle", 32), ("nonsense", 64), ("brackets", 64), ("gone", 64), ("another version", 64)],
)
def test_what_is_damaged_is_encoded_again(dataset, model, tmp_path, caplog, damage, encoded):
    expected = mined(dataset, model, tmp_path)
    folder = store_of(tmp_path, "document")
    if damage.startswith("cut"):
        os.truncate(folder / "rows.bin", 100 if damage == "cut" else 2 * 16 * 128 + 100)
    elif damage == "nonsense":
        (folder / "done.json").write_text("{")
    elif damage == "brackets":
        (folder / "done.json").write_text("[" * 100_000)
    elif damage == "gone":
        (folder / "rows.bin").unlink()
    else:  # the cache of a version without checksums cannot be trusted
        (folder / "done.json").write_text('{"format": 1, "chunks": 4, "width": 32}\n')
    counting = Counting(model)
    assert mined(dataset, counting, tmp_path).to_dict() == expected.to_dict()
    assert counting.encoded == encoded
    assert "is damaged" in caplog.text
    assert "encoded again" in caplog.text


def test_a_folder_that_cannot_be_used_is_named_in_one_sentence(dataset, model, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UnwritableError, match="is a file where a folder is needed"):
        mined(dataset, model, tmp_path / "file")
    mined(dataset, model, tmp_path / "work")
    folder = store_of(tmp_path / "work", "document")
    (folder / "rows.bin").unlink()
    (folder / "rows.bin").mkdir()
    with pytest.raises(UnwritableError, match=r"document-\w+ cannot be written to .*; delete it or choose another"):
        mined(dataset, model, tmp_path / "work")


def test_one_process_at_a_time_encodes_the_same_texts(dataset, model, model_folder, pairs, tmp_path, more_texts):
    work = tmp_path / "work"
    with mining_until(1, model_folder, pairs, work) as process:
        with pytest.raises(FolderInUseError, match=rf"document-\w+ is in use by process {process.pid} \("):
            mined(dataset, model, work)
        mined(dataset, model, work, corpus=more_texts)  # other texts have a folder of their own
    assert mined(dataset, model, work).to_dict() == mined(dataset, model, tmp_path / "fresh").to_dict()


def test_what_is_complete_is_read_without_writing(dataset, model, tmp_path):
    """So that any number of processes can use one cache, and one that is read-only."""
    expected = mined(dataset, model, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with locked(store_of(tmp_path, "document")), locked(store_of(tmp_path, "query")):
        assert mined(dataset, model, tmp_path).to_dict() == expected.to_dict()
    after = {
        path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file() and "lock" not in path.name
    }
    assert {path: before[path] for path in after} == after


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
    assert "no room left for encoded texts" in sentence
    assert "32 of 64 texts are kept in" in sentence
    counting = Counting(model)
    assert mined(dataset, counting, tmp_path / "work").to_dict() == expected.to_dict()
    assert counting.encoded == 64 - 32 + len(set(dataset["query"]))


def test_checksums_tell_texts_and_weights_apart():
    assert checksum(["ab", "c"]) != checksum(["a", "bc"]) != checksum(["a", "b", "c"])
    first, second = torch.nn.Linear(70, 70), torch.nn.Linear(70, 70)
    assert fingerprint(first) != fingerprint(second)
    second.load_state_dict(first.state_dict())
    assert fingerprint(first) == fingerprint(second)
    with torch.no_grad():
        second.weight[1, 2] += 1e-3  # between the values that are sampled
    assert fingerprint(first) != fingerprint(second)
