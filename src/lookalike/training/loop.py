"""A training in progress: what happens in a step and in an epoch, and what a checkpoint holds."""

from __future__ import annotations

import logging
import math
import time
import zlib
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it
from torch import Tensor, nn

from lookalike.analysis.tracking import OverlapTracker
from lookalike.evaluation import evaluate
from lookalike.samplers import LSHBatchSampler
from lookalike.training.embedding import embed
from lookalike.training.errors import DivergenceError
from lookalike.training.loading import batches_ahead, moved, read, read_ahead
from lookalike.training.optimization import make_optimizer, schedule, step_precision
from lookalike.training.results import EpochMetrics, RunResult
from lookalike.training.strategies import compile_ahead, make_loss, make_sampler
from lookalike.utils.lists import Lists, checked_lists, lists_among, lists_mask
from lookalike.utils.progress import progress_bar, working

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lookalike.data.retrieval import RetrievalData
    from lookalike.samplers import PreEpochBatchSampler
    from lookalike.training.settings import Settings

logger = logging.getLogger("lookalike")

EMBEDDING_BATCH = 256  # samples at a time, at least, where no gradient is kept
STEPS_BETWEEN_LOOKS = 50  # at the loss, on a GPU, where looking waits for it


class TrainingLoop:
    """A training in progress: what happens in an epoch, and what a checkpoint holds."""

    def __init__(
        self, model: nn.Module, data: RetrievalData, settings: Settings, device: torch.device, *, progress: bool
    ) -> None:
        self.settings, self.device, self.progress, self.data = settings, device, progress, data
        self.train_part, self.test_part = data.train.to(device), data.test.to(device)
        self.model, self.criterion = model.to(device), make_loss(settings).to(device)
        self.sampler = make_sampler(data.train, settings, data.train_exclude)
        labels = data.train.labels
        self.tracker = OverlapTracker(self.sampler.num_samples, labels) if settings.track_overlap else None
        self.optimizer = make_optimizer([self.model, self.criterion], settings, device)
        self.precision = step_precision(settings, device)
        self.scaler = torch.amp.GradScaler(enabled=self.precision == torch.float16)
        # This fits: a step takes twice the batch size as well, and keeps gradients.
        self.embedding_batch = max(EMBEDDING_BATCH, 2 * settings.pairs_per_batch)
        n, lists = self.sampler.num_samples, data.train_exclude
        self.exclude = None if lists is None else checked_lists("exclude", lists, n, n, torch.device("cpu"))
        self.num_steps = settings.epochs * len(self.sampler)
        self.epoch = self.step = 0
        self.zero_shot: EpochMetrics | None = None  # epoch 0: before the first step
        self.history: list[EpochMetrics] = []
        self._warn_of_batch_normalisation()
        self._begin_epoch()

    def try_model(self) -> None:
        """Embed two samples.

        Raises:
            ValueError: The model does not take what the data set gives.
        """
        ids = torch.arange(2)
        x = read(self.train_part.plain, "query", ids)
        try:
            shape = list(embed(self.model, lambda _: x, 2, batch_size=2, precision=self.precision).shape)
        except (RuntimeError, ValueError, TypeError, AttributeError, IndexError) as error:
            given = f"{x.dtype} {list(x.shape)}" if isinstance(x, Tensor) else "a list of texts"
            reason = " ".join(str(error).split())[:200]
            raise ValueError(
                f"{model_name(self.model)} cannot embed what {self.data.name} gives, {given}: {reason}; choose a model "
                "for it with model=."
            ) from error
        if len(shape) != 2 or shape[0] != 2:
            raise ValueError(f"a model must turn n samples into embeddings [n, dim], got {shape} of 2 samples.")

    def compile_kernels(self) -> None:
        """Compile what the sampler will use, before anything is timed."""
        with working("compiling kernels (once, some seconds)", shown=self.progress):
            compile_ahead(self.train_part, self.settings, self.data.train_exclude, self.device)

    def train(
        self, save: Callable[[], None], check: Callable[[], None], on_epoch: Callable[[EpochMetrics], None] | None
    ) -> None:
        """Train to the end; `save` whenever something is worth keeping, `check` between batches, which may raise."""
        if self.zero_shot is None:
            self.zero_shot = EpochMetrics(epoch=0, step=0, quality=self.evaluate(check))
            save()
            if on_epoch is not None:
                on_epoch(self.zero_shot)
        while self.epoch < self.settings.epochs:
            self.train_epoch(check)
            save()  # an evaluation that fails costs no epoch
            metrics = self.end_epoch(check)
            save()
            if on_epoch is not None:
                on_epoch(metrics)

    def _warn_of_batch_normalisation(self) -> None:
        if self.settings.sampler in ("random", "batchhard"):
            return
        batch_norm = nn.modules.batchnorm._BatchNorm  # noqa: SLF001 - their common base
        if any(isinstance(module, batch_norm) and module.training for module in self.model.train().modules()):
            logger.warning(
                "the model normalises batches: in a batch of lookalikes that removes what they have in common, and "
                "embeddings of different batches cannot be compared; group or layer normalisation suits mining better."
            )

    def _begin_epoch(self) -> None:
        self.losses: list[float] = []
        self.hardness: list[float] = []
        self.seconds = {"epoch": 0.0, "mining": 0.0}
        self._unseen: list[Tensor] = []  # loss and hardness that nobody has looked at yet: looking waits for the GPU

    def train_epoch(self, check: Callable[[], None]) -> None:
        """Train what is left of the epoch; `check` is called between batches and may raise."""
        if len(self.losses) == len(self.sampler):  # interrupted after the last step
            return
        self.model.train()
        with self._timed("epoch"), progress_bar(self._headline(), len(self.sampler), shown=self.progress) as bar:
            with self._timed("mining"):
                if self.settings.sampler == "full" and self.epoch > 0 and not self.losses:
                    self._refresh(check)
                batches = iter(self.sampler)
            bar.advance(len(self.losses))
            ahead = batches_ahead(self.device) if self.train_part.prefetch else 0
            jobs = (partial(self._read, torch.tensor(ids), step) for step, ids in enumerate(batches, self.step))
            for ids, query, reference in read_ahead(jobs, ahead):
                self._train_on(ids, query, reference)
                bar.advance(1)
                if self.device.type == "cpu" or len(self._unseen) == STEPS_BETWEEN_LOOKS:
                    self._look_at_losses()
                    bar.describe(self._headline())
                check()
            self._look_at_losses()

    def _read(self, ids: Tensor, step: int) -> tuple[Tensor, Any, Any]:
        """A batch with its queries and references, ready for the model: depends on the seed and the step alone."""
        seed = zlib.crc32(f"{self.settings.seed} {step}".encode())
        anchors, positives = self._sides(ids)
        inputs = read(self.train_part.queries, anchors, seed), read(self.train_part.references, positives, seed)
        prepare = getattr(self.model, "prepare", _as_it_is)
        return ids, *(prepare(x) for x in inputs)

    def _sides(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Which ids of a batch are queries, and which references."""
        return (ids[::2], ids[1::2]) if self.train_part.pairs is None else (ids, ids)

    def _train_on(self, ids: Tensor, query_input: Any, reference_input: Any) -> None:
        """One step on one batch."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.learning_rate * schedule(self.step, self.num_steps, self.settings.warmup)
        query, reference = self._embed_both(query_input, reference_input)
        exclude = None if self.exclude is None else lists_among(self.exclude, *self._sides(ids))
        loss = self.criterion(query, reference, exclude)
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        if self.settings.clip:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_([*self.model.parameters(), *self.criterion.parameters()], self.settings.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        query, reference = (F.normalize(x.detach().float(), dim=1) for x in (query, reference))
        with self._timed("mining"):
            if self.train_part.pairs is None:
                self.sampler.observe(ids, torch.stack([query, reference], dim=1).flatten(0, 1))
            else:
                self.sampler.observe(ids, query=query, reference=reference)
        if self.tracker is not None:
            self._track(ids, query, reference)
        self._unseen.append(torch.stack([loss.detach(), hardest_similarity(query, reference, exclude)]))
        self.step += 1

    def _track(self, ids: Tensor, query: Tensor, reference: Tensor) -> None:
        tracker = cast("OverlapTracker", self.tracker)
        if self.train_part.pairs is None:
            tracker.observe(ids[::2], query)
            tracker.observe(ids[1::2], reference)
        else:
            tracker.observe(ids, reference)

    def end_epoch(self, check: Callable[[], None]) -> EpochMetrics:
        """Evaluate, if it is time to, and return the metrics of the epoch that has ended; `check` may raise."""
        every, ended = self.settings.evaluate_every, self.epoch + 1
        is_time = ended == self.settings.epochs or (every > 0 and ended % every == 0)
        metrics = EpochMetrics(
            epoch=ended,
            step=self.step,
            loss=sum(self.losses) / len(self.losses),
            hardest_negative=sum(self.hardness) / len(self.hardness),
            temperature=self.criterion.temperature,
            quality=self.evaluate(check) if is_time else {},
            **({} if self.tracker is None else self.tracker.measure()),
            seconds=self.seconds["epoch"],
            mining_seconds=self.seconds["mining"],
            mining_share=self.seconds["mining"] / self.seconds["epoch"],
            kept_bytes=self.sampler.kept_bytes,
            bits=self.sampler.bits if isinstance(self.sampler, LSHBatchSampler) else None,
        )
        self.history.append(metrics)
        self.epoch += 1
        self._begin_epoch()
        return metrics

    def evaluate(self, check: Callable[[], None]) -> dict[str, float]:
        """Compute recall and MRR on the test part; `check` is called between batches and may raise."""
        test = self.test_part
        reference = self._embed(test.references, len(test.reference_labels), check)
        query = reference if test.in_itself else self._embed(test.queries, len(test.query_labels), check)
        return evaluate(
            query,
            reference,
            test.query_labels,
            test.reference_labels,
            exclude=self.data.test_exclude,
            positives=self.data.test_positives,
        )

    def result(self, **about: dict[str, Any]) -> RunResult:
        """Sum up a finished run."""
        mined = self.history[1:]  # the first epoch has nothing to mine
        mining, seconds = (sum(getattr(epoch, name) for epoch in mined) for name in ("mining_seconds", "seconds"))
        return RunResult(
            metrics=self.history[-1].quality,
            zero_shot=None if self.zero_shot is None else self.zero_shot.quality,
            epochs=len(self.history),
            seconds=sum(epoch.seconds or 0.0 for epoch in self.history),
            mining_seconds_per_epoch=mining / len(mined) if mined else None,
            mining_share=mining / seconds if mined else None,
            kept_bytes=self.sampler.kept_bytes,
            parameters=sum(p.numel() for p in self.model.parameters()),
            **about,
        )

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the run depends on."""
        self._look_at_losses()
        return {
            "model": self.model.state_dict(),
            "criterion": self.criterion.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            # Batches may have been read ahead of their step, and the sampler is in this epoch once it has begun.
            "sampler": self.sampler.state_dict(len(self.losses) if self.sampler.epoch == self.epoch else None),
            "random": [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if self.device.type == "cuda" else [])],
            "tracker": None if self.tracker is None else self.tracker.state_dict(),
            "epoch": self.epoch,
            "step": self.step,
            "zero_shot": None if self.zero_shot is None else self.zero_shot.as_json(),
            "history": [epoch.as_json() for epoch in self.history],
            "this_epoch": {"losses": self.losses, "hardness": self.hardness, "seconds": self.seconds},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        for name in ("model", "criterion", "optimizer", "scaler", "sampler"):
            getattr(self, name).load_state_dict(state[name])
        if self.tracker is not None:
            self.tracker.load_state_dict(state["tracker"])
        torch.set_rng_state(state["random"][0])
        if self.device.type == "cuda" and len(state["random"]) == 1 + torch.cuda.device_count():
            torch.cuda.set_rng_state_all(state["random"][1:])
        self.epoch, self.step = state["epoch"], state["step"]
        self.zero_shot = None if state["zero_shot"] is None else EpochMetrics.from_json(state["zero_shot"])
        self.history = [EpochMetrics.from_json(epoch) for epoch in state["history"]]
        for name, value in state["this_epoch"].items():
            setattr(self, name, value)

    def _embed_both(self, query: Any, reference: Any) -> tuple[Tensor, Tensor]:
        """Queries and references by the same model, together where their shapes allow it."""
        query, reference = (moved(x, self.device) for x in (query, reference))
        with torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32):
            if isinstance(query, Tensor) and query.shape == reference.shape:
                first, second = self.model(torch.cat([query, reference])).chunk(2)
                return first, second
            return self.model(query), self.model(reference)

    def _embed(self, view: Callable[[Tensor], Any], n: int, check: Callable[[], None]) -> Tensor:
        """Embed samples 0 to n - 1: float32 [n, dim]."""
        embeddings = embed(
            self.model,
            view,
            n,
            batch_size=self.embedding_batch,
            precision=self.precision,
            check=check,
            progress=self.progress,
        )
        self.model.train()
        return embeddings

    def _refresh(self, check: Callable[[], None]) -> None:
        """Embed the whole training set with the current weights: what Pre-Epoch Full is about."""
        part, sampler = self.train_part, cast("PreEpochBatchSampler", self.sampler)
        if part.pairs is None:
            sampler.refresh(self._embed(partial(part.plain, "reference"), sampler.num_samples, check))
        else:
            query, reference = (
                self._embed(partial(part.plain, tower), part.pairs, check) for tower in ("query", "reference")
            )
            sampler.refresh(query=query, reference=reference)

    def _look_at_losses(self) -> None:
        if not self._unseen:
            return
        losses, hardness = torch.stack(self._unseen, dim=1).tolist()
        for step, loss in enumerate(losses, self.step - len(losses) + 1):
            if not math.isfinite(loss):
                raise DivergenceError(
                    f"the loss became {loss} at step {step} of {self.num_steps} (epoch {self.epoch + 1}): "
                    "begin anew with a lower learning rate or a longer warm-up."
                )
        self.losses += losses
        self.hardness += hardness
        self._unseen = []

    def _headline(self) -> str:
        """What the bar says."""
        parts = [f"epoch {self.epoch + 1}/{self.settings.epochs}"]
        if self.losses:
            parts.append(f"loss {self.losses[-1]:.3f}")
        if self.history:
            last = self.history[-1]
            parts += [f"R@1 {last.quality['recall@1']:.1%}"] if last.quality else []
            parts.append(f"mining {last.mining_seconds:.2f} s ({last.mining_share:.1%})")
        return "  ".join(parts)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - began


def hardest_similarity(query: Tensor, reference: Tensor, exclude: Lists | None = None) -> Tensor:
    """Average the cosine of the hardest negative in the batch over the queries: how hard the batch is."""
    similarity = query @ reference.T
    if exclude is not None:
        similarity.masked_fill_(lists_mask(exclude, len(reference), similarity.device), -1.0)
    similarity.fill_diagonal_(-torch.inf)
    return similarity.amax(dim=1).mean()


def _as_it_is(x: Any) -> Any:
    return x


def model_name(model: nn.Module) -> str:
    """Its class and size, as results name it."""
    return f"{type(model).__name__} of {sum(p.numel() for p in model.parameters()):,} parameters"
