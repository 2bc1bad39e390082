"""Mining in processes of its own: shards, runs that are killed, and encoders that leave a file for all they see."""

import json
import multiprocessing
import uuid
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from lookalike import mine_hard_negatives
from lookalike.mining.cells import Grid
from lookalike.mining.run import Run
from lookalike.mining.store import Store
from tests.mining.cells import mine

BLOCK, COLUMN, CHUNK = 16, 2, 8


@contextmanager
def small_cells():
    """Make cells small enough that a few dozen rows have several rows and columns of them."""
    kept = Grid.COLUMN, Store.CHUNK
    Grid.COLUMN, Store.CHUNK = COLUMN, CHUNK
    try:
        yield
    finally:
        Grid.COLUMN, Store.CHUNK = kept


class Words:
    """Encodes texts by their letters, and leaves a file with what it encoded in a folder, if it is given one."""

    name = "words"

    def __init__(self, seen=None, stop=None):
        self.seen, self.stop = seen, stop

    def encode(self, texts):
        if self.seen is not None:
            Path(self.seen, uuid.uuid4().hex).write_text(json.dumps(texts))
        if self.stop is not None:
            self.stop(texts)
        return letters(texts)


def letters(texts):
    counts = np.zeros((len(texts), 26), np.float32)
    for row, text in zip(counts, texts, strict=True):
        for place, letter in enumerate(text.lower()):
            if letter.isalpha():
                row[(ord(letter) - ord("a") + place) % 26] += 1 + place / 7
    return torch.from_numpy(counts + 0.01)


def encoded(folder):
    """All texts that `Words` encoded, in any order."""
    return sorted(text for path in Path(folder).iterdir() for text in json.loads(path.read_text()))


def mine_texts(pairs, output, seen=None, **options):
    """Mine from a file of pairs in small cells."""
    with small_cells():
        return mine_hard_negatives(
            str(pairs), Words(seen), output=output, verbose=False, **{"bits": 64, "block": BLOCK, **options}
        )


def mine_rows(rows, output, **options):
    """Mine from a file of embeddings in small cells."""
    with small_cells():
        return mine(str(rows), output=output, **options)


def in_process(work, *arguments, options):
    """Do the same in a process of tests; a share that waits for others is no failure."""
    from lookalike.mining import UnfinishedError

    try:
        work(*arguments, **options)
    except UnfinishedError as unfinished:
        print(unfinished)


def killed_in(name, number, work, *arguments, options):
    """Mine until some cell of a stage would begin, and wait there to be killed."""
    begun = []
    do = Run.do

    def stopping(self, cell, *more):
        if cell.stage == name:
            begun.append(cell)
            if len(begun) == number:
                print(cell.name, flush=True)
                multiprocessing.parent_process().join()  # ends with the tests at the latest
        do(self, cell, *more)

    Run.do = stopping
    work(*arguments, **options)


def logging_cells(log, work, *arguments, options):
    """Mine, and append the name of each cell that is done to a file."""
    do = Run.do

    def logged(self, cell, *more):
        do(self, cell, *more)
        with open(log, "a") as file:  # noqa: PTH123 - one write of one line
            file.write(f"{cell.name}\n")

    Run.do = logged
    in_process(work, *arguments, options=options)
