"""HardNegatives: mined batches for a `SentenceTransformerTrainer`."""

from __future__ import annotations

import functools
import inspect
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from datasets import Dataset, DatasetDict
from sentence_transformers import SentenceTransformerTrainer
from torch import Tensor, nn
from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint

from lookalike import __version__
from lookalike.integrations.meter import MiningMeter
from lookalike.integrations.sentence_transformers.dealing import DealtBatches
from lookalike.integrations.sentence_transformers.embedding import embed_pairs, pairs_loader
from lookalike.integrations.sentence_transformers.equal_texts import pair_sampler
from lookalike.integrations.sentence_transformers.numbering import NumberedRows
from lookalike.integrations.sentence_transformers.recording import Recorder
from lookalike.integrations.warm_start import observe_all
from lookalike.negatives.same import read_same
from lookalike.samplers import LSHBatchSampler, MiningOptions
from lookalike.utils import ranks
from lookalike.utils.files import replacing
from lookalike.utils.lengthless import refuse_stream
from lookalike.utils.tensors import checked_labels

if TYPE_CHECKING:
    from torch.utils.data import BatchSampler

logger = logging.getLogger("lookalike")

# The others follow from the trainer.
RESERVED = {"labels", "same", "batch_size", "pairs", "drop_last", "self_pairs", "shard", "rearrange", "options"}
OPTIONS = {*inspect.signature(LSHBatchSampler).parameters, *MiningOptions.__annotations__} - RESERVED


@dataclass
class _Part:
    """One of the data sets to train on."""

    dataset: Dataset
    numbered: NumberedRows  # the same, as the trainer reads it
    first: int  # the number of its first row
    label_column: str | None  # holds the numbers instead
    labels: Tensor | None  # the labels that it held
    sampler: LSHBatchSampler | None = None


