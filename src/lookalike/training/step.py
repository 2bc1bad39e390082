"""One batch, forward and backward: in one piece or in chunks, by one process or by all ranks together.

In chunks, the batch is embedded twice, as GradCache does: first without gradients, to compute the loss of the whole
batch and its gradient with respect to every embedding; then chunk by chunk with gradients, each of which continues
backward from there. Loss and gradients are those of one piece, every negative of the batch included, but the memory of
activations is that of a chunk.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lookalike.training.loading import moved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Towers = list[Tensor]  # embeddings of queries, references and, if there are any, explicit negatives
    Inputs = Sequence[Any]  # what the model takes for each of them


class Outcome(NamedTuple):
    """What a step found out: the loss of this rank's rows, and their embeddings, detached."""

    loss: Tensor
    towers: Towers


class Step(nn.Module):
    """The model and its loss as one module, so that DistributedDataParallel averages the gradients of both.

    Args:
        model: Turns inputs into embeddings `[n, dim]`.
        criterion: The loss; its parameters are trained too.
        device: Where.
        precision: Precision of the computation.
    """

    def __init__(self, model: nn.Module, criterion: nn.Module, device: torch.device, precision: torch.dtype) -> None:
        super().__init__()
        self.model, self.criterion = model, criterion
        self.device, self.precision = device, precision

    def forward(self, inputs: Inputs, rows: int | None, finish: Callable[[Towers], Tensor]) -> Tensor:
        """Embed the inputs and return what `finish` makes of the embeddings.

        Args:
            inputs: Those of each tower.
            rows: Rows of each tower that count; None for all. A rank without a share of the batch embeds a stand-in, of
                which no row counts, because all ranks must go backward through the model together.
            finish: Computes a scalar.
        """
        return finish(self.embed(inputs, rows))

    def embed(self, inputs: Inputs, rows: int | None = None) -> Towers:
        """Embed all towers with the same weights, in one pass if their shapes allow it."""
        inputs = [moved(x, self.device) for x in inputs]
        with torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32):
            if all(isinstance(x, Tensor) and x.shape[1:] == inputs[0].shape[1:] for x in inputs):
                towers = list(self.model(torch.cat(inputs)).split([len(x) for x in inputs]))
            else:
                towers = [self.model(x) for x in inputs]
        return towers if rows is None else [x[:rows] for x in towers]


