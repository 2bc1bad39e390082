"""A small random model that really tokenises and encodes, and pairs of texts for it."""

import os
import random

import pytest

from benchmarks.kill_mine import WORDS, save_model

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def text(rng, length):
    return " ".join(rng.choice(WORDS) for _ in range(length))


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    pytest.importorskip("sentence_transformers")
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def model(model_folder):
    return pytest.importorskip("sentence_transformers").SentenceTransformer(str(model_folder), device="cpu")


@pytest.fixture(scope="session")
def pairs():
    """Columns of pairs, several positives for some queries, and texts that repeat."""
    rng = random.Random(0)
    rows = [(text(rng, 4), text(rng, 9)) for _ in range(60)]
    rows += [(rows[i][0], text(rng, 9)) for i in (0, 3, 3, 7)]  # further positives
    rows += [(text(rng, 4), rows[i][1]) for i in (1, 5)]  # the same answer to another question
    rows.append(rows[11])  # the same pair again
    return {"query": [q for q, _ in rows], "answer": [a for _, a in rows]}


@pytest.fixture(scope="session")
def more_texts(pairs):
    rng = random.Random(1)
    return [text(rng, 8) for _ in range(40)] + pairs["answer"][:3]


@pytest.fixture
def dataset(pairs):
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_dict(pairs)
