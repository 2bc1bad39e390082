"""A text model that is built in a second, and pairs of texts for it."""

import random

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

TOPICS, WORDS = 12, 20


def tiny_model(folder, seed=0):
    """BERT of one layer over the words of `pairs`, from a configuration: nothing is downloaded."""
    words = [f"w{topic}x{word}" for topic in range(TOPICS) for word in range(WORDS)]
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=32,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    return SentenceTransformer(str(folder), device="cpu")  # pools by the mean


def pairs(number=240, seed=0, negatives=0):
    """Rows whose anchor and positive are different words of one topic: those of a topic are hard for each other."""
    rng = random.Random(seed)

    def sentence(topic):
        return " ".join(f"w{topic}x{rng.randrange(WORDS)}" for _ in range(5))

    topics = [rng.randrange(TOPICS) for _ in range(number)]
    columns = {"anchor": [sentence(topic) for topic in topics], "positive": [sentence(topic) for topic in topics]}
    for i in range(negatives):
        columns[f"negative_{i}"] = [sentence(rng.randrange(TOPICS)) for _ in topics]
    return Dataset.from_dict(columns)


def make_trainer(folder, dataset, loss, *, model=None, evaluation=None, batch_size=12, **options):
    """A trainer on the CPU that reports to nobody."""
    model = model or tiny_model(folder / "model")
    options = {"num_train_epochs": 2, "save_strategy": "no", "learning_rate": 1e-3, "logging_steps": 1} | options
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder / "run"), per_device_train_batch_size=batch_size, report_to=[], use_cpu=True,
        disable_tqdm=True, **options,
    )  # fmt: skip
    return SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=dataset, eval_dataset=evaluation, loss=loss(model)
    )