class HardNegatives(TrainerCallback):  # type: ignore[misc]
    """Batches of mutual hard negatives for a `SentenceTransformerTrainer`, from the embeddings of its own steps.

    For data sets of pairs, (anchor, positive) or (anchor, positive, negative, ...), and losses for which the other
    rows of a batch are negatives: MultipleNegativesRankingLoss, its cached form, GISTEmbedLoss, any of
    them in MatryoshkaLoss. Pairs that share an anchor or a positive never meet in a batch.

    Args:
        labels: Integers, one per row, to keep more apart than equal texts: rows with the same label are never
            negatives of each other. With a `DatasetDict`, a dictionary of them by name.
        same: Pairs of rows that a person marked as the same: a file, as `read_same` reads it, or row numbers `[m, 2]`.
            They are never negatives of each other. With a `DatasetDict`, a dictionary of them by name.
        normalize: Compare by cosine, as those losses do; False for dot products.
        options: `bits`, `hardness`, `neighbourhood`, `guard`, `warm_start` and others, as in `LSHBatchSampler`. Unless
            `warm_start` is False, the data are embedded once when training begins.

    Examples:
        `HardNegatives(bits=512).attach(trainer)`, then `trainer.train()`.
    """

    def __init__(self, *, labels: Any = None, same: Any = None, normalize: bool = True, **options: Any) -> None:
        if unknown := set(options) - OPTIONS:
            raise TypeError(f"HardNegatives takes {', '.join(sorted(OPTIONS))}, not {', '.join(sorted(unknown))}.")
        # Raises for bad options now, not when training starts; how many rows there are, the trainer knows.
        tried = {"filters": replace(options["filters"], exclude=None)} if options.get("filters") else {}
        LSHBatchSampler(None, 1, pairs=ranks.world()[1], **{**options, **tried})
        self.labels, self.same, self.normalize, self.options = labels, same, normalize, options
        self._parts: dict[str, _Part] = {}  # by name; "" where there is one data set alone
        self._trainer: Any = None
        self._recorder = Recorder(self._begin, self._receive)
        self._num_observed = 0  # batches of this epoch
        self._meter = MiningMeter()
        self._building = False  # whether the loader that is being made is the training loader
        self._checkpoint: Path | None = None  # to resume from

    @property
    def samplers(self) -> dict[str, LSHBatchSampler]:
        """The sampler of each data set, by its name; "" where there is one alone. There are none before `train`."""
        return {name: part.sampler for name, part in self._parts.items() if part.sampler is not None}

    def attach(self, trainer: SentenceTransformerTrainer) -> Self:
        """Give the trainer mined batches; call it once, before `trainer.train`.

        Raises:
            TypeError: It is not a `SentenceTransformerTrainer`, or its data set has no rows by number.
            ValueError: The data set has no pairs, or nothing can be mined for this trainer; the error says why.
        """
        if self._trainer is not None:
            raise ValueError("this HardNegatives has a trainer already; make one for each.")
        if not isinstance(trainer, SentenceTransformerTrainer):
            raise TypeError(f"attach() takes a SentenceTransformerTrainer, got a {type(trainer).__name__}.")
        if trainer.args.n_gpu > 1:
            raise ValueError(
                f"one process drives {trainer.args.n_gpu} GPUs here, which mixes up the order of embeddings; "
                "start one process per GPU, with torchrun or accelerate launch."
            )
        if trainer.accelerator.dispatch_batches and ranks.is_distributed():
            raise ValueError(
                "with dispatch_batches one process fetches the batches of all, but mining needs every process to "
                "follow them; leave dispatch_batches out of accelerator_config."
            )
        dataset, several = trainer.train_dataset, isinstance(trainer.train_dataset, DatasetDict)
        numbered = {
            name: self._numbered(name, part, trainer.data_collator.valid_label_columns)
            for name, part in (dataset.items() if several else [("", dataset)])
        }
        trainer.train_dataset = DatasetDict(numbered) if several else numbered[""]
        self._trainer = trainer
        # Wrap methods that the trainer offers to be overridden. Its arguments stay as they are: they are pickled with
        # every checkpoint, and a sampler among them would be, too.
        for ours in (self._train, self._get_train_dataloader, self._get_batch_sampler):
            name = ours.__name__.removeprefix("_")
            theirs = getattr(trainer, name)
            setattr(trainer, name, functools.update_wrapper(functools.partial(ours, theirs), theirs))
        trainer.add_callback(self)
        self._model.model_card_data.add_tags(["lookalike", "hard-negatives"])  # type: ignore[union-attr, operator]
        return self

    def _numbered(self, name: str, dataset: Any, label_columns: list[str]) -> NumberedRows:
        refuse_stream("train_dataset", dataset, "HardNegatives needs rows by number")
        if not isinstance(dataset, Dataset):
            kind = "missing" if dataset is None else f"of type {type(dataset).__name__}"
            raise TypeError(
                f"mining needs a data set with rows by number, a datasets.Dataset, but train_dataset is {kind}."
            )
        own = next((column for column in label_columns if column in dataset.column_names), None)
        if len(dataset.column_names) - (own is not None) < 2:
            raise ValueError(
                "mining needs pairs, a column of anchors and a column of positives, but the columns of "
                f"train_dataset are {', '.join(dataset.column_names)}."
            )
        if self.labels is not None:
            checked_labels("labels", self._labels_of(name), len(dataset))
        if (same := self._same_of(name)) is not None:
            read_same(same, len(dataset))  # raises now, not when training starts
        first = sum(len(part.dataset) for part in self._parts.values())
        labels = None if own is None else torch.as_tensor(dataset.with_format(None)[own][:])
        numbered = NumberedRows.of(dataset, own or label_columns[0], first)
        self._parts[name] = _Part(dataset, numbered, first, own, labels)
        return numbered

    def _labels_of(self, name: str) -> Any:
        if not name or self.labels is None:
            return self.labels
        if not isinstance(self.labels, dict) or name not in self.labels:
            raise ValueError(f"with several data sets labels are a dictionary by name, and {name!r} is not in it.")
        return self.labels[name]

    def _same_of(self, name: str) -> Any:
        if not name or self.same is None:
            return self.same
        if not isinstance(self.same, dict):
            raise ValueError("with several data sets same is a dictionary by name, of those that have marks.")
        return self.same.get(name)

    def _train(self, train: Any, *arguments: Any, **options: Any) -> Any:
        """Note which checkpoint training resumes from, because callbacks do not receive it."""
        given = inspect.signature(train).bind(*arguments, **options).arguments.get("resume_from_checkpoint")
        folder = get_last_checkpoint(self._trainer.args.output_dir) if given is True else given
        self._checkpoint = Path(folder) if folder else None
        return train(*arguments, **options)

    def _get_train_dataloader(self, get_train_dataloader: Any) -> Any:
        self._building = True
        try:
            return get_train_dataloader()
        finally:
            self._building = False

    def _get_batch_sampler(self, get_batch_sampler: Any, dataset: Any, **options: Any) -> BatchSampler | None:
        if not self._building:  # evaluations keep their batches
            return get_batch_sampler(dataset, **options)  # type: ignore[no-any-return]
        if not isinstance(dataset, NumberedRows):
            raise ValueError(
                "train_dataset was replaced after attach(); attach once the trainer has its final data set."
            )
        name, part = next(item for item in self._parts.items() if item[1].first == dataset.first_number)
        num_ranks = ranks.world()[1]
        # Accelerate deals whole batches to ranks. Where the loss gathers them again they are composed together.
        together = num_ranks > 1 and len(self._parts) == 1 and not self._trainer.accelerator.split_batches
        modules = [module for loss in self._losses() for module in loss.modules()]
        together = together and any(getattr(module, "gather_across_devices", False) for module in modules)
        part.sampler = pair_sampler(
            part.dataset,
            [column for column in part.dataset.column_names if column != part.label_column],
            self._labels_of(name),
            options["batch_size"],
            drop_last=options["drop_last"] or together,
            shard=together,
            same=self._same_of(name),
            **{"seed": options.get("seed") or 0, **self.options},
        )
        return DealtBatches(part.sampler, num_ranks) if together else part.sampler

    def _losses(self) -> list[nn.Module]:
        loss = self._trainer.loss
        return list(loss.values()) if isinstance(loss, dict) else [loss]

    def _part_of(self, numbers: Tensor) -> _Part:
        first = int(numbers[0])  # a batch is of one data set
        return max((part for part in self._parts.values() if part.first <= first), key=lambda part: part.first)

    def _begin(self, numbers: Tensor) -> Tensor | None:
        """Return what the loss gets instead of the rows' numbers: the labels of the data set, if it has any."""
        part = self._part_of(numbers)
        return None if part.labels is None else part.labels[numbers - part.first]

    def _observation(self, numbers: Tensor, anchors: Tensor, positives: Tensor) -> dict[str, Tensor]:
        """Return what the sampler of these rows observes."""
        if self.normalize:
            anchors, positives = F.normalize(anchors.float(), dim=1), F.normalize(positives.float(), dim=1)
        return {"ids": numbers - self._part_of(numbers).first, "query": anchors, "reference": positives}

    def _receive(self, numbers: Tensor, anchors: Tensor, positives: Tensor) -> None:
        part = self._part_of(numbers)
        if part.sampler is None:
            return
        part.sampler.observe(**self._observation(numbers, anchors, positives))
        self._meter.note(anchors, positives)
        self._num_observed += 1

    @property
    def _model(self) -> nn.Module:
        """The trainer's model, even if it is compiled."""
        model: nn.Module = getattr(self._trainer.model, "_orig_mod", self._trainer.model)
        return model

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:  # noqa: ARG002 - transformers' signature
        """Listen to the loss; load the samplers' state if the run resumes, and embed the data if it does not."""
        self._num_observed, self._meter = 0, MiningMeter()
        # The card lists them; its own callback, which comes first, has just filled them in.
        chosen = "".join(f", {name}={value}" for name, value in sorted(self.options.items()))
        card: Any = self._model.model_card_data
        card.non_default_hyperparameters["hard_negatives"] = f"mined by lookalike {__version__}{chosen}"
        self._recorder.listen(self._losses(), self._model)
        if self._checkpoint is not None:
            self._load(self._checkpoint / _file_name())
        for name, part in self._parts.items():
            if part.sampler is not None and part.sampler.wants_warm_start:
                observe_all(
                    part.sampler,
                    pairs_loader(self._trainer, part.numbered),
                    lambda batch: self._observation(*embed_pairs(self._trainer, self._model, batch)),
                    [self._model],
                    shown=not args.disable_tqdm,
                    name=name,
                )

    def _load(self, path: Path) -> None:
        """Load the samplers' state; without one for every rank they begin as in a new run."""
        num_ranks = ranks.world()[1]
        saved: dict[str, Any] = (
            torch.load(path, map_location="cpu", weights_only=True) if path.exists() else {"ranks": 0}
        )
        misses = float(saved["ranks"] != num_ranks)
        if (ranks.largest(misses) if num_ranks > 1 else misses) > 0:  # all ranks or none: they compose together
            logger.warning(
                "%s is missing for some ranks: batches are composed as in a new run, with a warm start or at random.",
                path,
            )
            return
        for name, kept in saved["samplers"].items():
            # The trainer skips the batches it has trained on by itself, so the epoch is yielded from its first batch.
            self.samplers[name].load_state_dict(kept, position=0)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:  # noqa: ARG002 - transformers' signature
        """Set the samplers' epoch: accelerate may have wrapped them too deep for the trainer to reach."""
        for sampler in self.samplers.values():
            sampler.set_epoch(int((state.epoch or 0) + 1e-6))

    def on_epoch_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:  # noqa: ARG002 - transformers' signature
        """Log what mining cost and brought, as the trainer logs its own metrics; warn if nothing was observed."""
        if args.logging_strategy != "no":
            self._trainer.log(self._meter.read(self.samplers.values()))
        if not self._num_observed:
            logger.warning(
                "nothing was observed in a whole epoch, so no negatives are mined from it: %s must embed anchors, then "
                "positives, of a batch with the trainer's model.",
                ", ".join(type(loss).__name__ for loss in self._losses()),
            )
        self._num_observed = 0

    def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:  # noqa: ARG002 - transformers' signature
        """Add the samplers' state to the checkpoint: one file per rank, since each observes its own batches."""
        if state.is_hyper_param_search:  # whose trials are never resumed
            return
        folder = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        folder.mkdir(parents=True, exist_ok=True)
        kept = {name: sampler.state_dict() for name, sampler in self.samplers.items()}
        with replacing(folder / _file_name()) as temporary:
            torch.save({"ranks": ranks.world()[1], "samplers": kept}, temporary)

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:  # noqa: ARG002 - transformers' signature
        """Stop listening to the loss."""
        self._recorder.stop()


def _file_name() -> str:
    return f"hard_negatives_{ranks.world()[0]}.pt"
