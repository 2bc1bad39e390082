"""Errors that end training early, and how messages name arguments.

Messages of this package name arguments of the Python interface and never options of the command line. They do so in two
forms, which the command line translates without knowing the message:

- `name=True` for a switch, as in "force=True overwrites it": the option `--name`;
- `name=` or `name=value` for any other argument, as in "choose another folder with out=": the option `--name`.

Both are preceded by a space or begin the message, and `name` is an argument of `train` or `compare`, or a field of
`Settings`. Other names in this form, such as `weights=FILE`, are options of an encoder or a reader. `Interrupted` gives
no advice: whoever catches it knows how to continue.
"""

import signal


class Interrupted(Exception):  # noqa: N818 - not an error: it was requested
    """Ctrl-C or SIGTERM stopped the run; everything is saved, and `resume=True` continues it.

    Args:
        number: The signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    def __str__(self) -> str:
        return f"stopped by {signal.Signals(self.number).name}"


class DivergenceError(ValueError):
    """The loss became infinite or NaN; the last good checkpoint is kept."""


class UnreadableSampleError(ValueError):
    """A sample cannot be read; every step before the one that needs it is saved."""


class LostRankError(RuntimeError):
    """Another process of the run is gone: killed, or on a machine that cannot be reached."""
