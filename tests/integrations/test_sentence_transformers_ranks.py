"""Two processes with sentence-transformers' trainer: accelerate deals the batches, mining follows."""

import pytest
import torch

pytest.importorskip("sentence_transformers")
pytest.importorskip("datasets")

from datasets import Dataset

from lookalike.integrations.sentence_transformers import HardNegatives
from tests.integrations.texts import losses, make_trainer, note_batches, pairs
from tests.processes import on_ranks

PAIRS, BATCH, TWINS = 100, 6, 20  # rows 2 i and 2 i + 1, below TWINS, share an anchor


def twins():
    data = pairs(PAIRS)
    anchors = [data["anchor"][i - i % 2 if i < TWINS else i] for i in range(PAIRS)]
    return Dataset.from_dict({"anchor": anchors, "positive": list(data["positive"])})


def train(_rank, model_folder, folder):
    def gathering(model):
        return losses.MultipleNegativesRankingLoss(model, gather_across_devices=True)

    def run(make_loss, name, resume=None, **options):
        torch.manual_seed(0)
        trainer = make_trainer(model_folder, f"{folder}/{name}", twins(), make_loss, batch_size=BATCH, **options)
        mining = HardNegatives(bits=64).attach(trainer)
        seen = note_batches(mining)
        trainer.train(resume_from_checkpoint=resume)
        weights = [parameter.tolist() for parameter in trainer.model.parameters()]
        codes = mining.samplers[""]._streams["query"].table
        return [batch for batch, *_ in seen], weights, codes.num_seen

    plain = run(losses.MultipleNegativesRankingLoss, "plain")
    gathered = run(gathering, "gathered", save_strategy="steps", save_steps=3)
    resumed = run(gathering, "gathered", resume=f"{folder}/gathered/checkpoint-12")
    split = run(gathering, "split", accelerator_config={"split_batches": True})
    with pytest.raises(ValueError, match="with dispatch_batches one process fetches the batches of all"):
        run(gathering, "dispatched", accelerator_config={"dispatch_batches": True})
    return {"plain": plain, "gathered": gathered, "resumed": resumed, "split": split}


def test_two_ranks(model_folder, tmp_path):
    ranks = on_ranks(2, train, model_folder, str(tmp_path))
    for name, size in (("plain", BATCH), ("gathered", BATCH), ("split", BATCH // 2)):
        (first, weights, seen), (second, same_weights, _) = (results[name] for results in ranks)
        assert weights == same_weights
        assert seen > PAIRS - 2 * BATCH  # what the last, short batch leaves out
        steps = PAIRS // (2 * size)
        assert [len(batch) for batch in first + second] == [size] * (4 * steps)
        for start in (0, steps):
            together = [a + b for a, b in zip(first[start : start + steps], second[start : start + steps], strict=True)]
            numbers = [number for batch in together for number in batch]
            assert len(set(numbers)) == len(numbers)  # nothing twice in an epoch
            for batch in together if name != "plain" else first + second:  # what the loss sees as one batch
                groups = [number // 2 if number < TWINS else number for number in batch]
                assert len(set(groups)) == len(groups)
    for results in ranks:  # a run of two ranks goes on in its second epoch
        assert results["resumed"][0] == results["gathered"][0][12:]
        assert results["resumed"][1] == results["gathered"][1]
