import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from lookalike.data.embeddings import load_embeddings

X = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)


def test_arrays_come_as_float32_and_npy_is_mapped(tmp_path):
    np.save(tmp_path / "x.npy", X)
    loaded = load_embeddings(tmp_path / "x.npy")
    assert isinstance(loaded, np.memmap)
    assert np.array_equal(loaded, X)
    np.save(tmp_path / "half.npy", X.astype(np.float16))
    assert load_embeddings(tmp_path / "half.npy").dtype == np.float32


def test_files_of_several_arrays_ask_which(tmp_path):
    np.savez(tmp_path / "one.npz", x=X, labels=np.arange(20))
    assert np.array_equal(load_embeddings(tmp_path / "one.npz"), X)
    np.savez(tmp_path / "two.npz", a=X, b=2 * X)
    assert np.array_equal(load_embeddings(f"{tmp_path}/two.npz:b"), 2 * X)
    with pytest.raises(ValueError, match=r"several arrays: say which, as in two.npz:a; there are a, b\."):
        load_embeddings(tmp_path / "two.npz")
    with pytest.raises(ValueError, match="no array 'c'"):
        load_embeddings(f"{tmp_path}/two.npz:c")


def test_texts_beside_embeddings_do_no_harm(tmp_path):
    texts = [f"text {i}" for i in range(20)]
    np.savez(tmp_path / "x.npz", x=X, texts=np.array(texts), objects=np.array(texts, object), allow_pickle=True)
    assert np.array_equal(load_embeddings(tmp_path / "x.npz"), X)
    np.savez(tmp_path / "texts.npz", texts=np.array(texts, object), allow_pickle=True)
    with pytest.raises(ValueError, match="holds no two-dimensional array of floats"):
        load_embeddings(tmp_path / "texts.npz")


def test_safetensors_of_any_float(tmp_path):
    path = tmp_path / "x.safetensors"
    save_file({"x": torch.from_numpy(X).bfloat16(), "labels": torch.arange(20)}, path)
    assert np.array_equal(load_embeddings(path), torch.from_numpy(X).bfloat16().float().numpy())
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match="damaged"):
        load_embeddings(path)


def test_parquet_needs_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "x.parquet").touch()
    with pytest.raises(ImportError, match=r"reading parquet needs pyarrow: pip install 'lookalike\[tables\]'"):
        load_embeddings(tmp_path / "x.parquet")


def test_parquet(tmp_path):
    pa, pq = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
    pq.write_table(pa.table({"id": range(20), "x": list(X)}), tmp_path / "x.parquet")
    assert np.array_equal(load_embeddings(tmp_path / "x.parquet"), X)


def with_value(row, value):
    x = X.copy()
    x[row, 2] = value
    return x


@pytest.mark.parametrize(
    ("array", "error", "sentence"),
    [
        (X[0], ValueError, r"must hold embeddings of the shape \[n, dim\], got \[4\]"),
        (X[:0], ValueError, r"got \[0, 4\]"),
        (X.astype(np.int64), TypeError, "must hold floats, got int64"),
        (X[:4], ValueError, "has 4 rows and at least 5 are needed"),
        (with_value(7, np.nan), ValueError, "row 7 has NaN or infinity"),
        (with_value(9, np.inf), ValueError, "row 9 has NaN or infinity"),
        (0 * X, ValueError, "nothing but zeros"),
        (np.repeat(X[:1], 9, axis=0), ValueError, "the same embedding 9 times"),
        (np.array([[None, 1]] * 9), TypeError, "holds Python objects, which are never unpickled here"),
        (np.array(["some text"] * 9), TypeError, "holds text, not embeddings: embed it with a model"),
        (np.array(["some text"] * 9, object), TypeError, "holds Python objects, which are never unpickled here"),
        (np.array([[b"some text"]] * 9), TypeError, "holds text, not embeddings: embed it with a model"),
    ],
)
def test_what_cannot_be_embeddings(tmp_path, array, error, sentence):
    np.save(tmp_path / "x.npy", array, allow_pickle=True)
    with pytest.raises(error, match=sentence):
        load_embeddings(tmp_path / "x.npy", min_rows=5)


def test_a_single_row_is_not_a_matter_of_k(tmp_path):
    np.save(tmp_path / "x.npy", X[:1])
    with pytest.raises(ValueError, match=r"has 1 row and at least 2 are needed; give more rows\.$"):
        load_embeddings(tmp_path / "x.npy")


@pytest.mark.parametrize("write", [np.save, np.savez, np.savez_compressed])
@pytest.mark.filterwarnings("ignore")
def test_damage_is_said_in_one_sentence_whichever_bit_it_flips(tmp_path, write):
    path = tmp_path / ("x.npy" if write is np.save else "x.npz")
    write(path, X)
    whole = path.read_bytes()
    said = set()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            load_embeddings(path)
        except (ValueError, TypeError) as error:
            said.add(str(error))
    assert not any("\n" in each for each in said)
    assert any("is damaged or of another kind" in each for each in said)


def test_damage_is_not_taken_for_the_lack_of_embeddings(tmp_path):
    np.savez(tmp_path / "x.npz", x=X)
    content = (tmp_path / "x.npz").read_bytes()
    (tmp_path / "x.npz").write_bytes(content.replace(b"NUMPY", b"NUMPX"))
    with pytest.raises(ValueError, match="is damaged or of another kind"):
        load_embeddings(tmp_path / "x.npz")


def test_only_the_named_array_is_read(tmp_path):
    np.savez(tmp_path / "x.npz", damaged=X + 1, x=X)
    content = (tmp_path / "x.npz").read_bytes()
    (tmp_path / "x.npz").write_bytes(content.replace(b"NUMPY", b"NUMPX", 1))
    assert np.array_equal(load_embeddings(f"{tmp_path}/x.npz:x"), X)


def test_what_is_no_file_of_embeddings(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file of embeddings"):
        load_embeddings(tmp_path / "x.npy")
    (tmp_path / "x.csv").touch()
    with pytest.raises(ValueError, match=r"embeddings are read from \.npy, .npz, .safetensors, .parquet files"):
        load_embeddings(tmp_path / "x.csv")
    for name in ("x.npy", "x.npz", "y.npz"):
        (tmp_path / name).write_bytes(b"" if name[0] == "x" else b"PK\3\4 half a file")
        with pytest.raises(ValueError, match="damaged"):
            load_embeddings(tmp_path / name)
