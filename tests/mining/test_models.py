"""Any encoder: what is taken for one, and what it must return."""

from functools import partial

import numpy as np
import pytest
import torch

from lookalike import mine_hard_negatives
from lookalike.mining.encoding import identify
from lookalike.mining.models import AnyEncoder, OfImages, as_model, imported
from tests.mining.shares import Words, letters

datasets = pytest.importorskip("datasets")


class Encodes:
    def encode(self, texts):
        return letters(texts).numpy()


class BothSides:
    def encode_query(self, texts):
        return letters(texts)

    encode_document = encode_query


@pytest.mark.parametrize(
    "given",
    [letters, Encodes(), Words(), BothSides(), lambda texts: letters(texts).tolist(),
     lambda texts: list(letters(texts)), lambda texts: list(letters(texts).numpy()),
     lambda texts: letters(texts).requires_grad_(),
     lambda texts: letters(texts).bfloat16().float() * 0 + letters(texts) * 3],
)  # fmt: skip
def test_functions_and_objects_with_encode_give_the_same(dataset, given):
    options = {"verbose": False, "bits": 64}
    assert (
        mine_hard_negatives(dataset, given, **options).to_list()
        == mine_hard_negatives(dataset, letters, **options).to_list()
    )


def test_rows_have_unit_length_and_a_model_stays_what_it_is(model):
    x = as_model(lambda texts: 7 * letters(texts)).encode_query(["abc", "xyz"])
    torch.testing.assert_close(x.norm(dim=1), torch.ones(2))
    assert x.dtype == torch.float32
    assert as_model(model) is model
    assert as_model("a name") == "a name"
    encoder = AnyEncoder(letters)
    assert as_model(encoder) is encoder


@pytest.mark.parametrize(
    ("wrong", "error", "sentence"),
    [
        (lambda texts: np.ones((len(texts), 3, 8)), ValueError, "returns several vectors per text, and mining compar"),
        (lambda texts: [np.ones((2 + i, 8)) for i, _ in enumerate(texts)], ValueError, "returns several vectors per t"),
        (lambda texts: [torch.ones(2, 8) for _ in texts], ValueError, "returns several vectors per text"),
        (lambda texts: np.ones((len(texts), 8), np.int8), TypeError, r"must return floats \[n, dim\], got torch.int8"),
        (lambda texts: np.ones((len(texts) + 1, 8)), ValueError, r"one vector per text, \[\d+, dim\], got \[\d+, 8\]"),
        (lambda texts: np.ones(len(texts)), ValueError, r"must return one vector per text, .* got \[\d+\]"),
        (lambda _: None, TypeError, r"must return floats \[n, dim\], got NoneType"),
        (lambda texts: ["a"] * len(texts), TypeError, r"must return floats \[n, dim\], got list"),
        (lambda _: {"x": 1}, TypeError, r"must return floats \[n, dim\], got dict"),
        (lambda texts: np.full((len(texts), 8), np.nan), ValueError, "returns NaN or infinity for the text"),
    ],
)
def test_what_is_no_embedding_is_refused_in_a_sentence(dataset, wrong, error, sentence):
    with pytest.raises(error, match=sentence) as caught:
        mine_hard_negatives(dataset, wrong, verbose=False)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("given", [5, None, Words, object()])
def test_what_cannot_encode_is_refused(given):
    with pytest.raises(TypeError, match="model must be a SentenceTransformer or the name of one, a function"):
        as_model(given)


@pytest.mark.parametrize(("kind", "what"), [("MultiVectorEncoder", "several vectors"), ("SparseEncoder", "sparse vec")])
def test_models_of_the_library_that_return_something_else_are_refused(dataset, kind, what):
    found = type(kind, (), {"__module__": "sentence_transformers.of_this_kind"})
    with pytest.raises(ValueError, match=f"a {kind} returns {what}"):
        mine_hard_negatives(dataset, type("Mine", (found,), {"prompts": {}})(), verbose=False)


