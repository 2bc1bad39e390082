"""A text model that is built in a second, pairs of texts for it, and a trainer of both."""

import random

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.util import cos_sim
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from lookalike import LSHBatchSampler

try:
    from sentence_transformers.sentence_transformer import losses
except ImportError:  # before version 6
    from sentence_transformers import losses  # noqa: F401 - for those who import this module

TOPICS, WORDS = 12, 20


def save_tiny_model(folder, seed=0):
    """BERT of one layer over the words of `pairs`, from a configuration: nothing is downloaded."""
    words = [f"w{topic}x{word}" for topic in range(TOPICS) for word in range(WORDS)]
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
    )
    BertModel(config).save_pretrained(folder)
    return str(folder)


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


def echoes(number=240, *, mixed_up=False):
    """Rows whose positive has the anchor's words in another order, which any model finds; or those of another row."""
    rng = random.Random(1)
    drawn = [[f"w{i % TOPICS}x{word}" for word in rng.sample(range(WORDS), 5)] for i in range(number)]
    positives = [" ".join(words[2:] + words[:2]) for words in drawn]
    if mixed_up:
        rng.shuffle(positives)
    return Dataset.from_dict({"anchor": [" ".join(words) for words in drawn], "positive": positives})


def make_trainer(model_folder, output_folder, dataset, make_loss, *, evaluation=None, batch_size=12, **options):
    """A trainer on the CPU that reports to nobody. `make_loss` makes the loss of a model, or losses by name."""
    model = SentenceTransformer(model_folder, device="cpu")
    options = {"num_train_epochs": 2, "save_strategy": "no", "learning_rate": 1e-3, "logging_steps": 1} | options
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(output_folder),
        per_device_train_batch_size=batch_size,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        **options,
    )
    return SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=dataset, eval_dataset=evaluation, loss=make_loss(model)
    )


def measuring(hardness):
    """cos_sim for a loss, that notes the mean cosine of the hardest negative in every training batch."""

    def similarity(anchors, candidates):
        scores = cos_sim(anchors, candidates)
        if torch.is_grad_enabled():
            own = torch.eye(*scores.shape, dtype=torch.bool)
            hardness.append(float(scores.detach().masked_fill(own, -1).max(1).values.mean()))
        return scores

    return similarity


def note_warm_starts(monkeypatch):
    """What samplers observe without gradients from now on, which is before the first epoch."""
    seen, observe = [], LSHBatchSampler.observe

    def noting(sampler, ids, embeddings=None, **towers):
        if not torch.is_grad_enabled():
            kept = towers if embeddings is None else {"embeddings": embeddings}
            seen.append((sampler, ids.tolist(), {name: x.clone() for name, x in kept.items()}))
        observe(sampler, ids, embeddings, **towers)

    monkeypatch.setattr(LSHBatchSampler, "observe", noting)
    return seen


def note_batches(mining):
    """The row numbers of every batch whose embeddings the mining receives from now on, with those embeddings."""
    seen, receive = [], mining._recorder._receive

    def noting(numbers, anchors, positives):
        seen.append((numbers.tolist(), anchors.clone(), positives.clone()))
        receive(numbers, anchors, positives)

    mining._recorder._receive = noting
    return seen
