"""Wherever a stream cannot be used, the error says so and what to do instead."""

from types import SimpleNamespace

import datasets
import pytest
from torch.utils.data import DataLoader, IterableDataset

from lookalike import LSHBatchSampler, advise, compare, mine_hard_negatives, train
from lookalike.data.huggingface import from_dataset
from lookalike.integrations.lightning import HardNegatives as InLightning
from lookalike.integrations.metric_learning import HardNegatives as InMetricLearning
from lookalike.integrations.sentence_transformers import HardNegatives as InSentenceTransformers
from lookalike.utils.lengthless import is_stream

ROWS = [{"anchor": f"question {i}", "positive": f"answer {i}"} for i in range(20)]
SAMPLER = LSHBatchSampler([0, 0, 1, 1], 4)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(ROWS)


def in_lightning(stream, _):
    trainer = SimpleNamespace(
        fit_loop=SimpleNamespace(_combined_loader=SimpleNamespace(flattened=[DataLoader(stream)]))
    )
    InLightning(SAMPLER).on_train_start(trainer, None)


def in_metric_learning(stream, _):
    trainer = SimpleNamespace(sampler=None, mining_funcs={}, loss_funcs={"metric_loss": None}, dataset=stream)
    InMetricLearning(SAMPLER).attach(trainer)


@pytest.mark.parametrize(
    "use",
    [
        lambda stream, _: LSHBatchSampler(stream, 4),
        lambda stream, _: LSHBatchSampler(None, 4, pairs=stream),
        lambda stream, folder: train(stream, out=folder),
        lambda stream, _: from_dataset(stream),
        lambda stream, _: from_dataset(datasets.Dataset.from_list(ROWS), stream),
        lambda stream, _: mine_hard_negatives(datasets.Dataset.from_list(ROWS), len, corpus=stream),
        lambda stream, _: InSentenceTransformers()._numbered("", stream, ["label"]),
        in_lightning,
        in_metric_learning,
    ],
    ids=[
        "sampler",
        "pairs",
        "train",
        "from_dataset",
        "test part",
        "corpus",
        "sentence-transformers",
        "lightning",
        "metric-learning",
    ],
)
@pytest.mark.parametrize("kind", ["torch", "Hugging Face"])
def test_a_stream_is_refused_with_advice(tmp_path, use, kind):
    stream = Stream() if kind == "torch" else datasets.Dataset.from_list(ROWS).to_iterable_dataset()
    with pytest.raises(TypeError, match=r"no ids and no length.*Dataset\.from_generator.*lookalike\.StreamBatches"):
        use(stream, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_mining_reads_streams_of_hugging_face_alone():
    with pytest.raises(TypeError, match=r"no ids and no length.*Dataset\.from_generator"):
        mine_hard_negatives(Stream(), "a-model")


@pytest.mark.parametrize("data", [iter(ROWS), DataLoader(Stream()), datasets.Dataset.from_list(ROWS)])
@pytest.mark.parametrize("use", [train, compare, advise])
def test_what_is_no_data_set_is_refused(tmp_path, data, use):
    options = {} if use is advise else {"out": tmp_path / "run"}
    with pytest.raises(TypeError, match=r"data must be the name of a data set, .*, got \w+; lookalike\.data\.build"):
        use(data, *[["random"]] if use is compare else [], **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("corpus", [iter(["a"]), datasets.Dataset.from_list(ROWS)])
def test_what_is_no_list_of_texts_is_refused_as_a_corpus(corpus):
    with pytest.raises(TypeError, match=r"corpus must be a list of texts, or files of them, got \w+"):
        mine_hard_negatives(datasets.Dataset.from_list(ROWS), len, corpus=corpus)


def test_what_has_rows_by_number_is_no_stream():
    assert is_stream(datasets.IterableDatasetDict())
    for data in (ROWS, None, "glyphs", datasets.Dataset.from_list(ROWS), DataLoader(ROWS)):
        assert not is_stream(data)
