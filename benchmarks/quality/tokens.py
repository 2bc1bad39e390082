"""Tokenise every text once per process: sixteen processes on as many cores would spend much of their time on it."""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from lookalike.training.encoders import make_encoder

IDS, MASK, TYPES = "input_ids", "attention_mask", "token_type_ids"


class KeptTokens:
    """Does what an encoder's `prepare` does, and keeps the tokens of every text it has seen.

    Args:
        prepare: Turns texts into ids, masks and types `[n, length]`, padded on the right with zeros.
    """

    def __init__(self, prepare: Callable[[list[str]], dict[str, Any]]) -> None:
        self._prepare = prepare
        self._kept: dict[str, Tensor] = {}
        self._more: dict[str, Any] = {}  # what is the same for all texts

    def __call__(self, texts: list[str]) -> dict[str, Any]:
        """Return what `prepare` returns."""
        if missing := list(dict.fromkeys(text for text in texts if text not in self._kept)):
            self._keep(missing)
        rows = [self._kept[text] for text in texts]
        ids = pad_sequence(rows, batch_first=True)
        lengths = torch.tensor([len(row) for row in rows])
        mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
        types = {TYPES: torch.zeros_like(ids)} if TYPES in self._more else {}
        return {**self._more, IDS: ids, MASK: mask, **types}

    def _keep(self, texts: list[str]) -> None:
        found = self._prepare(texts)
        ids, lengths = found[IDS], found[MASK].sum(1)
        for text, row, length in zip(texts, ids, lengths.tolist(), strict=True):
            self._kept[text] = row[:length].clone()
        self._more = {name: value for name, value in found.items() if name not in (IDS, MASK)}


_BY_MODEL: dict[str, KeptTokens] = {}


def make_encoder_with_kept_tokens(**options: Any) -> nn.Module:
    """Build an encoder; one of texts shares the tokens of earlier ones with the same options."""
    model: Any = make_encoder(**options)
    if hasattr(model, "prepare"):
        model.prepare = _BY_MODEL.setdefault(str(options), KeptTokens(model.prepare))
    return cast("nn.Module", model)
