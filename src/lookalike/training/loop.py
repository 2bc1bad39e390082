"""The training loop, from top to bottom: a run, an epoch, a step, an evaluation, a checkpoint.

Evaluate the model as it is. Then, each epoch: let the sampler compose batches of hard negatives from what it kept of
the last epoch (bits, floats or nothing), train on them with InfoNCE while the sampler observes every embedding, and
evaluate. With a validation part, the epochs are evaluated on that, and the run ends with the weights of the best one.
Randomness depends on the seed, the step and the rank alone, and a checkpoint holds everything else that the rest of
the run depends on, so a run that is killed and resumed ends with the same weights.

Several ranks train one model: each embeds its share of every batch, InfoNCE compares it with everybody's, and
DistributedDataParallel averages the gradients. Every rank then observes the embeddings of all, so that batches, codes
and checkpoints are those of one process, whatever the number of ranks.
"""

from __future__ import annotations

import math
import time
import zlib
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from lookalike.analysis.tracking import OverlapTracker
from lookalike.data.validation import hold_out
from lookalike.negatives.hardness import hardest_similarity
from lookalike.samplers import LSHBatchSampler
from lookalike.training.errors import DivergenceError
from lookalike.training.evaluating import Evaluator
from lookalike.training.headline import headline
from lookalike.training.loading import batches_ahead, read_ahead
from lookalike.training.model_checks import check_model, normalises_batches, warn_of_batch_norm
from lookalike.training.reading import BatchReader
from lookalike.training.results import EpochMetrics, best_epoch, is_stale
from lookalike.training.settings import WITHOUT_MINING
from lookalike.training.shares import everyones, restored_on_error
from lookalike.training.step import Backward, Step
from lookalike.training.strategies import (
    compile_ahead,
    make_loss,
    make_optimizer,
    make_sampler,
    schedule,
    step_precision,
)
from lookalike.training.team import Team
from lookalike.training.trackers.reporter import Reporter
from lookalike.training.whole_parts import PartEmbedder
from lookalike.utils.machine import seed_device
from lookalike.utils.progress import progress_bar, working

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lookalike.data.retrieval import RetrievalData
    from lookalike.samplers import PreEpochBatchSampler
    from lookalike.training.reading import Batch
    from lookalike.training.settings import Settings

STEPS_BETWEEN_LOOKS = 50  # at the loss on a GPU, because reading it waits for the device


