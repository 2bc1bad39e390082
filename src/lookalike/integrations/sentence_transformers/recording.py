"""Record the embeddings that a loss of sentence-transformers computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.utils.hooks import RemovableHandle


class Recorder:
    """Passes on the anchors' and positives' embeddings of every training step.

    It uses hooks, so that loss and model stay the objects that the trainer knows. Losses embed column after column, the
    rows of each in order, in any number of sub-batches; the first two columns' rows of the first pass count. The hook
    is on the model's last module and active while the loss is computed: embeddings are not truncated there yet, as they
    are by MatryoshkaLoss, and it misses the second pass of cached losses, which happens in the backward pass.

    Args:
        begin: Called with the loss's labels; returns what the loss gets in their place.
        receive: Called with the labels and the embeddings of anchors and positives, both `[batch, dim]`; not where a
            loss embeds fewer rows.
    """

    def __init__(
        self,
        begin: Callable[[Tensor], Tensor | None],
        receive: Callable[[Tensor, Tensor, Tensor], None],
    ) -> None:
        self._begin, self._receive = begin, receive
        self._numbers: Tensor | None = None  # of the rows whose embeddings are being computed
        self._parts: list[Tensor] = []
        self._handles: list[RemovableHandle] = []

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy or pickle as one that records nothing: workers of a loader get a copy of the model, hooks included."""
        return Recorder, (_keep, _ignore)

    def listen(self, losses: list[nn.Module], model: nn.Module) -> None:
        """Attach the hooks and remove earlier ones."""
        self.stop()
        for loss in {id(loss): loss for loss in losses}.values():
            self._handles.append(loss.register_forward_pre_hook(self._before))
            self._handles.append(loss.register_forward_hook(self._after, always_call=True))
        *_, last = model.children()
        self._handles.append(last.register_forward_hook(self._hear))

    def stop(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _before(self, _: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        features, numbers = arguments
        if numbers is None or not torch.is_grad_enabled():  # an evaluation: rows without numbers
            return arguments
        self._numbers, self._parts = numbers.cpu(), []  # before there is much on the device to wait for
        labels = self._begin(self._numbers)
        return features, None if labels is None else labels.to(numbers.device)

    def _hear(self, _: nn.Module, __: Any, output: Any) -> None:
        if self._numbers is not None and isinstance(output, dict) and "sentence_embedding" in output:
            self._parts.append(output["sentence_embedding"].detach())

    def _after(self, _: nn.Module, __: Any, result: Any) -> None:
        numbers, self._numbers = self._numbers, None
        parts, self._parts = self._parts, []
        if numbers is None or result is None:  # an evaluation, or an error
            return
        rows = torch.cat(parts) if parts else torch.empty(0)
        batch = len(numbers)
        if len(rows) >= 2 * batch:
            self._receive(numbers, rows[:batch], rows[batch : 2 * batch])


def _keep(labels: Tensor) -> Tensor | None:
    return labels


def _ignore(labels: Tensor, anchors: Tensor, positives: Tensor) -> None:
    """Take what nobody asked for."""