class Uneven:
    """Encodes queries and references to vectors of other lengths."""

    def encode_query(self, texts):
        return letters(texts)[:, :10]

    def encode_document(self, texts):
        return letters(texts)


@pytest.mark.parametrize("options", [{}, {"rescore": "codes", "code": "signs"}, {"rescore": "codes", "bits": 64}])
def test_vectors_of_other_lengths_are_not_compared(dataset, options):
    with pytest.raises(
        ValueError, match="vectors of 10 values for a query, and returned 26 before: all texts, queries"
    ):
        mine_hard_negatives(dataset, Uneven(), verbose=False, **options)
    uneven = iter(range(5, 100))
    with pytest.raises(ValueError, match=r"vectors of 6 values for a .*, and returned 5 before"):
        mine_hard_negatives(
            dataset, lambda texts: letters(texts)[:, : next(uneven)], verbose=False, block=16, **options
        )


def test_names_tell_encoders_apart():
    assert identify(as_model(Words())) == "words"
    assert identify(as_model(letters)) == "tests.mining.shares.letters"
    assert identify(as_model(Encodes())) == f"{__name__}.Encodes"


def first_letters(texts, number, encode=letters):
    return encode(texts)[:, :number]


def test_arguments_tell_partial_functions_apart():
    names = [identify(as_model(partial(first_letters, number=number))) for number in (9, 10)]
    assert names == [f'{__name__}.first_letters({{"number": {number}}})' for number in (9, 10)]
    assert identify(as_model(partial(first_letters, encode=Words()))).endswith('({"encode": "words"})')
    one, same, other = (identify(as_model(partial(first_letters, encode=Module(seed), number=9))) for seed in (0, 0, 1))
    assert one == same != other


def letters_backwards(texts):
    return letters([text[::-1] for text in texts])


letters_backwards.__qualname__ = "letters"


def test_a_function_of_the_same_name_in_another_module_takes_nothing_from_the_cache_of_the_first(dataset, tmp_path):
    options = {"verbose": False, "bits": 64}
    mine_hard_negatives(dataset, letters, cache_folder=tmp_path, **options)
    before = set(tmp_path.iterdir())
    mine_hard_negatives(dataset, letters_backwards, cache_folder=tmp_path, **options)
    assert len(set(tmp_path.iterdir()) - before) == len(before)


class Module(torch.nn.Module):
    """Encodes with weights of its own, as `letters` does otherwise."""

    def __init__(self, seed):
        super().__init__()
        self.linear = torch.nn.Linear(26, 8)
        generator = torch.Generator().manual_seed(seed)
        torch.nn.init.normal_(self.linear.weight, generator=generator)
        torch.nn.init.zeros_(self.linear.bias)

    def encode(self, texts):
        return self.linear(letters(texts))


@pytest.mark.parametrize(
    "held", [lambda module: module, lambda module: module.encode, lambda module: OfImages(module, 32)]
)
def test_weights_tell_modules_apart(held):
    one, same, other = (identify(as_model(held(Module(seed)))) for seed in (0, 0, 1))
    assert one == same != other


def test_a_module_with_other_weights_takes_nothing_from_the_cache_of_the_first(dataset, tmp_path):
    options = {"verbose": False, "bits": 64}
    mine_hard_negatives(dataset, Module(0), cache_folder=tmp_path, **options)
    found = mine_hard_negatives(dataset, Module(1), cache_folder=tmp_path, **options)
    assert found.to_list() == mine_hard_negatives(dataset, Module(1), **options).to_list()


def test_what_a_name_imports():
    assert imported("tests.mining.shares:letters") is letters
    assert isinstance(imported("tests.mining.shares:Words"), Words)
    for name in ("tests.mining.shares:nothing", "no.such.module:f", "tests:"):
        with pytest.raises(ValueError, match="names nothing that can be imported"):
            imported(name)
