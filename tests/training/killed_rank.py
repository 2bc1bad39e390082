"""A program for torchrun: do what `lookalike train` does, but let one rank die in a chosen place, before any restart.

    torchrun --nproc-per-node 2 --max-restarts 1 killed_rank.py PLACE RANK CALL ARGUMENTS

Once training has begun, RANK dies in the CALL-th call of the function that PLACE names; with the place "nowhere" none
does. When it dies, and when another rank ends without a restart, the time is noted in the folder `ends`.
"""

import atexit
import importlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

PLACES = {
    "a step": ("lookalike.training.step", "Step.embed"),
    "the exchange of embeddings": ("lookalike.training.loop", "everyones"),
    "the exchange of lists": ("lookalike.utils.ranks", "gather_slices"),
    "the composition": ("lookalike.samplers.composition", "in_threads"),
    "the evaluation": ("lookalike.training.evaluating", "measure_queries"),
    "a save": ("lookalike.training.checkpoints", "Checkpoints.save"),
}


def note(name: str) -> None:
    (Path("ends") / name).write_text(str(time.time()))


def die_in(place: str, call: int) -> None:
    """Let the process kill itself in a call of a function."""
    is_training, calls = False, 0

    def begin():
        nonlocal is_training
        is_training = True

    def count():
        nonlocal calls
        calls += is_training
        if calls == call:
            note("died")
            os.kill(os.getpid(), signal.SIGKILL)

    call_before("lookalike.training.loop", "TrainingLoop.run", begin)
    call_before(*PLACES[place], count)


def call_before(module: str, name: str, act: Callable[[], None]) -> None:
    """Call something before every call of a function."""
    *owners, last = name.split(".")
    owner = importlib.import_module(module)
    for each in owners:
        owner = getattr(owner, each)
    function = getattr(owner, last)

    def changed(*arguments, **options):
        act()
        return function(*arguments, **options)

    setattr(owner, last, changed)


if __name__ == "__main__":
    place, rank, call, *arguments = sys.argv[1:]
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and place != "nowhere":
        atexit.register(note, f"ended {os.environ['RANK']}")
        if os.environ["RANK"] == rank:
            die_in(place, int(call))
    from lookalike.cli import main

    main(arguments)
