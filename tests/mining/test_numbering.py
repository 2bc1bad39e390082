"""Texts are numbered by first appearance, as by a dictionary, whatever their hashes are."""

import random

import numpy as np
import pytest

from lookalike.mining import numbering
from lookalike.mining.numbering import Numbering


@pytest.fixture(params=[None, 1, 3], ids=["hash", "1 first half", "3 first halves"])
def _hashes(request, monkeypatch):
    """Let the first halves of hashes be equal, which is too rare to wait for."""
    if request.param is None:
        return
    hashed = numbering.hashed

    def poor(texts):
        high, low = hashed(texts)
        return high % np.uint64(request.param), low

    monkeypatch.setattr(numbering, "hashed", poor)


@pytest.mark.usefixtures("_hashes")
@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_numbers_are_those_of_a_dictionary(batch):
    rng = random.Random(batch)
    texts = [str(rng.randrange(200)) for _ in range(600)] + ["", "\ud800", "\0", ""]
    found, known = Numbering(), {}
    for first in range(0, len(texts), batch):
        part = texts[first : first + batch]
        fresh = [i for i, text in enumerate(part) if text not in known and text not in part[:i]]
        numbers, places = found.number(part)
        for text in part:
            known.setdefault(text, len(known))
        assert numbers.tolist() == [known[text] for text in part]
        assert places.tolist() == fresh
    assert found.count == len(known)


def test_no_texts():
    assert [part.tolist() for part in Numbering().number([])] == [[], []]