class Backward:
    """Computes the gradients of a batch.

    Args:
        step: The model and its loss.
        scaler: Scales losses, for float16.
    """

    def __init__(self, step: Step, scaler: torch.amp.GradScaler) -> None:
        self._step, self._scaler = step, scaler
        self._parallel: nn.Module = step
        self._frozen: list[nn.Parameter] = []  # those that are not used, while ranks train together

    def share(self, inputs: Inputs) -> None:
        """Train the model with all ranks of `torch.distributed`, beginning with the parameters of rank 0.

        Buffers are equal by themselves, except those of batch normalisation, which the loop copies from rank 0.

        Args:
            inputs: The model's inputs for a few samples of each tower, the same on all ranks.
        """
        self._frozen = _freeze_unused(self._step, inputs)
        self._parallel = parallel = DistributedDataParallel(self._step)
        # The attribute works in every version of torch; the argument was renamed, and no longer means the same.
        parallel.broadcast_buffers = False
        # After its first backward pass, it sorts the gradients anew that it sums together. A resumed run would sum
        # those of its first step in another order than one that was never stopped, and end with other weights.
        with _evaluating(self._step):
            parallel(inputs, None, self._zero).backward()
        self._step.zero_grad(set_to_none=True)

    def release(self) -> None:
        """Let the parameters that are not used be trained again, by whoever has use for them."""
        for parameter in self._frozen:
            parameter.requires_grad_(True)

    def _zero(self, towers: Towers) -> Tensor:
        """Return zero as a function of everything that is trained."""
        terms = [x.float().sum() for x in towers] + [p.float().sum() for p in self._step.criterion.parameters()]
        return torch.stack(terms).sum() * 0

    def __call__(
        self,
        chunks: Sequence[Inputs],
        rows: int | None,
        loss_of: Callable[[Towers], Tensor],
        begin_chunk: Callable[[int], None],
        *,
        is_divided: bool,
    ) -> Outcome:
        """Add the gradients of a batch to those of the parameters.

        Args:
            chunks: The inputs of this rank's share of the batch, chunk by chunk.
            rows: As in `Step.forward`; only a share in one piece may have rows that do not count.
            loss_of: Computes the loss from the embeddings of all chunks.
            begin_chunk: Called with the number of a chunk before each time that it is embedded; it seeds dropout.
            is_divided: Whether any rank has several chunks. All ranks go the same way then, because they wait for each
                other at different places in one piece and in chunks.
        """
        if not is_divided:
            return self._in_one_piece(chunks[0], rows, loss_of, begin_chunk)
        found = []
        with torch.no_grad():
            for number, inputs in enumerate(chunks):
                begin_chunk(number)
                found.append(self._step.embed(inputs))
        towers = [torch.cat(parts).requires_grad_() for parts in zip(*found, strict=True)]
        parameters = [p for p in self._step.criterion.parameters() if p.requires_grad]
        loss = loss_of(towers)
        gradients = torch.autograd.grad(self._scaler.scale(loss), [*towers, *parameters])
        of_towers, of_parameters = gradients[: len(towers)], gradients[len(towers) :]
        sizes = [[len(x) for x in part] for part in zip(*found, strict=True)]  # of each tower's chunks
        of_chunks = zip(*map(torch.split, of_towers, sizes), strict=True)
        for number, (inputs, own) in enumerate(zip(chunks, of_chunks, strict=True)):
            begin_chunk(number)
            is_last = number == len(chunks) - 1
            pairs = list(zip(parameters, of_parameters, strict=True)) if is_last else []
            with nullcontext() if is_last else self._unsynchronized():
                self._parallel(inputs, None, _Continued(own, pairs)).backward()
        return Outcome(loss.detach(), [x.detach() for x in towers])

    def _in_one_piece(
        self,
        inputs: Inputs,
        rows: int | None,
        loss_of: Callable[[Towers], Tensor],
        begin_chunk: Callable[[int], None],
    ) -> Outcome:
        kept: Towers = []

        def finish(towers: Towers) -> Tensor:
            kept.extend(x.detach() for x in towers)
            return loss_of(towers)

        begin_chunk(0)
        loss = self._parallel(inputs, rows, finish)
        self._scaler.scale(loss).backward()
        return Outcome(loss.detach(), kept)

    def _unsynchronized(self) -> Any:
        """Add gradients up on this rank, to be averaged over all ranks with the last chunk."""
        return self._parallel.no_sync() if isinstance(self._parallel, DistributedDataParallel) else nullcontext()


class _Continued:
    """A scalar whose gradient is known: that of the embeddings of a chunk and, with the last one, of the loss's own."""

    def __init__(self, of_towers: Sequence[Tensor], pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
        self._of_towers, self._pairs = of_towers, pairs

    def __call__(self, towers: Towers) -> Tensor:
        products = [(x.float() * g.float()).sum() for x, g in zip(towers, self._of_towers, strict=True)]
        products += [(p * g).sum() for p, g in self._pairs]
        return torch.stack([x.float() for x in products]).sum()


def _freeze_unused(step: Step, inputs: Inputs) -> list[nn.Parameter]:
    """Stop training parameters that do not influence the embeddings, such as a pooling layer; return them.

    DistributedDataParallel waits for the gradient of every parameter, and these never get one.
    """
    parameters = [p for p in step.model.parameters() if p.requires_grad]
    with _evaluating(step):
        y = torch.stack([x.float().sum() for x in step.embed(inputs)]).sum()
    gradients = torch.autograd.grad(y, parameters, allow_unused=True)
    unused = [p for p, gradient in zip(parameters, gradients, strict=True) if gradient is None]
    for parameter in unused:
        parameter.requires_grad_(False)
    return unused


@contextmanager
def _evaluating(step: Step) -> Iterator[None]:
    """Keep statistics of batch normalisation as they are."""
    was_training = step.model.training
    step.model.eval()
    try:
        yield
    finally:
        step.model.train(was_training)