class TrainingLoop:
    """One run in memory.

    Args:
        model: Turns what the data set returns into embeddings `[n, dim]`.
        data: What to train and test on.
        settings: How to train.
        device: Where.
        team: The ranks that train it together; by default this process alone.
        progress: Draw progress bars if stderr is a terminal.
    """

    def __init__(
        self,
        model: nn.Module,
        data: RetrievalData,
        settings: Settings,
        device: torch.device,
        *,
        team: Team | None = None,
        progress: bool = False,
    ) -> None:
        data = hold_out(data, settings.validation_share, pairs_per_batch=settings.pairs_per_batch)
        self.data, self.settings, self.device, self.progress = data, settings, device, progress
        self.team = team or Team.alone()
        self.check: Callable[[], None] = lambda: None  # called between batches; may raise to stop the run
        self.sampler = make_sampler(data.train, settings, data.train_exclude)
        self.train_part = data.train.to(device)
        self.reader = BatchReader(data, self.train_part, model, settings.seed, settings.chunk, self.team)
        self.model, self.criterion = model.to(device), make_loss(settings).to(device)
        self.optimizer = make_optimizer([self.model, self.criterion], settings, device)
        self.precision = step_precision(settings, device)
        self.embedder = PartEmbedder(
            self.model,
            settings,
            self.precision,
            lambda: self.check(),  # noqa: PLW0108 - it may be set later
            team=self.team,
            progress=progress,
        )
        self.evaluator = Evaluator(data, settings, device, self.embedder.embed, self.team)
        self.scaler = torch.amp.GradScaler(enabled=self.precision == torch.float16)
        self.backward = Backward(Step(self.model, self.criterion, device, self.precision), self.scaler)
        self.tracker = OverlapTracker(self.sampler.num_samples, data.train.labels) if settings.track_overlap else None
        self.num_steps = settings.epochs * len(self.sampler)
        self.is_warm = not self.sampler.wants_warm_start
        self.report = Reporter()  # may be set later, on rank 0
        self._is_stepping = self.is_composing = False
        self.epoch = self.step = 0
        self.history: list[EpochMetrics] = []  # begins with epoch 0, the model before its first step
        self.best: dict[str, Tensor] | None = None  # the weights of the best epoch, if there is a validation part
        self._begin_epoch()

    def prepare(self) -> None:
        """Check that the model takes what the data set returns, and compile what the sampler will use.

        Raises:
            ValueError: The model does not fit the data.
        """
        check_model(self.model, self.train_part, self.data.name, self.precision)
        if self.settings.sampler not in WITHOUT_MINING:
            warn_of_batch_norm(self.model)
        with working("compiling kernels (once, a few seconds)", shown=self.progress):  # otherwise the first epoch would
            compile_ahead(self.train_part, self.settings, self.data.train_exclude, self.device)
        if self.team.world_size > 1:
            self.backward.share(self.reader.few())

    def run(self, save: Callable[[], None], on_epoch: Callable[[EpochMetrics], None]) -> None:
        """Train to the end; call `save` when there is progress to keep, and `on_epoch` with the metrics of an epoch."""
        if not self.history:
            quality, validation = self.evaluator.test(), self.evaluator.validation()
            self.history.append(EpochMetrics(epoch=0, step=0, quality=quality, validation=validation))
            self.report.epoch(self.history[0])
            save()
            on_epoch(self.history[0])
        while self.epoch < self.settings.epochs and not is_stale(self.history, self.settings.patience):
            self.train_epoch()
            save()  # so that an evaluation that fails costs no epoch
            metrics = self.end_epoch()
            save()
            on_epoch(metrics)
        if self.load_best():
            save()
        self.report.end(self.history)

    def _begin_epoch(self) -> None:
        self.losses: list[float] = []
        self.hardness: list[float] = []
        self.seconds = {"epoch": 0.0, "mining": 0.0}
        self.readiness: float | None = None
        self.criterion.reset_masked()
        self._pending: list[Tensor] = []  # losses and hardnesses still on the device

    def train_epoch(self) -> None:
        """Train the epoch, or what is left of it."""
        if len(self.losses) == len(self.sampler):  # interrupted after the last step
            return
        self.model.train()
        with self._timed("epoch"), self._timed("mining"):  # which has a progress bar of its own
            if not self.is_warm:
                self.warm_start()
            if self.settings.sampler == "full" and self.epoch > 0 and not self.losses:
                self.embedder.refresh(cast("PreEpochBatchSampler", self.sampler), self.train_part)
            with self._composing():
                batches = iter(self.sampler)
            if self.epoch == 0 and self.sampler.warm_start.readiness is not None:
                self.readiness = self.sampler.warm_start.readiness.decisive
        with self._timed("epoch"), progress_bar(self._headline(), len(self.sampler), shown=self.progress) as bar:
            bar.advance(len(self.losses))
            ahead = batches_ahead(self.device) if self.train_part.prefetch else 0
            each = enumerate(self._each(batches), self.step)
            jobs = (partial(self.reader.read, torch.tensor(ids), step) for step, ids in each)
            reading = read_ahead(jobs, ahead)
            self._is_stepping = True
            while (batch := self.team.together(partial(self._next, reading))) is not None:
                self._step(batch)
                bar.advance(1)
                if self.device.type == "cpu" or len(self._pending) == STEPS_BETWEEN_LOOKS:
                    self._look_at_losses()
                    bar.describe(self._headline())
            self._is_stepping = False
            self._look_at_losses()
            self.team.copy_buffers(self.model)  # of batch normalisation, which sees only a rank's own share

    @property
    def is_between_steps(self) -> bool:
        """Whether the state is that between two steps, even though a step or a vote has just failed.

        Until a step has heard from all ranks it changes nothing but the statistics of batch normalisation.
        """
        return self._is_stepping and not self.is_composing and not normalises_batches(self.model)

    @contextmanager
    def _composing(self) -> Iterator[None]:
        """Mark what the sampler does together with all ranks: done in half, it is nothing to continue from."""
        self.is_composing = True
        yield
        self.is_composing = False

    def _each(self, batches: Iterator[list[int]]) -> Iterator[list[int]]:
        """Yield the batches; before one of them, the sampler may give up a warm start."""
        while True:
            with self._composing():
                ids = next(batches, None)
            if ids is None:
                return
            yield ids

    def _next(self, reading: Iterator[Batch]) -> Batch | None:
        batch = next(reading, None)
        self.check()  # after what the sampler may exchange between the ranks
        return batch

    def _step(self, batch: Batch) -> None:
        """Train on one batch, and let the sampler observe its embeddings."""
        ids, share, num_negatives = batch.ids, batch.share, self.reader.num_negatives
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.learning_rate * schedule(self.step, self.num_steps, self.settings.warmup)
        self.optimizer.zero_grad(set_to_none=True)
        with restored_on_error(self.criterion.counts) as masked_before:
            loss, towers = self.backward(
                batch.chunks,
                share.counted_rows,
                partial(self._loss, batch),
                self._seed_dropout,
                is_divided=share.is_divided(self.settings.chunk),
            )
            with self._timed("mining"):
                (query, reference, *explicit), loss = everyones(
                    share, towers, num_negatives, loss, self.criterion.counts, masked_before
                )
        if self.settings.clip:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_([*self.model.parameters(), *self.criterion.parameters()], self.settings.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        with self._timed("mining"):
            if self.sampler.paired:
                self.sampler.observe(ids, query=query, reference=reference)
            else:
                self.sampler.observe(ids, torch.stack([query, reference], dim=1).flatten(0, 1))
        if self.tracker is not None:
            if not self.sampler.paired:
                self.tracker.observe(batch.queries, query)
            self.tracker.observe(batch.references, reference)
        hardest = hardest_similarity(query, reference, batch.exclude, explicit[0] if explicit else None)
        self._pending.append(torch.stack([loss, hardest]))
        self.step += 1

    def _loss(self, batch: Batch, towers: list[Tensor]) -> Tensor:
        """Compute the loss of this rank's rows among the candidates of all ranks."""
        query, reference, *explicit = towers
        negatives = explicit[0].view(len(query), self.reader.num_negatives, query.shape[1]) if explicit else None
        loss: Tensor = self.criterion(query, reference, batch.own_exclude, negatives, batch.share.lengths)
        return loss

    def _seed_dropout(self, chunk: int) -> None:
        seed_device(self.device, zlib.crc32(f"{self.settings.seed} {self.step} {self.team.rank} {chunk}".encode()))

    def _look_at_losses(self) -> None:
        if not self._pending:
            return
        losses, hardness = torch.stack(self._pending, dim=1).tolist()
        first = self.step - len(losses) + 1
        self.report.steps(first, losses, hardness)
        for step, loss in enumerate(losses, first):
            if not math.isfinite(loss):
                raise DivergenceError(
                    f"the loss became {loss} at step {step} of {self.num_steps} (epoch {self.epoch + 1}): begin again "
                    "with a lower learning_rate= or a longer warmup=."
                )
        self.losses += losses
        self.hardness += hardness
        self._pending = []

    def warm_start(self) -> None:
        """Let the sampler observe the whole training set with the weights as they are."""
        try:
            self.embedder.warm_up(self.sampler, self.train_part)
        except BaseException:
            self.sampler = make_sampler(self.data.train, self.settings, self.data.train_exclude)  # not half warm
            raise
        self.is_warm = True

    def end_epoch(self) -> EpochMetrics:
        """Evaluate the epoch, if its turn has come, and return its metrics."""
        every, ended = self.settings.evaluate_every, self.epoch + 1
        is_due = ended == self.settings.epochs or (every > 0 and ended % every == 0)
        metrics = EpochMetrics(
            epoch=ended,
            step=self.step,
            loss=sum(self.losses) / len(self.losses),
            hardest_negative=sum(self.hardness) / len(self.hardness),
            masked=self.criterion.masked,
            temperature=self.criterion.temperature,
            quality=self.evaluator.test() if is_due and not self.evaluator.validates else {},
            validation=self.evaluator.validation() if is_due else {},
            **({} if self.tracker is None or not self.team.is_first else self.tracker.measure()),
            seconds=self.seconds["epoch"],
            mining_seconds=self.seconds["mining"],
            mining_share=self.seconds["mining"] / self.seconds["epoch"],
            kept_bytes=self.sampler.kept_bytes,
            bits=self.sampler.bits if isinstance(self.sampler, LSHBatchSampler) else None,
            readiness=self.readiness,
            warm_start=None if self.epoch > 0 else self.sampler.warm_start.outcome,
        )
        self.history.append(metrics)
        if best_epoch(self.history) is metrics:
            self.best = {name: tensor.detach().cpu().clone() for name, tensor in self.model.state_dict().items()}
        self.report.epoch(metrics)
        self.epoch += 1
        self._begin_epoch()
        return metrics

    def load_best(self) -> bool:
        """Load the weights of the best epoch and test them; return False if there is no such epoch or it is tested."""
        best = best_epoch(self.history)
        if best is None or self.best is None or best.quality:
            return False
        self.model.load_state_dict(self.best)
        self.history[self.history.index(best)] = replace(best, quality=self.evaluator.test())
        return True

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the rest of the run depends on."""
        self._look_at_losses()
        return {
            "model": self.model.state_dict(),
            "criterion": self.criterion.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            # Batches may have been read ahead of their step, and the sampler is in this epoch once it has begun.
            "sampler": self.sampler.state_dict(len(self.losses) if self.sampler.epoch == self.epoch else None),
            "tracker": None if self.tracker is None else self.tracker.state_dict(),
            "is_warm": self.is_warm,
            "epoch": self.epoch,
            "step": self.step,
            "history": [epoch.as_json() for epoch in self.history],
            "this_epoch": {
                "losses": self.losses,
                "hardness": self.hardness,
                "seconds": self.seconds,
                "readiness": self.readiness,
            },
            **({} if self.best is None else {"best": self.best}),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        for name in ("model", "criterion", "optimizer", "scaler", "sampler"):
            getattr(self, name).load_state_dict(state[name])
        if self.tracker is not None:
            self.tracker.load_state_dict(state["tracker"])
        self.epoch, self.step, self.best = state["epoch"], state["step"], state.get("best")
        self.is_warm = state["is_warm"]
        self.history = [EpochMetrics.from_json(epoch) for epoch in state["history"]]
        for name, value in state["this_epoch"].items():
            setattr(self, name, value)

    def _headline(self) -> str:
        return headline(self.epoch, self.settings.epochs, self.losses, self.history)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - began
