"""Labels from files: numbers or text, numbered."""

import numpy as np
import pytest

from lookalike.data.labels import load_labels


def test_labels_from_text(tmp_path):
    (tmp_path / "labels.txt").write_text("b\na\nb\n")
    assert load_labels(tmp_path / "labels.txt", 3).tolist() == [1, 0, 1]
    with pytest.raises(ValueError, match=r"one label per embedding, 4, got the shape \[3\]"):
        load_labels(tmp_path / "labels.txt", 4)
    with pytest.raises(FileNotFoundError, match="no such file of labels"):
        load_labels(tmp_path / "absent.txt", 4)


def test_lines_of_labels_are_read_as_those_of_texts(tmp_path):
    path = tmp_path / "labels.txt"
    path.write_bytes("\ufeffan owl\r\na\u2028cat\n\n an owl \n".encode())
    assert load_labels(path, 3).tolist() == [0, 1, 0]
    path.write_bytes(b"owl\ncaf\xe9\n")
    with pytest.raises(ValueError, match=r"labels.txt, line 2 is not UTF-8 \(byte 0xe9\); save the file as UTF-8.$"):
        load_labels(path, 2)


def test_labels_may_be_any_text(tmp_path):
    (tmp_path / "labels.txt").write_text("golden retriever\n# 7\ngolden retriever\n\n")
    assert load_labels(tmp_path / "labels.txt", 3).tolist() == [1, 0, 1]
    np.save(tmp_path / "labels.npy", np.array(["owl", "cat", "owl"]))
    assert load_labels(tmp_path / "labels.npy", 3).tolist() == [1, 0, 1]
    np.save(tmp_path / "labels.npy", np.array(["owl", "cat", "owl"], object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"holds Python objects, .* numpy.save\(path, labels.astype\(str\)\)"):
        load_labels(tmp_path / "labels.npy", 3)
    np.save(tmp_path / "labels.npy", np.array([[1], [2], [1]]))
    with pytest.raises(ValueError, match=r"one label per embedding, 3, got the shape \[3, 1\]"):
        load_labels(tmp_path / "labels.npy", 3)
