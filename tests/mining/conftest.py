import random

import pytest

from tests.mining.words import make_columns, sentence


@pytest.fixture(scope="session")
def pairs():
    return make_columns()


@pytest.fixture(scope="session")
def more_texts(pairs):
    rng = random.Random(1)
    return [sentence(rng, 8) for _ in range(40)] + pairs["answer"][:3]


@pytest.fixture
def dataset(pairs):
    return pytest.importorskip("datasets").Dataset.from_dict(pairs)


@pytest.fixture
def other_model(model, model_folder):
    """A model of its own for a test that changes it; the weights are those of `model`."""
    return type(model)(str(model_folder), device="cpu")
