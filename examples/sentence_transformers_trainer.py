"""Hard negatives with sentence-transformers' trainer: match names in Python's library with their documentation.

Anchors are names ("datetime date replace"), positives the first lines of their documentation; the model is a small BERT
without training, so nothing is downloaded. Prints how hard the trainer's own and mined batches are: the cosine of the
hardest negative in the batch, averaged over an epoch.

Run with: python examples/sentence_transformers_trainer.py
"""

import importlib
import inspect
import tempfile

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.util import cos_sim
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, set_seed

from lookalike.integrations.sentence_transformers import HardNegatives

MODULES = "calendar csv datetime ftplib json logging pathlib random smtplib statistics zipfile"


def documented_names() -> dict[str, list[str]]:
    """Return names of the library as words, and the first lines of their documentation."""
    pairs = {}
    for module in MODULES.split():
        for class_name, owner in inspect.getmembers(importlib.import_module(module), inspect.isclass):
            for name, value in inspect.getmembers(owner, callable):
                summary = (inspect.getdoc(value) or "").split("\n")[0]
                if not name.startswith("_") and len(summary.split()) > 3:
                    pairs[f"{module} {class_name} {name}".replace("_", " ").lower()] = summary
    return {"anchor": list(pairs), "positive": list(pairs.values())}


def new_model(texts: list[str], folder: str) -> SentenceTransformer:
    """Make a BERT with random weights, over the words of the texts."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=["[PAD]", "[UNK]"]))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    BertModel(BertConfig(vocab_size=tokenizer.get_vocab_size(), **sizes)).save_pretrained(folder)
    return SentenceTransformer(folder, device="cpu")


def train(dataset: Dataset, *, mined: bool) -> list[float]:
    """Train, and return how hard the batches of each epoch were."""
    hardness: list[float] = []

    def similarity(anchors: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = cos_sim(anchors, candidates)
        hardness.append(float(scores.detach().clone().fill_diagonal_(-1).max(1).values.mean()))
        return scores

    with tempfile.TemporaryDirectory() as folder:
        set_seed(0)
        model = new_model(dataset["anchor"][:] + dataset["positive"][:], f"{folder}/model")
        args = SentenceTransformerTrainingArguments(
            folder,
            num_train_epochs=3,
            per_device_train_batch_size=32,
            learning_rate=5e-4,
            use_cpu=True,
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            report_to=[],
        )
        loss = MultipleNegativesRankingLoss(model, similarity_fct=similarity)
        trainer = SentenceTransformerTrainer(model, args, dataset, loss=loss)
        if mined:
            HardNegatives(bits=512).attach(trainer)
        trainer.train()
    steps = len(hardness) // 3
    return [sum(hardness[i : i + steps]) / steps for i in range(0, len(hardness), steps)]


if __name__ == "__main__":
    data = Dataset.from_dict(documented_names())
    print(f"{len(data)} pairs; cosine of the hardest negative in the batch, by epoch:")
    for name, mined in (("the trainer's own batches", False), ("mined batches", True)):
        print(f"{name:26}" + "  ".join(f"{value:.3f}" for value in train(data, mined=mined)))
