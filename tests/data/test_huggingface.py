import numpy as np
import pytest
import torch
from PIL import Image

from lookalike.data.huggingface import from_dataset

PAIRS = [(f'what is "{i // 2}"?', f"answer, {i}") for i in range(60)]


class Rows:
    """As much of a `datasets.Dataset` as is asked for."""

    def __init__(self, **columns):
        self.columns = columns
        self.column_names = list(columns)

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, key):
        return self.columns[key] if isinstance(key, str) else {name: c[key] for name, c in self.columns.items()}


def picture(number):
    return Image.fromarray(np.full((9, 12, 3), number, np.uint8))


def test_rows_of_images_with_labels():
    rows = Rows(image=[picture(i) for i in range(40)], label=[i // 2 for i in range(40)])
    data = from_dataset(rows, size=8, test_share=0.4)
    assert data.counts["training images"] + data.counts["test images"] == 40
    both = from_dataset(rows, Rows(image=[picture(200)] * 4, label=[77, 77, 78, 78]), size=8)
    assert both.counts["training images"] == 40
    assert both.test.queries(torch.arange(4))[:, 0, 0, 0].tolist() == [200] * 4
    rows.columns["image"][3] = None
    with pytest.raises(ValueError, match="row 3 of the column 'image' is not an image"):
        both.train.plain("query", torch.arange(40))


def test_rows_of_pairs():
    rows = Rows(street=[picture(i) for i in range(40)], above=[picture(100 + i) for i in range(40)])
    data = from_dataset(rows, columns=("street", "above"), size=(4, 8), reference_size=6, test_share=0.4)
    ids = torch.arange(data.counts["training pairs"])
    query, reference = (data.train.plain(tower, ids) for tower in ("query", "reference"))
    assert query.shape[1:] == (3, 4, 8)
    assert torch.equal(query[:, 0, 0, 0] + 100, reference[:, 0, 0, 0])
    with pytest.raises(ValueError, match="must have the columns image and label, or query and reference, got street"):
        from_dataset(rows)


def test_a_real_dataset():
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"anchor": [q for q, _ in PAIRS], "positive": [a for _, a in PAIRS]})
    data = from_dataset(rows, test_share=0.3)
    assert 30 < data.counts["training pairs"] < 55
    images = datasets.Dataset.from_dict(
        {"image": [picture(i) for i in range(20)], "label": [i // 2 for i in range(20)]},
        features=datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")}),
    )
    data = from_dataset(images, images, size=8)
    assert data.train.plain("query", torch.arange(20))[:, 0, 0, 0].tolist() == list(range(20))
